//! What both rings are made of.

use super::sync::{AtomicU64, Ordering};

/// A position that one side writes often: alone in its pair of cache lines (two, because processors
/// fetch them in pairs).
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Position(pub AtomicU64);

impl Position {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The words of one entry. Written and read relaxed: something else, released and acquired, says
/// whose they are.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Words<N> {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub fn write(&self, entry: &[u64; N]) {
        for (word, value) in self.0.iter().zip(entry) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    pub fn read(&self) -> [u64; N] {
        std::array::from_fn(|index| {
            self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
        })
    }
}

/// The slot of a position: `slots` has a power of two of them.
pub(super) fn slot<T>(slots: &[T], position: u64) -> Option<&T> {
    // The mask first: what is left fits into any usize.
    let mask = (slots.len() as u64).wrapping_sub(1);
    slots.get((position & mask) as usize)
}
