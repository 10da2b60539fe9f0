//! Content and order of a node's statistics page.

use super::slow::PathStates;
use super::words::{Reader, Row};
use oikaze_engine::{Counters, Engine, GroupCounters};
use oikaze_launch::Seal;
use oikaze_os::net::{self, Link};
use oikaze_os::stats_page::RecordLayout;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::NODES_MAX;
use oikaze_protocol::rma::RefusalCounts;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{self, Death, FlowSnapshot, Histogram, Snapshot, Standing};
use oikaze_protocol::{coherence, counters};
use std::net::SocketAddr;
use std::time::Duration;

/// Name under which boards are found.
pub const BOARD: &str = "oikaze-statistics";
/// Format number of a page. It changes when the order or the meaning of an item changes in a way
/// that the names of the counters do not tell.
const FORMAT: u64 = 5;
/// Words of a program's name.
const PROGRAM_WORDS: usize = 4;
/// Maximum number of bytes that a page shows of all waits.
pub const BOARD_BYTES: usize = 384;
/// Words of the text about waits.
const WAITS_WORDS: usize = BOARD_BYTES / 8;
/// Words of the first reason of a kind.
const REASON_WORDS: usize = 40;
const HISTOGRAM_WORDS: usize = 2 + Histogram::BUCKETS.div_ceil(2);
pub(super) const NODE_WORDS: usize = 8
    + PROGRAM_WORDS
    + WAITS_WORDS
    + Counters::COUNT
    + GroupCounters::COUNT
    + LinkCounters::COUNT
    + coherence::CoherenceStatistics::COUNT
    + RefusalCounts::COUNT
    + PathStates::COUNT
    + 3 * REASON_WORDS;
const PEER_WORDS: usize = 6 + wind::Statistics::COUNT + Gauges::COUNT + 2 * HISTOGRAM_WORDS;

/// Maximum number of flows that a page shows of all peers. Few peers have several, and the board
/// must stay small.
pub const FLOWS_SHOWN: usize = 24;
const FLOW_WORDS: usize = 4 + FlowGauges::COUNT;
const FLOWS_WORDS: usize = 2 + FLOWS_SHOWN * FLOW_WORDS;

/// Returns the layout of the board of a node in a job of `nodes` nodes: the node's own record, one
/// for each rank, and one of flows.
#[must_use]
pub fn layout(nodes: u32) -> RecordLayout {
    let words = NODE_WORDS.max(PEER_WORDS).max(FLOWS_WORDS);
    RecordLayout { version: VERSION, records: flows_record(nodes) + 1, words }
}

/// Returns the index of the record of flows.
pub(super) fn flows_record(nodes: u32) -> usize {
    1 + nodes as usize
}

/// Version of the page. Two releases understand each other if they count the same things in the
/// same order.
const VERSION: u64 = {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ FORMAT ^ (Histogram::BUCKETS as u64) << 32;
    hash = fingerprint(hash, Counters::NAMES);
    hash = fingerprint(hash, GroupCounters::NAMES);
    hash = fingerprint(hash, LinkCounters::NAMES);
    hash = fingerprint(hash, coherence::CoherenceStatistics::NAMES);
    hash = fingerprint(hash, RefusalCounts::NAMES);
    hash = fingerprint(hash, PathStates::NAMES);
    hash = fingerprint(hash, wind::Statistics::NAMES);
    hash = fingerprint(hash, FlowGauges::NAMES);
    fingerprint(hash, Gauges::NAMES)
};

/// Returns the FNV-1a hash of the names, each ended.
#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const fn fingerprint(mut hash: u64, names: &[&str]) -> u64 {
    let mut name = 0;
    while name < names.len() {
        let bytes = names[name].as_bytes();
        let mut at = 0;
        while at <= bytes.len() {
            hash = (hash ^ if at < bytes.len() { bytes[at] as u64 } else { 0 })
                .wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        name += 1;
    }
    hash
}

counters! {
    /// Counters and buffers of the link.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct LinkCounters {
        pub datagrams_out: u64,
        pub frames_out: u64,
        pub spliced: u64,
        pub bytes_out: u64,
        pub calls_out: u64,
        pub datagrams_in: u64,
        pub in_place: u64,
        pub early: u64,
        pub bytes_in: u64,
        pub calls_in: u64,
        pub would_block: u64,
        pub unreachable: u64,
        pub too_big: u64,
        pub truncated: u64,
        pub overflowed: u64,
        pub receive_paths_avoided: u64,
        pub server_stalls: u64,
        pub send_buffer: u64,
        pub receive_buffer: u64,
    }
}

impl From<net::Statistics> for LinkCounters {
    fn from(link: net::Statistics) -> Self {
        Self {
            datagrams_out: link.datagrams_out,
            frames_out: link.frames_out,
            spliced: link.spliced,
            bytes_out: link.bytes_out,
            calls_out: link.calls_out,
            datagrams_in: link.datagrams_in,
            in_place: link.in_place,
            early: link.by_tcx,
            bytes_in: link.bytes_in,
            calls_in: link.calls_in,
            would_block: link.would_block,
            unreachable: link.unreachable,
            too_big: link.too_big,
            truncated: link.truncated,
            overflowed: link.overflowed,
            receive_paths_avoided: link.receive_paths_avoided,
            server_stalls: link.server_stalls,
            send_buffer: link.send_buffer as u64,
            receive_buffer: link.receive_buffer as u64,
        }
    }
}

counters! {
    /// State of a connection; see [`Snapshot`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Gauges {
        /// 1 if the peer shares memory with the node, through which messages go.
        pub rings: u64,
        pub wire_version: u64,
        pub datagram_max: u64,
        pub window: u64,
        pub share: u64,
        pub pace: u64,
        /// Source ports over which bulk is sprayed.
        pub flows: u64,
        pub in_flight: u64,
        pub datagrams_in_flight: u64,
        pub unsettled: u64,
        pub queued_small: u64,
        pub queued_bulk: u64,
        pub blocked: u64,
        pub credit: u64,
        pub held: u64,
        pub round_trip_ns: u64,
        pub round_trip_variation_ns: u64,
        pub round_trip_least_ns: u64,
    }
}

counters! {
    /// State of one of several flows of bulk; see [`FlowSnapshot`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct FlowGauges {
        pub flow: u64,
        pub window: u64,
        pub in_flight: u64,
        pub round_trip_ns: u64,
        pub datagrams_sent: u64,
        pub datagrams_lost: u64,
        /// Time until the flow is used again; 0 while it is in use.
        pub cut_ns: u64,
    }
}

impl From<FlowSnapshot> for FlowGauges {
    fn from(now: FlowSnapshot) -> Self {
        Self {
            flow: now.flow.into(),
            window: now.window,
            in_flight: now.in_flight,
            round_trip_ns: nanos(now.round_trip),
            datagrams_sent: now.datagrams_sent,
            datagrams_lost: now.datagrams_lost,
            cut_ns: nanos(now.cut_for),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl From<Snapshot> for Gauges {
    fn from(now: Snapshot) -> Self {
        Self {
            rings: 0,
            wire_version: now.version.into(),
            datagram_max: now.datagram_max as u64,
            window: now.window,
            share: now.share,
            pace: now.pace,
            flows: now.flows.into(),
            in_flight: now.in_flight,
            datagrams_in_flight: now.datagrams_in_flight as u64,
            unsettled: now.unsettled as u64,
            queued_small: now.queued_small as u64,
            queued_bulk: now.queued_bulk as u64,
            blocked: now.blocked as u64,
            credit: now.credit,
            held: now.held,
            round_trip_ns: nanos(now.round_trip),
            round_trip_variation_ns: nanos(now.round_trip_variation),
            round_trip_least_ns: nanos(now.round_trip_least),
        }
    }
}

oikaze_protocol::wire_enum! {
    /// State of a peer: as [`Standing`], without the details of an end.
    #[allow(missing_docs)]
    pub enum State {
        Connecting = 0,
        Established = 1,
        Silent = 2,
        Closed = 3,
        Restarted = 4,
        Refused = 5,
        Unreachable = 6,
        Ended = 7,
        Damaged = 8,
        Stuck = 9,
        NoProgress = 10,
        Nonsense = 11,
        GivenUp = 12,
        NumbersUsedUp = 13,
    }
}

impl State {
    /// Returns the state in a word, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Connecting => "connecting",
            State::Established => "up",
            State::Silent => "silent",
            State::Closed => "closed",
            State::Restarted => "restarted",
            State::Refused => "refused",
            State::Unreachable => "unreachable",
            State::Ended => "ended",
            State::Damaged => "damaged",
            State::Stuck => "stuck",
            State::NoProgress => "no progress",
            State::Nonsense => "nonsense",
            State::GivenUp => "given up",
            State::NumbersUsedUp => "no numbers left",
        }
    }

    /// Returns `true` if the connection has ended otherwise than by a goodbye.
    #[must_use]
    pub fn is_lost(self) -> bool {
        !matches!(self, State::Connecting | State::Established | State::Closed)
    }
}

impl From<Standing> for State {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Connecting => State::Connecting,
            Standing::Established => State::Established,
            Standing::Ended(Death::Silent) => State::Silent,
            Standing::Ended(Death::Closed) => State::Closed,
            Standing::Ended(Death::Restarted) => State::Restarted,
            Standing::Ended(Death::Refused(_)) => State::Refused,
            Standing::Ended(Death::Unreachable) => State::Unreachable,
            Standing::Ended(Death::Ended) => State::Ended,
            Standing::Ended(Death::Damaged) => State::Damaged,
            Standing::Ended(Death::Stuck) => State::Stuck,
            Standing::Ended(Death::NoProgress(_)) => State::NoProgress,
            Standing::Ended(Death::Nonsense(_)) => State::Nonsense,
            Standing::Ended(Death::GivenUp(_)) => State::GivenUp,
            Standing::Ended(Death::NumbersUsedUp) => State::NumbersUsedUp,
        }
    }
}

/// Page of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePage {
    /// Number of the job, made from its secret, the same on all its nodes.
    pub job: u32,
    /// Rank of the node.
    pub rank: Rank,
    /// Nodes in the job.
    pub nodes: u32,
    /// Name of the program.
    pub program: String,
    /// Start of the node, in microseconds since 1970.
    pub started: u64,
    /// Time from the start to the last write of this page.
    pub at: Duration,
    /// Protection of datagrams.
    pub seal: Seal,
    /// Operations that threads wait for.
    pub operations: u64,
    /// Messages for the program that have not been read.
    pub mail: u64,
    /// Waits of its threads that last (MEM-21.3), the longest first; empty if there is none.
    pub waits: String,
    /// The engine's counters.
    pub engine: Counters,
    /// Counters of multicast.
    pub groups: GroupCounters,
    /// The link's counters.
    pub link: LinkCounters,
    /// The shared arrays' counters.
    pub coherence: coherence::CoherenceStatistics,
    /// Accesses that this node refused to peers.
    pub refusals: RefusalCounts,
    /// Fast paths, in use or not.
    pub paths: PathStates,
    /// Reason why the first node of this machine shares no memory with this one; empty if all do.
    pub first_unshared: String,
    /// Reason why the first local peer's region was not mapped; empty if all are.
    pub first_unmapped: String,
    /// Reason why nodes of one machine keep pages of the first array that they do not map together;
    /// empty if there is none.
    pub first_paged: String,
}

impl NodePage {
    pub(super) fn write(&self, row: &mut Row) {
        row.all(&[u64::from(self.job), u64::from(self.rank), u64::from(self.nodes), self.started]);
        row.put(nanos(self.at));
        row.all(&[self.seal.kind() as u64, self.operations, self.mail]);
        row.text(&self.program, PROGRAM_WORDS);
        row.text(&self.waits, WAITS_WORDS);
        row.all(&self.engine.values());
        row.all(&self.groups.values());
        row.all(&self.link.values());
        row.all(&self.coherence.values());
        row.all(&self.refusals.values());
        row.all(&self.paths.values());
        row.text(&self.first_unshared, REASON_WORDS);
        row.text(&self.first_unmapped, REASON_WORDS);
        row.text(&self.first_paged, REASON_WORDS);
    }

    pub(super) fn read(mut row: Reader<'_>) -> Option<Self> {
        let row = &mut row;
        let [job, rank, nodes, started, at, seal, operations, mail] = row.all()?;
        let page = Self {
            job: u32::try_from(job).ok()?,
            rank: Rank::try_from(rank).ok()?,
            nodes: u32::try_from(nodes).ok().filter(|nodes| *nodes <= NODES_MAX)?,
            started,
            at: Duration::from_nanos(at),
            seal: Seal::ALL.into_iter().find(|known| known.kind() as u64 == seal)?,
            operations,
            mail,
            program: row.text(PROGRAM_WORDS)?,
            waits: row.line(WAITS_WORDS)?,
            engine: Counters::from_values(row.all()?),
            groups: GroupCounters::from_values(row.all()?),
            link: LinkCounters::from_values(row.all()?),
            coherence: coherence::CoherenceStatistics::from_values(row.all()?),
            refusals: RefusalCounts::from_values(row.all()?),
            paths: PathStates::from_values(row.all()?),
            first_unshared: row.line(REASON_WORDS)?,
            first_unmapped: row.line(REASON_WORDS)?,
            first_paged: row.line(REASON_WORDS)?,
        };
        (page.rank < page.nodes).then_some(page)
    }
}

/// Page of a peer, as its node shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPage {
    /// State of the peer.
    pub state: State,
    /// Address in use, once one has answered.
    pub address: Option<SocketAddr>,
    /// Cipher of the connection, if it has keys.
    pub cipher: Option<CipherKind>,
    /// Counters of the connection.
    pub counters: wind::Statistics,
    /// State of the connection.
    pub gauges: Gauges,
    /// Round trip times.
    pub round_trip: Histogram,
    /// Times from a message's post to its acknowledgement.
    pub settle: Histogram,
}

impl PeerPage {
    /// Returns the page of a peer in this engine. Returns `None` at the engine's own rank, and
    /// where there is no peer.
    pub fn of<L: Link, P: Pages>(engine: &Engine<L, P>, rank: Rank) -> Option<Self> {
        let latencies = engine.peers().latencies(rank)?;
        let snapshot = engine.peers().snapshot(rank)?;
        let copy = |latency: &wind::Latency| latency.histogram().cloned().unwrap_or_default();
        Some(Self {
            state: snapshot.standing.into(),
            address: engine.peers().address_of(rank),
            cipher: engine.peers().cipher_of(rank),
            counters: engine.peer_statistics(rank)?,
            gauges: Gauges { rings: engine.shm().contains(rank).into(), ..snapshot.into() },
            round_trip: copy(latencies.round_trip),
            settle: copy(latencies.settle),
        })
    }

    pub(super) fn write(&self, row: &mut Row) {
        // The first word tells a written record from an unwritten one.
        row.all(&[1, self.state as u64]);
        row.address(self.address);
        row.put(self.cipher.map_or(0, |cipher| cipher as u64));
        row.all(&self.counters.values());
        row.all(&self.gauges.values());
        write_histogram(&self.round_trip, row);
        write_histogram(&self.settle, row);
    }

    pub(super) fn read(mut row: Reader<'_>) -> Option<Self> {
        let row = &mut row;
        let [written, state] = row.all()?;
        let state = State::from_code(u8::try_from(state).ok().filter(|_| written == 1)?)?;
        Some(Self {
            state,
            address: row.address()?,
            cipher: row.all::<1>().map(|[code]| CipherKind::from_code(code as u8))?,
            counters: wind::Statistics::from_values(row.all()?),
            gauges: Gauges::from_values(row.all()?),
            round_trip: read_histogram(row)?,
            settle: read_histogram(row)?,
        })
    }
}

/// One of several flows of bulk to a peer, as the node shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPage {
    /// Rank of the peer.
    pub peer: Rank,
    /// Address that the flow goes to.
    pub address: Option<SocketAddr>,
    /// State of the flow.
    pub gauges: FlowGauges,
}

/// Flows of bulk to peers with several, by peer and flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowsPage {
    /// The first flows.
    pub flows: Vec<FlowPage>,
    /// Number of further flows, for which there is no room.
    pub left_out: u64,
}

impl FlowsPage {
    /// Returns the flows of these peers.
    pub(super) fn of<L: Link, P: Pages>(
        engine: &Engine<L, P>,
        peers: impl IntoIterator<Item = Rank>,
        now: Time,
    ) -> Self {
        let mut flows = peers.into_iter().flat_map(|peer| {
            let pages = engine.peers().flows(peer, now);
            pages.map(move |(flow, address)| FlowPage { peer, address, gauges: flow.into() })
        });
        let shown = flows.by_ref().take(FLOWS_SHOWN).collect();
        Self { flows: shown, left_out: flows.count() as u64 }
    }

    pub(super) fn write(&self, row: &mut Row) {
        row.all(&[self.flows.len() as u64, self.left_out]);
        for flow in &self.flows {
            row.put(flow.peer.into());
            row.address(flow.address);
            row.all(&flow.gauges.values());
        }
    }

    pub(super) fn read(mut row: Reader<'_>) -> Option<Self> {
        let [count, left_out] = row.all()?;
        let count = usize::try_from(count).ok().filter(|count| *count <= FLOWS_SHOWN)?;
        let flows = (0..count).map(|_| {
            Some(FlowPage {
                peer: Rank::try_from(row.take()?).ok()?,
                address: row.address()?,
                gauges: FlowGauges::from_values(row.all()?),
            })
        });
        Some(Self { flows: flows.collect::<Option<_>>()?, left_out })
    }
}

fn write_histogram(histogram: &Histogram, row: &mut Row) {
    row.put(u64::from(histogram.halvings()));
    row.put(nanos(histogram.longest()));
    row.pairs(histogram.counts());
}

fn read_histogram(row: &mut Reader<'_>) -> Option<Histogram> {
    let [halvings, longest] = row.all()?;
    Some(Histogram::from_parts(row.pairs()?, halvings as u32, Duration::from_nanos(longest)))
}
