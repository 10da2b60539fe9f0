//! Who is inside a region that a local peer has mapped (spec/memory.md, MEM-18.3), in memory that
//! both map: as [`crate::hazard`] for what belongs to one process.
//!
//! Each mapped region has a line, where its owner says that it is over, and where those inside are
//! counted that have set no mark. Each of the local peer's threads that has a place has a line for
//! its mark: which region it is inside.

use super::memory::{Memory, Ordering};
use crate::hazard::PLACES;

#[cfg(not(all(test, loom)))]
mod layout {
    use oikaze_protocol::limits::{GRANTS, PAGE};

    pub const LINE: usize = 64;
    /// In the memory of the owner's direction, behind the channel's own page.
    pub const LINES: usize = PAGE;
    pub const MARKS: usize = 2 * PAGE;
    pub const COUNT: usize = GRANTS;

    const _: () = assert!(GRANTS * LINE <= PAGE && super::PLACES * LINE <= PAGE);
}

#[cfg(all(test, loom))]
pub(super) mod layout {
    pub const LINE: usize = 24;
    pub const LINES: usize = 0;
    pub const MARKS: usize = COUNT * LINE;
    pub const COUNT: usize = 2;
    /// Bytes of memory that a model needs.
    pub const ALL: usize = MARKS + super::PLACES * LINE;
}

use layout::{COUNT, LINE, LINES, MARKS};

/// In a region's line.
const OVER: usize = 0;
const COUNTED: usize = 8;
const DROPPED: usize = 16;

fn line(index: usize) -> usize {
    LINES + LINE * (index % COUNT)
}

fn mark(place: usize) -> usize {
    MARKS + LINE * (place % PLACES)
}

/// What a mark in this line says.
fn name(index: usize) -> u64 {
    index as u64 + 1
}

/// The lines and marks of one direction.
#[derive(Clone, Debug)]
pub(super) struct Marks(Memory);

/// A thread that is inside, as it is seen.
#[derive(Debug)]
pub(super) enum Seen {
    /// By its mark in this place.
    Mark(usize),
    Counted,
}

impl Marks {
    pub fn new(memory: Memory) -> Marks {
        Marks(memory)
    }

    /// Nobody is inside, and it is not over.
    pub fn begin(&self, index: usize) {
        for word in [OVER, COUNTED, DROPPED] {
            self.0.store(line(index) + word, 0, Ordering::Relaxed);
        }
    }

    /// Owner: it is over. A fence must follow, before it is asked who is inside.
    pub fn end(&self, index: usize) {
        self.0.store(line(index) + OVER, 1, Ordering::Relaxed);
    }

    /// Owner: is somebody inside?
    pub fn is_inside(&self, index: usize) -> bool {
        let marked = |place: usize| self.0.load(mark(place), Ordering::Acquire) == name(index);
        !self.is_dropped(index)
            && (self.0.load(line(index) + COUNTED, Ordering::Acquire) != 0
                || (0..PLACES).any(marked))
    }

    /// Owner: has the local peer forgotten the region? Then nobody of it can go in.
    pub fn is_dropped(&self, index: usize) -> bool {
        self.0.load(line(index) + DROPPED, Ordering::Acquire) != 0
    }

    /// Local peer: this thread goes in. A fence must follow, and a look whether it is
    /// [over](Marks::is_over).
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

    /// Local peer: is it over?
    #[inline]
    pub fn is_over(&self, index: usize) -> bool {
        self.0.load(line(index) + OVER, Ordering::Acquire) != 0
    }

    /// Local peer: out again.
    #[inline]
    pub fn clear(&self, index: usize, seen: &Seen) {
        match seen {
            Seen::Mark(place) => self.0.store(mark(*place), 0, Ordering::Release),
            Seen::Counted => self.0.subtract(line(index) + COUNTED, 1),
        }
    }

    /// Local peer: the region is forgotten; its owner may give the line to another one.
    pub fn drop_line(&self, index: usize) {
        self.0.store(line(index) + DROPPED, 1, Ordering::Release);
    }
}
