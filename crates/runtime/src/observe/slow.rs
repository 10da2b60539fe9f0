//! Fast paths that a node does without, each with its cause and remedy.
//!
//! Every mechanism has a slower fallback. This list shows a person that a node uses one.

use super::page::{NodePage, PeerPage};
use oikaze_os::memory::huge_page;
use oikaze_os::memory::tracking::TrackerKind;
use oikaze_os::net::{self, Offload};
use oikaze_protocol::Rank;
use oikaze_protocol::counters;
use oikaze_protocol::limits::SOCKET_BUFFER_LEAST;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Values of a [`PathStates`] field that is not a count.
const IN_USE: u64 = 0;
const SWITCHED_OFF: u64 = 1;
const REFUSED: u64 = 2;

counters! {
    /// Paths of a node. Values: 0 in use, 1 switched off by the user, 2 refused or not there; or
    /// the number that do without.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct PathStates {
        pub early_receive: u64,
        pub segmentation: u64,
        pub joined_receive: u64,
        pub splice: u64,
        pub send_buffer: u64,
        pub receive_buffer: u64,
        /// 1: userfaultfd for faults in user mode only; 2: mprotect.
        pub page_tracking: u64,
        pub huge_pages: u64,
        /// Nodes of this machine that share no memory with this node.
        pub unshared_nodes: u64,
        /// Threads that could not be bound to their core.
        pub unpinned_threads: u64,
        /// Lookups of regions of nodes with shared memory that gave no mapping.
        pub unmapped_regions: u64,
        /// Arrays of a job of one machine that the nodes do not map together.
        pub paged_arrays: u64,
    }
}

impl PathStates {
    /// Adds the states that the link knows.
    pub(super) fn with_link(self, link: &net::Statistics) -> PathStates {
        let state = |offload| match offload {
            Offload::On => IN_USE,
            Offload::Off => SWITCHED_OFF,
            Offload::Refused => REFUSED,
        };
        // The kernel returns twice the requested size, to include its own bookkeeping.
        let buffer =
            |counted: usize| if counted / 2 < SOCKET_BUFFER_LEAST { REFUSED } else { IN_USE };
        PathStates {
            early_receive: state(link.tcx_receive),
            segmentation: state(link.gso),
            joined_receive: state(link.gro),
            splice: state(link.splice),
            send_buffer: buffer(link.send_buffer),
            receive_buffer: buffer(link.receive_buffer),
            ..self
        }
    }
}

/// Notes on a node's paths that are made outside the turns. No thread waits for another here.
#[derive(Debug, Default)]
pub struct PathNotes {
    page_tracking: AtomicU64,
    unshared: Reasons,
    unpinned: AtomicU64,
    unmapped: Reasons,
    paged: Reasons,
}

/// Count, and the text of the first case.
#[derive(Debug, Default)]
struct Reasons {
    count: AtomicU64,
    first: OnceLock<String>,
}

impl Reasons {
    fn add(&self, count: u64, why: impl FnOnce() -> String) {
        if count > 0 {
            self.first.get_or_init(why);
            self.count.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn first(&self) -> String {
        self.first.get().cloned().unwrap_or_default()
    }
}

impl PathNotes {
    /// Notes how pages of shared arrays are tracked.
    pub fn tracks_by(&self, kind: TrackerKind) {
        let value = match kind {
            TrackerKind::UserfaultfdFull => IN_USE,
            TrackerKind::UserfaultfdUserMode => 1,
            TrackerKind::Mprotect => 2,
        };
        self.page_tracking.store(value, Ordering::Relaxed);
    }

    /// Notes that this many nodes of this machine share no memory with this node.
    pub fn unshared(&self, nodes: u64, why: impl FnOnce() -> String) {
        self.unshared.add(nodes, why);
    }

    /// Notes that a thread could not be bound to its core.
    pub fn unpinned(&self) {
        self.unpinned.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a local peer's region was looked up and is not mapped.
    pub fn unmapped(&self, why: impl FnOnce() -> String) {
        self.unmapped.add(1, why);
    }

    /// Notes that nodes of one machine keep pages of an array, and do not map it together.
    pub fn paged(&self, why: impl FnOnce() -> String) {
        self.paged.add(1, why);
    }

    /// Writes the notes to a page.
    pub(super) fn show(&self, link: &net::Statistics, page: &mut NodePage) {
        let states = PathStates {
            page_tracking: self.page_tracking.load(Ordering::Relaxed),
            huge_pages: if huge_page().is_some() { IN_USE } else { REFUSED },
            unshared_nodes: self.unshared.count.load(Ordering::Relaxed),
            unpinned_threads: self.unpinned.load(Ordering::Relaxed),
            unmapped_regions: self.unmapped.count.load(Ordering::Relaxed),
            paged_arrays: self.paged.count.load(Ordering::Relaxed),
            ..PathStates::default()
        };
        page.paths = states.with_link(link);
        (page.first_unshared, page.first_unmapped) = (self.unshared.first(), self.unmapped.first());
        page.first_paged = self.paged.first();
    }
}

/// Fast path that a node does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowPath {
    /// Name of the mechanism.
    pub path: &'static str,
    /// Reason why it is not used.
    pub cause: String,
    /// Remedy of the cause.
    pub remedy: &'static str,
}

impl SlowPath {
    /// Returns `true` if the node gave the path up towards some peers, while the job ran.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.path.ends_with(", by peer")
    }
}

/// Mechanisms that are in use, switched off or refused: name, cause of a refusal, remedy.
type Known = (&'static str, fn(&PathStates) -> u64, &'static str, &'static str);

/// Mechanisms that concern nodes reached over the network.
const OF_LINK: [Known; 6] = [
    (
        "early receive (tcx)",
        |paths| paths.early_receive,
        "not permitted, not known to this kernel, no Ethernet interface, or too many nodes on this machine",
        "Linux 6.6, and root or: setcap cap_bpf,cap_net_admin,cap_net_raw+ep PROGRAM; for a container --cap-add",
    ),
    (
        "segmentation offload (UDP_SEGMENT)",
        |paths| paths.segmentation,
        "refused by the kernel or the device",
        "Linux 5.15; ethtool -K DEVICE tx on",
    ),
    (
        "joined receive (UDP_GRO)",
        |paths| paths.joined_receive,
        "refused by the kernel",
        "Linux 5.15",
    ),
    ("bulk without a copy (splice)", |paths| paths.splice, "refused by the kernel", "Linux 6.5"),
    (
        "socket send buffer",
        |paths| paths.send_buffer,
        "the system grants less than 2 MiB",
        "sysctl -w net.core.wmem_max=16777216",
    ),
    (
        "socket receive buffer",
        |paths| paths.receive_buffer,
        "the system grants less than 2 MiB",
        "sysctl -w net.core.rmem_max=16777216",
    ),
];

/// Returns all paths that a node does without, as its page and those of its peers show them.
#[must_use]
pub fn slow_paths(node: &NodePage, peers: &[(Rank, PeerPage)]) -> Vec<SlowPath> {
    let mut all = Vec::new();
    let mut add = |path, cause: String, remedy| all.push(SlowPath { path, cause, remedy });
    let paths = &node.paths;
    let by_network = peers.iter().any(|(_, peer)| peer.gauges.rings == 0);
    for (path, state, refused, remedy) in OF_LINK.into_iter().filter(|_| by_network) {
        match state(paths) {
            IN_USE => {}
            SWITCHED_OFF => add(
                path,
                "switched off by OIKAZE_WITHOUT, or by what records or damages datagrams"
                    .to_owned(),
                remedy,
            ),
            _ => add(path, refused.to_owned(), remedy),
        }
    }
    match paths.page_tracking {
        IN_USE => {}
        1 => add(
            "page tracking",
            "userfaultfd sees faults in user mode only: system calls on absent pages fail"
                .to_owned(),
            "CAP_SYS_PTRACE, or sysctl -w vm.unprivileged_userfaultfd=1; see oikaze doctor",
        ),
        _ => add(
            "page tracking",
            "mprotect and SIGSEGV instead of userfaultfd".to_owned(),
            "Linux 6.4, a seccomp profile that permits userfaultfd, and no uffd in OIKAZE_WITHOUT; see oikaze doctor",
        ),
    }
    if paths.huge_pages != IN_USE {
        let cause = "this kernel has none, or OIKAZE_WITHOUT=huge".to_owned();
        add("huge pages", cause, "CONFIG_TRANSPARENT_HUGEPAGE, and no huge in OIKAZE_WITHOUT");
    }
    if paths.unshared_nodes > 0 {
        let cause = format!(
            "{} nodes of this machine are talked to over UDP: {}",
            paths.unshared_nodes, node.first_unshared
        );
        add(
            "shared memory",
            cause,
            "one user, one OIKAZE_SHM_DIR that all containers see, and no shm in OIKAZE_WITHOUT",
        );
    }
    if paths.unmapped_regions > 0 {
        let cause = format!(
            "{} lookups gave no mapping, the first: {}",
            paths.unmapped_regions, node.first_unmapped
        );
        add(
            "mapped regions",
            cause,
            "make regions of new memory, by their length; each remote region says why it is not mapped",
        );
    }
    if paths.paged_arrays > 0 {
        let cause = format!(
            "each node keeps pages of {} arrays, the first: {}",
            paths.paged_arrays, node.first_paged
        );
        add(
            "arrays of one machine",
            cause,
            "no segment in OIKAZE_WITHOUT, enough memory and descriptors; each array says why",
        );
    }
    if paths.unpinned_threads > 0 {
        let cause =
            format!("{} threads may not run on the core that was chosen", paths.unpinned_threads);
        add("core of its own", cause, "permit the core (taskset, cpuset), or name another one");
    }
    let fallen =
        |count: fn(&PeerPage) -> u64| peers.iter().filter(|(_, peer)| count(peer) > 0).count();
    let towards = |peers: usize, what: &str| format!("{what} (towards {peers} nodes)");
    for (path, peers, what, remedy) in [
        (
            "segmentation offload, by peer",
            fallen(|peer| peer.counters.trains_avoided),
            "trains of datagrams are lost on the way",
            "ethtool -k DEVICE on the way: a driver, tunnel or rule cuts none",
        ),
        (
            "kernel bypass, by peer",
            fallen(|peer| peer.counters.bypasses_avoided),
            "frames are lost on the way",
            "rules for what leaves or comes in (nft list ruleset, tc filter show)",
        ),
        (
            "port for bulk, by peer",
            fallen(|peer| peer.counters.bulk_ports_shunned),
            "nothing gets through to it",
            "let both UDP ports pass the firewall",
        ),
        (
            "flows of bulk, by peer",
            fallen(|peer| peer.counters.flows_cut),
            "nothing gets through from some of this node's ports",
            "let UDP from any source port pass the firewall, or set OIKAZE_FLOWS=1",
        ),
    ] {
        if peers > 0 {
            add(path, towards(peers, what), remedy);
        }
    }
    if node.link.receive_paths_avoided > 0 {
        let cause = towards(
            usize::try_from(node.link.receive_paths_avoided).unwrap_or(usize::MAX),
            "they bring nothing",
        );
        add(
            "connected sockets and early receive, by peer",
            cause,
            "bpftool net: does another program filter here?",
        );
    }
    if node.link.server_stalls > 0 {
        let cause = format!("did not run for 50 ms or longer, {} times", node.link.server_stalls);
        add(
            "server (oikaze serve)",
            cause,
            "cores of its own (--cores), --priority fifo, sysctl -w kernel.sched_autogroup_enabled=0; see oikaze doctor",
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::wind;

    fn peer() -> PeerPage {
        let (counters, gauges) =
            (wind::Statistics::default(), super::super::page::Gauges::default());
        let (round_trip, settle) = (wind::Histogram::default(), wind::Histogram::default());
        let state = super::super::page::State::Established;
        PeerPage { state, address: None, cipher: None, counters, gauges, round_trip, settle }
    }

    /// Each state other than "in use" is reported, and none that is in use.
    #[test]
    fn each_path_that_is_not_used_is_told_with_cause_and_remedy() {
        let peers = [(1, peer())];
        assert_eq!(slow_paths(&NodePage::default(), &peers), []);
        for at in 0..PathStates::COUNT {
            for value in [SWITCHED_OFF, REFUSED] {
                let mut values = [0; PathStates::COUNT];
                values[at] = value;
                let node =
                    NodePage { paths: PathStates::from_values(values), ..NodePage::default() };
                let slow = slow_paths(&node, &peers);
                assert_eq!(slow.len(), 1, "{}", PathStates::NAMES[at]);
                assert!(!slow[0].cause.is_empty() && !slow[0].remedy.is_empty(), "{slow:?}");
            }
        }
        let mut fallen = peer();
        (
            fallen.counters.trains_avoided,
            fallen.counters.bypasses_avoided,
            fallen.counters.bulk_ports_shunned,
            fallen.counters.flows_cut,
        ) = (1, 1, 1, 1);
        let mut node = NodePage::default();
        (node.link.receive_paths_avoided, node.link.server_stalls) = (1, 1);
        let slow = slow_paths(&node, &[(1, fallen)]);
        assert_eq!((slow.len(), slow.iter().filter(|slow| slow.is_given_up()).count()), (6, 5));
    }

    /// The link does nothing where all peers are reached through shared memory.
    #[test]
    fn link_without_peers_is_not_slow() {
        let link = net::Statistics::default();
        let node =
            NodePage { paths: PathStates::default().with_link(&link), ..NodePage::default() };
        let mut local_peer = peer();
        local_peer.gauges.rings = 1;
        assert_eq!(slow_paths(&node, &[(1, local_peer)]), []);
        assert_eq!(slow_paths(&node, &[(1, peer())]).len(), 6);
    }

    #[test]
    fn first_reason_stays_and_all_are_counted() {
        let notes = PathNotes::default();
        for number in 1..=3 {
            notes.unmapped(|| format!("reason {number}"));
            notes.paged(|| format!("cause {number}"));
        }
        notes.unshared(0, || unreachable!("none"));
        notes.tracks_by(TrackerKind::Mprotect);
        let mut page = NodePage::default();
        notes.show(&net::Statistics::default(), &mut page);
        assert_eq!((page.paths.unmapped_regions, page.paths.paged_arrays), (3, 3));
        assert_eq!(page.first_paged, "cause 1");
        assert_eq!(page.paths.unshared_nodes, 0);
        assert_eq!(page.paths.page_tracking, 2);
        assert_eq!((page.first_unmapped.as_str(), page.first_unshared.as_str()), ("reason 1", ""));
    }
}
