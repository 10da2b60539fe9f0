//! Queue of many submitters and one consumer: Vyukov's bounded queue, with the consumer's side
//! simplified for one.
//!
//! Each slot carries a turn number. If `turn == position`, the slot is free for the submitter of
//! that position. If `turn == position + 1`, it is filled for the consumer. The consumer sets it to
//! `position + capacity`, which frees the slot for the next round.
//!
//! A submitter claims a position by compare-and-swap on the tail, fills the slot, and publishes it
//! with the turn number. A submitter that stops in between holds up those behind it, so each
//! application has a ring of its own.

use super::slot::{Position, Words, slot};
use super::sync::{Arc, AtomicU64, Ordering};
use super::{Full, round};

#[derive(Debug)]
#[repr(C, align(64))]
struct Slot<const N: usize> {
    turn: AtomicU64,
    words: Words<N>,
}

#[derive(Debug)]
struct Ring<const N: usize> {
    /// Next position to claim, written by all submitters.
    tail: Position,
    /// Next position to take, written by the consumer.
    head: Position,
    slots: Box<[Slot<N>]>,
}

/// Creates a ring for at least `capacity` requests of `N` words (seven fill a cache line), and
/// returns its two sides.
#[must_use]
pub fn submission<const N: usize>(capacity: usize) -> (Submitter<N>, Requests<N>) {
    let slot = |index| Slot { turn: AtomicU64::new(index), words: Words::new() };
    let slots = (0..round(capacity) as u64).map(slot).collect();
    let ring = Arc::new(Ring { tail: Position::new(), head: Position::new(), slots });
    (Submitter(Arc::clone(&ring)), Requests(ring))
}

/// Side of the application, cloned for each thread.
#[derive(Clone, Debug)]
pub struct Submitter<const N: usize>(Arc<Ring<N>>);

/// Side of the engine, of which there is one.
#[derive(Debug)]
pub struct Requests<const N: usize>(Arc<Ring<N>>);

impl<const N: usize> Submitter<N> {
    /// Puts a request in, behind all earlier ones.
    ///
    /// # Errors
    /// [`Full`]: as many requests as the ring holds have not been taken.
    pub fn submit(&self, request: &[u64; N]) -> Result<(), Full> {
        let mut position = self.0.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = slot(&self.0.slots, position).ok_or(Full)?;
            let turn = slot.turn.load(Ordering::Acquire);
            match turn.wrapping_sub(position).cast_signed() {
                0 => match self.claim(position) {
                    Ok(()) => {
                        slot.words.write(request);
                        slot.turn.store(position.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                },
                // The slot still holds the request of the round before.
                ..0 => return Err(Full),
                // If the tail has moved, another submitter was faster. Otherwise no rule yields
                // this turn number, and waiting would never end.
                1.. => match self.0.tail.0.load(Ordering::Relaxed) {
                    tail if tail == position => return Err(Full),
                    tail => position = tail,
                },
            }
        }
    }

    fn claim(&self, position: u64) -> Result<(), u64> {
        let (tail, next) = (&self.0.tail.0, position.wrapping_add(1));
        tail.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }
}

impl<const N: usize> Requests<N> {
    /// Takes the oldest request.
    pub fn take(&mut self) -> Option<[u64; N]> {
        let position = self.0.head.0.load(Ordering::Relaxed);
        let slot = self.filled(position)?;
        let request = slot.words.read();
        self.0.head.0.store(position.wrapping_add(1), Ordering::Relaxed);
        slot.turn.store(position.wrapping_add(self.0.slots.len() as u64), Ordering::Release);
        Some(request)
    }

    /// Returns `true` if there is nothing to take. A request counts once it is published.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled(self.0.head.0.load(Ordering::Relaxed)).is_none()
    }

    /// Returns the number of requests that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.slots.len()
    }

    fn filled(&self, position: u64) -> Option<&Slot<N>> {
        let slot = slot(&self.0.slots, position)?;
        (slot.turn.load(Ordering::Acquire) == position.wrapping_add(1)).then_some(slot)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_nobody_makes_is_not_waited_for() {
        let (submitter, _requests) = submission::<1>(4);
        slot(&submitter.0.slots, 0).unwrap().turn.store(5, Ordering::Relaxed);
        assert_eq!(submitter.submit(&[1]), Err(Full));
    }
}
