//! Coherence against a model of the machine: n nodes, a network that delivers in any order the
//! message classes allow, memory as byte vectors, threads as little programs. Every run comes from
//! one seed, which a failure prints.

pub mod locked;
pub mod machine;
pub mod network;
pub mod notified;
pub mod programs;
pub mod threads;

use machine::Machine;
use network::Network;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    ArrayId, Coherence, CoherenceError, CoherenceEvent, Declaration, Element, Homes, Value,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::Token;
use std::collections::BTreeMap;
use threads::Thread;

/// Returns `count` seeds from `first` on, or `OIKAZE_SEEDS` times as many.
pub fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let times =
        std::env::var("OIKAZE_SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    first..first + count * times
}

pub type Outcome = Result<Value, CoherenceError>;

/// Node of the cluster: the real coherence over a model of memory.
pub struct Node {
    pub coherence: Coherence,
    pub machine: Machine,
    pub outcomes: BTreeMap<Token, Outcome>,
    pub alive: bool,
    /// Nodes that contradict this one.
    pub contradictions: Vec<Rank>,
    next_token: u64,
}

impl Node {
    pub fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }
}

/// Code of a notification.
pub const NOTIFY: u8 = 18;
/// Code of an arrival.
const ARRIVE: u8 = 4;
/// Code of the message that a lock was passed on.
const PASSED: u8 = 20;

pub struct Cluster {
    pub seed: u64,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub network: Network,
    /// Code of a message that is lost: the next such message is acknowledged and does not arrive.
    pub forged: Option<u8>,
    /// Knowledge that the members of each team barrier have told, by its number.
    pub told: BTreeMap<usize, BTreeMap<Rank, Vec<u8>>>,
    /// Lengths of the bodies of all notifications.
    pub notified: Vec<u64>,
    /// Number of locks that holders passed on directly.
    pub passed: u64,
    /// Sum of the lengths of the bodies that each node has posted, by the code of the message.
    pub posted: BTreeMap<(u8, Rank), u64>,
    /// Number of arrivals that nodes have posted.
    pub arrivals: u64,
    /// Is `true` if stores to plain arrays sometimes take a guard.
    pub takes_guards: bool,
    /// Is `true` if nodes ask to be the homes of pages that they write.
    pub homes_move: bool,
}

/// Code of a fetch.
pub const FETCH: u8 = 1;

impl Cluster {
    pub fn new(nodes: u32, seed: u64) -> Cluster {
        let node = |rank| Node {
            coherence: Coherence::new(rank, nodes),
            machine: Machine::default(),
            outcomes: BTreeMap::new(),
            alive: true,
            contradictions: Vec::new(),
            next_token: 0,
        };
        let nodes = (0..nodes).map(node).collect();
        Cluster {
            seed,
            random: Random::new(seed),
            nodes,
            network: Network::default(),
            forged: None,
            told: BTreeMap::new(),
            notified: Vec::new(),
            passed: 0,
            posted: BTreeMap::new(),
            arrivals: 0,
            takes_guards: false,
            homes_move: false,
        }
    }

    /// Creates a cluster with an array whose homes are blocks of pages.
    pub fn with_array(nodes: u32, seed: u64, pages: u64) -> Cluster {
        let mut cluster = Cluster::new(nodes, seed);
        cluster.declare("p", pages, Homes::Block);
        cluster
    }

    /// Calls a method of one node's coherence with a new token, and returns the token.
    pub fn call(
        &mut self,
        rank: Rank,
        call: impl FnOnce(&mut Coherence, Token, &mut Machine),
    ) -> Token {
        let node = &mut self.nodes[rank as usize];
        let token = node.token();
        call(&mut node.coherence, token, &mut node.machine);
        self.collect(rank);
        token
    }

    /// Calls a method of one node's coherence, which succeeds once the network is quiet.
    #[track_caller]
    pub fn succeeds(&mut self, rank: Rank, call: impl FnOnce(&mut Coherence, Token, &mut Machine)) {
        let token = self.call(rank, call);
        self.run_until_quiet();
        self.all_succeeded([(rank, token)]);
    }

    /// Takes the outcomes of calls without a value, all of which have succeeded.
    #[track_caller]
    pub fn all_succeeded(&mut self, calls: impl IntoIterator<Item = (Rank, Token)>) {
        for (rank, token) in calls {
            let outcome = self.take(rank, token);
            let case = format!("seed {}, node {rank} of {}", self.seed, self.nodes.len());
            assert_eq!(outcome, Some(Ok(Value::None)), "{case}");
        }
    }

    /// Takes the messages and events of a node's coherence.
    pub fn collect(&mut self, rank: Rank) {
        while let Some((to, message)) = self.nodes[rank as usize].coherence.poll_message() {
            if let Some(code) = message.head.get(1) {
                *self.posted.entry((*code, rank)).or_default() += message.body.len();
            }
            if message.head.get(1) == Some(&NOTIFY) {
                self.notified.push(message.body.len());
            }
            self.passed += u64::from(message.head.get(1) == Some(&PASSED));
            self.arrivals += u64::from(message.head.get(1) == Some(&ARRIVE));
            if self.forged == message.head.get(1).copied() {
                self.forged = None;
                let node = &mut self.nodes[rank as usize];
                node.coherence.acknowledged(message.token, &mut node.machine);
                continue;
            }
            let both_live = [rank, to].into_iter().all(|rank| self.nodes[rank as usize].alive);
            if both_live {
                self.network.post(
                    rank,
                    to,
                    message,
                    &mut self.random,
                    &self.nodes[rank as usize].machine,
                );
            }
        }
        let node = &mut self.nodes[rank as usize];
        while let Some(event) = node.coherence.poll_event() {
            let (token, outcome) = match event {
                CoherenceEvent::Done { token, value } => (token, Ok(value)),
                CoherenceEvent::Failed { token, error } => (token, Err(error)),
                CoherenceEvent::Leaving { .. } => continue,
                CoherenceEvent::Contradiction { rank, .. } => {
                    node.contradictions.push(rank);
                    continue;
                }
            };
            assert!(
                node.outcomes.insert(token, outcome).is_none(),
                "seed {}: two events for one token",
                self.seed
            );
        }
    }

    /// Declares an array on every node, and returns its number.
    pub fn declare(&mut self, name: &str, pages: u64, homes: Homes) -> ArrayId {
        let declaration = Declaration {
            name: name.into(),
            bytes: pages * PAGE as u64,
            element: Element { kind: 1, size: 8 },
            homes,
            ..Declaration::default()
        };
        let ranks = 0..self.nodes.len() as Rank;
        let tokens: Vec<Token> =
            ranks.map(|rank| self.declare_on(rank, declaration.clone())).collect();
        self.run_until_quiet();
        let array = self.nodes[0].coherence.next_array() - 1;
        for (rank, token) in (0..).zip(tokens) {
            assert_eq!(self.take(rank, token), Some(Ok(Value::Array(array))), "seed {}", self.seed);
        }
        array
    }

    pub fn declare_on(&mut self, rank: Rank, declaration: Declaration) -> Token {
        let homes_move = self.homes_move;
        self.call(rank, |coherence, token, machine| {
            let array = coherence.next_array();
            machine.add(array, declaration.pages());
            coherence.set_alias_region(array, array);
            assert_eq!(coherence.declare(declaration, token, machine), array);
            coherence.set_moving_homes(array, homes_move);
        })
    }

    pub fn take(&mut self, rank: Rank, token: Token) -> Option<Outcome> {
        self.nodes[rank as usize].outcomes.remove(&token)
    }

    /// Runs one random step of the network. Returns `false` if nothing is in flight.
    pub fn step(&mut self) -> bool {
        network::step(self)
    }

    pub fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| {
            self.step();
        });
    }

    pub fn run_until_quiet(&mut self) {
        while self.step() {}
    }

    /// Runs threads and network in random interleaving until all threads have ended. Returns the
    /// values that each thread read.
    pub fn run(&mut self, mut threads: Vec<Thread>) -> Vec<Vec<u64>> {
        loop {
            let all = threads.len();
            let ended = threads.iter().filter(|thread| thread.has_ended()).count();
            if ended == all {
                return threads.into_iter().map(|thread| thread.registers).collect();
            }
            let mut went_on = false;
            if self.random.chance(0.6) {
                went_on = self.step();
            }
            if !went_on {
                let first = self.random.below(all);
                went_on = (0..all).any(|i| threads::step(self, &mut threads, (first + i) % all));
            }
            if !went_on && !self.step() {
                let stuck: Vec<String> =
                    threads.iter().filter(|t| !t.has_ended()).map(Thread::describe).collect();
                panic!("seed {}: nothing moves any more: {stuck:?}", self.seed);
            }
        }
    }

    /// Kills a node. The messages that it sent are lost from a random point on, and all messages to
    /// it are lost. Each other node learns of the death some time later.
    pub fn kill(&mut self, rank: Rank) {
        self.nodes[rank as usize].alive = false;
        let others: Vec<Rank> =
            (0..self.nodes.len() as Rank).filter(|r| self.nodes[*r as usize].alive).collect();
        self.network.kill(rank, &others, &mut self.random);
    }
}
