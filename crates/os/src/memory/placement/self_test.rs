//! Checks that the mover works on this machine, with three pages in each of two ranges. Takes some
//! microseconds.

use super::super::mapping::Mapping;
use super::mover::{Mover, Placed, WatchingMover};
use crate::memory::mapping::page_size;
use std::io;

/// Tests the mover and returns the first error. A mover that passes never counts a page present at
/// the destination as moved, even if the source has a hole.
pub(super) fn run(mover: &Mover) -> io::Result<()> {
    let page = page_size();
    let map = || Mapping::anonymous(3 * page).map_err(io::Error::other);
    let (to, from) = (map()?, map()?);
    let (to_watched, from_watched) = (WatchingMover::default(), WatchingMover::default());
    if !mover.watch(&to, &to_watched) || !mover.watch(&from, &from_watched) {
        return Err(wrong("a range cannot be registered"));
    }
    let byte = |memory: &Mapping, index: usize| {
        // SAFETY: the first byte of one of its three pages, which only this function knows.
        unsafe { memory.base().add(index * page).read_volatile() }
    };
    // Page 0 moves, page 1 is a hole at both, page 2 is a hole at the source and present at the
    // destination. SAFETY: as above; the ranges are whole, apart, private and watched.
    let placed = unsafe {
        from.base().write_volatile(7);
        to.base().add(2 * page).write_volatile(9);
        mover.carry(to.base(), from.base(), 3 * page)
    };
    let expected = Placed { moved: 2 * page as u64, copied: page as u64 };
    if placed != expected {
        return Err(wrong(
            "the kernel takes a page for moved that is not, or refuses one that should be",
        ));
    }
    let found = [byte(&to, 0), byte(&to, 1), byte(&to, 2), byte(&from, 0)];
    if found == [7, 0, 0, 0] { Ok(()) } else { Err(wrong("bytes did not arrive")) }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("tried on three pages: {what}"))
}
