//! Parts of both rings.

use super::sync::{AtomicU64, Ordering};

/// A position that one side writes often. It has a pair of cache lines to itself, because
/// processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Position(pub AtomicU64);

impl Position {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The words of one entry, accessed with relaxed order. Another word, accessed with release and
/// acquire, tells which side owns the entry.
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

/// Returns the slot of a position. The length of `slots` is a power of two.
pub(super) fn slot<T>(slots: &[T], position: u64) -> Option<&T> {
    // Masked before the conversion, so that the result fits into any `usize`.
    let mask = (slots.len() as u64).wrapping_sub(1);
    slots.get((position & mask) as usize)
}
