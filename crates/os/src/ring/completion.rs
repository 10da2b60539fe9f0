//! Queue of one producer and one consumer: Lamport's queue. Each side keeps the last position that
//! it saw of the other side, and loads that position again only when needed. So the positions'
//! cache lines do not move with every entry.

use super::slot::{Position, Words, slot};
use super::sync::{Arc, Ordering};
use super::{Full, round};

#[derive(Debug)]
struct Ring<const N: usize> {
    /// Position behind the newest outcome, written by the producer.
    tail: Position,
    /// Position of the oldest outcome, written by the consumer.
    head: Position,
    slots: Box<[Words<N>]>,
}

/// Creates a ring for at least `capacity` outcomes of `N` words, and returns its two sides.
#[must_use]
pub fn completion<const N: usize>(capacity: usize) -> (Completer<N>, Outcomes<N>) {
    let slots = (0..round(capacity)).map(|_| Words::new()).collect();
    let ring = Arc::new(Ring { tail: Position::new(), head: Position::new(), slots });
    (Completer { ring: Arc::clone(&ring), tail: 0, head: 0 }, Outcomes { ring, head: 0, tail: 0 })
}

/// Side of the engine.
#[derive(Debug)]
pub struct Completer<const N: usize> {
    ring: Arc<Ring<N>>,
    tail: u64,
    /// Position of the other side, as last loaded.
    head: u64,
}

/// Side of the application.
#[derive(Debug)]
pub struct Outcomes<const N: usize> {
    ring: Arc<Ring<N>>,
    head: u64,
    /// Position of the other side, as last loaded.
    tail: u64,
}

impl<const N: usize> Completer<N> {
    /// Puts an outcome in.
    ///
    /// # Errors
    /// [`Full`]: the application has not taken as many outcomes as the ring holds.
    pub fn complete(&mut self, outcome: &[u64; N]) -> Result<(), Full> {
        let capacity = self.ring.slots.len() as u64;
        if self.tail.wrapping_sub(self.head) >= capacity {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            // If more than the capacity, the other side's position is false.
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
    /// Takes the oldest outcome.
    pub fn take(&mut self) -> Option<[u64; N]> {
        if self.head == self.tail {
            let tail = self.ring.tail.0.load(Ordering::Acquire);
            // If more than the capacity, the other side's position is false.
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

    /// Returns `true` if there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.ring.tail.0.load(Ordering::Acquire) == self.head
    }

    /// Returns the number of outcomes that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }
}
