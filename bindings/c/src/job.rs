//! The job of this process.

use crate::call::{CallError, CallResult, run};
use crate::objects::{HandlePlace, find, handled, keep, take};
use crate::place::name_calls;
use crate::pointers::{BytesMut, RanksOut, Text, place};
use crate::status::oik_status;
use oikaze::{Job, Peer};
use std::mem::MaybeUninit;
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

/// Keeps a job that this process has joined, and gives C its handle.
pub fn keep_job(out: HandlePlace<'_, oik_job>, job: Job) -> CallResult {
    let peers = (0..job.size()).map(|_| OnceLock::new()).collect();
    let job = keep(out, JoinedJob { job, peers })?;
    let mut joined = joined();
    joined.retain(|job| job.strong_count() > 0);
    joined.push(Arc::downgrade(&job));
    Ok(())
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
        let _own_error_says_why = self.job.refuse_collective("reduce", &error.text);
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

/// Makes a time limit of seconds. Infinity means that there is no limit.
pub fn limit(seconds: f64) -> CallResult<Duration> {
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        CallError::invalid(format!(
            "a time limit of {seconds} s; pass 0 or more seconds, or INFINITY"
        ))
    })
}

/// Joins the job that the environment describes, and writes its handle to `job`. The environment is
/// that of `oikaze run`, mpirun, srun, torchrun, Kubernetes, or a list of hosts. Without a
/// launcher, the program is a job of one node. `oik_join_with` takes settings. A program calls
/// `oik_leave` before it ends; otherwise this node is lost to the others. Thread-safe.
///
/// Errors: `OIK_JOB` if the job or its store could not be reached; `OIK_INVALID` if an environment
/// variable makes no sense; `OIK_SYSTEM` or `OIK_MEMORY` if this machine does not grant something.
#[unsafe(no_mangle)]
pub extern "C" fn oik_join(job: Option<&mut MaybeUninit<*mut oik_job>>) -> oik_status {
    run(|| {
        let job = place(job, "job")?;
        name_calls();
        keep_job(job, oikaze::join()?)
    })
}

/// Leaves the job: waits for all other nodes to leave, then says goodbye. The handle means nothing
/// from then on, even if the call fails. Calls with objects of this job fail with `OIK_LEFT` from
/// then on, except those that release an object or look at what this node has. Memory that the
/// program has lent is the program's again. Thread-safe.
///
/// Errors: `OIK_PEER_LOST` if a node was lost before it left; `OIK_UNREPORTED` if operations have
/// failed that nobody waited for; `OIK_INVALID` if a guard is alive.
#[unsafe(no_mangle)]
pub extern "C" fn oik_leave(job: *mut oik_job) -> oik_status {
    run(|| Ok(take(job)?.job.leave_shared()?))
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

/// Writes this node's rank, 0 to size − 1. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_rank(job: *mut oik_job, rank: Option<&mut MaybeUninit<u32>>) -> oik_status {
    run(|| {
        place(rank, "rank")?.write(find(job)?.job.rank());
        Ok(())
    })
}

/// Writes the number of nodes in the job. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_size(job: *mut oik_job, size: Option<&mut MaybeUninit<u32>>) -> oik_status {
    run(|| {
        place(size, "size")?.write(find(job)?.job.size());
        Ok(())
    })
}

/// Writes the time limit, in seconds, of waits that are given none of their own; INFINITY if there
/// is none. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_time_limit(
    job: *mut oik_job,
    seconds: Option<&mut MaybeUninit<f64>>,
) -> oik_status {
    run(|| {
        let limit = find(job)?.job.time_limit();
        place(seconds, "seconds")?.write(limit.map_or(f64::INFINITY, |limit| limit.as_secs_f64()));
        Ok(())
    })
}

/// Writes the ranks of nodes that have died, or have left without waiting for the others, in the
/// order in which this node learned of it. `count` gets their number. Returns `OIK_TOO_SMALL` if
/// there is room for fewer (`capacity` ranks). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_lost(
    job: *mut oik_job,
    mut ranks: RanksOut,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| {
        let lost = find(job)?.job.lost();
        place(count, "count")?.write(lost.len());
        let room = ranks.get(capacity, "ranks")?;
        let Some(room) = room.get_mut(..lost.len()) else {
            let why = format!("{} ranks do not fit into room for {capacity}", lost.len());
            return Err(CallError::new(oik_status::OIK_TOO_SMALL, why));
        };
        room.write_copy_of_slice(&lost);
        Ok(())
    })
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
    /// Datagrams dropped because they belong to no connection of this node.
    pub strangers: u64,
    /// Handshakes dropped because they were sealed with another secret.
    pub unauthentic: u64,
    /// Handshakes dropped before their seal was verified, because too many wrong ones have come
    /// lately.
    pub unheard: u64,
    /// Handshakes dropped because a newer one had come from their sender. Most are replays.
    pub stale_handshakes: u64,
    /// Handshakes from addresses at which their sender was not known to receive.
    pub unproved: u64,
    /// Datagrams dropped because they had been received before.
    pub duplicates: u64,
    /// Messages that were placed into posted memory as their bytes arrived, without a copy in
    /// between (`oik_post_receive`).
    pub placed_messages: u64,
}

/// Writes the counters of this node. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_get_statistics(
    job: *mut oik_job,
    statistics: Option<&mut MaybeUninit<oik_statistics>>,
) -> oik_status {
    run(|| {
        let now = find(job)?.job.statistics();
        place(statistics, "statistics")?.write(oik_statistics {
            read_faults: now.read_faults,
            write_faults: now.write_faults,
            pages_fetched: now.pages_fetched,
            diffs: now.diffs,
            diff_bytes: now.diff_bytes,
            barriers: now.barriers,
            locks: now.locks,
            datagrams_sent: now.datagrams_sent,
            datagrams_received: now.datagrams_received,
            bytes_sent: now.bytes_sent,
            bytes_received: now.bytes_received,
            retransmissions: now.retransmissions,
            corrupt: now.corrupt,
            strangers: now.strangers,
            unauthentic: now.unauthentic,
            unheard: now.unheard,
            stale_handshakes: now.stale_handshakes,
            unproved: now.unproved,
            duplicates: now.duplicates,
            placed_messages: now.placed_messages,
        });
        Ok(())
    })
}

/// Writes how this node detects accesses to shared arrays, and why not in a better way, to
/// `buffer`: `len` bytes without a zero byte. Returns `OIK_TOO_SMALL` if `capacity` is less.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_page_tracking(
    job: *mut oik_job,
    mut buffer: BytesMut,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| buffer.fill(capacity, find(job)?.job.page_tracking().as_bytes(), len))
}

/// Writes a descriptor that becomes readable when an operation has ended or a message has arrived,
/// for poll(2) and event loops. `oik_clear_descriptor` makes it unreadable again. Check for events
/// after that call, not before. It may become readable without any event. The descriptor is the
/// job's: it is not to be closed. A loop that calls `oik_progress` before it sleeps is about as
/// fast as a blocking wait. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_descriptor(
    job: *mut oik_job,
    descriptor: Option<&mut MaybeUninit<i32>>,
) -> oik_status {
    run(|| {
        place(descriptor, "descriptor")?.write(find(job)?.job.descriptor().as_raw_fd());
        Ok(())
    })
}

/// Makes the job's descriptor unreadable again, and takes in what has arrived. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_clear_descriptor(job: *mut oik_job) -> oik_status {
    run(|| {
        find(job)?.job.clear_descriptor();
        Ok(())
    })
}

/// Does the work of the node that is due now, and returns at once, for programs with an event loop.
/// Writes `true` if the loop should look for its events and call again, and `false` if it should
/// sleep on `oik_descriptor`. The way to wait (`OIKAZE_WAIT`) says for how long it is `true`. No
/// program has to call this: a thread of the node works otherwise. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_progress(
    job: *mut oik_job,
    again: Option<&mut MaybeUninit<bool>>,
) -> oik_status {
    run(|| {
        place(again, "again")?.write(find(job)?.job.progress());
        Ok(())
    })
}
