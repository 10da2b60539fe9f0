//! One node with very many peers: a real engine, and peers that are bare connections.
//!
//! A [`crate::cluster`] cannot show the work of a node for a thousand peers, because every node
//! would have a thousand connections. Here only the hub is an engine, and its peers answer at once.
//! The network loses nothing. The model is about time: a turn takes as long as its bytes take to
//! hand over, so datagrams behind them wait measurably.

mod leaf;

pub use leaf::{Heard, Leaf, SHORT};

use crate::net::{Departure, SharedMailbox, SimLink, address_of as hub_address, open};
use crate::pages::SimPages;
use crate::program::SimEngine;
use crate::random::{Random, bytes_of};
use crossbeam_queue::SegQueue;
use oikaze_engine::seal::HandshakeSeal;
use oikaze_engine::{Completion, Engine, KeyOptions, Request, Setup, Submission, tracked};
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Settings;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Latency of one way through the network.
pub const LATENCY: Duration = Duration::from_micros(20);
/// Time of a turn, without the bytes that it hands over.
const TURN: Duration = Duration::from_micros(1);
/// Bytes handed to the kernel per microsecond: 4 GB/s.
const BYTES_A_MICROSECOND: u64 = 4_000;
/// Number of events after which a run makes no progress.
const EVENTS_MAX: u64 = 5_000_000;

/// A datagram in flight.
pub(super) struct Sent {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

enum Event {
    Arrives(Sent),
    HubTurn,
    LeafTurn(Rank),
}

/// A hub and its peers.
pub struct Crowd {
    /// Current virtual time.
    pub now: Time,
    /// The node of rank 0.
    pub hub: SimEngine,
    /// The other nodes, from rank 1 on.
    pub leaves: Vec<Leaf>,
    mailbox: SharedMailbox,
    room: usize,
    submissions: Arc<SegQueue<Submission>>,
    queue: BTreeMap<(Time, u64), Event>,
    /// Number of events made so far. Events of one moment happen in the order in which they were
    /// made.
    made: u64,
    events: u64,
    hub_turn: Option<Time>,
    /// Time until which the hub hands over datagrams.
    busy: Time,
}

/// Returns the address of a leaf.
fn address_of(rank: Rank) -> SocketAddr {
    let [_, _, high, low] = rank.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 1, high, low), 7000))
}

impl Crowd {
    /// Makes a hub with this many peers, to which it begins to connect.
    ///
    /// # Errors
    /// The machine has no memory left.
    pub fn new(seed: u64, leaves: u32, settings: Settings) -> Result<Crowd, String> {
        let nodes = leaves + 1;
        let random = &mut Random::stream(seed, 0x6372_6f77);
        let room = settings.receive_buffer as usize;
        let link = SimLink::new(
            hub_address(0),
            usize::from(settings.datagram_max),
            room,
            0.0,
            Random::stream(seed, 1),
        );
        let mailbox = link.mailbox();
        let submissions = Arc::new(SegQueue::new());
        let mut secret = [0; 32];
        secret.copy_from_slice(&bytes_of(seed, 32));
        let secret = Secret::from_bytes(secret);
        let seal = HandshakeSeal::new(&secret);
        let setup = Setup {
            me: 0,
            nodes,
            incarnation: 1,
            addresses: (0..nodes)
                .map(|rank| if rank == 0 { Vec::new() } else { vec![address_of(rank)] })
                .collect(),
            datagram_max: Vec::new(),
            connections: (0..nodes).map(|_| random.word().max(1)).collect(),
            settings,
            secret,
            keys: KeyOptions::default(),
            local_peers: Vec::new(),
        };
        let pages = SimPages::new(Random::stream(seed, 2));
        let now = Time(1);
        let mut hub = Engine::new(setup, link, pages, Arc::clone(&submissions), now)
            .map_err(|failure| failure.to_string())?;
        hub.connect(now);
        let leaves = (1..nodes)
            .map(|rank| Leaf::new(rank, nodes, random.word().max(1), settings, &seal))
            .collect();
        let mut crowd = Crowd {
            now,
            hub,
            leaves,
            mailbox,
            room,
            submissions,
            queue: BTreeMap::new(),
            made: 0,
            events: 0,
            hub_turn: None,
            busy: now,
        };
        crowd.wake_hub(now);
        Ok(crowd)
    }

    /// Returns the peer of this rank.
    pub fn leaf(&mut self, rank: Rank) -> &mut Leaf {
        &mut self.leaves[rank as usize - 1]
    }

    /// Submits a request to the hub now.
    pub fn ask(&mut self, request: Request) -> Arc<Completion> {
        let (submission, completion) = tracked(request, None);
        self.submissions.push(submission);
        self.wake_hub(self.now);
        completion
    }

    /// Makes a peer send this many bytes to the hub now.
    pub fn say(&mut self, rank: Rank, bytes: usize) {
        let now = self.now;
        self.leaf(rank).say(now, bytes);
        self.turn_leaf(rank);
    }

    /// Delivers bytes from any address to the hub now.
    pub fn knock(&mut self, from: SocketAddr, bytes: Vec<u8>) {
        self.push(self.now, Event::Arrives(Sent { from, to: hub_address(0), bytes }));
    }

    /// Returns the address from which the peer of this rank sends, for forgers.
    #[must_use]
    pub fn address(&self, rank: Rank) -> SocketAddr {
        address_of(rank)
    }

    /// Handles events in order until the condition holds.
    ///
    /// # Errors
    /// The condition does not hold in time, or the hub overlooks a peer.
    pub fn run_until(
        &mut self,
        deadline: Time,
        mut done: impl FnMut(&mut Crowd) -> bool,
    ) -> Result<(), String> {
        while !done(self) {
            let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= deadline)
            else {
                return Err(format!("not done by {deadline:?}: {:?}", self.hub.counters()));
            };
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(format!("{EVENTS_MAX} events and no end: {:?}", self.hub.counters()));
            }
            self.happen(event)?;
        }
        Ok(())
    }

    /// Handles all events of a span of time.
    ///
    /// # Errors
    /// The hub overlooks a peer.
    pub fn pass(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        self.run_until(Time(u64::MAX), |crowd| {
            crowd.queue.first_key_value().is_none_or(|((at, _), _)| *at > end)
        })?;
        self.now = end;
        Ok(())
    }

    /// Removes the peers and all datagrams in flight, so that only the hub is left.
    pub fn disperse(&mut self) {
        self.leaves.clear();
        self.leaves.shrink_to_fit();
        self.queue = BTreeMap::new();
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives(Sent { from, to, bytes }) if to == hub_address(0) => {
                open(&self.mailbox).deliver(from, bytes, false, self.room);
                self.wake_hub(self.now);
            }
            Event::Arrives(Sent { to, bytes, .. }) => {
                let SocketAddr::V4(at) = to else { return Ok(()) };
                let [_, _, high, low] = at.ip().octets();
                let rank = Rank::from_be_bytes([0, 0, high, low]);
                let now = self.now;
                if let Some(leaf) = self.leaves.get_mut((rank as usize).wrapping_sub(1)) {
                    leaf.receive(now, &bytes);
                    self.turn_leaf(rank);
                }
            }
            Event::HubTurn if self.hub_turn == Some(self.now) => self.turn_hub()?,
            Event::HubTurn => {}
            Event::LeafTurn(rank) => {
                let planned = self.leaves.get(rank as usize - 1).and_then(|leaf| leaf.turn_at);
                if planned == Some(self.now) {
                    self.turn_leaf(rank);
                }
            }
        }
        Ok(())
    }

    /// Runs one turn of the hub. Its datagrams leave one after another.
    fn turn_hub(&mut self) -> Result<(), String> {
        self.hub_turn = None;
        let now = self.now;
        let work = self.hub.turn(now);
        if let Some(peer) = self.hub.missed_peer(now) {
            return Err(format!(
                "node {peer} has something to do, but the engine would not look at it"
            ));
        }
        let mut bytes = 0;
        let sent = std::mem::take(&mut open(&self.mailbox).outbox);
        for Departure { to, bytes: datagram, .. } in sent {
            bytes += datagram.len() as u64;
            let left = now + TURN + handing_over(bytes);
            self.push(
                left + LATENCY,
                Event::Arrives(Sent { from: hub_address(0), to, bytes: datagram }),
            );
        }
        self.busy = now + TURN + handing_over(bytes);
        if work.more || !open(&self.mailbox).inbox.is_empty() {
            self.wake_hub(self.busy);
        } else if let Some(next) = self.hub.next_timeout() {
            self.wake_hub(next);
        }
        Ok(())
    }

    fn turn_leaf(&mut self, rank: Rank) {
        let now = self.now;
        let leaf = self.leaf(rank);
        let sent = leaf.turn(now);
        let next = leaf.connection.next_timeout().map(|at| at.max(now + TURN));
        leaf.turn_at = next;
        if let Some(next) = next {
            self.push(next, Event::LeafTurn(rank));
        }
        for datagram in sent {
            self.push(now + LATENCY, Event::Arrives(datagram));
        }
    }

    fn wake_hub(&mut self, at: Time) {
        let at = at.max(self.busy).max(self.now);
        if self.hub_turn.is_none_or(|planned| at < planned) {
            self.hub_turn = Some(at);
            self.push(at, Event::HubTurn);
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.made += 1;
        self.queue.insert((at, self.made), event);
    }
}

fn handing_over(bytes: u64) -> Duration {
    Duration::from_nanos(bytes * 1_000 / BYTES_A_MICROSECOND)
}
