//! A local peer gone mad: records, positions, refusals, credit and gifts of any kind in the memory
//! that it shares with an honest node, which has operations under way to it (MEM-16.2, MEM-9.2).
//! Nothing panics, nothing is touched that is not granted, no turn goes on for ever, and when it is
//! over every operation has ended.
//!
//! A few hundred of them; `make soak` sets `OIKAZE_HOSTILE` to more.

use super::facing_a_hostile_one_and_its_memory;
use crate::tests::Node;
use crate::{Completion, Request};
use oikaze_os::memory::{Disk, Region, Registered};
use oikaze_os::shm::{Pair, Part};
use oikaze_protocol::limits::{CONNECT_TIME, HEAD_MAX, PAGE, PRESENT_PAUSE_MAX, RECORD_BODY};
use oikaze_protocol::rma::{AtomicOp, Rights};
use oikaze_protocol::shm::{Heading, RecordKind};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Refusal, Segment};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 8192;
/// Bytes that gets fetch; what is behind them in their destination is nobody's.
const FETCHED: usize = 64;
const DEEDS: usize = 100;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// An honest node with memory of each kind, and what it has begun.
struct Honest {
    node: Node,
    now: Time,
    /// Written by anybody, read by anybody, closed to all; and where gets go.
    open: (Region, Registered),
    /// As open, but its pages come and go.
    far: (Region, Registered),
    disk: Disk,
    readable: (Region, Registered),
    closed: (Region, Registered),
    into: (Region, Registered),
    begun: Vec<(&'static str, Arc<Completion>)>,
}

impl Honest {
    fn new(mut node: Node) -> Self {
        let mut region = |byte, rights, shared| {
            let region = if shared { Region::shared(LEN) } else { Region::private(LEN) }.unwrap();
            region.fill(0, LEN as u64, byte).unwrap();
            let registered = node.engine.memory().insert(region.clone(), rights).unwrap();
            (region, registered)
        };
        let (open, readable) = (region(1, Rights::ALL, true), region(2, Rights::READ, true));
        let (closed, into) = (region(3, Rights::NONE, false), region(4, Rights::NONE, false));
        let (far, disk) = Region::staged(LEN).unwrap();
        let registered = node.engine.memory().insert(far.clone(), Rights::ALL).unwrap();
        Self {
            node,
            now: Time(1),
            open,
            far: (far, registered),
            disk,
            readable,
            closed,
            into,
            begun: Vec::new(),
        }
    }

    /// As often as there is more to do, which must come to an end.
    fn turn(&mut self, later: Duration) {
        self.now += later;
        let left = (0..10_000).find(|_| !self.node.engine.turn(self.now).more);
        assert!(left.is_some(), "one turn after another, for ever");
    }

    fn begin(&mut self, random: &mut Random) {
        let (key, offset) = (7, random.below(LEN) as u64);
        let body = match random.below(3) {
            0 => Body::copy_of(&random.bytes(20)),
            1 => Body::Segment(Segment { region: self.closed.1.slot, offset: 0, len: LEN as u64 }),
            _ => Body::Inline(vec![5; random.below(4 * RECORD_BODY)]),
        };
        let into = Segment { region: self.into.1.slot, offset: 0, len: FETCHED as u64 };
        let class = random.of(&[Class::Ordered, Class::Unordered, Class::Sync]);
        let (what, request) = match random.below(7) {
            0 => ("put", Request::Put { to: 1, key, offset, body, signal: None }),
            1 | 2 => ("get", Request::Get { from: 1, key, offset, into }),
            3 => (
                "atomic",
                Request::Atomic { at: 1, key, offset, op: AtomicOp::add(1), fetch: true },
            ),
            4 => ("lookup", Request::Lookup { at: 1, name: "somewhere".into() }),
            5 => ("map", Request::Map { at: 1, key }),
            _ => ("message", Request::Send { to: 1, class, tag: 1, body }),
        };
        self.begun.push((what, self.node.ask(request)));
    }

    fn check(&self, seed: u64) {
        let is = |(region, _): &(Region, Registered), from: usize, byte: u8| {
            let mut bytes = vec![0; LEN - from];
            region.read(from as u64, &mut bytes).unwrap();
            bytes.iter().all(|at| *at == byte)
        };
        assert!(is(&self.readable, 0, 2), "{seed}: what is not granted was written");
        assert!(is(&self.closed, 0, 3), "{seed}: what is not granted was written");
        assert!(is(&self.into, FETCHED, 4), "{seed}: more was written than was asked for");
    }
}

/// State of the hostile peer: keys, and the tickets that it was shown.
struct Mad {
    pair: Pair,
    memory: File,
    keys: [u64; 7],
    tickets: Vec<[u8; 16]>,
}

impl Mad {
    /// Read what the honest one has sent, as an honest one would; remember its tickets.
    fn read(&mut self, random: &mut Random) {
        while let Ok(Some(heading)) = self.pair.inward.peek() {
            let mut head = vec![0; heading.head];
            self.pair.inward.read(0, &mut head);
            if let (Some(3..=5), Some(ticket)) = (head.first(), head.get(1..17)) {
                self.tickets.push(ticket.try_into().unwrap());
            }
            let end = self.pair.inward.pass(heading);
            if random.below(8) == 0 {
                let _ = self.pair.inward.refuse(
                    end,
                    random.of(&[Refusal::NotPermitted, Refusal::NotPresent, Refusal::Full]),
                );
            }
            self.pair.inward.settle(end);
        }
    }

    /// A head that may be understood.
    fn head(&self, random: &mut Random) -> Vec<u8> {
        let kind = random.of(&[
            1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0x10, 0x20, 0x81, 0x81, 0x82, 0x83, 0x84, 0x85,
            0x60,
        ]);
        let mut head = vec![kind as u8];
        let ticket = match self.tickets.len() {
            0 => [9; 16],
            known => self.tickets[random.below(known)],
        };
        if matches!(kind, 3..=5 | 10 | 0x81..=0x85) {
            head.extend_from_slice(&ticket);
        }
        let key_and_offset = |head: &mut Vec<u8>, random: &mut Random| {
            let offset = random.of(&[
                0,
                4,
                8,
                4088,
                8184,
                8191,
                8192,
                8193,
                u64::MAX,
                u64::MAX - 7,
                1 << 47,
            ]);
            head.extend_from_slice(&random.of(&self.keys).to_le_bytes());
            head.extend_from_slice(&offset.to_le_bytes());
        };
        let number = |random: &mut Random| random.of(&[0, 1, 8, 64, 4096, 8192, 100_000, u64::MAX]);
        match kind {
            1 | 2 | 7 => key_and_offset(&mut head, random),
            3 => {
                key_and_offset(&mut head, random);
                head.extend_from_slice(&number(random).to_le_bytes());
            }
            4 => {
                key_and_offset(&mut head, random);
                head.push(random.below(16) as u8 | random.of(&[0, 0x80]));
                (0..2).for_each(|_| head.extend_from_slice(&number(random).to_le_bytes()));
            }
            6 => {
                key_and_offset(&mut head, random);
                head.extend_from_slice(&[random.below(8) as u8, random.below(5) as u8]);
            }
            8..=10 => {
                head.extend_from_slice(&random.of(&self.keys).to_le_bytes());
                let sizes: [usize; 6] = [6, 4, 4, 4, 6, 6];
                sizes.iter().for_each(|size| {
                    head.extend_from_slice(&number(random).to_le_bytes()[..*size])
                });
            }
            0x10 | 0x82 => head.extend_from_slice(&number(random).to_le_bytes()),
            0x83 => {
                (0..2).for_each(|_| head.extend_from_slice(&number(random).to_le_bytes()));
                head.push(random.below(32) as u8);
            }
            0x84 => head.extend_from_slice(&[3, 0, 0, 0]),
            0x85 => head.push(random.below(20) as u8),
            _ => head.extend(random.bytes(30)),
        }
        if matches!(kind, 2 | 9) {
            key_and_offset(&mut head, random);
            head.extend_from_slice(&1u64.to_le_bytes());
        }
        if random.below(8) == 0 {
            let at = random.below(head.len());
            head[at] ^= 1 << random.below(8);
        }
        head.truncate(HEAD_MAX);
        head
    }

    fn put(&mut self, heading: Heading, parts: &[&[u8]]) {
        let parts: Vec<Part<'_>> = parts.iter().map(|bytes| Part::Bytes(bytes)).collect();
        // Full it may be: then that was nothing.
        let _ = self.pair.outward.put(heading, &parts);
    }

    fn deed(&mut self, random: &mut Random) {
        let class = random.of(&[Class::Ordered, Class::Unordered, Class::Sync]);
        let head = self.head(random);
        let len = random.of(&[0, 1, 8, 64, 100, 4096, RECORD_BODY]);
        let key = random.of(&self.keys);
        let heading = |kind| Heading { kind, class, head: head.len(), len: 0, flag: false };
        match random.below(402) {
            ..180 => self.put(heading(RecordKind::Whole), &[&head, &vec![0x66; len]]),
            180..220 => {
                // One in pieces, which may come to its end.
                let whole = RECORD_BODY + len + 1;
                self.put(heading(RecordKind::Begin), &[&(whole as u64).to_le_bytes(), &head]);
                self.put(Heading::plain(RecordKind::Piece, 0), &[&vec![0x77; RECORD_BODY]]);
                match random.below(8) {
                    0 => self.put(Heading::plain(RecordKind::Withdrawn, 0), &[]),
                    1 => {}
                    _ => self.put(Heading::plain(RecordKind::Piece, 0), &[&vec![0x77; len + 1]]),
                }
            }
            220..245 => self.put(Heading::plain(RecordKind::Ask, 0), &[&key.to_le_bytes()]),
            245..270 => {
                let flag = random.below(2) == 0;
                self.put(
                    Heading { flag, ..Heading::plain(RecordKind::Given, 0) },
                    &[&7u64.to_le_bytes()],
                );
            }
            270..370 => self.read(random),
            370..380 => self.pair.inward.fall_asleep(),
            380 => {
                let position =
                    self.pair.inward.position().wrapping_add(random.of(&[0, 64, u64::MAX]));
                let _ = self.pair.inward.refuse(position, Refusal::NotPermitted);
            }
            381..390 => self.pair.inward.give_back(random.of(&[0, 128, 1 << 20, u64::MAX])),
            390 => drop(self.pair.line.say(&random.bytes(25), None)),
            391 => drop(self.pair.line.say(b"give a region without its memory", None)),
            392 => self.put(
                heading(RecordKind::Begin),
                &[&random.of(&[0, 1 << 30, u64::MAX]).to_le_bytes(), &head],
            ),
            393 => self.put(Heading::plain(RecordKind::Piece, 0), &[&vec![1; len + 1]]),
            394 => self.pair.inward.settle(random.of(&[64, 1 << 20, u64::MAX])),
            395 => self.put(Heading::plain(RecordKind::Withdrawn, 0), &[]),
            396 => self.put(Heading::plain(RecordKind::Goodbye, 0), &[]),
            // Overwrites lease marks: which regions are in use, and which were taken back or
            // unmapped.
            400.. => {
                let at = PAGE + 8 * random.below(2 * PAGE / 8);
                self.memory
                    .write_all_at(&random.of(&[0u64, 1, 2, u64::MAX]).to_le_bytes(), at as u64)
                    .unwrap();
            }
            // Exchanges that it asks for, or says that it has made.
            _ => {
                let kind = random.of(&[RecordKind::Swap, RecordKind::Swapped]);
                self.put(
                    Heading { flag: true, ..Heading::plain(kind, 0) },
                    &[&random.of(&[0u64, 1, 2]).to_le_bytes()],
                );
            }
        }
    }
}

fn meet(seed: u64) -> bool {
    let mut random = Random(seed);
    let (node, pair, memory) = facing_a_hostile_one_and_its_memory();
    let mut honest = Honest::new(node);
    let key = |(_, registered): &(Region, Registered)| registered.key;
    let (open, far) = (key(&honest.open), key(&honest.far));
    let keys = [open, open, far, far, key(&honest.readable), key(&honest.closed), 12345];
    let mut mad = Mad { pair, memory, keys, tickets: Vec::new() };
    let mut died = false;
    for _ in 0..DEEDS {
        if random.below(4) == 0 {
            honest.begin(&mut random);
        }
        mad.deed(&mut random);
        match random.below(8) {
            0 => honest.disk.evict(0..random.below(3) as u64),
            1 => honest.disk.take_wanted().into_iter().for_each(|page| honest.disk.bring(page)),
            _ => {}
        }
        honest.turn(if random.below(8) == 0 {
            PRESENT_PAUSE_MAX
        } else {
            Duration::from_micros(100)
        });
        while honest.node.engine.inbox().take_arrived().is_some() {}
        died = honest.node.engine.inbox().take_death().is_some();
        if died {
            break;
        }
    }
    let (region, registered) = &honest.open;
    honest.node.engine.set_rights(registered.slot, None, Rights::NONE).unwrap();
    honest.node.engine.give_up_peers_inside(region, honest.now);
    assert!(!honest.node.engine.shm().is_reached(region), "{seed}: it is waited for");
    drop(mad);
    // No node answers over the network, the only path left if the mad peer closes its socket.
    for _ in 0..200 {
        honest.turn(CONNECT_TIME / 100);
        died |= honest.node.engine.inbox().take_death().is_some();
    }
    let left: Vec<&str> =
        honest.begun.iter().filter(|(_, one)| !one.is_done()).map(|(what, _)| *what).collect();
    assert!(died && left.is_empty(), "{seed}: these have not ended: {left:?}; it died: {died}");
    honest.check(seed);
    let mut open = vec![0; LEN];
    honest.open.0.read(0, &mut open).unwrap();
    open.iter().any(|byte| *byte != 1)
}

#[test]
fn a_mad_local_peer_harms_nobody() {
    let wanted =
        std::env::var("OIKAZE_HOSTILE").ok().map(|text| text.parse::<u64>().expect("a number"));
    let count = wanted.unwrap_or(300);
    let mut understood = 0;
    for seed in 0..count {
        understood += u64::from(meet(seed));
        if (seed + 1).is_multiple_of(10_000) {
            println!("{} of {count} mad local peers", seed + 1);
        }
    }
    assert!(
        understood > count / 10,
        "of {count}, {understood} did what is granted, too: else little was tried"
    );
}
