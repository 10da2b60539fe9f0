//! Atomics, or loom's atomics where a sequence lock is modelled.

#[cfg(loom)]
pub(super) use loom::sync::atomic::fence;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::fence;
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

/// A word that several threads may read and one writes.
pub(super) trait Cell {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Cell for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

#[cfg(loom)]
impl Cell for loom::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        loom::sync::atomic::AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        loom::sync::atomic::AtomicU64::store(self, value, order);
    }
}
