//! Compares random operations with a plain oracle: one after another (the oracle knows every value
//! and every refusal), and all at once.

use super::vectors::{any_accumulation, any_atomic, change, combine};
use super::world::World;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{
    Accumulation, AtomicOp, Destination, OperationValue, Rights, Rma, RmaError, RmaEvent, Signal,
};
use oikaze_protocol::wind::{Body, Refusal, Rows, Segment, Token};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const LEN: u64 = 600;
/// Length of the requester's own region, which holds the longest block in rows of one byte with
/// gaps.
const OWN: u64 = 2 * 40 * 6 * 4;

#[derive(Clone, Debug)]
enum Op {
    Put { region: usize, offset: u64, len: u64, fill: u8, signal: Option<(usize, u64, u64)> },
    Get { region: usize, offset: u64, len: u64 },
    Atomic { region: usize, offset: u64, op: AtomicOp, fetch: bool },
    Accumulate { region: usize, offset: u64, how: Accumulation, body: Vec<u8> },
    PutBlock { region: usize, block: Block, fill: u8, signal: Option<(usize, u64, u64)> },
    GetBlock { region: usize, block: Block, into: Block },
}

/// Returns the offset of every byte of a block, in packed order.
fn offsets(block: Block) -> Vec<u64> {
    (0..block.planes).flat_map(|plane| (0..block.rows).map(move |row| (plane, row))).fold(
        Vec::new(),
        |mut all, (plane, row)| {
            let at = block.offset
                + u64::from(plane) * block.plane_stride
                + u64::from(row) * block.row_stride;
            all.extend(at..at + u64::from(block.row));
            all
        },
    )
}

/// Draws a block. Strides are at least as long as rows, so rows may touch and never overlap.
fn block() -> impl Strategy<Value = Block> {
    let shape = (1..40u32, 1..6u32, 1..4u32);
    (0..60u64, shape, 0..30u64, 0..30u64).prop_map(
        |(offset, (row, rows, planes), gap, plane_gap)| {
            let stride = u64::from(row) + gap;
            Block::new(offset, row)
                .rows(rows, stride)
                .planes(planes, u64::from(rows) * stride + plane_gap)
        },
    )
}

/// Draws an operation. Region 3 does not exist, and some offsets are far out of bounds.
fn op() -> impl Strategy<Value = Op> {
    let offset = prop_oneof![
        8 => 0..LEN,
        4 => (0..LEN / 4).prop_map(|word| word * 4),
        1 => prop::sample::select(vec![LEN, LEN + 1, u64::MAX, u64::MAX - 7, 1 << 63])
    ];
    let region = || prop_oneof![9 => 0..3usize, 1 => Just(3)];
    let len = prop_oneof![0..20u64, 90..110u64, 200..400u64];
    let signal = prop::option::of((region(), offset.clone(), 1..5u64));
    let signal_of_block = signal.clone();
    prop_oneof![
        (region(), block(), 1..=255u8, signal_of_block)
            .prop_map(|(region, block, fill, signal)| Op::PutBlock { region, block, fill, signal }),
        (region(), block(), any::<bool>()).prop_map(|(region, block, range)| {
            let len = block.len().unwrap() as u32;
            let into = if range {
                Block::new(7, len)
            } else {
                Block::new(3, 1).rows(len, 1 + u64::from(len % 2))
            };
            Op::GetBlock { region, block, into }
        }),
        (region(), offset.clone(), len.clone(), 1..=255u8, signal).prop_map(
            |(region, offset, len, fill, signal)| Op::Put { region, offset, len, fill, signal }
        ),
        (region(), offset.clone(), len).prop_map(|(region, offset, len)| Op::Get {
            region,
            offset,
            len
        }),
        (region(), offset.clone(), any_atomic(), any::<bool>())
            .prop_map(|(region, offset, op, fetch)| Op::Atomic { region, offset, op, fetch }),
        (region(), offset, any_accumulation(), elements())
            .prop_map(|(region, offset, how, body)| Op::Accumulate { region, offset, how, body }),
    ]
}

/// Draws bytes that are valid elements of every kind, mostly whole elements. No element is a NaN,
/// because the result of combining two NaNs is not specified.
fn elements() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![3 => (0..50usize).prop_map(|count| count * 8), 2 => (0..100usize).prop_map(|count| count * 4), 1 => 0..400usize];
    (len, any::<u8>()).prop_map(|(len, seed)| {
        (0..len).map(|at| (at as u8).wrapping_mul(29).wrapping_add(seed) & 0x3F).collect()
    })
}

/// Three regions of the target with different rights, as plain vectors.
struct Oracle {
    regions: Vec<(Rights, Vec<u8>)>,
    own: Vec<u8>,
}

impl Oracle {
    fn check(&self, region: usize, offset: u64, len: u64, right: Rights) -> Result<(), Refusal> {
        let (rights, bytes) = self.regions.get(region).ok_or(Refusal::UnknownKey)?;
        if !rights.contains(right) {
            return Err(Refusal::NotPermitted);
        }
        let end = u128::from(offset) + u128::from(len);
        if end > bytes.len() as u128 { Err(Refusal::OutOfBounds) } else { Ok(()) }
    }

    fn check_word(&self, region: usize, offset: u64, width: u64) -> Result<(), Refusal> {
        self.check(region, offset, width, Rights::ATOMIC)?;
        if offset.is_multiple_of(width) { Ok(()) } else { Err(Refusal::Misaligned) }
    }

    fn change(&mut self, region: usize, offset: u64, op: AtomicOp) -> u64 {
        let from = offset as usize;
        change(&mut self.regions[region].1[from..from + op.width().bytes() as usize], op)
    }

    fn run(&mut self, op: &Op) -> Result<OperationValue, Refusal> {
        match *op {
            Op::Put { region, offset, len, fill, signal } => {
                self.check(region, offset, len, Rights::WRITE)?;
                if let Some((region, offset, _)) = signal {
                    self.check_word(region, offset, 8)?;
                }
                self.regions[region].1[offset as usize..(offset + len) as usize].fill(fill);
                if let Some((region, offset, add)) = signal {
                    self.change(region, offset, AtomicOp::add(add));
                }
                Ok(OperationValue::Nothing)
            }
            Op::Get { region, offset, len } => {
                self.check(region, offset, len, Rights::READ)?;
                let (from, len) = (offset as usize, len as usize);
                self.own[..len].copy_from_slice(&self.regions[region].1[from..from + len]);
                Ok(OperationValue::Nothing)
            }
            Op::PutBlock { region, block, fill, signal } => {
                self.check(region, block.offset, block.hull().unwrap(), Rights::WRITE)?;
                if let Some((region, offset, _)) = signal {
                    self.check_word(region, offset, 8)?;
                }
                for (nth, at) in offsets(block).into_iter().enumerate() {
                    self.regions[region].1[at as usize] = fill ^ nth as u8;
                }
                if let Some((region, offset, add)) = signal {
                    self.change(region, offset, AtomicOp::add(add));
                }
                Ok(OperationValue::Nothing)
            }
            Op::GetBlock { region, block, into } => {
                self.check(region, block.offset, block.hull().unwrap(), Rights::READ)?;
                for (from, to) in offsets(block).into_iter().zip(offsets(into)) {
                    self.own[to as usize] = self.regions[region].1[from as usize];
                }
                Ok(OperationValue::Nothing)
            }
            Op::Atomic { region, offset, op, fetch } => {
                self.check_word(region, offset, op.width().bytes())?;
                let old = self.change(region, offset, op);
                Ok(if fetch { OperationValue::Old(old) } else { OperationValue::Nothing })
            }
            Op::Accumulate { region, offset, how, ref body } => {
                let (len, width) = (body.len() as u64, how.width().bytes());
                self.check(region, offset, len, Rights::ATOMIC)?;
                if len % width != 0 {
                    return Err(Refusal::Malformed);
                }
                if offset % width != 0 {
                    return Err(Refusal::Misaligned);
                }
                let from = offset as usize;
                combine(&mut self.regions[region].1[from..from + body.len()], how, body);
                Ok(OperationValue::Nothing)
            }
        }
    }
}

/// Turn an operation into a message of node 0 for node 1. Keys are region + 10.
fn post(world: &mut World, own: u32, op: &Op, token: Token) {
    let rma = &mut world.nodes[0].rma;
    let key = |region: usize| region as u64 + 10;
    let message = match *op {
        Op::Put { region, offset, len, fill, signal } => {
            let signal =
                signal.map(|(region, offset, add)| Signal { key: key(region), offset, add });
            rma.put(key(region), offset, Body::Inline(vec![fill; len as usize]), signal, token)
        }
        Op::Get { region, offset, len } => {
            rma.get(1, key(region), offset, Segment { region: own, offset: 0, len }, token)
        }
        Op::PutBlock { region, block, fill, signal } => {
            let signal =
                signal.map(|(region, offset, add)| Signal { key: key(region), offset, add });
            let body =
                Body::Inline((0..block.len().unwrap()).map(|nth| fill ^ nth as u8).collect());
            rma.put_block(key(region), block, body, signal, token)
        }
        Op::GetBlock { region, block, into } => {
            let into = Destination::Rows(Arc::new(Rows { region: own, block: into }));
            rma.get_block(1, key(region), block, into, token)
        }
        Op::Atomic { region, offset, op, fetch: true } => {
            rma.atomic(1, key(region), offset, op, token)
        }
        Op::Accumulate { region, offset, how, ref body } => {
            Rma::accumulate(key(region), offset, how, Body::Inline(body.clone()), token)
        }
        Op::Atomic { region, offset, op, fetch: false } => {
            Ok(Rma::change(key(region), offset, op, token))
        }
    };
    world.post(0, 1, message.unwrap());
}

proptest! {
    #[test]
    fn one_after_another(ops in prop::collection::vec(op(), 1..40), seed in any::<u64>()) {
        let rights = [Rights::ALL, Rights::READ | Rights::ATOMIC, Rights::WRITE];
        let mut world = World::new(2);
        let mut oracle = Oracle { regions: Vec::new(), own: vec![0; OWN as usize] };
        let mut slots = Vec::new();
        for (index, rights) in rights.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..LEN as usize).map(|i| (i * 13 + index) as u8 & 0x3F).collect();
            slots.push(world.nodes[1].memory.add(index as u64 + 10, rights, bytes.clone()));
            oracle.regions.push((rights, bytes));
        }
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; OWN as usize]);
        for (index, op) in ops.iter().enumerate() {
            let token = Token(index as u64);
            post(&mut world, own, op, token);
            world.run(seed.wrapping_add(index as u64));
            let expected = match oracle.run(op) {
                Ok(value) => RmaEvent::Done { token, value },
                Err(refusal) => RmaEvent::Failed { token, error: RmaError::Refused(refusal) },
            };
            prop_assert_eq!(world.take(0), vec![expected]);
            for (slot, (_, bytes)) in slots.iter().zip(&oracle.regions) {
                prop_assert_eq!(world.nodes[1].memory.bytes(*slot), bytes.as_slice());
            }
            prop_assert_eq!(world.nodes[0].memory.bytes(own), oracle.own.as_slice());
        }
        prop_assert_eq!(world.nodes[0].rma.outstanding(), 0);
    }

    /// Each put and get has a place of its own; all atomics and signals go to two words (MEM-5.2,
    /// MEM-7.3).
    #[test]
    fn all_at_once(lens in prop::collection::vec(0..350u64, 1..30), seed in any::<u64>()) {
        let (mut world, room) = (World::new(2), lens.len() * 400);
        let target = world.region(1, 10, room);
        let words = world.region(1, 11, 16);
        let source: Vec<u8> = (0..room).map(|i| (i * 7) as u8).collect();
        world.nodes[1].memory.add(12, Rights::READ, source.clone());
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; room]);
        for (index, len) in lens.iter().enumerate() {
            let (offset, token) = (index as u64 * 400, index as u64 * 3);
            let rma = &mut world.nodes[0].rma;
            let signal = Some(Signal { key: 11, offset: 8, add: 1 });
            let body = Body::Inline(vec![index as u8 + 1; *len as usize]);
            let put = rma.put(10, offset, body, signal, Token(token)).unwrap();
            let get = rma.get(1, 12, offset, Segment { region: own, offset, len: *len }, Token(token + 1)).unwrap();
            let add = rma.atomic(1, 11, 0, AtomicOp::add(1u64), Token(token + 2)).unwrap();
            for message in [put, get, add] {
                world.post(0, 1, message);
            }
        }
        world.run(seed);
        let (mut tokens, mut olds) = (BTreeSet::new(), BTreeSet::new());
        for event in world.take(0) {
            let RmaEvent::Done { token, value } = event else { panic!("{event:?}") };
            prop_assert!(tokens.insert(token), "MEM-7.1: {:?} ended twice", token);
            if let OperationValue::Old(old) = value {
                olds.insert(old);
            }
        }
        let count = lens.len() as u64;
        prop_assert_eq!(tokens.len() as u64, count * 3);
        prop_assert_eq!(olds, (0..count).collect::<BTreeSet<_>>(), "each fetch-add saw another value");
        prop_assert_eq!(world.nodes[1].memory.word(words, 0), count);
        prop_assert_eq!(world.nodes[1].memory.word(words, 8), count);
        let (target, own) = (world.nodes[1].memory.bytes(target), world.nodes[0].memory.bytes(own));
        for (index, len) in lens.iter().enumerate() {
            let (at, len) = (index * 400, *len as usize);
            prop_assert!(target[at..at + len].iter().all(|byte| *byte == index as u8 + 1));
            prop_assert!(target[at + len..at + 400].iter().all(|byte| *byte == 0));
            prop_assert_eq!(&own[at..at + len], &source[at..at + len]);
        }
        prop_assert_eq!(world.nodes[0].rma.outstanding(), 0);
        prop_assert!((0..3).all(|slot| !world.nodes[1].rma.is_serving(slot)));
    }
}
