//! Moves pages within this process, by `UFFDIO_MOVE` (Linux 6.8), and copies those that the kernel
//! refuses to move.

use super::super::huge::huge_page;
use super::super::mapping::Mapping;
use super::{copy, self_test};
use crate::memory::mapping::page_size;
use crate::memory::placement::scratch::{CHUNK, Spare};
use crate::memory::tracking::trackers::uffd_sys::{self, feature};
use core::ops::AddAssign;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Number of bytes that came to their place by each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Bytes whose pages were moved.
    pub moved: u64,
    /// Bytes that were copied.
    pub copied: u64,
}

impl AddAssign for Placed {
    fn add_assign(&mut self, other: Placed) {
        self.moved += other.moved;
        self.copied += other.copied;
    }
}

/// Number of the mover that watches a mapping, and so may move pages into it.
#[derive(Debug, Default)]
pub(in super::super) struct WatchingMover(AtomicU32);

/// No mover has asked yet.
const NOT_YET: u32 = 0;
/// The kernel has refused.
const REFUSED: u32 = u32::MAX;
/// Number of consecutive refusals that each double the amount copied before the kernel is asked
/// again. The maximum is 16 pages at a time.
const DOUBLINGS: u32 = 4;
/// Maximum number of consecutive calls in which the kernel may move nothing.
const PATIENCE: u32 = 16;

/// A descriptor that moves pages.
#[derive(Debug)]
pub(super) struct Mover {
    fd: OwnedFd,
    /// Process that opened the descriptor. A child of fork inherits it, and with it access to its
    /// parent's memory.
    process: u32,
    number: u32,
    small: Mutex<Spare>,
    /// Separate, because an address range that once had small pages cannot receive a whole huge
    /// page.
    huge: Option<Mutex<Spare>>,
}

impl Mover {
    /// Opens and tests a mover.
    ///
    /// # Errors
    /// No userfaultfd, no `UFFDIO_MOVE`, or it does not do what it should.
    pub fn open() -> io::Result<Mover> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let fd = uffd_sys::open_user_mode().or_else(|e| uffd_sys::open_full().map_err(|_| e))?;
        uffd_sys::handshake(&fd, feature::MOVER)?;
        let small = Mutex::new(Spare::new(&fd, huge_page().unwrap_or_else(page_size))?);
        let huge = huge_page().map(|size| Spare::new(&fd, size)).transpose()?.map(Mutex::new);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed).clamp(1, REFUSED - 1);
        let mover = Mover { fd, process: std::process::id(), number, small, huge };
        self_test::run(&mover)?;
        Ok(mover)
    }

    /// Returns `true` in the process that opened the mover.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns `true` if pages may be moved into this mapping. Asks the kernel once.
    pub fn watch(&self, memory: &Mapping, watched: &WatchingMover) -> bool {
        match watched.0.load(Ordering::Relaxed) {
            NOT_YET => {
                let taken = uffd_sys::register_for_moves(
                    &self.fd,
                    memory.base().addr().get(),
                    memory.len(),
                )
                .is_ok();
                watched.0.store(if taken { self.number } else { REFUSED }, Ordering::Relaxed);
                taken
            }
            number => number == self.number,
        }
    }

    /// Brings the bytes at `from` to `to`, by moving pages where the kernel does that, and by
    /// copying otherwise. Afterwards `from` holds nothing or the old bytes.
    ///
    /// # Safety
    /// Whole pages, of private anonymous mappings of ours, readable and writable; no byte is in
    /// both ranges, no reference to any of them exists. `to` is watched.
    pub unsafe fn carry(&self, to: NonNull<u8>, from: NonNull<u8>, len: usize) -> Placed {
        let (mut placed, mut done) = (Placed::default(), 0);
        let (mut refusals, mut waits) = (0, 0);
        while done < len {
            // SAFETY: inside both ranges.
            let (to, from) = unsafe { (to.add(done), from.add(done)) };
            match uffd_sys::move_pages(&self.fd, to.addr().get(), from.addr().get(), len - done) {
                Ok(0) if waits < PATIENCE => waits += 1,
                Ok(moved) if moved > 0 => {
                    (refusals, waits) = (0, 0);
                    done += moved.min(len - done);
                    placed.moved += moved as u64;
                }
                // MEM-17.5: the page is pinned, forked or locked, or a page has appeared at `to`.
                _ => {
                    let some = (page_size() << refusals).min(len - done);
                    // SAFETY: inside both ranges, for which the caller vouches.
                    placed += unsafe { copy::copy(to, from, some) };
                    (refusals, waits) = (DOUBLINGS.min(refusals + 1), 0);
                    done += some;
                }
            }
        }
        placed
    }

    /// Moves pages from `from` to `to` while the destination is empty and the pages are movable.
    /// Returns the number of bytes moved, from the start.
    ///
    /// # Safety
    /// As [`Mover::carry`].
    pub unsafe fn carry_into_empty(&self, to: NonNull<u8>, from: NonNull<u8>, len: usize) -> usize {
        let (mut done, mut waits) = (0, 0);
        while done < len && waits < PATIENCE {
            let (to, from) = (to.addr().get() + done, from.addr().get() + done);
            match uffd_sys::move_pages(&self.fd, to, from, len - done) {
                Ok(0) => waits += 1,
                Ok(moved) => done += moved.min(len - done),
                Err(_) => break,
            }
        }
        done
    }

    /// Exchanges the bytes of two ranges (MEM-17.1), by three moves per chunk through a spare
    /// place.
    ///
    /// # Safety
    /// As [`Mover::carry`]; both are watched. `huge`: both begin at huge pages.
    pub unsafe fn exchange(
        &self,
        a: NonNull<u8>,
        b: NonNull<u8>,
        len: usize,
        huge: bool,
    ) -> Placed {
        let spare = self.huge.as_ref().filter(|_| huge).unwrap_or(&self.small);
        let spare = spare.lock().unwrap_or_else(PoisonError::into_inner);
        let chunk = CHUNK.max(huge_page().filter(|_| huge).unwrap_or(0));
        let mut placed = Placed::default();
        for done in (0..len).step_by(chunk) {
            let some = chunk.min(len - done);
            // SAFETY: inside the ranges, for which the caller vouches; the spare place is ours,
            // watched, and has room for a chunk. A page that was only copied is still at its
            // source. The next step cannot move a page onto it and copies over it instead.
            unsafe {
                let (a, b) = (a.add(done), b.add(done));
                let aside = spare.place_for(b);
                let out = self.carry(aside, b, some);
                let over = self.carry(b, a, some);
                let back = self.carry(a, aside, some);
                if back.copied > 0 {
                    spare.clear();
                }
                placed += fewest_moved([out, over, back]);
            }
        }
        placed
    }
}

/// Returns the step that moved the fewest bytes, which is what all three moved.
fn fewest_moved(steps: [Placed; 3]) -> Placed {
    let [out, over, back] = steps;
    if out.moved <= over.moved && out.moved <= back.moved {
        out
    } else if over.moved <= back.moved {
        over
    } else {
        back
    }
}
