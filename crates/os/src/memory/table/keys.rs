//! Random keys and the slots that they open.

use crate::memory::error::MemoryError;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

/// Number of keys drawn at a time. A system call for each key would be most of a registration's
/// cost.
const KEYS_DRAWN: usize = 32;
/// Number of ended keys that are remembered.
const ENDED_MAX: usize = 4096;

/// Slot of each key, and a stock of unused keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    slots: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    drawn: Vec<u64>,
    /// Latest keys that have ended, as a ring.
    ended: Vec<u64>,
    /// Place in the ring of the oldest of them, once the ring is full.
    oldest: usize,
}

impl Keys {
    pub fn find(&self, key: u64) -> Option<u32> {
        self.slots.get(&key).copied()
    }

    pub fn insert(&mut self, key: u64, slot: u32) {
        self.slots.insert(key, slot);
    }

    pub fn remove(&mut self, key: u64) {
        self.slots.remove(&key);
        if self.ended.len() < ENDED_MAX {
            self.ended.push(key);
        } else if let Some(oldest) = self.ended.get_mut(self.oldest) {
            *oldest = key;
            self.oldest = (self.oldest + 1) % ENDED_MAX;
        }
    }

    /// Returns `true` if the key is in use, or is one of the latest that were. Slow for others.
    pub fn has_been_valid(&self, key: u64) -> bool {
        self.slots.contains_key(&key) || self.ended.contains(&key)
    }

    /// Draws a key that is not in use and not 0 (MEM-1.1).
    pub fn draw(&mut self) -> Result<u64, MemoryError> {
        loop {
            if self.drawn.is_empty() {
                let mut bytes = [0; KEYS_DRAWN * 8];
                getrandom::fill(&mut bytes).map_err(|_| MemoryError::Random("getrandom failed"))?;
                self.drawn
                    .extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
            }
            match self.drawn.pop() {
                Some(key) if key != 0 && !self.slots.contains_key(&key) => return Ok(key),
                _ => {}
            }
        }
    }
}

/// Identity hash: our keys are random already.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
