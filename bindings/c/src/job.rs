//! The job of this process.

use crate::abi::call::{CallError, CallResult, Give, arguments, copied, functions, outputs, run};
use crate::abi::objects::{HandlePlace, Released, find, handled, keep};
use crate::abi::place::name_calls;
use crate::abi::pointers::{BytesMut, Filled, Room, Text, fill, fill_text, place};
use crate::status::oik_status;
use oikaze::{Job, Peer};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// A job that this process has joined.
pub struct oik_job;

/// A job and its peers, each of which is looked up once.
pub struct JoinedJob {
    pub job: Job,
    peers: Box<[OnceLock<Peer>]>,
}

handled! { oik_job: JoinedJob, "job"; }

/// Jobs that this process has joined and not left, for `oik_check`.
static JOINED: Mutex<Vec<Weak<JoinedJob>>> = Mutex::new(Vec::new());

fn joined() -> std::sync::MutexGuard<'static, Vec<Weak<JoinedJob>>> {
    JOINED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Place in which C gets the handle of a job that this process has joined.
#[repr(transparent)]
pub struct Joined(*mut *mut oik_job);

outputs! {
    <> Joined: HandlePlace<'p, oik_job> = |it, what| place(&mut it.0, what);
}

impl Give<Job> for Joined {
    fn give(place: HandlePlace<'_, oik_job>, job: Job) -> CallResult {
        let peers = (0..job.size()).map(|_| OnceLock::new()).collect();
        let job = keep(place, JoinedJob { job, peers })?;
        let mut joined = joined();
        joined.retain(|job| job.strong_count() > 0);
        joined.push(Arc::downgrade(&job));
        Ok(())
    }
}

impl JoinedJob {
    /// Returns a peer.
    pub fn peer(&self, rank: u32) -> CallResult<&Peer> {
        let Some(known) = self.peers.get(rank as usize) else {
            return Err(self.job.peer(rank).map_or_else(Into::into, |_| no_place(rank)));
        };
        if let Some(peer) = known.get() {
            return Ok(peer);
        }
        let peer = self.job.peer(rank)?;
        Ok(known.get_or_init(|| peer))
    }

    /// Comes to a reduction of all nodes whose arguments this node refuses, so that it fails on all
    /// of them.
    pub fn refuse_reduce(&self, error: &CallError) {
        let _own_error_says_why = self.job.refuse_collective("barrier_reduce", &error.text);
    }

    /// Comes to the declaration of an array whose arguments this node refuses, so that it fails on
    /// all nodes.
    pub fn refuse_array(&self, error: &CallError) {
        let _own_error_says_why = self.job.refuse_array("make an array", &error.text);
    }
}

fn no_place(rank: u32) -> CallError {
    CallError::new(oik_status::OIK_DEFECT, format!("rank {rank} has no place (a defect)"))
}

/// Returns the job behind a weak reference that an object of the job has.
pub fn still_joined(job: &Weak<JoinedJob>) -> CallResult<Arc<JoinedJob>> {
    let left = || CallError::new(oik_status::OIK_LEFT, "this node has left the job of the object");
    job.upgrade().ok_or_else(left)
}

/// Fails if this node has left the job of an object.
pub fn check_joined(job: &Weak<JoinedJob>) -> CallResult {
    still_joined(job).map(drop)
}

/// Ends all jobs of this process for all their nodes.
pub fn abort_all(reason: &str) {
    let jobs: Vec<_> = joined().iter().filter_map(Weak::upgrade).collect();
    jobs.iter().for_each(|job| job.job.end_with_reason(reason));
}

/// Time limit in seconds. Infinity means that there is no limit.
#[repr(transparent)]
pub struct Limit(f64);

arguments! { one:
    <> Limit: Duration = |it, _, _| {
        if it.0 == f64::INFINITY {
            return Ok(Duration::MAX);
        }
        Duration::try_from_secs_f64(it.0).map_err(|_| {
            let why = format!("a time limit of {} s; pass 0 or more seconds, or INFINITY", it.0);
            CallError::invalid(why)
        })
    };
}

functions! {
    /// Joins the job that the environment describes, and writes its handle to `job`. The
    /// environment is that of `oikaze run`, mpirun, srun, torchrun, Kubernetes, or a list of hosts.
    /// Without a launcher, the program is a job of one node. `oik_join_with` takes settings. A
    /// program calls `oik_leave` before it ends; otherwise this node is lost to the others.
    /// Thread-safe.
    ///
    /// Errors: `OIK_JOB` if the job or its store could not be reached; `OIK_INVALID` if an
    /// environment variable makes no sense; `OIK_SYSTEM` or `OIK_MEMORY` if this machine does not
    /// grant something.
    oik_join() -> job: Joined = {
        name_calls();
        oikaze::join()?
    };
    /// Leaves the job: waits for all other nodes to leave, then says goodbye. The handle means
    /// nothing from then on, even if the call fails. Calls with objects of this job fail with
    /// `OIK_LEFT` from then on, except those that release an object or look at what this node has.
    /// Memory that the program has lent is the program's again. Thread-safe.
    ///
    /// Errors: `OIK_PEER_LOST` if a node was lost before it left; `OIK_UNREPORTED` if operations
    /// have failed that nobody waited for; `OIK_INVALID` if a guard is alive.
    oik_leave(job: Released<oik_job>) = job.job.leave_shared()?;
}

/// Ends the job for all nodes, for this reason, and this process by exit(3) with this status, as
/// `MPI_Abort` does. Does not return. Every wait and operation of every other node fails with
/// `OIK_ABORTED`. The launcher prints the reason, and ends each process that does not end by
/// itself. The job's status is this one. An aborted job has failed, so 0 counts as 1. If several
/// nodes abort the job, the first reason stays. Bad arguments do not keep the job from ending.
/// Thread-safe, as exit(3) is.
#[unsafe(no_mangle)]
pub extern "C" fn oik_abort(job: *mut oik_job, status: i32, reason: Text) -> ! {
    let _ = run(|| {
        let reason = reason.get("reason").unwrap_or("no reason was given");
        match find(job) {
            Ok(job) => job.job.end_with_reason(reason),
            Err(error) => {
                eprintln!("oikaze: abort: {}", error.text);
                abort_all(reason);
            }
        }
        Ok(())
    });
    // The system keeps the low eight bits.
    std::process::exit(if status & 0xff == 0 { 1 } else { status })
}

functions! {
    /// Writes this node's rank, 0 to size − 1. Thread-safe.
    oik_rank(job: *mut oik_job) -> rank: Room<u32> = job.job.rank();
    /// Writes the number of nodes in the job. Thread-safe.
    oik_size(job: *mut oik_job) -> size: Room<u32> = job.job.size();
    /// Writes the time limit, in seconds, of waits that are given none of their own; INFINITY if
    /// there is none. Thread-safe.
    oik_time_limit(job: *mut oik_job) -> seconds: Room<f64> =
        job.job.time_limit().map_or(f64::INFINITY, |limit| limit.as_secs_f64());
    /// Writes the ranks of nodes that have died, or have left without waiting for the others, in
    /// the order in which this node learned of it. `count` gets their number. Returns
    /// `OIK_TOO_SMALL` if there is room for fewer (`capacity` ranks). Thread-safe.
    oik_lost(job: *mut oik_job, ranks[capacity]: Room<u32>)
        -> count: Filled<usize> = {
        let lost = job.job.lost();
        count.write(lost.len());
        fill(ranks, &lost, "ranks")?
    };
}

/// Counters of one node, all of them from its start.
#[repr(C)]
pub struct oik_statistics {
    /// Page faults of the program on shared arrays, for loads.
    pub read_faults: u64,
    /// Page faults of the program on shared arrays, for stores.
    pub write_faults: u64,
    /// Pages fetched from their homes.
    pub pages_fetched: u64,
    /// Diffs sent to homes.
    pub diffs: u64,
    /// Bytes of diffs sent.
    pub diff_bytes: u64,
    /// Barriers and reductions passed.
    pub barriers: u64,
    /// Number of locks taken.
    pub locks: u64,
    /// Number of datagrams sent.
    pub datagrams_sent: u64,
    /// Number of datagrams received.
    pub datagrams_received: u64,
    /// Bytes sent, in UDP payloads.
    pub bytes_sent: u64,
    /// Bytes received, in UDP payloads.
    pub bytes_received: u64,
    /// Messages or parts of them sent again.
    pub retransmissions: u64,
    /// Datagrams dropped for a wrong seal.
    pub corrupt: u64,
    /// Datagrams dropped because their identifier is of no connection of this node.
    pub unknown_connection: u64,
    /// Handshakes dropped because their authentication code is of another secret.
    pub bad_mac: u64,
    /// Handshakes dropped before they were verified, because wrong ones have used up the rate limit
    /// for verification.
    pub rate_limited: u64,
    /// Handshakes dropped because a newer one had come from their sender. Most are replays.
    pub stale_handshakes: u64,
    /// Handshakes without the cookie that proves the address of their sender.
    pub no_cookie: u64,
    /// Datagrams dropped because they had been received before.
    pub duplicates: u64,
    /// Messages that were placed into posted memory as their bytes arrived, without a copy in
    /// between (`oik_post_receive`).
    pub placed_messages: u64,
}

functions! {
    /// Writes the counters of this node. Thread-safe.
    oik_get_statistics(job: *mut oik_job) -> statistics: Room<oik_statistics> = {
        let now = job.job.statistics();
        copied!(oik_statistics of now: read_faults, write_faults, pages_fetched, diffs, diff_bytes,
            barriers, locks, datagrams_sent, datagrams_received, bytes_sent, bytes_received,
            retransmissions, corrupt, unknown_connection, bad_mac, rate_limited, stale_handshakes, no_cookie,
            duplicates, placed_messages)
    };
    /// Writes how this node detects accesses to shared arrays, and why not in a better way, to
    /// `buffer`: `len` bytes without a zero byte. Returns `OIK_TOO_SMALL` if `capacity` is less.
    /// Thread-safe.
    oik_page_tracking(job: *mut oik_job, buffer[capacity]: BytesMut)
        -> len: Filled<usize> =
        fill_text(buffer, job.job.page_tracking(), len)?;
    /// Writes a descriptor that becomes readable when an operation has ended or a message has
    /// arrived, for poll(2) and event loops. `oik_clear_descriptor` makes it unreadable again.
    /// Check for events after that call, not before. It may become readable without any event. The
    /// descriptor is the job's: it is not to be closed. A loop that calls `oik_progress` before it
    /// sleeps is about as fast as a blocking wait. Thread-safe.
    oik_descriptor(job: *mut oik_job) -> descriptor: Room<i32> = job.job.descriptor().as_raw_fd();
    /// Makes the job's descriptor unreadable again, and takes in what has arrived. Thread-safe.
    oik_clear_descriptor(job: *mut oik_job) = job.job.clear_descriptor();
    /// Does the work of the node that is due now, and returns at once, for programs with an event
    /// loop. Writes `true` if the loop should look for its events and call again, and `false` if it
    /// should sleep on `oik_descriptor`. The way to wait (`OIKAZE_WAIT`) says for how long it is
    /// `true`. No program has to call this: a thread of the node works otherwise. Thread-safe.
    oik_progress(job: *mut oik_job) -> again: Room<bool> = job.job.progress();
}
