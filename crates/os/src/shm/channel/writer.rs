//! The writer's end.

use super::layout::{RING, SMALL, WARM};
use super::{
    Full, HEARD, REFUSED, RETURNED, SETTLED, STEP_BODY, is_asleep, offset, place, refusal_place,
};
use crate::shm::memory::{Memory, Ordering, Part, fence};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::{Damaged, HEADING, Heading, Kind, stride};
use oikaze_protocol::wind::Refusal;

/// Bytes between the tail and the line that is asked for: what is written there later waits for no
/// other processor.
const AHEAD: u64 = 8 * RECORD_STEP as u64;

/// Looks for room before a record has to wait: some microseconds.
const LOOKS_FOR_ROOM: usize = 128;

/// The writer's end.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    /// Behind the latest record.
    pub(super) tail: u64,
    /// Where in the ring it is looked whether to begin anew.
    turn_back: usize,
    /// How far the reader had come when it was looked at last.
    settled: u64,
    heard: u64,
}

impl Writer {
    pub(in crate::shm) fn new(memory: Memory) -> Writer {
        Writer { memory, tail: 0, turn_back: WARM, settled: 0, heard: 0 }
    }

    /// Put a record in: a heading (its length is that of the parts), the parts one after another.
    /// The position behind it: when the reader has come so far, the record is settled.
    ///
    /// # Errors
    /// [`Full`]; nothing was written.
    #[inline]
    pub fn put(&mut self, heading: Heading, parts: &[Part<'_>]) -> Result<u64, Full> {
        let len = parts.iter().map(Part::len).sum();
        let heading = Heading { len, ..heading };
        let start = self.make_room(heading.stride())?;
        let at = place(start);
        let mut to = at + HEADING;
        for part in parts {
            self.memory.write(to, part);
            to += part.len();
        }
        self.publish(start, heading);
        Ok(self.tail)
    }

    /// As [`Writer::put`], a record of one step: what follows its heading, of which `len` bytes
    /// count, word by word.
    ///
    /// # Errors
    /// [`Full`]; nothing was written.
    #[inline]
    pub fn put_step(
        &mut self,
        heading: Heading,
        len: usize,
        words: impl Iterator<Item = u64>,
    ) -> Result<u64, Full> {
        let heading = Heading { len: len.min(STEP_BODY), ..heading };
        let start = self.make_room(RECORD_STEP)?;
        let (mut at, end) = (place(start) + HEADING, place(start) + RECORD_STEP);
        // No loop of ours: chains of iterators are quicker from inside.
        words.for_each(|word| {
            if at < end {
                self.memory.store(at, word, Ordering::Relaxed);
            }
            at += 8;
        });
        self.publish(start, heading);
        Ok(self.tail)
    }

    /// Wait a moment until there is room for such a record and some more: a reader that keeps up
    /// makes it in less time than it takes to put the record by. Is there?
    #[cold]
    pub fn await_room(&mut self, len: usize) -> bool {
        let mut look = || {
            std::hint::spin_loop();
            self.look() && self.free() >= self.needed(stride(len)) + WARM / 4
        };
        (0..LOOKS_FOR_ROOM).any(|_| look())
    }

    /// Would a record with so many bytes behind its heading find room?
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        let needed = self.needed(stride(len));
        self.free() >= needed || (self.look() && self.free() >= needed)
    }

    fn free(&self) -> usize {
        RING - (self.tail - self.settled) as usize
    }

    /// What is left behind the tail up to the ring's end, if a record does not fit there; and the
    /// record; and the next one's heading.
    fn needed(&self, stride: usize) -> usize {
        let left = RING - offset(self.tail);
        let skipped = if left < stride { left } else { 0 };
        skipped + stride + HEADING
    }

    /// Where a record of this stride goes.
    #[inline]
    fn make_room(&mut self, stride: usize) -> Result<u64, Full> {
        let needed = self.needed(stride);
        if self.free() < needed && !(self.look() && self.free() >= needed) {
            return Err(Full);
        }
        if RING - offset(self.tail) < stride {
            self.skip();
        } else if stride <= SMALL && offset(self.tail) >= self.turn_back {
            self.begin_anew(stride);
        }
        Ok(self.tail)
    }

    /// A reader that keeps up finds the beginning of the ring in its caches, as the writer does;
    /// the rest would only drive out other things (MEM-16.10).
    #[cold]
    fn begin_anew(&mut self, stride: usize) {
        let left = RING - offset(self.tail);
        if self.look()
            && self.tail - self.settled <= (WARM / 2) as u64
            && self.free() >= left + stride + HEADING
        {
            self.skip();
        } else {
            self.turn_back = offset(self.tail) + WARM;
        }
    }

    /// What is left of the ring stays empty.
    fn skip(&mut self) {
        self.publish(self.tail, Heading::plain(Kind::Skip, RING - offset(self.tail) - HEADING));
    }

    /// First the place behind it says that nothing is there yet, then the heading says that the
    /// record is.
    #[inline]
    fn publish(&mut self, start: u64, heading: Heading) {
        let next = start
            + if heading.kind == Kind::Skip {
                (HEADING + heading.len) as u64
            } else {
                heading.stride() as u64
            };
        self.memory.store(place(next), 0, Ordering::Relaxed);
        self.memory.claim(place(next + AHEAD));
        self.memory.store(place(start), heading.encode(), Ordering::Release);
        self.tail = next;
        if offset(next) == 0 {
            self.turn_back = WARM;
        }
    }

    /// See how far the reader has come. A position that cannot be is not believed; false then.
    fn look(&mut self) -> bool {
        let now = self.memory.load(SETTLED, Ordering::Acquire);
        let possible = (self.settled..=self.tail).contains(&now);
        if possible {
            self.settled = now;
        }
        possible
    }

    /// As far as the reader was believed at the last look.
    #[must_use]
    pub fn settled_before(&self) -> u64 {
        self.settled
    }

    /// The position up to which everything is settled.
    ///
    /// # Errors
    /// The reader says what cannot be.
    #[inline]
    pub fn settled(&mut self) -> Result<u64, Damaged> {
        if self.look() { Ok(self.settled) } else { Err(Damaged) }
    }

    /// Has everything that was put in been settled, as of the last look?
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled == self.tail
    }

    /// Was the record that ends at this position, which is settled, refused?
    ///
    /// # Errors
    /// A refusal that cannot be.
    pub fn refusal(&mut self, position: u64) -> Result<Option<Refusal>, Damaged> {
        if self.memory.load(REFUSED, Ordering::Acquire) == self.heard {
            return Ok(None);
        }
        let at = refusal_place(self.heard);
        match self.memory.load(at, Ordering::Relaxed) {
            refused if refused == position => {
                let code = self.memory.load(at + 8, Ordering::Relaxed);
                self.heard += 1;
                self.memory.store(HEARD, self.heard, Ordering::Release);
                u8::try_from(code).ok().and_then(Refusal::from_code).map(Some).ok_or(Damaged)
            }
            // The record is behind this one.
            refused if refused > position => Ok(None),
            _ => Err(Damaged),
        }
    }

    /// Bytes of credit that the reader has given back since the beginning.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.memory.load(RETURNED, Ordering::Relaxed)
    }

    /// What was put in, or told, is seen by the reader when it looks for the last time before it
    /// sleeps. Does it sleep already? Then it must be woken: it takes who asks for the one who
    /// does.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        is_asleep(&self.memory)
    }
}
