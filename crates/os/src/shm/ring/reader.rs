//! Reader of one direction.

#[cfg(not(all(test, loom)))]
use super::MAKES_FENCES;
use super::layout::{REFUSALS, RING};
use super::{ASLEEP, Full, HEARD, REFUSED, RETURNED, SETTLED, offset, place, refusal_place};
use crate::shm::memory::{Memory, Ordering};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::{Damaged, HEADING, Heading, RecordKind};
use oikaze_protocol::wind::Refusal;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Reader of one direction.
#[derive(Debug)]
pub struct Reader {
    pub(super) memory: Memory,
    head: u64,
    /// Copy of `head` for [views](super::RingView).
    pub(super) seen: Arc<AtomicU64>,
    told: u64,
    refused: u64,
}

impl Reader {
    pub(in crate::shm) fn new(memory: Memory) -> Reader {
        Reader { memory, head: 0, seen: Arc::default(), told: 0, refused: 0 }
    }

    /// Returns `true` if a record is there. Costs one load.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.memory.load(place(self.head), Ordering::Relaxed) != 0
    }

    /// Returns the heading of the oldest record.
    ///
    /// # Errors
    /// [`Damaged`]: nothing in this ring can be believed any more.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Heading>, Damaged> {
        // Two passes are enough, because no skip follows another.
        for _ in 0..2 {
            let word = self.memory.load(place(self.head), Ordering::Acquire);
            if word == 0 {
                return Ok(None);
            }
            if self.head.saturating_sub(self.told) >= RING as u64 {
                // The writer wrote where the reader has not freed space.
                return Err(Damaged);
            }
            let heading = Heading::decode(word, RING - offset(self.head))?;
            if heading.kind != RecordKind::Skip {
                return Ok(Some(heading));
            }
            self.go_to(self.head + (HEADING + heading.len) as u64);
        }
        Err(Damaged)
    }

    /// Copies bytes of the oldest record, starting `from` bytes behind its heading.
    #[inline]
    pub fn read(&self, from: usize, into: &mut [u8]) {
        self.memory.read(place(self.head) + HEADING + from, into);
    }

    /// Returns `N` bytes of the oldest record, starting `from` bytes behind its heading.
    #[inline]
    #[must_use]
    pub fn bytes<const N: usize>(&self, from: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.read(from, &mut bytes);
        bytes
    }

    /// Appends a copy of bytes of the oldest record.
    pub fn append(&self, from: usize, len: usize, into: &mut Vec<u8>) {
        self.memory.append(place(self.head) + HEADING + from, len, into);
    }

    /// Passes the oldest record, and returns the position behind it.
    ///
    /// A branch predicts a record of one step instead of computing the stride from the heading. So
    /// the processor fetches the next record while it waits for this one.
    #[inline]
    pub fn pass(&mut self, heading: Heading) -> u64 {
        if heading.stride() == RECORD_STEP {
            self.go_to(self.head + RECORD_STEP as u64);
        } else {
            self.pass_longer(heading);
        }
        self.head
    }

    /// Not inlined, so that the branch in `pass` stays a branch.
    #[inline(never)]
    fn pass_longer(&mut self, heading: Heading) {
        self.go_to(self.head + heading.stride() as u64);
    }

    #[inline]
    fn go_to(&mut self, position: u64) {
        self.head = position;
        self.seen.store(position, Ordering::Relaxed);
    }

    /// Returns the position up to which records have been passed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Settles everything up to this position, and so tells the writer.
    #[inline]
    pub fn settle(&mut self, position: u64) {
        if position > self.told {
            self.told = position;
            self.memory.store(SETTLED, position, Ordering::Release);
        }
    }

    /// Returns `true` if the ring of refusals has room for one more.
    #[must_use]
    pub fn may_refuse(&self) -> bool {
        self.refused.wrapping_sub(self.memory.load(HEARD, Ordering::Acquire)) < REFUSALS as u64
    }

    /// Tells the writer that the record which ends at this position is refused. Call it before that
    /// position is settled.
    ///
    /// # Errors
    /// [`Full`]: it has not heard of earlier ones.
    pub fn refuse(&mut self, position: u64, refusal: Refusal) -> Result<(), Full> {
        if !self.may_refuse() {
            return Err(Full);
        }
        let at = refusal_place(self.refused);
        self.memory.store(at, position, Ordering::Relaxed);
        self.memory.store(at + 8, u64::from(refusal as u8), Ordering::Relaxed);
        self.refused += 1;
        self.memory.store(REFUSED, self.refused, Ordering::Release);
        Ok(())
    }

    /// Publishes the bytes of credit that were given back since the beginning.
    pub fn give_back(&self, bytes: u64) {
        self.memory.store(RETURNED, bytes, Ordering::Relaxed);
    }

    /// Declares that this process makes the fences of others too ([`crate::sync::make_fences`])
    /// each time before it sleeps.
    #[cfg(not(all(test, loom)))]
    pub(in crate::shm) fn make_fences(&self) {
        self.memory.store(MAKES_FENCES, 1, Ordering::Relaxed);
    }

    /// Marks this process as about to sleep. The caller then makes
    /// [fences](crate::sync::make_fences) and polls once more (MEM-16.5).
    pub fn fall_asleep(&self) {
        self.memory.store(ASLEEP, 1, Ordering::Relaxed);
    }
}
