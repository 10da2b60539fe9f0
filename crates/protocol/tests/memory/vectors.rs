//! Model of memory made of vectors, with plain implementations of atomics and accumulates.

use oikaze_protocol::rma::{
    Accumulation, AtomicOp, Change, Combine, Memory, NumberKind, Rights, Width,
};
use oikaze_protocol::wind::Refusal;
use proptest::prelude::*;
use std::cell::Cell;

/// A region of [`Vectors`].
#[derive(Clone, Debug)]
pub struct Area {
    pub key: u64,
    pub rights: Rights,
    pub bytes: Vec<u8>,
    /// FIFO at offset 0, if there is one: number of slots, maximum element length, and the pushed
    /// elements.
    pub fifo: Option<(usize, u64, Vec<Vec<u8>>)>,
}

/// Memory made of vectors. The slot of a removed region is given to the next one, as a careless
/// machine would.
#[derive(Default)]
pub struct Vectors {
    pub slots: Vec<Option<Area>>,
    /// Keys that regions have or had.
    keys: Vec<u64>,
    /// Number of writes outside any region.
    pub ignored: u64,
    /// Maximum length of any range that was located.
    pub most_asked: Cell<u64>,
}

impl Vectors {
    pub fn add(&mut self, key: u64, rights: Rights, bytes: Vec<u8>) -> u32 {
        self.keys.push(key);
        let area = Some(Area { key, rights, bytes, fifo: None });
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

    /// Adds a FIFO with this key and returns its slot.
    pub fn fifo(&mut self, key: u64, slots: usize, longest: u64) -> u32 {
        let slot = self.add(key, Rights::PUSH, vec![0; 64]);
        self.slots[slot as usize].as_mut().unwrap().fifo = Some((slots, longest, Vec::new()));
        slot
    }

    /// Returns the elements that were pushed, in order.
    pub fn pushed(&mut self, slot: u32) -> &mut Vec<Vec<u8>> {
        &mut self.slots[slot as usize].as_mut().unwrap().fifo.as_mut().unwrap().2
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
        self.most_asked.set(self.most_asked.get().max(len));
        let slot =
            self.slots.iter().position(|area| area.as_ref().is_some_and(|area| area.key == key));
        let slot = slot.ok_or(Refusal::UnknownKey)? as u32;
        if !self.slots[slot as usize].as_ref().is_some_and(|area| area.rights.contains(right)) {
            return Err(Refusal::NotPermitted);
        }
        self.range(slot, offset, len).map(|_| slot).ok_or(Refusal::OutOfBounds)
    }

    fn has_had(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }

    fn covers(&self, region: u32, offset: u64, len: u64) -> bool {
        self.range(region, offset, len).is_some()
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        match self.range(region, offset, bytes.len() as u64) {
            Some(range) => {
                self.slots[region as usize].as_mut().unwrap().bytes[range].copy_from_slice(bytes)
            }
            None => self.ignored += 1,
        }
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool {
        let range = self.range(region, offset, into.len() as u64);
        range.map(|range| into.copy_from_slice(&self.bytes(region)[range])).is_some()
    }

    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
        let width = op.width().bytes();
        if !offset.is_multiple_of(width) {
            return Err(Refusal::Misaligned);
        }
        let range = self.range(region, offset, width).ok_or(Refusal::OutOfBounds)?;
        Ok(change(&mut self.slots[region as usize].as_mut().unwrap().bytes[range], op))
    }

    fn accumulate(
        &mut self,
        region: u32,
        offset: u64,
        how: Accumulation,
        elements: &[u8],
    ) -> Result<(), Refusal> {
        let range =
            self.range(region, offset, elements.len() as u64).ok_or(Refusal::OutOfBounds)?;
        if !offset.is_multiple_of(how.width().bytes()) {
            return Err(Refusal::Misaligned);
        }
        assert!((elements.len() as u64).is_multiple_of(how.width().bytes()), "whole elements");
        combine(&mut self.slots[region as usize].as_mut().unwrap().bytes[range], how, elements);
        Ok(())
    }

    fn fifo_element(&self, region: u32) -> Result<u64, Refusal> {
        let area = self.slots.get(region as usize).and_then(Option::as_ref);
        area.and_then(|area| area.fifo.as_ref())
            .map(|(_, longest, _)| *longest)
            .ok_or(Refusal::NoFifo)
    }

    fn push(&mut self, region: u32, element: &[u8]) -> Result<(), Refusal> {
        let longest = self.fifo_element(region)?;
        let slots = self.slots[region as usize].as_ref().unwrap().fifo.as_ref().unwrap().0;
        if element.len() as u64 > longest {
            return Err(Refusal::TooLong);
        }
        if self.pushed(region).len() >= slots {
            return Err(Refusal::Full);
        }
        self.pushed(region).push(element.to_vec());
        Ok(())
    }
}

/// Performs an atomic operation on a word's bytes, and returns the old value.
pub fn change(word: &mut [u8], op: AtomicOp) -> u64 {
    let mut wide = [0; 8];
    wide[..word.len()].copy_from_slice(word);
    let old = u64::from_le_bytes(wide);
    word.copy_from_slice(&apply(old, op).to_le_bytes()[..word.len()]);
    old
}

/// Returns the value that an atomic operation makes of a word.
fn apply(old: u64, op: AtomicOp) -> u64 {
    let signed = |bits: u64| match op.width() {
        Width::W32 => i64::from(bits as u32 as i32),
        Width::W64 => bits as i64,
    };
    match op.change() {
        Change::Add(add) => old.wrapping_add(add) & op.width().mask(),
        Change::CompareSwap { expected, new } => {
            if old == expected {
                new
            } else {
                old
            }
        }
        Change::Swap(new) => new,
        Change::And(bits) => old & bits,
        Change::Or(bits) => old | bits,
        Change::Xor(bits) => old ^ bits,
        Change::Min(other) if other < old => other,
        Change::Max(other) if other > old => other,
        Change::MinSigned(other) if signed(other) < signed(old) => other,
        Change::MaxSigned(other) if signed(other) > signed(old) => other,
        Change::Min(_) | Change::Max(_) | Change::MinSigned(_) | Change::MaxSigned(_) => old,
    }
}

/// Combines elements with those in memory, by the arithmetic of Rust's own types.
pub fn combine(there: &mut [u8], how: Accumulation, elements: &[u8]) {
    macro_rules! each {
        ($type:ty, $sum:expr, $min:expr, $max:expr) => {
            for (there, other) in there
                .chunks_exact_mut(size_of::<$type>())
                .zip(elements.chunks_exact(size_of::<$type>()))
            {
                let here = <$type>::from_le_bytes((&*there).try_into().unwrap());
                let other = <$type>::from_le_bytes(other.try_into().unwrap());
                let one: $type = match how.combine {
                    Combine::Sum => $sum(here, other),
                    Combine::Min => $min(here, other),
                    Combine::Max => $max(here, other),
                };
                there.copy_from_slice(&one.to_le_bytes());
            }
        };
    }
    // No zero of the tests has a sign, so that the order of both zeros does not matter here.
    match how.element {
        NumberKind::U32 => each!(u32, u32::wrapping_add, u32::min, u32::max),
        NumberKind::I32 => each!(i32, i32::wrapping_add, i32::min, i32::max),
        NumberKind::U64 => each!(u64, u64::wrapping_add, u64::min, u64::max),
        NumberKind::I64 => each!(i64, i64::wrapping_add, i64::min, i64::max),
        NumberKind::F32 => each!(f32, std::ops::Add::add, f32::min, f32::max),
        NumberKind::F64 => each!(f64, std::ops::Add::add, f64::min, f64::max),
    }
}

/// Draws an accumulation of any element kind and any operation.
pub fn any_accumulation() -> impl Strategy<Value = Accumulation> {
    let element = [
        NumberKind::U32,
        NumberKind::I32,
        NumberKind::U64,
        NumberKind::I64,
        NumberKind::F32,
        NumberKind::F64,
    ];
    let combine = [Combine::Sum, Combine::Min, Combine::Max];
    (prop::sample::select(element.to_vec()), prop::sample::select(combine.to_vec()))
        .prop_map(|(element, combine)| Accumulation { element, combine })
}

/// Draws any atomic of either width. Most operands are near 0, so that they are often equal.
pub fn any_atomic() -> impl Strategy<Value = AtomicOp> {
    let operand = || {
        let near = (0..4u64, any::<bool>())
            .prop_map(|(near, below)| if below { near.wrapping_neg() } else { near });
        prop_oneof![3 => near, 1 => any::<u64>()]
    };
    let width = prop_oneof![Just(Width::W32), Just(Width::W64)];
    (0..10, operand(), operand(), width).prop_map(|(which, first, new, width)| {
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
    })
}
