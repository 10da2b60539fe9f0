//! One direction between two neighbours: a ring of records, one writer, one reader (spec/memory.md, MEM-16).
//!
//! A record's heading is written last, and the reader looks at the place where the next heading will stand: so a small record is one cache
//! line that changes hands (the FIFO elements of UCX's shared-memory transport carry such a mark; Aeron's log buffers publish a frame
//! by its length). What stands there before is 0, because the writer clears the place behind a record before it publishes the record.
//!
//! The reader tells how far it has come by one position, which settles messages and frees their room. What it has refused stands in a
//! small ring of its own, told before the position passes it, so that the news of a refusal needs no room in the ring of the other direction, which
//! may be full.

use super::memory::{Memory, Ordering, Part, fence};
use oikaze_protocol::neighbour::{Damaged, HEADING, Heading, Kind, stride};
use oikaze_protocol::wind::Refusal;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(not(all(test, loom)))]
mod layout {
    use oikaze_protocol::limits::{PAGE, REFUSALS_TOLD, RING_BYTES};

    /// Two cache lines: processors fetch them in pairs.
    pub const LINE: usize = 128;
    pub const REFUSALS: usize = REFUSALS_TOLD;
    pub const RING: usize = RING_BYTES;
    /// The second and third pages are for regions that are mapped (`super::super::marks`).
    pub const CONTROL: usize = 3 * PAGE;
}

#[cfg(all(test, loom))]
mod layout {
    pub const LINE: usize = 16;
    pub const REFUSALS: usize = 2;
    pub const RING: usize = 256;
    pub const CONTROL: usize = 128;
}

use layout::{CONTROL, LINE, REFUSALS, RING};

/// Bytes of one direction.
pub(super) const CHANNEL: usize = CONTROL + RING;

/// Written by the reader: how far it has come, and the credit it has given back.
const SETTLED: usize = 0;
const RETURNED: usize = 8;
/// Set by the reader before it sleeps, taken back by the writer that wakes it.
const ASLEEP: usize = LINE;
/// Positions in the ring of refusals; written by the reader, by the writer.
const REFUSED: usize = 2 * LINE;
const HEARD: usize = 3 * LINE;
const REFUSALS_AT: usize = 4 * LINE;

const _: () = assert!(REFUSALS_AT + 16 * REFUSALS <= CONTROL && REFUSALS.is_power_of_two() && RING.is_power_of_two());

/// Bytes from the ring's beginning.
const fn offset(position: u64) -> usize {
    (position & (RING as u64 - 1)) as usize
}

const fn place(position: u64) -> usize {
    CONTROL + offset(position)
}

const fn refusal_place(position: u64) -> usize {
    REFUSALS_AT + 16 * (position & (REFUSALS as u64 - 1)) as usize
}

/// No room for the record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring has no room")]
pub struct Full;

/// The writer's end.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    /// Behind the latest record.
    tail: u64,
    /// How far the reader had come when it was looked at last.
    settled: u64,
    heard: u64,
}

impl Writer {
    pub(super) fn new(memory: Memory) -> Writer {
        Writer { memory, tail: 0, settled: 0, heard: 0 }
    }

    /// Put a record in: a heading (its length is that of the parts), the parts one after another. The position behind it: when the reader
    /// has come so far, the record is settled.
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

    /// Would a record with so many bytes behind its heading find room?
    pub fn has_room(&mut self, len: usize) -> bool {
        let needed = self.needed(stride(len));
        self.free() >= needed || (self.look() && self.free() >= needed)
    }

    fn free(&self) -> usize {
        RING - (self.tail - self.settled) as usize
    }

    /// What is left behind the tail up to the ring's end, if a record does not fit there; and the record; and the next one's heading.
    fn needed(&self, stride: usize) -> usize {
        let left = RING - offset(self.tail);
        let skipped = if left < stride { left } else { 0 };
        skipped + stride + HEADING
    }

    /// Where a record of this stride goes.
    fn make_room(&mut self, stride: usize) -> Result<u64, Full> {
        let needed = self.needed(stride);
        if self.free() < needed && !(self.look() && self.free() >= needed) {
            return Err(Full);
        }
        let left = RING - offset(self.tail);
        if left < stride {
            self.publish(self.tail, Heading::plain(Kind::Skip, left - HEADING));
        }
        Ok(self.tail)
    }

    /// First the place behind it says that nothing is there yet, then the heading says that the record is.
    #[inline]
    fn publish(&mut self, start: u64, heading: Heading) {
        let next = start + if heading.kind == Kind::Skip { (HEADING + heading.len) as u64 } else { heading.stride() as u64 };
        self.memory.store(place(next), 0, Ordering::Relaxed);
        self.memory.store(place(start), heading.encode(), Ordering::Release);
        self.tail = next;
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

    /// What was put in, or told, is seen by the reader when it looks for the last time before it sleeps. Does it sleep already? Then it must be woken: it
    /// takes who asks for the one who does.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        must_wake(&self.memory)
    }
}

/// What any thread may see of both rings at any time, without having them: hints, but for what the reader of ours has settled.
#[derive(Clone, Debug)]
pub struct Glance {
    ours: Memory,
    theirs: Memory,
    head: Arc<AtomicU64>,
}

impl Glance {
    #[cfg(not(all(test, loom)))]
    pub(super) fn new(ours: &Memory, reader: &Reader) -> Glance {
        Glance { ours: ours.clone(), theirs: reader.memory.clone(), head: Arc::clone(&reader.seen) }
    }

    /// Does a record wait that the reader has not passed, most likely?
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.theirs.load(place(self.head.load(Ordering::Relaxed)), Ordering::Relaxed) != 0
    }

    /// Does the neighbour say that all up to this position is settled?
    #[inline]
    #[must_use]
    pub fn has_settled(&self, position: u64) -> bool {
        self.ours.load(SETTLED, Ordering::Acquire) >= position
    }

    /// As [`Writer::must_wake`], for who has put a sequentially consistent fence between what was written and this.
    #[inline]
    #[must_use]
    pub fn must_wake_after_fence(&self) -> bool {
        is_asleep(&self.ours)
    }
}

/// See [`Writer::must_wake`].
#[inline]
fn must_wake(memory: &Memory) -> bool {
    fence(Ordering::SeqCst);
    is_asleep(memory)
}

/// Must the reader be woken? Between what it is to see and this look there is a fence (MEM-16.5, MEM-18.5).
#[inline]
pub(super) fn is_asleep(memory: &Memory) -> bool {
    memory.load(ASLEEP, Ordering::Relaxed) != 0 && memory.swap(ASLEEP, 0, Ordering::AcqRel) != 0
}

/// The reader's end.
#[derive(Debug)]
pub struct Reader {
    memory: Memory,
    head: u64,
    /// The same, for those who only [glance](Glance).
    seen: Arc<AtomicU64>,
    told: u64,
    refused: u64,
}

impl Reader {
    pub(super) fn new(memory: Memory) -> Reader {
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
            self.head += (HEADING + heading.len) as u64;
            self.seen.store(self.head, Ordering::Relaxed);
        }
        Err(Damaged)
    }

    /// Copy bytes of the oldest record, `from` bytes behind its heading.
    #[inline]
    pub fn read(&self, from: usize, into: &mut [u8]) {
        self.memory.read(place(self.head) + HEADING + from, into);
    }

    /// Append a copy of bytes of the oldest record.
    pub fn append(&self, from: usize, len: usize, into: &mut Vec<u8>) {
        self.memory.append(place(self.head) + HEADING + from, len, into);
    }

    /// The oldest record is done with. The position behind it.
    #[inline]
    pub fn pass(&mut self, heading: Heading) -> u64 {
        self.head += heading.stride() as u64;
        self.seen.store(self.head, Ordering::Relaxed);
        self.head
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

    /// Tell the writer that the record which ends at this position is refused; before that position is settled.
    ///
    /// # Errors
    /// [`Full`]: it has not heard of earlier ones.
    pub fn refuse(&mut self, position: u64, refusal: Refusal) -> Result<(), Full> {
        let heard = self.memory.load(HEARD, Ordering::Acquire);
        if self.refused.wrapping_sub(heard) >= REFUSALS as u64 {
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

    /// This process is about to sleep. Afterwards it must look once more (MEM-16.5).
    pub fn fall_asleep(&self) {
        self.memory.store(ASLEEP, 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
