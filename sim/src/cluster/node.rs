//! One node: its engine, its threads, and the times of its actions.

use super::disks::Disks;
use crate::net::{Departure, SharedMailbox, SimLink, address_of, nowhere, open};
use crate::oracle::{FifosOracle, NodeMemory, Oracle, SUMS_LEN};
use crate::pages::SimPages;
use crate::plan::{Plan, Role, Scenario};
use crate::program::{
    Accessor, Caster, Context, Counter, FIXED_LEN, Layout, Mail, Messenger, Program, Registrar,
    Sharer, SimEngine, Together, WORDS_LEN,
};
use crate::random::{Random, bytes_of};
use crate::trace::Trace;
use crossbeam_queue::SegQueue;
use oikaze_engine::{Engine, KeyOptions, Request, Setup, Submission, Work};
use oikaze_os::memory::{MemoryError, Region};
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Published, Rights};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Settings};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of turns in a row before other nodes have theirs.
const TURNS_IN_A_ROW: usize = 16;
/// Time between two turns of an engine that has more to do.
const BREATH: Duration = Duration::from_micros(2);
/// Time after which a full link is tried again.
const LINK_AGAIN: Duration = Duration::from_micros(20);

/// A simulated node.
pub struct Node {
    /// Rank of the node.
    pub rank: Rank,
    /// Life of the node; 0 is the first.
    pub life: u8,
    /// Engine of the node.
    pub engine: SimEngine,
    /// Threads of the node.
    pub threads: Vec<Box<dyn Program>>,
    /// Mailbox that the network fills and empties.
    pub mailbox: SharedMailbox,
    /// Time of the next turn, if one is planned.
    pub turn_at: Option<Time>,
    /// Time until which the node stands still.
    pub stalled_until: Time,
    /// Peers that the node has found dead.
    pub deaths: Vec<(Rank, Death)>,
    submissions: Arc<SegQueue<Submission>>,
    together: Together,
    /// Messages that the program reads later: time, sender, length.
    unread: VecDeque<(Time, Rank, u64)>,
    disks: Disks,
    random: Random,
    nodes: u32,
    reading: Duration,
}

/// Result of a node's turns.
pub struct Turned {
    /// Datagrams that the node sent.
    pub sent: Vec<Departure>,
    /// Time of the next turn that the node wants.
    pub next: Option<Time>,
}

impl Node {
    /// Makes a node of this plan at the beginning of one of its lives.
    ///
    /// # Errors
    /// The machine has no memory left.
    pub fn start(
        plan: &Plan,
        rank: Rank,
        life: u8,
        now: Time,
        oracle: &mut Oracle,
    ) -> Result<Node, String> {
        let purpose = |what: u64| {
            Random::stream(plan.seed, what << 32 | u64::from(life) << 16 | u64::from(rank))
        };
        let link = SimLink::new(
            address_of(rank),
            usize::from(plan.settings.datagram_max),
            plan.settings.receive_buffer as usize,
            plan.refusing,
            purpose(1),
        )
        .with_flows(plan.link_flows());
        let mailbox = link.mailbox();
        let submissions = Arc::new(SegQueue::new());
        let pages = SimPages::new(purpose(2));
        let setup = setup(plan, rank, life, &mut purpose(3));
        let mut engine = Engine::new(setup, link, pages, Arc::clone(&submissions), now)
            .map_err(|failure| failure.to_string())?;
        let mut disks = Disks::default();
        if plan.accessors > 0 && life == 0 {
            let memory;
            (memory, disks) = publish(plan, rank, &mut engine, oracle)?;
            oracle.memory.add_node(rank, memory);
        }
        if let Some(body_min) = plan.multicast {
            engine.use_multicast(body_min);
        }
        engine.connect(now);
        Ok(Node {
            rank,
            life,
            engine,
            threads: threads(plan, rank, life),
            mailbox,
            turn_at: None,
            stalled_until: Time::default(),
            deaths: Vec::new(),
            submissions,
            together: Together::default(),
            unread: VecDeque::new(),
            disks,
            random: purpose(4),
            nodes: plan.nodes,
            reading: plan.reading,
        })
    }

    /// Runs one turn as a waiting thread does.
    fn turn_of_a_waiter(&mut self, now: Time) -> Work {
        let mut polls = 1;
        self.engine.turn_until_news(now, || {
            let again = polls > 0;
            polls = 0;
            again.then_some(now)
        })
    }

    /// Runs turns until there is nothing to do at this moment (or enough was done).
    ///
    /// # Errors
    /// A promise was broken.
    pub fn turn(
        &mut self,
        now: Time,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) -> Result<Turned, String> {
        let mut sent = Vec::new();
        let mut next = None;
        for _ in 0..TURNS_IN_A_ROW {
            let work = if self.random.below(2) == 0 {
                self.engine.turn(now)
            } else {
                self.turn_of_a_waiter(now)
            };
            sent.append(&mut open(&self.mailbox).outbox);
            trace.event(now, self.rank, format_args!("turn {work:?}"));
            if let Some(peer) = self.engine.missed_peer(now) {
                return Err(format!(
                    "node {peer} has something to do, but the engine would not look at it"
                ));
            }
            self.collect(now, oracle, trace)?;
            // Pops only now and then, so that the FIFO is often full.
            if self.random.chance(0.3) {
                oracle.fifos.pop(self.rank)?;
            }
            self.read(now);
            let (acted, wake) = self.poll(now, oracle, trace)?;
            next = [wake, self.disks.advance(now, &mut self.random)].into_iter().flatten().min();
            let waiting = !open(&self.mailbox).inbox.is_empty() || !self.submissions.is_empty();
            if !acted && !work.more && !waiting {
                return Ok(Turned { sent, next: self.next_turn(now, next) });
            }
            if work.more && work.sent == 0 && work.received == 0 && !acted && !waiting {
                // Only the link is in the way.
                return Ok(Turned { sent, next: Some(now + LINK_AGAIN) });
            }
        }
        Ok(Turned {
            sent,
            next: Some(next.map_or(now + BREATH, |next| next.max(now).min(now + BREATH))),
        })
    }

    fn next_turn(&self, now: Time, wake: Option<Time>) -> Option<Time> {
        let reading = self.unread.iter().map(|(at, _, _)| *at).min();
        let next = [self.engine.next_timeout(), wake, reading].into_iter().flatten().min()?;
        Some(next.max(now + Duration::from_micros(1)))
    }

    /// Collects the messages that the turn has brought for the program, and its reports about
    /// peers.
    fn collect(&mut self, now: Time, oracle: &mut Oracle, trace: &mut Trace) -> Result<(), String> {
        while let Some(arrived) = self.engine.inbox().take_arrived() {
            let (from, len) = (arrived.from, arrived.body.len());
            trace.event(
                now,
                self.rank,
                format_args!(
                    "{:?} {:#x} of {len} bytes from node {from}",
                    arrived.class, arrived.tag
                ),
            );
            if let Some(claim) =
                oracle.messages.arrived(self.rank, &arrived)?.filter(|_| self.life == 0)
            {
                let what = "an ordered message came before the put that was posted before it";
                oracle.memory.holds(what, self.rank, claim.offset, &claim.bytes)?;
            }
            let at =
                now + Duration::from_nanos(self.random.below(self.reading.as_nanos() as u64 + 1));
            self.unread.push_back((at, from, len as u64));
        }
        while let Some(parcel) = self.engine.inbox().take_parcel() {
            let (from, number) = (parcel.from, parcel.head.number);
            trace.event(now, self.rank, format_args!("parcel {number} from node {from}"));
            oracle.casts.arrived(self.rank, &parcel)?;
        }
        while let Some((rank, death)) = self.engine.inbox().take_death() {
            trace.event(now, self.rank, format_args!("finds node {rank} dead: {death:?}"));
            if !oracle.may_lose((self.rank, self.life), rank) {
                return Err(format!("node {rank} is well but was found dead: {death}"));
            }
            if death != Death::Restarted {
                oracle.estranged.insert(self.rank);
            }
            self.deaths.push((rank, death));
        }
        match self.engine.pages().misuse() {
            Some(misuse) => Err(misuse),
            None => oracle.memory.check_signals(self.rank),
        }
    }

    /// Reads messages whose time has come.
    fn read(&mut self, now: Time) {
        let submissions = &self.submissions;
        self.unread.retain(|(at, from, bytes)| {
            if *at <= now {
                let request = Request::Consumed { from: *from, messages: 1, bytes: *bytes };
                submissions.push(Submission { request, completion: None, keep: None });
            }
            *at > now
        });
    }

    /// Polls the threads in any order.
    fn poll(
        &mut self,
        now: Time,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) -> Result<(bool, Option<Time>), String> {
        let Self { rank, life, engine, threads, submissions, together, random, nodes, .. } = self;
        let (mut acted, mut wake) = (false, None);
        let first = random.index(threads.len().max(1));
        for turn in 0..threads.len() {
            let at = (first + turn) % threads.len();
            let (me, life, nodes) = (*rank, *life, *nodes);
            let mut context =
                Context { now, me, life, nodes, engine, submissions, oracle, trace, together };
            let progress = threads[at].poll(&mut context)?;
            acted |= progress.acted;
            wake = [wake, progress.wake].into_iter().flatten().min();
        }
        Ok((acted, wake))
    }

    /// Returns `true` if this node has noticed that node `rank` was killed. A node that had not
    /// known `rank` before notices it by knowing the replacement of `rank`.
    #[must_use]
    pub fn knows_end_of(&self, rank: Rank) -> bool {
        self.rank == rank
            || self.deaths.iter().any(|(dead, _)| *dead == rank)
            || self.engine.peers().is_connected(rank)
    }

    /// Returns `true` if all threads have done what they wanted.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(|thread| thread.is_finished())
    }

    /// Returns the time since which the node's oldest operation waits.
    #[must_use]
    pub fn waits_since(&self) -> Option<Time> {
        self.threads
            .iter()
            .filter_map(|thread| thread.waits_since())
            .chain(self.together.waits_since())
            .min()
    }

    /// Says goodbye to all peers.
    pub fn close(&mut self) {
        self.submissions.push(Submission { request: Request::Close, completion: None, keep: None });
    }
}

fn setup(plan: &Plan, rank: Rank, life: u8, random: &mut Random) -> Setup {
    let mut secret = [0; 32];
    secret.copy_from_slice(&bytes_of(plan.seed, 32));
    let addresses = |peer: Rank| {
        let real = address_of(peer);
        match (peer == rank, plan.false_candidates) {
            (true, _) => Vec::new(),
            (false, true) => vec![nowhere(peer), real],
            (false, false) => vec![real],
        }
    };
    Setup {
        me: rank,
        nodes: plan.nodes,
        incarnation: 1 + u64::from(life),
        addresses: (0..plan.nodes).map(addresses).collect(),
        // In some runs, each path carries another size.
        datagram_max: match random.chance(0.3) {
            true => (0..plan.nodes).map(|_| *random.pick(&[1232, 1400, 1472, 8952])).collect(),
            false => Vec::new(),
        },
        connections: (0..plan.nodes).map(|_| random.word().max(1)).collect(),
        settings: Settings { private_seed: random.word(), ..plan.settings },
        secret: Secret::from_bytes(secret),
        keys: KeyOptions::default(),
        local_peers: Vec::new(),
    }
}

/// Publishes the node's regions under their names.
fn publish(
    plan: &Plan,
    rank: Rank,
    engine: &mut SimEngine,
    oracle: &mut Oracle,
) -> Result<(NodeMemory, Disks), String> {
    let no_memory = |error: MemoryError| error.to_string();
    let fixed = Region::private(FIXED_LEN).map_err(no_memory)?;
    fixed.write(0, &oracle.memory.fixed(rank, FIXED_LEN)).map_err(|error| error.to_string())?;
    let arena_len = Layout::arena_len(plan.accessors, plan.stripe);
    let mut disks = Disks::default();
    // One node in three has files. Where additions are counted, files would only take time.
    let files = rank % 3 == 1 && plan.scenario != Scenario::Counts;
    let mut memory = |len: usize, plain: fn(usize) -> Result<Region, MemoryError>| match files {
        true => Region::staged(len).map(|(region, disk)| {
            disks.add(disk, len);
            region
        }),
        false => plain(len),
    };
    let arena =
        memory(arena_len, if rank.is_multiple_of(2) { Region::private } else { Region::shared })
            .map_err(no_memory)?;
    let words = memory(WORDS_LEN, Region::private).map_err(no_memory)?;
    let closed = Region::private(4096).map_err(no_memory)?;
    let sums = memory(SUMS_LEN, Region::private).map_err(no_memory)?;
    oracle.sums.add_node(rank, sums.clone());
    let shape = FifosOracle::shape().ok_or("no such FIFO")?;
    let fifo = Region::shared(shape.bytes() as usize).map_err(no_memory)?;
    let queue = oikaze_os::memory::fifo::Fifo::format(fifo.clone(), shape)
        .map_err(|error| error.to_string())?;
    oracle.fifos.add_node(rank, queue);
    let regions = [
        ("fixed", &fixed, Rights::READ),
        ("arena", &arena, Rights::READ | Rights::WRITE),
        ("words", &words, Rights::READ | Rights::ATOMIC),
        ("sums", &sums, Rights::ATOMIC),
        ("fifo", &fifo, Rights::PUSH),
        ("closed", &closed, Rights::NONE),
    ];
    for (name, region, rights) in regions {
        let registered = engine.memory().insert(region.clone(), rights).map_err(no_memory)?;
        let published = Published { key: registered.key, len: region.len() as u64, rights };
        engine.rma().publish(name, published).map_err(|error| error.to_string())?;
    }
    Ok((NodeMemory { fixed, arena, words }, disks))
}

fn threads(plan: &Plan, rank: Rank, life: u8) -> Vec<Box<dyn Program>> {
    let stream = |at: usize| {
        Random::stream(
            plan.seed,
            5 << 32 | u64::from(life) << 24 | u64::from(rank) << 8 | at as u64,
        )
    };
    if life > 0 {
        // The replacement of a dead node knows nothing of its work, and only sends messages.
        return vec![Box::new(Messenger::new(
            Mail { count: 20, in_flight: 8, longest: 10_000 },
            stream(0),
        ))];
    }
    let mut threads: Vec<Box<dyn Program>> = Vec::new();
    for (at, role) in plan.roles[rank as usize].iter().enumerate() {
        match (role, &plan.shared) {
            (Role::Messenger(mail), _) => threads.push(Box::new(Messenger::new(*mail, stream(at)))),
            (Role::Accessor(work), _) => threads.push(Box::new(Accessor::new(*work, stream(at)))),
            (Role::Registrar(work), _) => threads.push(Box::new(Registrar::new(*work, stream(at)))),
            (Role::Caster(casting), _) => threads.push(Box::new(Caster::new(*casting, stream(at)))),
            (Role::Counter(count), _) => threads.push(Box::new(Counter::new(*count, stream(at)))),
            (Role::Sharer(thread), Some(shared)) => {
                threads.push(Box::new(Sharer::new(
                    Arc::clone(shared),
                    *thread,
                    plan.sharers,
                    stream(at),
                )));
            }
            (Role::Sharer(_), None) => {}
        }
    }
    threads
}
