//! Runs a node's protocol in turns, whose stages are bounded and always in the same order.
//!
//! [`Engine::turn`] is the whole contract: *ingress* (a burst from the link, upwards through Wind
//! to remote memory and coherence) → *events* (what that settled) → *timers* → *submissions* (what
//! threads asked for, and what the layers above owe their peers) → *egress* (the one place that
//! transmits) → *completions*. Callers have no obligations but to call it again when
//! [`Engine::next_timeout`] has come, the link has something, or a submission was made.
//!
//! The engine knows neither threads nor locks nor clocks; crate `oikaze` gives it those, the
//! simulator gives it others.

mod buffer_pool;
mod bulk_quota;
mod direct_placement;
mod dispatch;
mod egress;
mod events;
pub mod failure;
mod ingress;
mod leaving;
mod loopback;
pub mod ops;
mod peers;
mod regions;
pub mod seal;
mod shm;
mod submit;
#[cfg(test)]
mod tests;
mod token_bucket;
mod turn;
mod tx_batch;

pub use buffer_pool::Body;
pub use failure::Failure;
pub use ops::compound::Compound;
pub use ops::fence_watch::Fences;
pub use ops::label::{OperationKind, OperationLabel};
pub use ops::operation::{Completion, Outcome, Sink, Value};
pub use ops::submission::{Keep, Request, Submission};
pub use ops::untaken::Untaken;
pub use shm::exchange::Swap;
pub use shm::{ShmChannel, ShmChannels};
pub use submit::{tracked, tracked_by};
pub use turn::Work;

use crossbeam_queue::SegQueue;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::Link;
use oikaze_os::secret::Secret;
use oikaze_os::shm::Pair;
use oikaze_protocol::coherence::{Coherence, Pages};
use oikaze_protocol::limits::{HELD_MIN, HELD_TOTAL};
use oikaze_protocol::rma::Rma;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::congestion::Shares;
use oikaze_protocol::wind::{self, Class, Death, Introduction, PerLane, Settings};
use oikaze_protocol::{Rank, counters};
use ops::operation::Operations;
use peers::Peers;
use peers::peer::Peer;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tx_batch::Batch;

/// Configuration of an engine.
pub struct Setup {
    /// Rank of this node.
    pub me: Rank,
    /// Number of nodes in the job.
    pub nodes: u32,
    /// Incarnation of this process, greater than that of any earlier process at this rank.
    pub incarnation: u64,
    /// Addresses at which each rank may be reached, best first (empty for this node).
    pub addresses: Vec<Vec<SocketAddr>>,
    /// Maximum size in bytes of a datagram to each rank. If empty, the value in `settings` applies
    /// to all ranks.
    pub datagram_max: Vec<u16>,
    /// Random 64-bit connection id for each rank, by which that peer addresses this node.
    pub connections: Vec<u64>,
    /// Settings of Wind, the same for all peers.
    pub settings: Settings,
    /// Secret with which every handshake is sealed.
    pub secret: Secret,
    /// Local peers, each with the shared memory that it and this node have agreed to use.
    pub local_peers: Vec<(Rank, Pair)>,
}

/// A user's message that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Rank of the sender.
    pub from: Rank,
    /// Message class in which it was sent.
    pub class: Class,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Content of the message.
    pub body: Body,
}

counters! {
/// Counters of the engine, besides those of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of turns run.
    pub turns: u64,
    /// Looks at single peers, all stages of all turns together: only those are looked at that have
    /// something to do.
    pub visits: u64,
    /// Datagrams received that no connection wanted: garbage, or another job's.
    pub strangers: u64,
    /// Datagrams whose seal was wrong.
    pub unsealed: u64,
    /// Handshakes whose seal was wrong: another job's secret, or forged.
    pub unauthentic: u64,
    /// Handshakes dropped without a look at their seal, because too many wrong ones have come of
    /// late.
    pub unheard: u64,
    /// The link failed to send or to receive (not counting "full, try later" and "nothing there").
    pub link_errors: u64,
}
}

/// Protocol state of one node of a job, without threads.
pub struct Engine<L, P> {
    me: Rank,
    nodes: u32,
    link: L,
    pages: P,
    memory: RegionTable,
    peers: Peers,
    shares: Shares,
    priority: bulk_quota::Priority,
    rma: Rma,
    coherence: Coherence,
    operations: Operations,
    untaken: Arc<Untaken>,
    order: ops::fence::Order,
    arrived: VecDeque<Arrived>,
    buffer_pool: Arc<buffer_pool::BufferPool>,
    /// Time at which the latest long body arrived, if the pool keeps memory for more of them.
    long_body: Option<Time>,
    submissions: Arc<SegQueue<Submission>>,
    egress: PerLane<Batch>,
    local_peers: shm::local_peers::LocalPeers,
    handshake_seal: seal::HandshakeSeal,
    checksum: seal::Checksum,
    loopback: loopback::Loopback,
    retry: ops::retry::RetryQueue,
    deaths: VecDeque<(Rank, Death)>,
    leaving: leaving::Leaving,
    notices: Vec<String>,
    /// Notices to print, each once.
    warnings: VecDeque<String>,
    counters: Counters,
    /// Time without a sign of life after which a peer counts as dead.
    failure_time: Duration,
    handshake_limiter: ingress::HandshakeLimiter,
    direct_placement: direct_placement::DirectPlacement,
    /// Time at which the latest turn began.
    now: Time,
    /// Time of the latest poll of the link.
    looked: Time,
    /// Number of events that a thread may wait for and that are not operations in flight: arrivals,
    /// deaths, requests that were settled at once.
    news: usize,
    /// Messages that took the fast path, outside turns, since a turn last polled the link.
    fast_messages: u32,
    ahead: shm::fast_path::Ahead,
    /// Is `true` if the last turn left work to do at once.
    more: bool,
    /// Is `true` if the last turn stopped early because it had news, see [`Engine::turn_for_news`].
    unfinished: bool,
    /// Peers with waiting messages for which their connection has no room.
    holding: Vec<Rank>,
    /// Failure of every new operation once the engine has ended.
    ended: Option<Failure>,
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Creates a node that knows its peers' addresses and begins to connect to them at its first
    /// turn.
    ///
    /// # Errors
    /// The parts of `setup` contradict each other.
    pub fn new(
        setup: Setup,
        link: L,
        pages: P,
        submissions: Arc<SegQueue<Submission>>,
        now: Time,
    ) -> Result<Self, Failure> {
        let Setup {
            me,
            nodes,
            incarnation,
            addresses,
            datagram_max,
            connections,
            mut settings,
            secret,
            local_peers,
        } = setup;
        if me >= nodes {
            return Err(Failure::NoSuchNode { rank: me, nodes });
        }
        let checksum = seal::Checksum::of(settings.seal).ok_or_else(|| {
            Failure::Machine(format!(
                "datagrams cannot be sealed with {:?}: use a checksum",
                settings.seal
            ))
        })?;
        settings.held_max =
            settings.held_max.min((HELD_TOTAL / u64::from(nodes.max(2) - 1)).max(HELD_MIN));
        let everywhere = settings
            .datagram_max
            .min(u16::try_from(link.properties().datagram_max).unwrap_or(u16::MAX));
        let (mut peers, mut buffer) = (Peers::new(nodes), u32::MAX);
        let mut fit = addresses.len() == nodes as usize && connections.len() == nodes as usize;
        for (rank, (addresses, id)) in
            (0..nodes).zip(addresses.into_iter().zip(connections)).filter(|(rank, _)| *rank != me)
        {
            settings.datagram_max =
                datagram_max.get(rank as usize).map_or(everywhere, |&there| there.min(everywhere));
            settings.receive_buffer =
                u32::try_from(link.properties().receive_room(settings.datagram_max.into()))
                    .unwrap_or(u32::MAX);
            buffer = buffer.min(settings.receive_buffer);
            let bulk_port = link.properties().bulk_port.unwrap_or(0);
            let (datagram_max, here) =
                (settings.datagram_max, Introduction::here(me, nodes, incarnation, id));
            let introduction = Introduction { datagram_max, bulk_port, ..here };
            fit &= peers.insert(rank, Peer::new(settings, introduction, rank, addresses, now));
        }
        if !fit {
            return Err(Failure::Machine(format!(
                "a job of {nodes} needs addresses and distinct connection ids for every node"
            )));
        }
        let mut engine = Self {
            me,
            nodes,
            link,
            pages,
            memory: RegionTable::new(),
            peers,
            shares: Shares::new(buffer.into(), nodes),
            priority: bulk_quota::Priority::default(),
            rma: Rma::new(),
            coherence: Coherence::new(me, nodes),
            operations: Operations::default(),
            untaken: Arc::default(),
            order: ops::fence::Order::default(),
            arrived: VecDeque::new(),
            buffer_pool: Arc::default(),
            long_body: None,
            submissions,
            egress: PerLane::default(),
            local_peers: shm::local_peers::LocalPeers::default(),
            handshake_seal: seal::HandshakeSeal::new(&secret),
            checksum,
            loopback: loopback::Loopback::default(),
            retry: ops::retry::RetryQueue::default(),
            deaths: VecDeque::new(),
            leaving: leaving::Leaving::default(),
            notices: Vec::new(),
            warnings: VecDeque::new(),
            counters: Counters::default(),
            failure_time: settings.failure_time,
            handshake_limiter: ingress::HandshakeLimiter::new(now),
            direct_placement: direct_placement::DirectPlacement::default(),
            now,
            looked: now,
            news: 0,
            fast_messages: 0,
            ahead: shm::fast_path::Ahead::default(),
            more: false,
            unfinished: false,
            holding: Vec::new(),
            ended: None,
        };
        let attached = engine.attach_local_peers(local_peers);
        attached
            .map_err(|why| Failure::Machine(format!("local peers cannot be watched: {why}")))?;
        Ok(engine)
    }

    /// Begins to connect to every peer.
    pub fn connect(&mut self, now: Time) {
        self.peers.touch_all().for_each(|peer| peer.connection.connect(now));
        self.peers.settle(now);
    }

    /// Returns a peer that has work and that the next turn would skip. Used by audits: any such
    /// peer is a bug of the engine.
    #[must_use]
    pub fn overlooked(&self, now: Time) -> Option<Rank> {
        if self.unfinished { None } else { self.peers.overlooked(now) }
    }

    /// Returns the rank of this node.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.me
    }

    /// Returns the number of nodes in the job.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the table of regions.
    pub fn memory(&mut self) -> &mut RegionTable {
        &mut self.memory
    }

    /// Returns the pages of the shared arrays.
    pub fn pages(&mut self) -> &mut P {
        &mut self.pages
    }

    /// Returns the coherence state of the shared arrays.
    pub fn coherence(&mut self) -> &mut Coherence {
        &mut self.coherence
    }

    /// Returns the link.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.link
    }

    /// Returns the link for changes by tests and by the simulator.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Takes the oldest message for the user that has not been taken yet.
    pub fn take_arrived(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Takes the oldest death of a peer that has not been taken yet.
    pub fn take_death(&mut self) -> Option<(Rank, Death)> {
        self.deaths.pop_front()
    }

    /// Returns `true` if the connection to this peer is established.
    #[must_use]
    pub fn is_connected(&self, rank: Rank) -> bool {
        rank == self.me || self.peer(rank).is_some_and(|peer| peer.connection.is_established())
    }

    /// Returns the address in use for this peer, once one has answered.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<SocketAddr> {
        let peer = self.peer(rank)?;
        peer.addresses.get(usize::from(peer.connection.path()?)).copied()
    }

    /// Returns the statistics of this peer: those of Wind, with the shared-memory traffic added.
    #[must_use]
    pub fn peer_statistics(&self, rank: Rank) -> Option<wind::Statistics> {
        let peer = self.peer(rank)?;
        let wind = *peer.connection.statistics();
        let rings = peer.local_peer.as_ref().map_or(peer.rings, |local_peer| local_peer.counters());
        Some(wind::Statistics {
            messages_posted: wind.messages_posted + rings.messages_out,
            bytes_sent: wind.bytes_sent + rings.bytes_out,
            messages_delivered: wind.messages_delivered + rings.messages_in,
            bytes_received: wind.bytes_received + rings.bytes_in,
            ..wind
        })
    }

    /// Returns `true` if this peer shares memory with this node.
    #[must_use]
    pub fn is_local_peer(&self, rank: Rank) -> bool {
        self.peers.local_peer(rank).is_some()
    }

    /// Returns the current state of this peer's connection.
    #[must_use]
    pub fn peer_snapshot(&self, rank: Rank) -> Option<wind::Snapshot> {
        self.peer(rank).map(|peer| peer.connection.snapshot())
    }

    /// Returns the latencies of round trips and of messages to this peer.
    #[must_use]
    pub fn peer_latencies(&self, rank: Rank) -> Option<wind::Latencies<'_>> {
        self.peer(rank).map(|peer| peer.connection.latencies())
    }

    /// Returns notices for the user, such as a mechanism that the kernel refuses.
    pub fn notices(&mut self) -> &[String] {
        while let Some(notice) = self.link.notice() {
            self.notices.push(notice);
        }
        &self.notices
    }

    /// Takes a notice that the user should see now, though nothing has failed.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Adds a notice for the user.
    pub fn note(&mut self, notice: String) {
        self.notices.push(notice);
    }

    /// Returns the engine's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { visits: self.peers.visits, ..self.counters }
    }

    /// Ends every operation in flight, and every later one, with this failure.
    pub fn end(&mut self, failure: &Failure) {
        self.ended = Some(failure.clone());
        self.order.end(failure);
        self.end_fast(failure);
        self.operations.settle_all(failure);
    }

    /// Returns the number of operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn peer(&self, rank: Rank) -> Option<&Peer> {
        self.peers.get(rank)
    }
}
