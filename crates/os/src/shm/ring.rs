//! One direction between two local peers: a ring of records with one writer and one reader
//! (spec/memory.md, MEM-16).
//!
//! The writer stores a record's heading last, and the reader polls the place of the next heading.
//! So a small record moves one cache line between processors. The FIFO elements of UCX's
//! shared-memory transport carry such a mark, and Aeron's log buffers publish a frame by its
//! length. That place holds 0 before, because the writer clears the place behind a record before it
//! publishes the record.
//!
//! The reader publishes one position, which settles messages and frees their space. Refused records
//! stand in a small ring of their own, written before the position passes them. So news of a
//! refusal needs no space in the ring of the other direction, which may be full.

mod reader;
#[cfg(all(test, not(loom)))]
mod tests;
mod view;
mod writer;

pub use reader::Reader;
pub use view::RingView;
pub use writer::Writer;

use super::memory::{Memory, Ordering};
use layout::{CACHE_LINE, CONTROL, REFUSALS, RING};
use oikaze_protocol::limits::RECORD_STEP;
use oikaze_protocol::shm::HEADING;

#[cfg(not(all(test, loom)))]
mod layout {
    use oikaze_protocol::limits::{PAGE, REFUSALS_TOLD, RING_BYTES};

    /// Bytes of two cache lines, which processors fetch in pairs.
    pub const CACHE_LINE: usize = 128;
    pub const REFUSALS: usize = REFUSALS_TOLD;
    pub const RING: usize = RING_BYTES;
    /// Bytes of a ring that are used while the reader keeps up: half of the smallest first-level
    /// cache.
    pub const WARM: usize = 16 << 10;
    /// Largest stride in bytes of records that stay in the warm part. Longer records gain nothing:
    /// while one is copied in, others are copied out.
    pub const SMALL: usize = 1024;
    /// The second and third pages hold the marks of mapped regions (`crate::shm::lease_marks`).
    pub const CONTROL: usize = 3 * PAGE;
}

#[cfg(all(test, loom))]
mod layout {
    pub const CACHE_LINE: usize = 16;
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

/// Written by the reader: its position, and the credit that it has given back.
const SETTLED: usize = 0;
const RETURNED: usize = 8;
/// `ASLEEP` is set by the reader before it sleeps, and cleared by the writer that wakes it.
/// `MAKES_FENCES` says whether the reader then makes the writer's fence too.
const ASLEEP: usize = CACHE_LINE;
const MAKES_FENCES: usize = CACHE_LINE + 8;
/// Positions in the ring of refusals: `REFUSED` is written by the reader, `HEARD` by the writer.
const REFUSED: usize = 2 * CACHE_LINE;
const HEARD: usize = 3 * CACHE_LINE;
const REFUSALS_AT: usize = 4 * CACHE_LINE;

const _: () = assert!(
    REFUSALS_AT + 16 * REFUSALS <= CONTROL && REFUSALS.is_power_of_two() && RING.is_power_of_two()
);

/// Returns the offset of a position in bytes from the ring's beginning.
const fn offset(position: u64) -> usize {
    (position & (RING as u64 - 1)) as usize
}

const fn place(position: u64) -> usize {
    CONTROL + offset(position)
}

const fn refusal_place(position: u64) -> usize {
    REFUSALS_AT + 16 * (position & (REFUSALS as u64 - 1)) as usize
}

/// The ring has no room for the record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring has no room")]
pub struct Full;

/// Returns `true` if the caller must wake the reader, and clears the mark of sleep. The caller
/// makes a fence between its stores for the reader and this call (MEM-16.5, MEM-18.5).
///
/// The thread that clears the mark wakes the reader. If that thread is preempted first, other
/// threads of its process that write records find no mark. The reader then sleeps until that thread
/// runs, or until its own next poll, which is never far (`SLEEP_MAX` in `oikaze`). If the writer's
/// process ends, the socket wakes the reader. Ringing before clearing could clear the mark of a
/// later sleep.
#[inline]
pub(super) fn is_asleep(memory: &Memory) -> bool {
    memory.load(ASLEEP, Ordering::Relaxed) != 0 && memory.swap(ASLEEP, 0, Ordering::AcqRel) != 0
}
