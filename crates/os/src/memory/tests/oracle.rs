//! Compares the region table with a table of vectors.

use super::super::*;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{AtomicOp, Change, Memory, Rights, Width};
use oikaze_protocol::wind::{Refusal, Rows, Segment};
use proptest::prelude::*;

/// Generates offsets and lengths near the error cases: inside, at the end, past it, overflowing.
fn place() -> impl Strategy<Value = (u64, u64)> {
    let offset = prop_oneof![4 => 0_u64..300, 1 => Just(u64::MAX), 1 => any::<u64>(), 1 => (0_u64..40).prop_map(|n| u64::MAX - n)];
    let len = prop_oneof![6 => 0_u64..300, 1 => Just(u64::MAX), 1 => any::<u64>()];
    (offset, len)
}

/// Generates some rows, in planes or not, near the beginning of a region.
fn block() -> impl Strategy<Value = Block> {
    let shape = (0_u64..60, 1_u32..9, 1_u32..5, 1_u32..4, 0_u64..20, 0_u64..20);
    shape.prop_map(|(offset, row, rows, planes, gap, more)| {
        let stride = u64::from(row) + gap;
        Block::new(offset, row).rows(rows, stride).planes(planes, stride * u64::from(rows) + more)
    })
}

/// Returns all bytes of a block, from those of its hull.
fn packed(block: &Block, hull: &[u8]) -> Vec<u8> {
    let starts = (0..u64::from(block.planes)).flat_map(|plane| {
        (0..u64::from(block.rows))
            .map(move |row| plane * block.plane_stride + row * block.row_stride)
    });
    starts.flat_map(|start| hull[start as usize..][..block.row as usize].to_vec()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert { shared: bool, len: usize, rights: u8, local: bool },
    Remove { which: usize },
    Locate { which: usize, at: (u64, u64), right: u8 },
    Covers { which: usize, at: (u64, u64) },
    Write { which: usize, offset: u64, bytes: Vec<u8> },
    Read { which: usize, offset: u64, len: usize },
    Gather { which: usize, at: (u64, u64) },
    Pack { which: usize, block: Block, part: (u64, u64) },
    Atomic { which: usize, offset: u64, op: AtomicOp },
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0_usize..12;
    let operand = || prop_oneof![3 => 0_u64..4, 3 => (0_u64..4).prop_map(u64::wrapping_neg), 1 => any::<u64>()];
    let width = prop_oneof![Just(Width::W32), Just(Width::W64)];
    let op = (0..10, operand(), operand(), width).prop_map(|(which, first, new, width)| {
        let change = match which {
            0 => Change::Add(first),
            1 => Change::CompareSwap { expected: first, new },
            2 => Change::Swap(first),
            3 => Change::And(first),
            4 => Change::Or(first),
            5 => Change::Xor(first),
            6 => Change::Min(first),
            7 => Change::Max(first),
            8 => Change::MinSigned(first),
            _ => Change::MaxSigned(first),
        };
        AtomicOp::new(width, change)
    });
    let offset = || place().prop_map(|(offset, _)| offset);
    prop_oneof![
        2 => (any::<bool>(), 1_usize..300, 0_u8..8, any::<bool>())
            .prop_map(|(shared, len, rights, local)| Step::Insert { shared, len, rights, local }),
        1 => which().prop_map(|which| Step::Remove { which }),
        3 => (which(), place(), 0_u8..8).prop_map(|(which, at, right)| Step::Locate { which, at, right }),
        1 => (which(), place()).prop_map(|(which, at)| Step::Covers { which, at }),
        3 => (which(), offset(), proptest::collection::vec(any::<u8>(), 0..64))
            .prop_map(|(which, offset, bytes)| Step::Write { which, offset, bytes }),
        3 => (which(), offset(), 0_usize..64).prop_map(|(which, offset, len)| Step::Read { which, offset, len }),
        2 => (which(), place()).prop_map(|(which, at)| Step::Gather { which, at }),
        2 => (which(), block(), (0_u64..40, 0_u64..40)).prop_map(|(which, block, part)| Step::Pack { which, block, part }),
        3 => (which(), prop_oneof![offset(), (0_u64..60).prop_map(|word| word * 4)], op)
            .prop_map(|(which, offset, op)| Step::Atomic { which, offset, op }),
    ]
}

/// The oracle: all regions ever registered, in order.
#[derive(Default)]
struct Oracle {
    all: Vec<Old>,
}

struct Old {
    slot: u32,
    key: Option<u64>,
    rights: Rights,
    live: bool,
    bytes: Vec<u8>,
    region: Region,
}

impl Old {
    /// Returns the range if it is inside and the region is live, by arithmetic that cannot
    /// overflow.
    fn range(&self, offset: u64, len: u64) -> Option<std::ops::Range<usize>> {
        let end = u128::from(offset) + u128::from(len);
        (self.live && end <= self.bytes.len() as u128).then_some(offset as usize..end as usize)
    }
}

fn apply(table: &mut RegionTable, oracle: &mut Oracle, step: Step) -> Result<(), TestCaseError> {
    if let Step::Insert { shared, len, rights, local } = step {
        let region = if shared { Region::shared(len) } else { Region::private(len) }.unwrap();
        let rights = if local { Rights::NONE } else { Rights(rights) };
        let (slot, key) = if local {
            (table.insert_local(region.clone()).unwrap(), None)
        } else {
            let Registered { slot, key, .. } = table.insert(region.clone(), rights).unwrap();
            prop_assert!(key != 0);
            (slot, Some(key))
        };
        prop_assert!(
            oracle.all.iter().all(|old| old.slot != slot && (key.is_none() || old.key != key)),
            "nothing is used twice"
        );
        oracle.all.push(Old { slot, key, rights, live: true, bytes: vec![0; len], region });
        return Ok(());
    }
    let which = match &step {
        Step::Insert { .. } => return Ok(()),
        Step::Remove { which }
        | Step::Locate { which, .. }
        | Step::Covers { which, .. }
        | Step::Write { which, .. } => *which,
        Step::Read { which, .. }
        | Step::Gather { which, .. }
        | Step::Pack { which, .. }
        | Step::Atomic { which, .. } => *which,
    };
    let Some(old) = oracle.all.get_mut(which) else { return Ok(()) };
    match step {
        Step::Insert { .. } => {}
        Step::Remove { .. } => {
            prop_assert_eq!(table.remove(old.slot).is_some(), old.live);
            old.live = false;
        }
        Step::Locate { at: (offset, len), right, .. } => {
            let want = match old.key {
                Some(_) if !old.live => Err(Refusal::UnknownKey),
                None => Err(Refusal::UnknownKey),
                Some(_) if right & old.rights.0 != right => Err(Refusal::NotPermitted),
                Some(_) => old.range(offset, len).map(|_| old.slot).ok_or(Refusal::OutOfBounds),
            };
            // A region without a key is addressed by a key that was never issued.
            prop_assert_eq!(table.locate(old.key.unwrap_or(0), offset, len, Rights(right)), want);
        }
        Step::Covers { at: (offset, len), .. } => {
            prop_assert_eq!(table.covers(old.slot, offset, len), old.range(offset, len).is_some());
        }
        Step::Write { offset, bytes, .. } => {
            let strays = table.strays();
            table.write(old.slot, offset, &bytes);
            match old.range(offset, bytes.len() as u64) {
                Some(range) => old.bytes[range].copy_from_slice(&bytes),
                None => prop_assert_eq!(table.strays(), strays + 1),
            }
        }
        Step::Read { offset, len, .. } => {
            let mut into = vec![0xee; len];
            let range = old.range(offset, len as u64);
            prop_assert_eq!(table.read(old.slot, offset, &mut into), range.is_some());
            if let Some(range) = range {
                prop_assert_eq!(&into, &old.bytes[range]);
            }
        }
        Step::Gather { at: (offset, len), .. } => {
            let gather = table.gather(&Segment { region: old.slot, offset, len });
            let range = old.range(offset, len);
            prop_assert_eq!(gather.is_some(), range.is_some());
            if let (Some(gather), Some(range)) = (gather, range) {
                prop_assert!(gather.with_bytes(|bytes| bytes == &old.bytes[range.clone()]));
                let mut copied = vec![1];
                gather.append_to(&mut copied);
                prop_assert_eq!(&copied[1..], &old.bytes[range]);
            }
        }
        Step::Pack { block, part: (start, len), .. } => {
            let rows = Rows { region: old.slot, block };
            let range = old.range(block.offset, block.hull().unwrap());
            let part = usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap();
            let packed = range.map(|range| packed(&block, &old.bytes[range]));
            let expected = packed.as_deref().and_then(|packed| packed.get(part));
            let mut into = Vec::new();
            prop_assert_eq!(table.pack_rows(&rows, start, len, &mut into), expected.is_some());
            prop_assert!(expected.is_none_or(|expected| expected == into));
        }
        Step::Atomic { offset, op, .. } => {
            let got = table.atomic(old.slot, offset, op);
            let width = op.width().bytes();
            let Some(range) = old.range(offset, width) else {
                prop_assert_eq!(got, Err(Refusal::OutOfBounds));
                return Ok(());
            };
            if offset % width != 0 {
                prop_assert_eq!(got, Err(Refusal::Misaligned));
                return Ok(());
            }
            let mut wide = [0; 8];
            wide[..range.len()].copy_from_slice(&old.bytes[range.clone()]);
            let word = u64::from_le_bytes(wide);
            let len = range.len();
            old.bytes[range].copy_from_slice(&changed(word, op).to_le_bytes()[..len]);
            prop_assert_eq!(got, Ok(word));
        }
    }
    Ok(())
}

/// Computes the changed word, without the processor's atomic instructions.
fn changed(old: u64, op: AtomicOp) -> u64 {
    let signed = |bits: u64| match op.width() {
        Width::W32 => i64::from(bits as u32 as i32),
        Width::W64 => bits as i64,
    };
    match op.change() {
        Change::Add(add) => old.wrapping_add(add) & op.width().mask(),
        Change::CompareSwap { expected, new } if old == expected => new,
        Change::CompareSwap { .. } => old,
        Change::Swap(new) => new,
        Change::And(bits) => old & bits,
        Change::Or(bits) => old | bits,
        Change::Xor(bits) => old ^ bits,
        Change::Min(other) => old.min(other),
        Change::Max(other) => old.max(other),
        Change::MinSigned(other) => {
            if signed(other) < signed(old) {
                other
            } else {
                old
            }
        }
        Change::MaxSigned(other) => {
            if signed(other) > signed(old) {
                other
            } else {
                old
            }
        }
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_table_of_vectors_does(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut table, mut oracle) = (RegionTable::new(), Oracle::default());
        for step in steps {
            apply(&mut table, &mut oracle, step)?;
        }
        prop_assert_eq!(table.len(), oracle.all.iter().filter(|old| old.live).count());
        // The program's own view shows what peers did through the alias, also in removed regions.
        for old in &oracle.all {
            let mut bytes = vec![0; old.bytes.len()];
            old.region.read(0, &mut bytes).unwrap();
            prop_assert_eq!(&bytes, &old.bytes);
        }
    }
}
