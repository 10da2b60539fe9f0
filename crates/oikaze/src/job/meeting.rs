//! Meeting of a job's nodes: each publishes where it can be reached, and connects to all others.

use crate::error::Result;
use oikaze_launch::addresses::{
    Callable, Candidate, Likelihood, Reachable, Unreachable, choose as choose_candidates,
    processors_here,
};
use oikaze_launch::{Bootstrap, JobError, MEET_TIME};
use oikaze_os::cpu::{CpuId, Topology, cpulist};
use oikaze_os::net::narrow_path;
use oikaze_protocol::limits::JOIN_CONNECT_TIME;
use oikaze_protocol::wind::{Death, HandshakeRefusal};
use oikaze_runtime::node::{CallPlace, Node, WaitSubject, Waits};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for connections before the store is asked which nodes have begun to connect.
const FIRST_LOOK_TIME: Duration = Duration::from_secs(1);

/// Data that the nodes exchange before they connect.
pub(super) struct Meeting {
    /// Addresses at which each rank may be reached, best first.
    pub candidates: Vec<Vec<Candidate>>,
    /// Number of addresses of each rank that are not candidates, because there are too many.
    left_out: Vec<u32>,
    /// Cores that this process may use, those of its engine included, if the kernel says so.
    topology: Option<Topology>,
    /// Record that this node published, and the records of all other nodes.
    pub mine: Reachable,
    pub others: Vec<Option<Reachable>>,
}

impl Meeting {
    #[track_caller]
    pub fn hold(
        bootstrap: &dyn Bootstrap,
        port: u16,
        ipv6: bool,
        callable: Option<Callable>,
        engine_cores: &[CpuId],
        waits: &Arc<Waits>,
    ) -> Result<Self> {
        let topology = Topology::detect().ok().map(|topology| topology.joined_by(engine_cores));
        let processors = topology.as_ref().map(|topology| cpulist(&topology.cpus));
        let machine = bootstrap.settings().machine.clone();
        let here = Reachable::here(port, true, ipv6)?;
        let mine = Reachable { callable, processors, machine, ..here };
        if bootstrap.size() > 1 {
            mine.publish(bootstrap)?;
        }
        let limit = bootstrap.settings().time_limit.unwrap_or(MEET_TIME);
        let mut others = Vec::new();
        let (begun, caller) = (Instant::now(), Location::caller());
        for rank in 0..bootstrap.size() {
            let _waits = (rank != bootstrap.rank()).then(|| {
                waits.register(
                    WaitSubject::Join { nodes: vec![rank], what: "say where it can be reached" },
                    begun,
                    CallPlace::of_call(caller),
                )
            });
            others.push(if rank == bootstrap.rank() {
                None
            } else {
                Some(Reachable::of(bootstrap, rank, limit)?)
            });
        }
        let choose = |theirs: &Option<Reachable>| {
            theirs.as_ref().map(|theirs| choose_candidates(&mine, theirs)).unwrap_or_default()
        };
        let (candidates, left_out) = others.iter().map(choose).unzip();
        Ok(Self { candidates, left_out, topology, mine, others })
    }

    /// Returns the machine of each rank, as the lowest rank of that machine. All nodes compare the
    /// same records, so all return the same (COLL-2.1).
    pub fn machines(&self) -> Vec<u32> {
        let nodes: Vec<_> =
            self.others.iter().map(|theirs| theirs.as_ref().unwrap_or(&self.mine)).collect();
        let mut first: Vec<u32> = Vec::new();
        let mut machines = Vec::with_capacity(nodes.len());
        for (rank, node) in (0..).zip(&nodes) {
            let same = |at: &&u32| {
                nodes.get(**at as usize).is_some_and(|other| {
                    other.shares_machine(node) && other.host.shares_loopback(&node.host)
                })
            };
            let machine = first.iter().find(same).copied();
            if machine.is_none() {
                first.push(rank);
            }
            machines.push(machine.unwrap_or(rank));
        }
        machines
    }

    /// Returns `true` if each node of this machine may have this many threads spin without taking
    /// another's processor. `started` is the number of nodes that the launcher started here.
    pub fn leaves_room_for(&self, threads: usize, started: u32) -> bool {
        let Some(topology) = &self.topology else { return false };
        let others: Vec<_> = processors_here(&self.mine, &self.others, &topology.cpus).collect();
        topology.has_room_for(threads, started as usize, &others)
    }

    /// Returns the cores that this node may use, for a message.
    pub fn cores(&self) -> String {
        let Some(topology) = &self.topology else { return "that the kernel does not name".into() };
        let cores = cpulist(&topology.cpus);
        match topology.quota.filter(|quota| *quota < topology.cpus.len()) {
            Some(quota) => format!("{cores} (of which a control group permits {quota} at a time)"),
            None => cores,
        }
    }

    /// Waits until every pair is connected, or returns an error that says what was tried.
    #[track_caller]
    pub fn connect(
        &self,
        bootstrap: &dyn Bootstrap,
        node: &Node,
        waits: &Arc<Waits>,
    ) -> Result<()> {
        let limit = bootstrap.settings().time_limit.unwrap_or(MEET_TIME);
        if bootstrap.size() > 1 {
            bootstrap.put(&connecting_key(bootstrap.rank()), &[])?;
        }
        let mut connected = self.connected_within(bootstrap, node, FIRST_LOOK_TIME);
        if connected.is_none() {
            // A path to the store that loses packets may hold up a node for seconds. The others do
            // not count that as silence.
            let begun = Instant::now();
            for rank in missing(node) {
                let subject = WaitSubject::Join { nodes: vec![rank], what: "connect" };
                let _waits = waits.register(subject, begun, CallPlace::of_call(Location::caller()));
                let left = limit.saturating_sub(begun.elapsed());
                bootstrap.get(&connecting_key(rank), left).map_err(|why| match why {
                    JobError::TimedOut { .. } => JobError::Stalled { rank, limit },
                    other => other,
                })?;
            }
            connected = self.connected_within(bootstrap, node, JOIN_CONNECT_TIME);
        }
        match connected {
            Some(Ok(())) => return self.check_paths(bootstrap.rank(), node),
            Some(Err(Some(misfit))) => return Err(misfit.into()),
            Some(Err(None)) | None => {}
        }
        if let Some(why) = bootstrap.aborted() {
            return Err(JobError::Aborted { why }.into());
        }
        let bad_mac = node.with_engine(|engine| engine.counters().bad_mac);
        let mut unreachable = Unreachable::default();
        for to in missing(node) {
            let told = match node.departures.death_of(to) {
                Some(death) => Some(death.to_string()),
                None if bad_mac > 0 => Some(
                    "handshakes with another job's secret came instead of an answer".to_owned(),
                ),
                None => None,
            };
            let candidates =
                self.candidates.get(to as usize).map(Vec::as_slice).unwrap_or_default();
            let left_out = self.left_out.get(to as usize).copied().unwrap_or_default();
            unreachable.add(
                bootstrap.rank(),
                to,
                candidates,
                left_out,
                JOIN_CONNECT_TIME,
                told.as_deref(),
            );
        }
        Err(JobError::from(unreachable).into())
    }

    /// Waits until every pair is connected. Returns `Some(Err(None))` if a node is lost or the job
    /// was ended, and `None` if the time has passed.
    #[track_caller]
    fn connected_within(
        &self,
        bootstrap: &dyn Bootstrap,
        node: &Node,
        time: Duration,
    ) -> Option<Result<(), Option<JobError>>> {
        let subject = || WaitSubject::Join { nodes: missing(node), what: "connect" };
        node.wait_on(&subject, Instant::now().checked_add(time), || {
            let missing = missing(node);
            let mut deaths = missing
                .iter()
                .filter_map(|&rank| Some((rank, node.departures.death_of(rank)?)))
                .peekable();
            let lost = deaths.peek().is_some();
            let misfit = deaths.find_map(|(rank, death)| match death {
                Death::Refused(why) => Some(self.misfit(rank, why)),
                _ => None,
            });
            match (misfit, missing.is_empty()) {
                (Some(misfit), _) => Some(Err(Some(misfit))),
                (None, true) => Some(Ok(())),
                (None, false) => (lost || bootstrap.aborted().is_some()).then_some(Err(None)),
            }
        })
    }

    /// Makes the error of a node that does not fit to this one.
    fn misfit(&self, rank: u32, why: HandshakeRefusal) -> JobError {
        let there = self.others.get(rank as usize).and_then(Option::as_ref);
        let there = there.map_or_else(String::new, |theirs| theirs.host.name.clone());
        JobError::Misfit { rank, there, here: self.mine.host.name.clone(), why }
    }

    /// Refuses paths that carry handshakes, but not all datagrams that every path must carry
    /// (WIND-8.1). The first long message would wait until the peer is given up.
    fn check_paths(&self, me: u32, node: &Node) -> Result<()> {
        let mut narrow = Unreachable::default();
        for (to, candidates) in (0..).zip(&self.candidates) {
            let used = node.with_engine(|engine| engine.peers().address_of(to));
            let Some(used) = used.filter(|used| narrow_path(*used).is_some()) else { continue };
            let of_used = candidates.iter().find(|candidate| candidate.to == used);
            let interface = of_used.map_or_else(String::new, |found| found.interface.clone());
            let candidate = Candidate { to: used, interface, likelihood: Likelihood::Routed };
            narrow.add(me, to, &[candidate], 0, JOIN_CONNECT_TIME, None);
        }
        if narrow.peers.is_empty() { Ok(()) } else { Err(JobError::from(narrow).into()) }
    }
}

/// Returns the key under which a node publishes that it knows all others and calls them.
fn connecting_key(rank: u32) -> String {
    format!("connecting/{rank}")
}

/// Returns the ranks that are not connected.
fn missing(node: &Node) -> Vec<u32> {
    node.with_engine(|engine| {
        (0..engine.nodes()).filter(|&rank| !engine.peers().is_connected(rank)).collect()
    })
}
