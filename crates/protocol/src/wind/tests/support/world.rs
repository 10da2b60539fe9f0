//! Test world: two connections, a channel, and an upper layer that knows what must arrive.

use super::channel::{Arrival, Channel, Faults};
use crate::Rank;
use crate::random::Random;
use crate::time::Time;
use crate::wind::send::outgoing::Sizes;
use crate::wind::*;
use crate::wire::{Seal, SealKind, View};
use core::time::Duration;
use crc_fast::{CrcAlgorithm, Digest};
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

/// Seal that is CRC32C. For handshakes it is repeated four times, in place of the job's MAC.
pub struct TestSeal(pub SealKind);

impl Seal for TestSeal {
    fn kind(&self) -> SealKind {
        self.0
    }
    fn tag(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        parts.iter().for_each(|part| digest.update(part));
        let crc = digest.finalize() as u32;
        for chunk in out.chunks_mut(4) {
            chunk.copy_from_slice(&crc.to_le_bytes());
        }
    }
    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool {
        let mut right = [0; 16];
        self.tag(&[covered, payload], &mut right[..tag.len()]);
        right[..tag.len()] == *tag
    }
}

/// Returns byte `at` of the body of message `id`.
pub fn byte(id: u64, at: u64) -> u8 {
    (id.wrapping_mul(31).wrapping_add(at.wrapping_mul(7)).wrapping_add(at >> 8)) as u8
}

/// Returns how the connection of a node died, if it did.
pub fn death(world: &World, node: usize) -> Option<Death> {
    world.nodes[node]
        .events
        .iter()
        .find_map(|event| if let Event::Dead(death) = event { Some(*death) } else { None })
}

/// Returns an urgent message that is copied at the receiver.
pub fn message(class: Class, id: u64, len: u64) -> Message {
    let head = Words { id, refuse: false, place: false }.head(0);
    let body = Body::Inline(body(id, 0, len));
    Message { urgent: true, ..Message::new(class, head, body, Token(id)) }
}

pub fn body(id: u64, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| byte(id, at)).collect()
}

/// Content of a message's head, for the upper layer of the tests.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub id: u64,
    pub refuse: bool,
    pub place: bool,
}

impl Words {
    pub fn head(self, pad: usize) -> Head {
        let mut head = Head::new();
        head.try_extend_from_slice(&self.id.to_le_bytes()).unwrap();
        head.push(u8::from(self.refuse) | u8::from(self.place) << 1);
        head.try_extend_from_slice(&vec![0xab; pad]).unwrap();
        head
    }

    fn read(head: &[u8]) -> Words {
        assert!(head[9..].iter().all(|byte| *byte == 0xab));
        Words {
            id: u64::from_le_bytes(head[..8].try_into().unwrap()),
            refuse: head[8] & 1 != 0,
            place: head[8] & 2 != 0,
        }
    }
}

/// Upper layer that checks everything it receives (WIND-2).
#[derive(Default)]
pub struct Oracle {
    /// Numbers of delivered messages.
    pub delivered: BTreeSet<u64>,
    /// Numbers of messages that were refused at admission or delivery, which are done all the same.
    pub refused: BTreeSet<u64>,
    pub withdrawn: BTreeSet<u64>,
    placed: BTreeMap<u64, (Words, u64, BTreeMap<u64, u64>)>,
    pub order: Vec<u64>,
    /// Ids of delivered messages, in order.
    pub ids: Vec<u64>,
    /// Ids of messages that no correct sender shares.
    pub unshared: BTreeSet<u64>,
    /// Number of bytes placed.
    pub placed_bytes: u64,
    pub abandoned: u32,
    /// Number of messages that were placed until their turn.
    pub early: u64,
    /// Lengths of the bodies of credited messages that the application has not read yet.
    pub unread: Vec<u64>,
    pub credited: BTreeSet<u64>,
    /// Whether a member forges bytes, so that they need not be right.
    pub is_deceived: bool,
    /// Whether every message costs credit or none does. `None` means that the sender decides.
    pub charges: Option<bool>,
}

impl Oracle {
    fn done(&self, number: u64) -> bool {
        self.delivered.contains(&number)
            || self.refused.contains(&number)
            || self.withdrawn.contains(&number)
    }
}

impl Handler for Oracle {
    fn admit(&mut self, _: Rank, number: u64, _: Class, head: &[u8], len: u64) -> Admission {
        let words = Words::read(head);
        assert!(!self.done(number), "message {number} admitted after it was done");
        if words.refuse && words.id.is_multiple_of(2) {
            self.refused.insert(number);
            return Admission::Refuse(Refusal::OutOfBounds);
        }
        if !words.place {
            return Admission::Assemble;
        }
        assert!(
            self.placed.insert(number, (words, len, BTreeMap::new())).is_none(),
            "admitted twice"
        );
        Admission::Place
    }

    fn places(&self, class: Class, head: &[u8]) -> bool {
        let words = Words::read(head);
        class == Class::Unordered && words.place && !words.refuse
    }

    fn may_be_shared(&self, _: Class, head: &[u8]) -> bool {
        !self.unshared.contains(&Words::read(head).id)
    }

    fn costs_credit(&self, _: &[u8], said: bool) -> bool {
        self.charges.unwrap_or(said)
    }

    /// WIND-2.12: asked only when every earlier message is done or being placed, or the order does
    /// not matter.
    fn places_until_turn(&mut self, _: Rank, number: u64, head: &[u8], len: u64) -> bool {
        let words = Words::read(head);
        let is_early = !words.place && !words.refuse && words.id.is_multiple_of(3);
        if is_early {
            let before = self.placed.insert(number, (words, len, BTreeMap::new()));
            assert!(before.is_none(), "admitted twice");
            self.early += 1;
        }
        is_early
    }

    /// WIND-6.3: a body that is placed costs no credit.
    fn charges_body(&self, head: &[u8]) -> bool {
        !Words::read(head).place
    }

    fn place(&mut self, _: Rank, number: u64, offset: u64, bytes: &[u8]) {
        assert!(!self.done(number), "bytes of {number} placed after it was done");
        let (words, len, parts) =
            self.placed.get_mut(&number).expect("placed without being admitted");
        let end = offset + bytes.len() as u64;
        assert!(end <= *len);
        assert!(
            parts.range(..end).next_back().is_none_or(|(_, e)| *e <= offset),
            "byte placed twice"
        );
        assert!(
            self.is_deceived || bytes == body(words.id, offset, bytes.len() as u64),
            "message {number} at {offset}"
        );
        parts.insert(offset, end);
        self.placed_bytes += bytes.len() as u64;
    }

    fn deliver(
        &mut self,
        _: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        delivered: Delivered<'_>,
    ) -> Result<(), Refusal> {
        let words = Words::read(head);
        assert!(!self.done(number), "message {number} delivered twice");
        if class != Class::Unordered {
            let early = (0..number).find(|n| !self.done(*n));
            assert_eq!(early, None, "ordered message {number} delivered before");
        }
        let len = match delivered {
            Delivered::Bytes(bytes) => {
                assert!(self.is_deceived || bytes == body(words.id, 0, bytes.len() as u64));
                bytes.len() as u64
            }
            Delivered::Owned(bytes) => {
                assert!(self.is_deceived || bytes == body(words.id, 0, bytes.len() as u64));
                bytes.len() as u64
            }
            Delivered::Placed(len) => {
                assert!(class == Class::Unordered || !words.place, "placed until its turn");
                let (_, expected, parts) = self.placed.remove(&number).expect("not admitted");
                assert_eq!((len, parts.iter().map(|(s, e)| e - s).sum::<u64>()), (expected, len));
                len
            }
        };
        if words.refuse {
            self.refused.insert(number);
            return Err(Refusal::NotPermitted);
        }
        self.delivered.insert(number);
        self.order.push(number);
        self.ids.push(words.id);
        if self.credited.contains(&number) {
            self.unread.push(if words.place { 0 } else { len });
        }
        Ok(())
    }

    fn withdrawn(&mut self, _: Rank, number: u64) {
        self.placed.remove(&number);
        self.withdrawn.insert(number);
    }

    fn replaced(&mut self, _: Rank, number: u64) {
        self.placed.remove(&number);
        self.refused.remove(&number);
        if self.delivered.remove(&number) {
            self.order.retain(|other| *other != number);
        }
    }

    fn abandon(&mut self, _: Rank) {
        self.placed.clear();
        self.abandoned += 1;
    }
}

pub struct Node {
    pub connection: Connection,
    pub handler: Oracle,
    pub events: Vec<Event>,
    pub fallbacks: Vec<Fallback>,
    /// Number of times that the peer was silent for long.
    pub silences: u32,
    /// Whether the node is not scheduled, so that nothing is called on it.
    pub asleep: bool,
    pub corrupt_seen: u64,
}

impl Node {
    pub fn new(
        settings: Settings,
        rank: Rank,
        incarnation: u64,
        connection: u64,
        now: Time,
    ) -> Node {
        let me = Introduction {
            bulk_port: 7000 + rank as u16,
            ..Introduction::here(rank, 2, incarnation, connection)
        };
        Node {
            connection: Connection::new(settings, me, 1 - rank, 2, now),
            handler: Oracle::default(),
            events: Vec::new(),
            fallbacks: Vec::new(),
            silences: 0,
            asleep: false,
            corrupt_seen: 0,
        }
    }
}

/// Predicate that selects datagrams.
pub type DatagramFilter = fn(&View<'_>) -> bool;

pub struct World {
    pub nodes: [Node; 2],
    pub channel: Channel,
    pub now: Time,
    /// Whether path 0 of node 0's candidates for the peer leads nowhere.
    pub dead_path: bool,
    /// Whether nothing gets through to ports for bulk.
    pub one_port_only: bool,
    pub datagrams: u64,
    /// Node and predicate: datagrams of this node that satisfy it are lost.
    pub loses: Option<(usize, DatagramFilter)>,
    /// Whether datagrams are lost that a link may send as one train, because they follow each other
    /// at once and are equally long.
    pub loses_trains: bool,
    /// Whether datagrams are lost that may bypass the kernel.
    pub loses_bypassed: bool,
    /// Bytes of the largest datagram that the path to each node carries. Larger ones are lost
    /// silently.
    pub fits: [usize; 2],
    /// Whether the sender's system knows the limit, and reports an error for larger datagrams.
    pub told: bool,
    /// Maximum length of a step in virtual time.
    pub stride: Duration,
    /// Latest datagram number by node, connection and lane (`true` for bulk).
    pub numbers: BTreeMap<(usize, u64, bool), u64>,
    scratch: Vec<u8>,
}

impl World {
    pub fn new(settings: Settings, faults: Faults, seed: u64) -> World {
        let now = Time(0);
        let id = |n: u64| Random::new(seed * 2 + n).next_u64() | 1;
        let settings = Settings { private_seed: id(2), ..settings };
        World {
            nodes: [Node::new(settings, 0, 10, id(0), now), Node::new(settings, 1, 10, id(1), now)],
            channel: Channel::new(faults, seed),
            now,
            dead_path: false,
            one_port_only: false,
            datagrams: 0,
            loses: None,
            loses_trains: false,
            loses_bypassed: false,
            fits: [usize::MAX; 2],
            told: false,
            stride: Duration::from_secs(1),
            numbers: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Creates a world in which both nodes are established.
    pub fn established(settings: Settings, faults: Faults, seed: u64) -> World {
        let mut world = World::new(settings, faults, seed);
        world.nodes[0].connection.connect(world.now);
        world.run(|world| world.nodes.iter().all(|node| node.connection.is_established()));
        world
    }

    /// Returns the content of a test segment, whose region is the message's id.
    /// Posts a message at a node. Returns the number that it gets.
    pub fn post(&mut self, node: usize, message: Message) -> u64 {
        self.nodes[node].connection.post(self.now, message).unwrap()
    }

    fn segment(segment: Segment) -> Vec<u8> {
        body(u64::from(segment.region), segment.offset, segment.len)
    }

    fn emit(&mut self, from: usize) {
        let mut train: Vec<Arrival> = Vec::new();
        self.emit_into(from, &mut train);
        self.send_train(&mut train);
    }

    /// Delivers what a link would send as one train, unless it has several datagrams and trains get
    /// lost.
    fn send_train(&mut self, train: &mut Vec<Arrival>) {
        let lost = self.loses_trains && train.len() > 1;
        train.drain(..).filter(|_| !lost).for_each(|arrival| self.channel.send(self.now, arrival));
    }

    fn emit_into(&mut self, from: usize, train: &mut Vec<Arrival>) {
        for _ in 0..10_000 {
            let due = self.nodes[from].connection.has_due(self.now);
            self.scratch.clear();
            let transmit = self.nodes[from].connection.transmit(self.now, &mut self.scratch);
            assert_eq!(due, transmit.is_some(), "has_due is exact");
            let connection = &self.nodes[from].connection;
            let cut = Sizes::within(connection.mtu.size(), connection.settings.seal);
            assert!(
                !connection.is_established() || connection.outbox.is_cut(cut),
                "cut for the path as it is"
            );
            let Some(transmit) = transmit else { return };
            let seal =
                TestSeal(if transmit.handshake { SealKind::Handshake } else { SealKind::EndToEnd });
            let mut bytes = self.scratch.clone();
            bytes.extend(transmit.payload.map(World::segment).unwrap_or_default());
            let mut tag = vec![0; seal.len()];
            seal.tag(&[&bytes], &mut tag);
            bytes.extend(tag);
            View::parse(&bytes)
                .expect("what we send is well-formed")
                .frames()
                .for_each(|frame| assert!(frame.is_ok()));
            self.datagrams += 1;
            self.check_number(from, &bytes);
            let fits = self.fits[1 - from];
            if bytes.len() > fits {
                if self.told {
                    self.nodes[from].connection.too_big(self.now, transmit.path, fits);
                }
                continue;
            }
            if !(self.dead_path && transmit.path == 0
                || self.one_port_only && transmit.port.is_some())
            {
                let view = View::parse(&bytes).unwrap();
                let bypassed = self.loses_bypassed
                    && transmit.lane == Lane::Small
                    && transmit.mode < SendMode::Plain;
                if bypassed || self.loses.is_some_and(|(node, lost)| node == from && lost(&view)) {
                    continue;
                }
                if transmit.mode > SendMode::Any
                    || train.last().is_some_and(|before| {
                        before.bytes.len() != bytes.len() || before.flow != transmit.flow
                    })
                {
                    self.send_train(train);
                }
                let (path, flow) = (transmit.path, transmit.flow);
                train.push(Arrival { to: 1 - from, path, flow, bytes });
                if transmit.mode > SendMode::Any {
                    self.send_train(train);
                }
            }
        }
        panic!("transmit does not come to an end");
    }

    /// WIRE-2.2: datagram numbers count the datagrams of a lane of a connection, from 1, and few
    /// are skipped.
    fn check_number(&mut self, from: usize, bytes: &[u8]) {
        let header = *View::parse(bytes).unwrap().header();
        if header.connection != 0 {
            let last = self
                .numbers
                .insert((from, header.connection, header.lane() == Lane::Bulk), header.number);
            let last = last.unwrap_or(0);
            assert!(
                (last + 1..=last + 2).contains(&header.number),
                "{} after {last}",
                header.number
            );
        }
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let node = &mut self.nodes[arrival.to];
        let Ok(view) = View::parse(&arrival.bytes) else {
            node.corrupt_seen += 1;
            return;
        };
        if !TestSeal(view.header().seal).verify(view.covered(), view.payload(), view.tag()) {
            node.corrupt_seen += 1;
            return;
        }
        assert!(!view.is_handshake() || view.sender() == Some(1 - arrival.to as Rank));
        node.connection.receive_ahead(self.now, &view, arrival.path, &mut node.handler);
    }

    /// Runs one turn of both nodes, then advances to the next time at which something happens.
    pub fn step(&mut self) {
        while let Some(arrival) = self.channel.take(self.now) {
            if !self.nodes[arrival.to].asleep {
                self.arrive(&arrival);
            }
        }
        for n in 0..2 {
            if self.nodes[n].asleep {
                continue;
            }
            if self.nodes[n].connection.next_timeout().is_some_and(|at| at <= self.now) {
                self.nodes[n].connection.timeout(self.now);
            }
            self.emit(n);
            if self.nodes[n].connection.process_deferred_ack() {
                self.emit(n);
            }
            while let Some(event) = self.nodes[n].connection.poll_event() {
                match event {
                    Event::PeerSilent => self.nodes[n].silences += 1,
                    Event::Fallback(fallback) => self.nodes[n].fallbacks.push(fallback),
                    other => self.nodes[n].events.push(other),
                }
            }
        }
        let timers = self
            .nodes
            .iter()
            .filter(|node| !node.asleep)
            .filter_map(|node| node.connection.next_timeout());
        let next = timers.chain(self.channel.next()).min();
        self.now =
            next.unwrap_or(Time(u64::MAX)).min(self.now + self.stride).max(Time(self.now.0 + 1));
    }

    /// Runs until `done`. A minute of virtual time is too long.
    pub fn run(&mut self, mut done: impl FnMut(&World) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while !done(self) {
            self.step();
            assert!(
                self.now < end,
                "not done in time; {:#?}",
                self.nodes.each_ref().map(|n| *n.connection.statistics())
            );
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    pub fn is_idle(&self) -> bool {
        self.nodes.iter().all(|node| node.connection.is_idle())
    }
}
