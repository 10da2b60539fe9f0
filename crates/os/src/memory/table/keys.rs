//! Keys: drawn at random, found by their number.

use super::MemoryError;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

/// Keys drawn at a time: a system call for each would be most of a registration's cost.
const KEYS_DRAWN: usize = 32;

/// Which slot each key opens, and keys that nobody has yet.
#[derive(Debug, Default)]
pub(super) struct Keys {
    slots: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    drawn: Vec<u64>,
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
    }

    /// One that is not in use, and not 0 (MEM-1.1).
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

/// Keys are random already, and chosen by us: nothing to hash.
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
