//! One completer, one taker: Lamport's queue. Each side keeps what it last saw of the other's
//! position, and looks again only when that is not enough, so that the positions' cache lines do
//! not travel with every entry.

use super::slot::{Position, Words, slot};
use super::sync::{Arc, Ordering};
use super::{Full, round};

#[derive(Debug)]
struct Ring<const N: usize> {
    /// Behind the newest outcome; the completer writes it.
    tail: Position,
    /// The oldest outcome; the taker writes it.
    head: Position,
    slots: Box<[Words<N>]>,
}

/// A ring for at least `capacity` outcomes of `N` words: its two sides.
#[must_use]
pub fn completion<const N: usize>(capacity: usize) -> (Completer<N>, Outcomes<N>) {
    let slots = (0..round(capacity)).map(|_| Words::new()).collect();
    let ring = Arc::new(Ring { tail: Position::new(), head: Position::new(), slots });
    (Completer { ring: Arc::clone(&ring), tail: 0, head: 0 }, Outcomes { ring, head: 0, tail: 0 })
}

/// The side of the engine.
#[derive(Debug)]
pub struct Completer<const N: usize> {
    ring: Arc<Ring<N>>,
    tail: u64,
    /// As last seen.
    head: u64,
}

/// The side of the application.
#[derive(Debug)]
pub struct Outcomes<const N: usize> {
    ring: Arc<Ring<N>>,
    head: u64,
    /// As last seen.
    tail: u64,
}

impl<const N: usize> Completer<N> {
    /// Put an outcome in.
    ///
    /// # Errors
    /// [`Full`]: the application has not taken as many outcomes as the ring holds.
    pub fn complete(&mut self, outcome: &[u64; N]) -> Result<(), Full> {
        let capacity = self.ring.slots.len() as u64;
        if self.tail.wrapping_sub(self.head) >= capacity {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            // More than the capacity: the other side lies about its position.
            if self.tail.wrapping_sub(self.head) >= capacity {
                return Err(Full);
            }
        }
        slot(&self.ring.slots, self.tail).ok_or(Full)?.write(outcome);
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }
}

impl<const N: usize> Outcomes<N> {
    /// The oldest outcome.
    pub fn take(&mut self) -> Option<[u64; N]> {
        if self.head == self.tail {
            let tail = self.ring.tail.0.load(Ordering::Acquire);
            // More than the capacity: the other side lies about its position.
            if tail.wrapping_sub(self.head) > self.ring.slots.len() as u64 {
                return None;
            }
            self.tail = tail;
        }
        if self.head == self.tail {
            return None;
        }
        let outcome = slot(&self.ring.slots, self.head)?.read();
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(outcome)
    }

    /// Is there nothing to take?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.ring.tail.0.load(Ordering::Acquire) == self.head
    }

    /// Outcomes that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }
}
