//! One direction between two local peers: a ring of records, one writer, one reader
//! (spec/memory.md, MEM-16).
//!
//! A record's heading is written last, and the reader looks at the place where the next heading
//! will stand: so a small record is one cache line that changes hands (the FIFO elements of UCX's
//! shared-memory transport carry such a mark; Aeron's log buffers publish a frame by its length).
//! What stands there before is 0, because the writer clears the place behind a record before it
//! publishes the record.
//!
//! The reader tells how far it has come by one position, which settles messages and frees their
//! room. What it has refused stands in a small ring of its own, told before the position passes it,
//! so that the news of a refusal needs no room in the ring of the other direction, which may be
//! full.

mod reader;
mod ring_view;
#[cfg(all(test, not(loom)))]
mod tests;
mod writer;

pub use reader::Reader;
pub use ring_view::RingView;
pub use writer::Writer;

use super::memory::{Memory, Ordering};
use layout::{CONTROL, LINE, REFUSALS, RING};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::HEADING;

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

/// Bytes behind the heading of a record of one step.
pub const STEP_BODY: usize = RECORD_STEP - HEADING;

/// Bytes of one direction.
pub(super) const CHANNEL: usize = CONTROL + RING;

/// Written by the reader: how far it has come, and the credit it has given back.
const SETTLED: usize = 0;
const RETURNED: usize = 8;
/// Set by the reader before it sleeps, taken back by the writer that wakes it; and whether the
/// reader then makes the writer's fence, too.
const ASLEEP: usize = LINE;
const MAKES_FENCES: usize = LINE + 8;
/// Positions in the ring of refusals; written by the reader, by the writer.
const REFUSED: usize = 2 * LINE;
const HEARD: usize = 3 * LINE;
const REFUSALS_AT: usize = 4 * LINE;

const _: () = assert!(
    REFUSALS_AT + 16 * REFUSALS <= CONTROL && REFUSALS.is_power_of_two() && RING.is_power_of_two()
);

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

/// Must the reader be woken? Between what it is to see and this look there is a fence (MEM-16.5,
/// MEM-18.5).
///
/// The thread that takes the mark back wakes it. If it loses its core before it does, others of its
/// process that put something in find no mark: the reader sleeps for as long as that thread is kept
/// from running, or until its next look, which is never far (`SLEEP_MAX` in `oikaze`). If its
/// process ends, the socket wakes the reader. To ring first and take the mark back then would have
/// it taken back from a later sleep.
#[inline]
pub(super) fn is_asleep(memory: &Memory) -> bool {
    memory.load(ASLEEP, Ordering::Relaxed) != 0 && memory.swap(ASLEEP, 0, Ordering::AcqRel) != 0
}
