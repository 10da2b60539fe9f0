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
#[cfg(not(all(test, loom)))]
use crate::hazard::fences::{self, Reach};
use oikaze_protocol::limits::RECORD_STEP;
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
    /// What is used of a ring whose reader keeps up: half of the smallest first cache there is.
    pub const WARM: usize = 16 << 10;
    /// Records for which that pays: while longer ones are copied in, others are copied out.
    pub const SMALL: usize = 1024;
    /// The second and third pages are for regions that are mapped (`super::super::marks`).
    pub const CONTROL: usize = 3 * PAGE;
}

#[cfg(all(test, loom))]
mod layout {
    pub const LINE: usize = 16;
    pub const REFUSALS: usize = 2;
    pub const RING: usize = 256;
    pub const WARM: usize = 128;
    pub const SMALL: usize = 64;
    pub const CONTROL: usize = 128;
}

use layout::{CONTROL, LINE, REFUSALS, RING, SMALL, WARM};

/// Bytes behind the heading of a record of one step.
pub const STEP_BODY: usize = RECORD_STEP - HEADING;

/// Bytes of one direction.
pub(super) const CHANNEL: usize = CONTROL + RING;

/// Written by the reader: how far it has come, and the credit it has given back.
const SETTLED: usize = 0;
const RETURNED: usize = 8;
/// Set by the reader before it sleeps, taken back by the writer that wakes it; and whether the reader then makes the writer's fence, too.
const ASLEEP: usize = LINE;
const MAKES_FENCES: usize = LINE + 8;
/// Positions in the ring of refusals; written by the reader, by the writer.
const REFUSED: usize = 2 * LINE;
const HEARD: usize = 3 * LINE;
const REFUSALS_AT: usize = 4 * LINE;

const _: () = assert!(REFUSALS_AT + 16 * REFUSALS <= CONTROL && REFUSALS.is_power_of_two() && RING.is_power_of_two());

/// Bytes from the ring's beginning.
const fn offset(position: u64) -> usize {
    (position & (RING as u64 - 1)) as usize
}

/// Bytes between the tail and the line that is asked for: what is written there later waits for no other processor.
const AHEAD: u64 = 8 * RECORD_STEP as u64;

/// Looks for room before a record has to wait: some microseconds.
const LOOKS_FOR_ROOM: usize = 128;

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
    /// Where in the ring it is looked whether to begin anew.
    turn_back: usize,
    /// How far the reader had come when it was looked at last.
    settled: u64,
    heard: u64,
}

impl Writer {
    pub(super) fn new(memory: Memory) -> Writer {
        Writer { memory, tail: 0, turn_back: WARM, settled: 0, heard: 0 }
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

    /// As [`Writer::put`], a record of one step: what follows its heading, of which `len` bytes count, word by word.
    ///
    /// # Errors
    /// [`Full`]; nothing was written.
    #[inline]
    pub fn put_step(&mut self, heading: Heading, len: usize, words: impl Iterator<Item = u64>) -> Result<u64, Full> {
        let heading = Heading { len: len.min(STEP_BODY), ..heading };
        let start = self.make_room(RECORD_STEP)?;
        let places = (place(start)..place(start) + RECORD_STEP).step_by(8).skip(HEADING / 8);
        places.zip(words).for_each(|(place, word)| self.memory.store(place, word, Ordering::Relaxed));
        self.publish(start, heading);
        Ok(self.tail)
    }

    /// Wait a moment until there is room for such a record and some more: a reader that keeps up makes it in less time than it takes to put
    /// the record by. Is there?
    #[cold]
    pub fn await_room(&mut self, len: usize) -> bool {
        let mut look = || {
            std::hint::spin_loop();
            self.look() && self.free() >= self.needed(stride(len)) + WARM / 4
        };
        (0..LOOKS_FOR_ROOM).any(|_| look())
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

    /// A reader that keeps up finds the beginning of the ring in its caches, as the writer does; the rest would only drive out other things
    /// (MEM-16.10).
    #[cold]
    fn begin_anew(&mut self, stride: usize) {
        let left = RING - offset(self.tail);
        if self.look() && self.tail - self.settled <= (WARM / 2) as u64 && self.free() >= left + stride + HEADING {
            self.skip();
        } else {
            self.turn_back = offset(self.tail) + WARM;
        }
    }

    /// What is left of the ring stays empty.
    fn skip(&mut self) {
        self.publish(self.tail, Heading::plain(Kind::Skip, RING - offset(self.tail) - HEADING));
    }

    /// First the place behind it says that nothing is there yet, then the heading says that the record is.
    #[inline]
    fn publish(&mut self, start: u64, heading: Heading) {
        let next = start + if heading.kind == Kind::Skip { (HEADING + heading.len) as u64 } else { heading.stride() as u64 };
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

    /// What was put in, or told, is seen by the reader when it looks for the last time before it sleeps. Does it sleep already? Then it must be woken: it
    /// takes who asks for the one who does.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        is_asleep(&self.memory)
    }
}

/// What any thread may see of both rings at any time, without having them: hints, but for what the reader of ours has settled.
#[derive(Clone, Debug)]
pub struct Glance {
    ours: Memory,
    theirs: Memory,
    head: Arc<AtomicU64>,
    /// How far everything is known to be settled.
    settled: Arc<AtomicU64>,
    /// The kernel makes fences in this process when others ask it to.
    has_fences_made: bool,
}

impl Glance {
    #[cfg(not(all(test, loom)))]
    pub(super) fn new(ours: &Memory, reader: &Reader) -> Glance {
        let (theirs, head) = (reader.memory.clone(), Arc::clone(&reader.seen));
        Glance {
            ours: ours.clone(),
            theirs,
            head,
            settled: Arc::default(),
            has_fences_made: fences::are_asymmetric(Reach::Machine),
        }
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
        // The reader writes there at each record: the line is asked for only when it must be.
        if self.settled.load(Ordering::Acquire) >= position {
            return true;
        }
        let settled = self.ours.load(SETTLED, Ordering::Acquire);
        // What cannot be is not kept: the engine finds it, too, and ends who wrote it.
        if settled >= position && settled - position <= RING as u64 {
            self.settled.store(settled, Ordering::Release);
        }
        settled >= position
    }

    /// As [`Writer::must_wake`]; the fence may be the reader's to make (MEM-16.5).
    #[cfg(not(all(test, loom)))]
    #[inline]
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fences::light(self.has_fences_made && self.ours.load(MAKES_FENCES, Ordering::Relaxed) == 1);
        is_asleep(&self.ours)
    }
}

/// Must the reader be woken? Between what it is to see and this look there is a fence (MEM-16.5, MEM-18.5).
///
/// The thread that takes the mark back wakes it. If it loses its core before it does, others of its process that put something in find no mark: the
/// reader sleeps for as long as that thread is kept from running, or until its next look, which is never far (`SLEEP_MAX` in `oikaze`). If its
/// process ends, the socket wakes the reader. To ring first and take the mark back then would have it taken back from a later sleep.
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

    /// Each time that this process is about to sleep it makes the fences of others, too ([`crate::hazard::make_fences`]).
    #[cfg(not(all(test, loom)))]
    pub(super) fn make_fences(&self) {
        self.memory.store(MAKES_FENCES, 1, Ordering::Relaxed);
    }

    /// This process is about to sleep. Afterwards it makes [fences](crate::hazard::make_fences) and looks once more (MEM-16.5).
    pub fn fall_asleep(&self) {
        self.memory.store(ASLEEP, 1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
