//! Writer of one direction.

use super::layout::{RING, SMALL, WARM};
use super::{
    Full, HEARD, REFUSED, RETURNED, SETTLED, STEP_BODY, is_asleep, offset, place, refusal_place,
};
use crate::shm::memory::{Memory, Ordering, Part, fence};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::{Damaged, HEADING, Heading, RecordKind, stride};
use oikaze_protocol::wind::Refusal;

/// Bytes from the tail to the cache line that the writer claims in advance, so that a later store
/// there waits for no other processor.
const AHEAD: u64 = 8 * RECORD_STEP as u64;

/// Maximum number of polls for room before a record has to wait, which take some microseconds.
const LOOKS_FOR_ROOM: usize = 128;

/// Writer of one direction.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    /// Position behind the latest record.
    pub(super) tail: u64,
    /// Offset from which the writer checks whether to continue at the ring's beginning.
    turn_back: usize,
    /// Position of the reader when it was last loaded.
    settled: u64,
    heard: u64,
}

impl Writer {
    pub(in crate::shm) fn new(memory: Memory) -> Writer {
        Writer { memory, tail: 0, turn_back: WARM, settled: 0, heard: 0 }
    }

    /// Puts a record in: a heading, whose length is set to that of the parts, and then the parts.
    /// Returns the position behind the record. The record is settled when the reader reaches that
    /// position.
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

    /// As [`Writer::put`], for a record of one step. The body is written word by word, and `len`
    /// bytes of it count.
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
        // `for_each` and not a loop, because chained iterators are faster with internal iteration.
        words.for_each(|word| {
            if at < end {
                self.memory.store(at, word, Ordering::Relaxed);
            }
            at += 8;
        });
        self.publish(start, heading);
        Ok(self.tail)
    }

    /// Polls a moment for room for such a record and some more, and returns `true` if there is
    /// room. A reader that keeps up makes room in less time than it takes to queue the record
    /// elsewhere.
    #[cold]
    pub fn await_room(&mut self, len: usize) -> bool {
        let mut look = || {
            std::hint::spin_loop();
            self.look() && self.free() >= self.needed(stride(len)) + WARM / 4
        };
        (0..LOOKS_FOR_ROOM).any(|_| look())
    }

    /// Returns `true` if a record of `len` bytes behind its heading finds room.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        let needed = self.needed(stride(len));
        self.free() >= needed || (self.look() && self.free() >= needed)
    }

    fn free(&self) -> usize {
        RING - (self.tail - self.settled) as usize
    }

    /// Returns the bytes that a record takes: the rest of the ring if the record does not fit
    /// there, the record, and the next record's heading.
    fn needed(&self, stride: usize) -> usize {
        let left = RING - offset(self.tail);
        let skipped = if left < stride { left } else { 0 };
        skipped + stride + HEADING
    }

    /// Returns the position for a record of this stride.
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

    /// Continues at the ring's beginning if the reader keeps up. That part is in the caches of the
    /// reader and of the writer. The rest of the ring would only evict other data (MEM-16.10).
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

    /// Fills the rest of the ring with a skip.
    fn skip(&mut self) {
        self.publish(
            self.tail,
            Heading::plain(RecordKind::Skip, RING - offset(self.tail) - HEADING),
        );
    }

    /// Publishes a record. The place of the next heading is cleared first, and the heading of this
    /// record is stored last.
    #[inline]
    fn publish(&mut self, start: u64, heading: Heading) {
        let next = start
            + if heading.kind == RecordKind::Skip {
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

    /// Loads the reader's position. Ignores an impossible position, and returns `false` then.
    fn look(&mut self) -> bool {
        let now = self.memory.load(SETTLED, Ordering::Acquire);
        let possible = (self.settled..=self.tail).contains(&now);
        if possible {
            self.settled = now;
        }
        possible
    }

    /// Returns the reader's position as last loaded and believed.
    #[must_use]
    pub fn settled_before(&self) -> u64 {
        self.settled
    }

    /// Returns the position up to which everything is settled.
    ///
    /// # Errors
    /// The reader says what cannot be.
    #[inline]
    pub fn settled(&mut self) -> Result<u64, Damaged> {
        if self.look() { Ok(self.settled) } else { Err(Damaged) }
    }

    /// Returns the number of bytes that the reader has not settled.
    ///
    /// # Errors
    /// The reader says what cannot be.
    pub fn unread(&mut self) -> Result<usize, Damaged> {
        Ok((self.tail - self.settled()?) as usize)
    }

    /// Returns `true` if everything that was put in was settled when the reader's position was last
    /// loaded.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled == self.tail
    }

    /// Returns the refusal of the record that ends at this settled position, if it was refused.
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
            // The refused record is behind this one.
            refused if refused > position => Ok(None),
            _ => Err(Damaged),
        }
    }

    /// Returns the bytes of credit that the reader has given back since the beginning.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.memory.load(RETURNED, Ordering::Relaxed)
    }

    /// Returns `true` if the caller must wake the reader. If this returns `false`, the reader sees
    /// what was put in or settled when it polls for the last time before it sleeps. A call that
    /// returns `true` clears the mark of sleep, so its caller must do the waking.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        is_asleep(&self.memory)
    }
}
