//! Nodes with vectors for memory, joined by a pipe that stands in for Wind: every message arrives exactly once, unordered ones in any
//! order and in fragments, and its settlement comes back some time later.

use oikaze_protocol::Rank;
use oikaze_protocol::rma::{AtomicOp, Memory, Operation, Published, Rights, Rma, RmaEvent, read_rows};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Message, Refusal, Segment, Token};
use std::collections::VecDeque;

/// Bodies longer than this come in fragments of this.
pub const FRAGMENT: u64 = 100;

/// A region of [`Vectors`].
#[derive(Clone, Debug)]
pub struct Area {
    pub key: u64,
    pub rights: Rights,
    pub bytes: Vec<u8>,
}

/// Memory made of vectors. The slot of a removed region is given to the next one, as a careless machine would.
#[derive(Default)]
pub struct Vectors {
    pub slots: Vec<Option<Area>>,
    /// Writes that had no place.
    pub ignored: u64,
}

impl Vectors {
    pub fn add(&mut self, key: u64, rights: Rights, bytes: Vec<u8>) -> u32 {
        let area = Some(Area { key, rights, bytes });
        match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = area;
                free as u32
            }
            None => {
                self.slots.push(area);
                self.slots.len() as u32 - 1
            }
        }
    }

    pub fn remove(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
    }

    pub fn bytes(&self, slot: u32) -> &[u8] {
        &self.slots[slot as usize].as_ref().expect("a live region").bytes
    }

    pub fn word(&self, slot: u32, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes(slot)[offset..offset + 8].try_into().unwrap())
    }

    fn range(&self, slot: u32, offset: u64, len: u64) -> Option<std::ops::Range<usize>> {
        let area = self.slots.get(slot as usize)?.as_ref()?;
        let end = offset.checked_add(len).filter(|end| *end <= area.bytes.len() as u64)?;
        Some(offset as usize..end as usize)
    }
}

impl Memory for Vectors {
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        let slot = self.slots.iter().position(|area| area.as_ref().is_some_and(|area| area.key == key));
        let slot = slot.ok_or(Refusal::UnknownKey)? as u32;
        if !self.slots[slot as usize].as_ref().is_some_and(|area| area.rights.contains(right)) {
            return Err(Refusal::NotPermitted);
        }
        self.range(slot, offset, len).map(|_| slot).ok_or(Refusal::OutOfBounds)
    }

    fn covers(&self, region: u32, offset: u64, len: u64) -> bool {
        self.range(region, offset, len).is_some()
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        match self.range(region, offset, bytes.len() as u64) {
            Some(range) => self.slots[region as usize].as_mut().unwrap().bytes[range].copy_from_slice(bytes),
            None => self.ignored += 1,
        }
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool {
        let range = self.range(region, offset, into.len() as u64);
        range.map(|range| into.copy_from_slice(&self.bytes(region)[range])).is_some()
    }

    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
        if !offset.is_multiple_of(8) {
            return Err(Refusal::Misaligned);
        }
        self.range(region, offset, 8).ok_or(Refusal::OutOfBounds)?;
        let old = self.word(region, offset as usize);
        self.write(region, offset, &apply(old, op).to_le_bytes());
        Ok(old)
    }
}

/// What an atomic makes of a word.
pub fn apply(old: u64, op: AtomicOp) -> u64 {
    match op {
        AtomicOp::FetchAdd(add) => old.wrapping_add(add),
        AtomicOp::CompareSwap { expected, new } => {
            if old == expected {
                new
            } else {
                old
            }
        }
        AtomicOp::Swap(new) => new,
    }
}

/// One node.
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
    /// Admitted for placing: what is still to come.
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
        World { nodes: (0..nodes).map(|_| Node::default()).collect(), flights: Vec::new(), numbers: 0 }
    }

    pub fn post(&mut self, from: Rank, to: Rank, message: Message) -> u64 {
        self.numbers += 1;
        self.flights.push(Flight { from, to, number: self.numbers, message, stage: Stage::Begin });
        self.numbers
    }

    /// Forge a message that no [`Rma`] made.
    pub fn forge(&mut self, from: Rank, to: Rank, operation: Operation, body: Body) -> u64 {
        self.post(
            from,
            to,
            Message {
                class: Class::Unordered,
                urgent: false,
                credited: false,
                head: operation.encode(),
                body,
                token: Token::NONE,
            },
        )
    }

    /// One step of one flight, chosen by `pick`: begin, one fragment, end, or settlement. `false`: nothing is in flight.
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

    /// The sender takes a message back that is not settled.
    pub fn withdraw(&mut self, from: Rank, token: Token) {
        let Self { nodes, flights, .. } = self;
        flights.retain(|flight| {
            let taken = flight.from == from && flight.message.token == token && !matches!(flight.stage, Stage::Settled(_));
            if taken {
                nodes[flight.to as usize].rma.withdrawn(from, flight.number);
            }
            !taken
        });
        self.collect();
    }

    /// Until nothing is in flight; the choices follow from `seed`.
    pub fn run(&mut self, seed: u64) {
        let mut state = seed | 1;
        loop {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if !self.step(state >> 33) {
                return;
            }
        }
    }

    /// The events of a node so far.
    pub fn take(&mut self, node: Rank) -> Vec<RmaEvent> {
        self.collect();
        std::mem::take(&mut self.nodes[node as usize].events)
    }

    /// A region of `len` zeroes with all rights, published as "r".
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
                assert!(self.nodes[flight.from as usize].memory.read(*region, *offset, &mut bytes), "a source went away");
                bytes
            }
            Body::Rows(rows) => {
                let mut bytes = vec![0; rows.len() as usize];
                let memory = &self.nodes[flight.from as usize].memory;
                // As Wind does it: a part at a time.
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
        let Some(index) = rest.remove((pick % rest.len() as u64) as usize) else { return Stage::Whole };
        let body = self.body(flight);
        let start = index * FRAGMENT;
        let end = (start + FRAGMENT).min(body.len() as u64);
        let node = &mut self.nodes[flight.to as usize];
        let bytes = &body[start as usize..end as usize];
        node.rma.place(flight.from, flight.number, start, bytes, &mut node.memory);
        // With the last fragment Wind delivers in the same breath.
        if rest.is_empty() { self.placed(flight) } else { Stage::Fragments(rest) }
    }

    fn placed(&mut self, flight: &Flight) -> Stage {
        let body = Delivered::Placed(flight.message.body.len());
        Stage::Settled(self.deliver(flight, body))
    }

    fn whole(&mut self, flight: &Flight) -> Result<(), Refusal> {
        let bytes = self.body(flight);
        let body = if bytes.len() as u64 > FRAGMENT { Delivered::Owned(bytes) } else { Delivered::Bytes(&bytes) };
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
