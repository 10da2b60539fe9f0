//! Tracks threads that are inside a region that a local peer has mapped (spec/memory.md, MEM-18.3).
//! The marks lie in memory that both processes map. [`crate::sync`] does the same for objects of
//! one process.
//!
//! Each mapped region has a line, where its owner ends it, and where threads that have set no mark
//! are counted. Each of the local peer's threads that has a place has a line for its mark, which
//! names the region that the thread is inside.

use super::memory::{Memory, Ordering};
use crate::sync::PLACES;

#[cfg(not(all(test, loom)))]
mod layout {
    use oikaze_protocol::limits::{GRANTS, PAGE};

    pub const CACHE_LINE: usize = 64;
    /// Offset in the memory of the owner's direction, behind the channel's own page.
    pub const LINES: usize = PAGE;
    pub const MARKS: usize = 2 * PAGE;
    pub const COUNT: usize = GRANTS;

    const _: () = assert!(GRANTS * CACHE_LINE <= PAGE && super::PLACES * CACHE_LINE <= PAGE);
}

#[cfg(all(test, loom))]
pub(super) mod layout {
    pub const CACHE_LINE: usize = 24;
    pub const LINES: usize = 0;
    pub const MARKS: usize = COUNT * CACHE_LINE;
    pub const COUNT: usize = 2;
    /// Bytes of memory that a model needs.
    pub const ALL: usize = MARKS + super::PLACES * CACHE_LINE;
}

use layout::{CACHE_LINE, COUNT, LINES, MARKS};

/// Offsets in a region's line.
const OVER: usize = 0;
const COUNTED: usize = 8;
const DROPPED: usize = 16;

fn line(index: usize) -> usize {
    LINES + CACHE_LINE * (index % COUNT)
}

fn mark(place: usize) -> usize {
    MARKS + CACHE_LINE * (place % PLACES)
}

/// Returns the value of a mark for the region of this line.
fn name(index: usize) -> u64 {
    index as u64 + 1
}

/// The lines and marks of one direction.
#[derive(Clone, Debug)]
pub(super) struct Marks(Memory);

/// How a thread that is inside is recorded.
#[derive(Debug)]
pub(super) enum Seen {
    /// By the thread's mark in this place.
    Mark(usize),
    Counted,
}

impl Marks {
    pub fn new(memory: Memory) -> Marks {
        Marks(memory)
    }

    /// Starts a line: no thread is inside, and the region is not over.
    pub fn begin(&self, index: usize) {
        for word in [OVER, COUNTED, DROPPED] {
            self.0.store(line(index) + word, 0, Ordering::Relaxed);
        }
    }

    /// Ends the region of a line. Called by the owner, which makes a fence before it asks whether a
    /// thread is inside.
    pub fn end(&self, index: usize) {
        self.0.store(line(index) + OVER, 1, Ordering::Relaxed);
    }

    /// Returns `true` if a thread of the local peer is inside. Called by the owner.
    pub fn is_inside(&self, index: usize) -> bool {
        let marked = |place: usize| self.0.load(mark(place), Ordering::Acquire) == name(index);
        !self.is_dropped(index)
            && (self.0.load(line(index) + COUNTED, Ordering::Acquire) != 0
                || (0..PLACES).any(marked))
    }

    /// Returns `true` if the local peer has unmapped the region, so that none of its threads can
    /// enter. Called by the owner.
    pub fn is_dropped(&self, index: usize) -> bool {
        self.0.load(line(index) + DROPPED, Ordering::Acquire) != 0
    }

    /// Marks this thread as inside. Called by the local peer, which makes a fence and then checks
    /// whether the region is [over](Marks::is_over).
    #[inline]
    pub fn set(&self, index: usize, place: Option<usize>) -> Seen {
        // A thread that is inside another region already has its mark in use.
        match place.filter(|place| self.0.load(mark(*place), Ordering::Relaxed) == 0) {
            Some(place) => {
                self.0.store(mark(place), name(index), Ordering::Relaxed);
                Seen::Mark(place)
            }
            None => {
                self.0.add(line(index) + COUNTED, 1);
                Seen::Counted
            }
        }
    }

    /// Returns `true` if the owner has ended the region. Called by the local peer.
    #[inline]
    pub fn is_over(&self, index: usize) -> bool {
        self.0.load(line(index) + OVER, Ordering::Acquire) != 0
    }

    /// Takes back what [`Marks::set`] has recorded. Called by the local peer.
    #[inline]
    pub fn clear(&self, index: usize, seen: &Seen) {
        match seen {
            Seen::Mark(place) => self.0.store(mark(*place), 0, Ordering::Release),
            Seen::Counted => self.0.subtract(line(index) + COUNTED, 1),
        }
    }

    /// Gives up a line, so that its owner may use it for another region. Called by the local peer.
    pub fn drop_line(&self, index: usize) {
        self.0.store(line(index) + DROPPED, 1, Ordering::Release);
    }
}
