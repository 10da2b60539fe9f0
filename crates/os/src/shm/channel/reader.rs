//! The reader's end.

#[cfg(not(all(test, loom)))]
use super::MAKES_FENCES;
use super::layout::{REFUSALS, RING};
use super::{ASLEEP, Full, HEARD, REFUSED, RETURNED, SETTLED, offset, place, refusal_place};
use crate::shm::memory::{Memory, Ordering};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::{Damaged, HEADING, Heading, Kind};
use oikaze_protocol::wind::Refusal;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The reader's end.
#[derive(Debug)]
pub struct Reader {
    pub(super) memory: Memory,
    head: u64,
    /// The same, for those who only [view](super::RingView).
    pub(super) seen: Arc<AtomicU64>,
    told: u64,
    refused: u64,
}

impl Reader {
    pub(in crate::shm) fn new(memory: Memory) -> Reader {
        Reader { memory, head: 0, seen: Arc::default(), told: 0, refused: 0 }
    }

    /// Is something there? One load.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.memory.load(place(self.head), Ordering::Relaxed) != 0
    }

    /// The heading of the oldest record.
    ///
    /// # Errors
    /// [`Damaged`]: nothing in this ring can be believed any more.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Heading>, Damaged> {
        // Twice at most: no skip is followed by another one.
        for _ in 0..2 {
            let word = self.memory.load(place(self.head), Ordering::Acquire);
            if word == 0 {
                return Ok(None);
            }
            if self.head.saturating_sub(self.told) >= RING as u64 {
                // It was written where nobody has said that there is room.
                return Err(Damaged);
            }
            let heading = Heading::decode(word, RING - offset(self.head))?;
            if heading.kind != Kind::Skip {
                return Ok(Some(heading));
            }
            self.go_to(self.head + (HEADING + heading.len) as u64);
        }
        Err(Damaged)
    }

    /// Copy bytes of the oldest record, `from` bytes behind its heading.
    #[inline]
    pub fn read(&self, from: usize, into: &mut [u8]) {
        self.memory.read(place(self.head) + HEADING + from, into);
    }

    /// So many bytes of the oldest record, from there.
    #[inline]
    #[must_use]
    pub fn bytes<const N: usize>(&self, from: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.read(from, &mut bytes);
        bytes
    }

    /// Append a copy of bytes of the oldest record.
    pub fn append(&self, from: usize, len: usize, into: &mut Vec<u8>) {
        self.memory.append(place(self.head) + HEADING + from, len, into);
    }

    /// The oldest record is done with. The position behind it.
    ///
    /// One step is guessed by a branch, not computed from the heading: the processor fetches the
    /// next record while it waits for this one.
    #[inline]
    pub fn pass(&mut self, heading: Heading) -> u64 {
        if heading.stride() == RECORD_STEP {
            self.go_to(self.head + RECORD_STEP as u64);
        } else {
            self.pass_longer(heading);
        }
        self.head
    }

    /// Apart, so that the branch stays one.
    #[inline(never)]
    fn pass_longer(&mut self, heading: Heading) {
        self.go_to(self.head + heading.stride() as u64);
    }

    #[inline]
    fn go_to(&mut self, position: u64) {
        self.head = position;
        self.seen.store(position, Ordering::Relaxed);
    }

    /// How far records have been passed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Tell the writer that everything up to this position is settled.
    #[inline]
    pub fn settle(&mut self, position: u64) {
        if position > self.told {
            self.told = position;
            self.memory.store(SETTLED, position, Ordering::Release);
        }
    }

    /// Has the writer heard of so many refusals that there is room for one more?
    #[must_use]
    pub fn may_refuse(&self) -> bool {
        self.refused.wrapping_sub(self.memory.load(HEARD, Ordering::Acquire)) < REFUSALS as u64
    }

    /// Tell the writer that the record which ends at this position is refused; before that position
    /// is settled.
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

    /// Bytes of credit given back since the beginning.
    pub fn give_back(&self, bytes: u64) {
        self.memory.store(RETURNED, bytes, Ordering::Relaxed);
    }

    /// Each time that this process is about to sleep it makes the fences of others, too
    /// ([`crate::hazard::make_fences`]).
    #[cfg(not(all(test, loom)))]
    pub(in crate::shm) fn make_fences(&self) {
        self.memory.store(MAKES_FENCES, 1, Ordering::Relaxed);
    }

    /// This process is about to sleep. Afterwards it makes [fences](crate::hazard::make_fences) and
    /// looks once more (MEM-16.5).
    pub fn fall_asleep(&self) {
        self.memory.store(ASLEEP, 1, Ordering::Relaxed);
    }
}
