//! Nodes with vectors for memory, joined by a pipe in the place of Wind. Every message arrives
//! exactly once, unordered ones in any order and in fragments. Its settlement returns some time
//! later.

use crate::vectors::Vectors;
use oikaze_protocol::Rank;
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{Memory, Operation, Published, Rights, Rma, RmaEvent, read_rows};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Message, Refusal, Segment, Token};
use std::collections::VecDeque;

/// Maximum length of a fragment in bytes. Longer bodies arrive in fragments of this length.
pub const FRAGMENT: u64 = 100;

/// One node of the world.
#[derive(Default)]
pub struct Node {
    pub rma: Rma,
    pub memory: Vectors,
    pub events: Vec<RmaEvent>,
}

/// A message on its way, or its settlement on the way back.
struct Flight {
    from: Rank,
    to: Rank,
    number: u64,
    message: Message,
    stage: Stage,
}

enum Stage {
    Begin,
    /// Admitted for placing, with the numbers of the fragments that have not arrived.
    Fragments(VecDeque<u64>),
    Whole,
    Settled(Result<(), Refusal>),
}

/// Some nodes and the pipe.
pub struct World {
    pub nodes: Vec<Node>,
    flights: Vec<Flight>,
    numbers: u64,
}

impl World {
    pub fn new(nodes: usize) -> World {
        World {
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            flights: Vec::new(),
            numbers: 0,
        }
    }

    pub fn post(&mut self, from: Rank, to: Rank, message: Message) -> u64 {
        self.numbers += 1;
        self.flights.push(Flight { from, to, number: self.numbers, message, stage: Stage::Begin });
        self.numbers
    }

    /// Posts a forged message that no [`Rma`] made.
    pub fn forge(&mut self, from: Rank, to: Rank, operation: Operation, body: Body) -> u64 {
        self.post(from, to, Message::new(Class::Unordered, operation.encode(), body, Token::NONE))
    }

    /// Drops a message in flight, of which nothing more arrives.
    pub fn forget(&mut self, token: Token) {
        self.flights.retain(|flight| flight.message.token != token);
    }

    /// Runs one step of the flight that `pick` chooses: begin, one fragment, end, or settlement.
    /// Returns `false` if nothing is in flight.
    pub fn step(&mut self, pick: u64) -> bool {
        if self.flights.is_empty() {
            return false;
        }
        let chosen = (pick % self.flights.len() as u64) as usize;
        let mut flight = self.flights.swap_remove(chosen);
        flight.stage = match std::mem::replace(&mut flight.stage, Stage::Begin) {
            Stage::Begin => self.begin(&flight),
            Stage::Fragments(rest) => self.fragment(&flight, rest, pick / 7),
            Stage::Whole => Stage::Settled(self.whole(&flight)),
            Stage::Settled(result) => {
                self.settle(flight.from, flight.message.token, result);
                self.collect();
                return true;
            }
        };
        self.flights.push(flight);
        self.collect();
        true
    }

    /// Makes the sender withdraw a message that is not settled.
    pub fn withdraw(&mut self, from: Rank, token: Token) {
        let Self { nodes, flights, .. } = self;
        flights.retain(|flight| {
            let taken = flight.from == from
                && flight.message.token == token
                && !matches!(flight.stage, Stage::Settled(_));
            if taken {
                nodes[flight.to as usize].rma.withdrawn(from, flight.number);
            }
            !taken
        });
        self.collect();
    }

    /// Runs steps until nothing is in flight. The choices follow from `seed`.
    pub fn run(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        while self.step(random.next_u64()) {}
    }

    /// Takes the events of a node so far.
    pub fn take(&mut self, node: Rank) -> Vec<RmaEvent> {
        self.collect();
        std::mem::take(&mut self.nodes[node as usize].events)
    }

    /// Adds a region of `len` zeroes with all rights, published as "r" and its key.
    pub fn region(&mut self, node: Rank, key: u64, len: usize) -> u32 {
        let node = &mut self.nodes[node as usize];
        let published = Published { key, len: len as u64, rights: Rights::ALL };
        node.rma.publish(&format!("r{key}"), published).unwrap();
        node.memory.add(key, Rights::ALL, vec![0; len])
    }

    fn body(&self, flight: &Flight) -> Vec<u8> {
        match &flight.message.body {
            Body::Segment(Segment { region, offset, len }) => {
                let mut bytes = vec![0; *len as usize];
                assert!(
                    self.nodes[flight.from as usize].memory.read(*region, *offset, &mut bytes),
                    "a source went away"
                );
                bytes
            }
            Body::Rows(rows) => {
                let mut bytes = vec![0; rows.len() as usize];
                let memory = &self.nodes[flight.from as usize].memory;
                // Read the rows part by part, as Wind does.
                for (part, bytes) in (0..).zip(bytes.chunks_mut(FRAGMENT as usize)) {
                    assert!(read_rows(rows, part * FRAGMENT, bytes, memory), "a source went away");
                }
                bytes
            }
            body => body.bytes().to_vec(),
        }
    }

    fn begin(&mut self, flight: &Flight) -> Stage {
        let len = flight.message.body.len();
        if len <= FRAGMENT {
            return Stage::Whole;
        }
        let node = &mut self.nodes[flight.to as usize];
        let Message { class, head, .. } = &flight.message;
        match node.rma.admit(flight.from, flight.number, *class, head, len, &mut node.memory) {
            Admission::Place => Stage::Fragments((0..len.div_ceil(FRAGMENT)).collect()),
            Admission::Assemble => Stage::Whole,
            Admission::Refuse(refusal) => Stage::Settled(Err(refusal)),
        }
    }

    fn fragment(&mut self, flight: &Flight, mut rest: VecDeque<u64>, pick: u64) -> Stage {
        let Some(index) = rest.remove((pick % rest.len() as u64) as usize) else {
            return Stage::Whole;
        };
        let body = self.body(flight);
        let start = index * FRAGMENT;
        let end = (start + FRAGMENT).min(body.len() as u64);
        let node = &mut self.nodes[flight.to as usize];
        let bytes = &body[start as usize..end as usize];
        node.rma.place(flight.from, flight.number, start, bytes, &mut node.memory);
        // Deliver the message in the same step as its last fragment, as Wind does.
        if rest.is_empty() { self.placed(flight) } else { Stage::Fragments(rest) }
    }

    fn placed(&mut self, flight: &Flight) -> Stage {
        let body = Delivered::Placed(flight.message.body.len());
        Stage::Settled(self.deliver(flight, body))
    }

    fn whole(&mut self, flight: &Flight) -> Result<(), Refusal> {
        let bytes = self.body(flight);
        let body = if bytes.len() as u64 > FRAGMENT {
            Delivered::Owned(bytes)
        } else {
            Delivered::Bytes(&bytes)
        };
        self.deliver(flight, body)
    }

    fn deliver(&mut self, flight: &Flight, body: Delivered<'_>) -> Result<(), Refusal> {
        let node = &mut self.nodes[flight.to as usize];
        let Message { class, head, .. } = &flight.message;
        node.rma.deliver(flight.from, flight.number, *class, head, body, &mut node.memory)
    }

    fn settle(&mut self, node: Rank, token: Token, result: Result<(), Refusal>) {
        let rma = &mut self.nodes[node as usize].rma;
        match result {
            Ok(()) => rma.acknowledged(token),
            Err(refusal) => rma.refused(token, refusal),
        }
    }

    fn collect(&mut self) {
        for rank in 0..self.nodes.len() {
            while let Some((to, message)) = self.nodes[rank].rma.poll_answer() {
                self.post(rank as Rank, to, message);
            }
            let node = &mut self.nodes[rank];
            while let Some(event) = node.rma.poll_event() {
                node.events.push(event);
            }
        }
    }
}
