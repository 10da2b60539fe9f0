//! Which nodes of a job share memory with this one: they find each other, and agree, before the first message (spec/memory.md, MEM-16.8).
//!
//! Each node opens a [`Doorway`] and publishes where it is. Of two nodes on one machine, of one user, that can reach each other's doorway, the one of
//! higher rank calls, makes the memory and hands it over; both show that they know the job's secret. Then each publishes with whom it got that
//! far, and two nodes use their rings if both say so: there is no pair of which one node uses them and the other does not.

use super::addresses::{Callable, Reachable};
use super::{Bootstrap, JobError};
use oikaze_os::neighbour::{Doorway, Line, Pair, Side, shared_memory};
use oikaze_os::without::Without;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::NEIGHBOURS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A directory that nodes in other network namespaces of this machine see, too: containers that share it share memory.
pub const VARIABLE: &str = "OIKAZE_SHM_DIR";
/// How long two nodes that are there may take to agree; then they talk over UDP.
const AGREE_TIME: Duration = Duration::from_secs(10);
/// What a caller says first, and what it is answered.
const HELLO: &[u8] = b"oikaze neighbour hello";
const WELCOME: &[u8] = b"oikaze neighbour welcome";
const NONCE: usize = 16;
const MAC: usize = 32;
/// Caller's rank, called rank, nonce, MAC.
const HELLO_LEN: usize = 8 + NONCE + MAC;

/// Why two nodes of one machine talk over UDP all the same.
type Why = String;

/// This node's doorway, or why it has none.
pub(crate) struct Neighbourhood {
    doorway: Result<(Doorway, Callable), Why>,
    /// What went wrong beside.
    notices: Vec<String>,
}

/// With whom memory is shared, and what a person should know about the others.
#[derive(Default)]
pub(crate) struct Found {
    pub pairs: Vec<(Rank, Pair)>,
    pub notices: Vec<String>,
}

/// What a node says of each node of its machine: nothing, or why not.
#[derive(Default, Serialize, Deserialize)]
struct Verdicts(BTreeMap<Rank, Option<Why>>);

impl Neighbourhood {
    /// Open the doorway, unless the user does not want it.
    pub fn open(job: &dyn Bootstrap, without: &Without) -> Neighbourhood {
        let mut notices = Vec::new();
        let directory = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()).map(PathBuf::from);
        let doorway = match unwanted(job, without) {
            Some(why) => Err(why),
            None => {
                open_doorway(directory.as_deref(), &mut notices).map_err(|why| format!("no Unix socket to be called at: {why}"))
            }
        };
        Neighbourhood { doorway, notices }
    }

    /// What others must know to call.
    pub fn callable(&self) -> Option<Callable> {
        self.doorway.as_ref().ok().map(|(_, callable)| callable.clone())
    }

    /// Meet those of this machine. `all`: what every rank published.
    ///
    /// # Errors
    /// The store fails.
    pub fn meet(
        self,
        job: &dyn Bootstrap,
        mine: &Reachable,
        all: &[Option<Reachable>],
        limit: Duration,
    ) -> Result<Found, JobError> {
        let mut found = Found { notices: self.notices, ..Found::default() };
        let here: Vec<(Rank, &Reachable)> = (0..)
            .zip(all)
            .filter_map(|(rank, theirs)| Some((rank, theirs.as_ref()?)))
            .filter(|(rank, theirs)| *rank != job.rank() && theirs.host.boot_id == mine.host.boot_id)
            .collect();
        if here.is_empty() {
            return Ok(found);
        }
        let (doorway, _) = match &self.doorway {
            Ok(open) => open,
            Err(why) => {
                found.notices.push(format!("nodes of this machine are talked to over UDP: {why}"));
                return Ok(found);
            }
        };
        // Both nodes come to the same: who expects to be met is.
        let (mut callable, mut whys) = (Vec::new(), BTreeMap::new());
        for (rank, theirs) in here {
            match way_to(mine, theirs) {
                Ok(way) if callable.len() < NEIGHBOURS_MAX => callable.push((rank, way)),
                Ok(_) => {
                    whys.insert(rank, format!("this node shares memory with {NEIGHBOURS_MAX} others already"));
                }
                Err(why) => {
                    whys.insert(rank, why);
                }
            }
        }
        let met = Meeting::new(job, doorway).hold(callable);
        found.agree(job, met, whys, limit)?;
        Ok(found)
    }
}

fn unwanted(job: &dyn Bootstrap, without: &Without) -> Option<Why> {
    if without.shm {
        Some("OIKAZE_WITHOUT=shm".into())
    } else if job.settings().fault.is_some() {
        Some("faults are to be injected into their datagrams (OIKAZE_FAULT)".into())
    } else if std::env::var_os("OIKAZE_PCAP").is_some() || std::env::var_os("OIKAZE_TRACE").is_some() {
        Some("their datagrams are to be recorded (OIKAZE_PCAP, OIKAZE_TRACE)".into())
    } else {
        None
    }
}

fn open_doorway(directory: Option<&Path>, notices: &mut Vec<String>) -> io::Result<(Doorway, Callable)> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|why| io::Error::other(why.to_string()))?;
    let name = format!("{:032x}", u128::from_ne_bytes(random));
    let mut doorway = Doorway::open(&format!("oikaze-{name}"))?;
    if let Some(directory) = directory
        && let Err(why) = doorway.open_in(directory, &name)
    {
        notices.push(format!(
            "{VARIABLE}={}: nodes in other network namespaces cannot call this one there: {why}",
            directory.display()
        ));
    }
    let file = doorway.file().map(|path| path.to_string_lossy().into_owned());
    let callable = Callable { user: rustix::process::geteuid().as_raw(), name: format!("oikaze-{name}"), file };
    Ok((doorway, callable))
}

/// How to call a node: the same for both of them.
enum WayTo {
    Name(String),
    File(PathBuf),
}

fn way_to(mine: &Reachable, theirs: &Reachable) -> Result<WayTo, Why> {
    let (Some(me), Some(them)) = (&mine.callable, &theirs.callable) else {
        return Err("it shares no memory (there OIKAZE_WITHOUT=shm, or no Unix socket)".into());
    };
    if me.user != them.user {
        return Err(format!("it belongs to user {}, this node to user {}", them.user, me.user));
    }
    if mine.host.shares_loopback(&theirs.host) {
        return Ok(WayTo::Name(them.name.clone()));
    }
    match (&me.file, &them.file) {
        (Some(_), Some(file)) => Ok(WayTo::File(file.into())),
        _ => Err(format!("it is in another network namespace; set {VARIABLE} to a directory that both see")),
    }
}

impl Found {
    /// Use what both sides have met (see the module).
    fn agree(
        &mut self,
        job: &dyn Bootstrap,
        met: BTreeMap<Rank, Result<Pair, Why>>,
        whys: BTreeMap<Rank, Why>,
        limit: Duration,
    ) -> Result<(), JobError> {
        let key = |rank: Rank| format!("neighbours/{rank}");
        let verdicts = met.iter().map(|(rank, outcome)| (*rank, outcome.as_ref().err().cloned()));
        let text = serde_json::to_vec(&Verdicts(verdicts.collect())).map_err(|why| JobError::System {
            doing: "write this node's neighbours as JSON".into(),
            source: io::Error::other(why),
        })?;
        job.put(&key(job.rank()), &text)?;
        let mut whys = whys;
        for (rank, outcome) in met {
            let theirs: Verdicts = serde_json::from_slice(&job.get(&key(rank), limit)?).map_err(|why| JobError::Malformed {
                rank,
                key: key(rank),
                why: why.to_string(),
            })?;
            let why = match (outcome, theirs.0.get(&job.rank())) {
                (Ok(pair), Some(None)) => {
                    self.pairs.push((rank, pair));
                    continue;
                }
                (Err(why), _) => why,
                (Ok(_), Some(Some(why))) => format!("it says: {why}"),
                (Ok(_), None) => "it did not expect this node".into(),
            };
            whys.insert(rank, why);
        }
        for (rank, why) in whys {
            self.notices.push(format!("node {rank} is on this machine, but is talked to over UDP: {why}"));
        }
        Ok(())
    }
}

/// The calls between this node and those it expects.
struct Meeting<'a> {
    job: &'a dyn Bootstrap,
    doorway: &'a Doorway,
    deadline: Instant,
    met: BTreeMap<Rank, Result<Pair, Why>>,
}

/// A call that is not answered yet.
struct Calling {
    rank: Rank,
    line: Line,
    memory: OwnedFd,
    nonce: [u8; NONCE],
}

impl<'a> Meeting<'a> {
    fn new(job: &'a dyn Bootstrap, doorway: &'a Doorway) -> Self {
        Meeting { job, doorway, deadline: Instant::now() + AGREE_TIME, met: BTreeMap::new() }
    }

    /// Call those of lower rank, be called by the others, hear the answers. Nobody waits for an answer before it has answered.
    fn hold(mut self, callable: Vec<(Rank, WayTo)>) -> BTreeMap<Rank, Result<Pair, Why>> {
        let mut calling = Vec::new();
        let mut expected = Vec::new();
        for (rank, way) in callable {
            if rank > self.job.rank() {
                expected.push(rank);
                continue;
            }
            match self.call(rank, &way) {
                Ok(call) => calling.push(call),
                Err(why) => {
                    self.met.insert(rank, Err(format!("it could not be called: {why}")));
                }
            }
        }
        self.be_called(&expected);
        for call in calling {
            let rank = call.rank;
            let outcome = self.hear_answer(call).map_err(|why| format!("it did not answer the call: {why}"));
            self.met.insert(rank, outcome);
        }
        self.met
    }

    fn call(&self, rank: Rank, way: &WayTo) -> io::Result<Calling> {
        let line = loop {
            let called = match way {
                WayTo::Name(name) => Doorway::call_name(name),
                WayTo::File(path) => Doorway::call_file(path),
            };
            match called {
                // Many call it at this moment.
                Err(why) if why.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.deadline => std::thread::yield_now(),
                other => break other?,
            }
        };
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|why| io::Error::other(why.to_string()))?;
        let memory = shared_memory().map_err(io::Error::other)?;
        let me = self.job.rank();
        let mut hello = Vec::with_capacity(HELLO_LEN);
        hello.extend_from_slice(&me.to_le_bytes());
        hello.extend_from_slice(&rank.to_le_bytes());
        hello.extend_from_slice(&nonce);
        hello.extend_from_slice(&self.job.secret().mac(&[HELLO, &hello]));
        line.say(&hello, Some(memory.as_fd()))?;
        Ok(Calling { rank, line, memory, nonce })
    }

    fn hear_answer(&self, call: Calling) -> io::Result<Pair> {
        let Calling { rank, line, memory, nonce } = call;
        let said = self.hear(&line)?;
        let parts: [&[u8]; 4] = [WELCOME, &self.job.rank().to_le_bytes(), &rank.to_le_bytes(), &nonce];
        if !self.job.secret().verify(&parts, said.bytes()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer shows no knowledge of this job's secret"));
        }
        Pair::new(&memory, Side::Caller, line)
    }

    /// Answer until everyone who is expected has called. Whoever else calls is sent away.
    fn be_called(&mut self, expected: &[Rank]) {
        while expected.iter().any(|rank| !self.met.contains_key(rank)) {
            match self.doorway.next_caller() {
                None if !self.wait(self.doorway.descriptors()) => break,
                None | Some(Err(_)) => {}
                Some(Ok(line)) => {
                    // A caller that says nothing, or nonsense, is none of ours; the one that is expected is still waited for.
                    if let Ok((rank, pair)) = self.answer(line, expected) {
                        self.met.insert(rank, pair);
                    }
                }
            }
        }
        for rank in expected {
            self.met.entry(*rank).or_insert_with(|| Err(format!("it did not call within {} s", AGREE_TIME.as_secs())));
        }
    }

    fn answer(&self, line: Line, expected: &[Rank]) -> io::Result<(Rank, Result<Pair, Why>)> {
        let strange = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut said = self.hear(&line)?;
        let memory = said.descriptor.take();
        let (told, mac) = said.bytes().split_at_checked(HELLO_LEN - MAC).ok_or_else(|| strange("too short a call"))?;
        if !self.job.secret().verify(&[HELLO, told], mac) || mac.len() != MAC {
            return Err(strange("another job's call"));
        }
        let number =
            |at: usize| told.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(Rank::MAX, Rank::from_le_bytes);
        let (from, to, nonce) = (number(0), number(4), told.get(8..).unwrap_or_default());
        if to != self.job.rank() || !expected.contains(&from) {
            return Err(strange("a call for another node"));
        }
        let Some(memory) = memory else { return Err(strange("a call without memory")) };
        let welcome = self.job.secret().mac(&[WELCOME, &from.to_le_bytes(), &to.to_le_bytes(), nonce]);
        line.say(&welcome, None)?;
        Ok((from, Pair::new(&memory, Side::Called, line).map_err(|why| format!("its memory cannot be used: {why}"))))
    }

    fn hear(&self, line: &Line) -> io::Result<oikaze_os::neighbour::Said> {
        loop {
            if let Some(said) = line.hear()? {
                return Ok(said);
            }
            if !self.wait([line]) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Until one of these is readable; false if it is too late.
    fn wait<F: AsFd + 'a>(&self, descriptors: impl IntoIterator<Item = impl std::ops::Deref<Target = F>>) -> bool {
        let held: Vec<_> = descriptors.into_iter().collect();
        let mut fds: Vec<PollFd<'_>> = held.iter().map(|fd| PollFd::new(&**fd, PollFlags::IN)).collect();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        !left.is_zero() && poll(&mut fds, Some(&limit)) != Ok(0)
    }
}
