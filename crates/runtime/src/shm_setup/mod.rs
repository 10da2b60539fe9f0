//! Setup of memory shared with nodes of the same machine. The nodes find each other and agree
//! before the first message (spec/memory.md, MEM-16.8).
//!
//! Each node opens a [`Listener`] and publishes its address. Two nodes on one machine, of one user,
//! can share memory if they reach each other's listener. The node of higher rank calls, makes the
//! memory and hands it over ([`meeting`]).

mod meeting;
#[cfg(test)]
mod tests;

use meeting::{LocalMeeting, Outcomes, WayTo};
use oikaze_launch::addresses::{Callable, Reachable};
use oikaze_launch::{Bootstrap, JobError};
use oikaze_os::features::DisabledFeatures;
use oikaze_os::net::TapSettings;
use oikaze_os::shm::{Arena, Listener, MEMBERS_MAX, Pair, arena_memory};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::LOCAL_PEERS_MAX;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Variable that names a directory which nodes in other network namespaces of this machine see,
/// too. Containers that share the directory share memory.
pub const VARIABLE: &str = "OIKAZE_SHM_DIR";
/// Reason why two nodes of one machine talk over UDP all the same.
type Why = String;

/// Listener of this node, or the reason why it has none.
pub struct LocalPeerSetup {
    listener: Result<(Listener, Callable), Why>,
    /// Is `true` if the user wants no arena.
    is_without_arena: bool,
    /// Messages about failures that do not keep the node from joining.
    notices: Vec<String>,
}

/// Nodes that share memory with this one, and what a person should know about the others.
#[derive(Default)]
pub struct Found {
    pub pairs: Vec<(Rank, Pair)>,
    /// The job's arena, if all nodes use it (COH-6.14).
    pub arena: Option<Arc<Arena>>,
    /// Why there is no arena, although all nodes are on this machine.
    pub why_no_arena: Option<Why>,
    pub notices: Vec<String>,
    /// Number of nodes of this machine that share no memory with this one.
    pub unshared: u64,
}

impl LocalPeerSetup {
    /// Opens the listener, unless the user does not want it.
    pub fn open(job: &dyn Bootstrap, without: &DisabledFeatures) -> LocalPeerSetup {
        let mut notices = Vec::new();
        let directory =
            std::env::var_os(VARIABLE).filter(|text| !text.is_empty()).map(PathBuf::from);
        let listener = match unwanted(job, without) {
            Some(why) => Err(why),
            None => open_listener(directory.as_deref(), &mut notices)
                .map_err(|why| format!("no Unix socket to be called at: {why}")),
        };
        LocalPeerSetup { listener, is_without_arena: without.arena, notices }
    }

    /// Returns the data that other nodes need in order to call this node.
    pub fn callable(&self) -> Option<Callable> {
        self.listener.as_ref().ok().map(|(_, callable)| callable.clone())
    }

    /// Meets the nodes of this machine. `all` has the published record of every rank.
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
        // All nodes compare the same records, so either all or none expect an arena.
        let is_machine = all.len() <= MEMBERS_MAX
            && (0..).zip(all).all(|(rank, theirs)| {
                let theirs = if rank == job.rank() { Some(mine) } else { theirs.as_ref() };
                theirs
                    .is_some_and(|theirs| theirs.callable.is_some() && theirs.shares_machine(mine))
            });
        let here: Vec<(Rank, &Reachable)> = (0..)
            .zip(all)
            .filter_map(|(rank, theirs)| Some((rank, theirs.as_ref()?)))
            .filter(|(rank, theirs)| *rank != job.rank() && theirs.shares_machine(mine))
            .collect();
        if here.is_empty() {
            return Ok(found);
        }
        let are_all_here = here.len() + 1 == all.len();
        let (listener, _) = match &self.listener {
            Ok(open) => open,
            Err(why) => {
                found.unshared = here.len() as u64;
                let notice = format!("nodes of this machine are talked to over UDP: {why}");
                found.why_no_arena = are_all_here.then(|| notice.clone());
                found.notices.push(notice);
                return Ok(found);
            }
        };
        // Both nodes come to the same result, so a node that expects a meeting is expected too.
        let (mut callable, mut whys) = (Vec::new(), BTreeMap::new());
        for (rank, theirs) in here {
            match way_to(mine, theirs) {
                Ok(way) if callable.len() < LOCAL_PEERS_MAX => callable.push((rank, way)),
                Ok(_) => {
                    whys.insert(
                        rank,
                        format!("this node shares memory with {LOCAL_PEERS_MAX} others already"),
                    );
                }
                Err(why) => {
                    whys.insert(rank, why);
                }
            }
        }
        let mut meeting = LocalMeeting::new(job, listener, limit);
        let mut memory = Ok(());
        if is_machine && job.rank() == 0 && !self.is_without_arena {
            memory = arena_memory(job.size()).map(|memory| meeting.arena = Some(memory));
        }
        let outcomes = meeting.hold(callable)?;
        found.take(outcomes, whys);
        if is_machine {
            let arena = match memory {
                _ if self.is_without_arena => Err("OIKAZE_WITHOUT=arena".to_owned()),
                Err(why) => Err(format!("it has no memory for all nodes: {why}")),
                Ok(()) => found.map_arena(job, meeting.arena.as_ref()),
            };
            let (arena, outcome) = match arena {
                Ok(arena) => (Some(Arc::new(arena)), Ok(())),
                Err(why) => (None, Err(why)),
            };
            match meeting.agree_on_arena(outcome)? {
                Ok(()) => found.arena = arena,
                Err(why) => found.notices.push(format!("barriers go through the engines: {why}")),
            }
        }
        if are_all_here && found.arena.is_none() {
            found.why_no_arena = found.notices.last().cloned();
        }
        Ok(found)
    }
}

fn unwanted(job: &dyn Bootstrap, without: &DisabledFeatures) -> Option<Why> {
    if without.shm {
        Some("OIKAZE_WITHOUT=shm".into())
    } else if job.settings().fault.is_some() {
        Some("faults are to be injected into their datagrams (OIKAZE_FAULT)".into())
    } else if matches!(TapSettings::from_env(), Ok(Some(_))) {
        Some("their datagrams are to be recorded (OIKAZE_PCAP, OIKAZE_TRACE)".into())
    } else {
        None
    }
}

fn open_listener(
    directory: Option<&Path>,
    notices: &mut Vec<String>,
) -> io::Result<(Listener, Callable)> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|why| io::Error::other(why.to_string()))?;
    let name = format!("{:032x}", u128::from_ne_bytes(random));
    let mut listener = Listener::open(&format!("oikaze-{name}"))?;
    if let Some(directory) = directory
        && let Err(why) = listener.open_in(directory, &name)
    {
        notices.push(format!(
            "{VARIABLE}={}: nodes in other network namespaces cannot call this one there: {why}",
            directory.display()
        ));
    }
    let file = listener.file().map(|path| path.to_string_lossy().into_owned());
    let callable = Callable {
        user: rustix::process::geteuid().as_raw(),
        name: format!("oikaze-{name}"),
        file,
    };
    Ok((listener, callable))
}

fn way_to(mine: &Reachable, theirs: &Reachable) -> Result<WayTo, Why> {
    let (Some(me), Some(them)) = (&mine.callable, &theirs.callable) else {
        return Err(
            "it shares no memory (there OIKAZE_WITHOUT=shm, faults, a capture, or no Unix socket)"
                .into(),
        );
    };
    if me.user != them.user {
        return Err(format!("it belongs to user {}, this node to user {}", them.user, me.user));
    }
    if mine.host.shares_loopback(&theirs.host) {
        return Ok(WayTo::Name(them.name.clone()));
    }
    match (&me.file, &them.file) {
        (Some(_), Some(file)) => Ok(WayTo::File(file.into())),
        _ => Err(format!(
            "it is in another network namespace; set {VARIABLE} to a directory that both see"
        )),
    }
}

impl Found {
    /// Maps the job's arena, if this node shares memory with all others.
    fn map_arena(&self, job: &dyn Bootstrap, memory: Option<&OwnedFd>) -> Result<Arena, Why> {
        if self.pairs.len() + 1 < job.size() as usize {
            return Err("it does not share memory with all nodes".to_owned());
        }
        let memory = memory.ok_or("it has got no memory of node 0")?;
        let lines = self.pairs.iter().map(|(rank, pair)| (*rank, Arc::clone(&pair.line)));
        Arena::new(memory, job.rank(), job.size(), lines.collect())
            .map_err(|why| format!("the memory of node 0 cannot be used: {why}"))
    }

    /// Uses the pairs on which both sides agree, and notes why the others are not used.
    fn take(&mut self, outcomes: Outcomes, whys: BTreeMap<Rank, Why>) {
        let mut whys = whys;
        for (rank, outcome) in outcomes {
            match outcome {
                Ok(pair) => self.pairs.push((rank, pair)),
                Err(why) => {
                    whys.insert(rank, why);
                }
            }
        }
        self.unshared = whys.len() as u64;
        for (rank, why) in whys {
            self.notices
                .push(format!("node {rank} is on this machine, but is talked to over UDP: {why}"));
        }
    }
}
