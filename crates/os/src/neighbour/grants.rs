//! Regions of one node that a neighbour has mapped (spec/memory.md, MEM-18): it reaches them by itself, until they are taken back.
//!
//! Each has a line in memory that both map: the owner writes there that it is over, the neighbour counts there who is inside. Who goes in counts
//! first and looks then; who takes back writes first and looks then (Dekker's argument, with sequentially consistent operations): either
//! the owner sees somebody inside, and waits, or whoever comes sees that it is over.

use super::line::Line;
use super::memory::{Memory, Ordering};
use crate::memory::mapping::Mapping;
use crate::memory::{Gather, Region};
use oikaze_protocol::limits::{GRANTS, PAGE};
use oikaze_protocol::rma::{AtomicOp, Rights};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where the lines begin in the memory of the owner's direction, and what is in each.
const AT: usize = PAGE;
const LINE: usize = 64;
const OVER: usize = 0;
const INSIDE: usize = 8;
const DROPPED: usize = 16;
/// Longer memory is mapped where huge pages fit.
const HUGE: usize = 2 << 20;

const _: () = assert!(GRANTS * LINE <= PAGE);

fn line(index: usize) -> usize {
    AT + LINE * (index % GRANTS)
}

/// What an owner has given, by line: the number of the region.
#[derive(Debug)]
pub struct Grants {
    memory: Memory,
    given: [Option<u32>; GRANTS],
    any: bool,
}

impl Grants {
    pub(super) fn new(memory: Memory) -> Grants {
        Grants { memory, given: [None; GRANTS], any: false }
    }

    /// Is anything given?
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// A line for a region, if one is free: its number.
    pub fn give(&mut self, slot: u32) -> Option<usize> {
        let free = |(index, given): &(usize, &mut Option<u32>)| {
            // One that was taken back is free when nobody can look at it any more.
            given.is_none() || self.memory.load(line(*index) + DROPPED, Ordering::Acquire) != 0
        };
        let (index, given) = self.given.iter_mut().enumerate().find(free)?;
        *given = Some(slot);
        for word in [OVER, INSIDE, DROPPED] {
            self.memory.store(line(index) + word, 0, Ordering::Relaxed);
        }
        self.any = true;
        Some(index)
    }

    /// A line was not given after all.
    pub fn withdraw(&mut self, index: usize) {
        if let Some(given) = self.given.get_mut(index) {
            *given = None;
        }
    }

    /// The neighbour is let into this region no more.
    pub fn take_back(&self, slot: u32) {
        for index in self.lines_of(slot) {
            self.memory.swap(line(index) + OVER, 1, Ordering::SeqCst);
        }
    }

    /// Is somebody inside?
    #[must_use]
    pub fn is_inside(&self, slot: u32) -> bool {
        self.lines_of(slot).any(|index| {
            let at = line(index);
            self.memory.load(at + DROPPED, Ordering::Acquire) == 0 && self.memory.load(at + INSIDE, Ordering::SeqCst) != 0
        })
    }

    fn lines_of(&self, slot: u32) -> impl Iterator<Item = usize> {
        self.given.iter().enumerate().filter(move |(_, given)| **given == Some(slot)).map(|(index, _)| index)
    }
}

/// A descriptor of a region's file to give away: for reading alone where no more is granted.
///
/// # Errors
/// The kernel opens it no second time (`/proc` is not mounted).
pub fn to_give(file: BorrowedFd<'_>, rights: Rights) -> io::Result<OwnedFd> {
    if rights.contains(Rights::WRITE) {
        return file.try_clone_to_owned();
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// What wakes the neighbour that owns a region: also while nobody of this node is in the engine.
#[derive(Clone, Debug)]
pub struct Bell {
    pub(super) memory: Memory,
    pub(super) line: Arc<Line>,
}

impl Bell {
    /// Wake it if it sleeps (MEM-18.4).
    #[inline]
    pub fn ring(&self) {
        if super::channel::must_wake(&self.memory) {
            self.line.wake();
        }
    }
}

/// A neighbour's region, mapped here. Every access is checked against what is mapped and granted; what does not pass is for the owner to
/// judge, by the other way.
#[derive(Debug)]
pub struct Mapped {
    region: Region,
    rights: Rights,
    memory: Memory,
    index: usize,
    bell: Bell,
    cut_off: AtomicBool,
}

/// Whoever is inside.
struct Inside<'m>(&'m Mapped);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        let at = line(self.0.index);
        self.0.memory.subtract(at + INSIDE, 1);
        if self.0.memory.load(at + OVER, Ordering::SeqCst) != 0 {
            // Its owner may wait for that.
            self.0.bell.ring();
        }
    }
}

impl Mapped {
    /// Map `len` bytes of a file that came with line `index`.
    ///
    /// # Errors
    /// It is shorter, or may become shorter, or cannot be mapped.
    pub(super) fn new(
        file: &OwnedFd,
        len: usize,
        rights: Rights,
        index: usize,
        memory: Memory,
        bell: Bell,
    ) -> io::Result<Mapped> {
        let long_enough = usize::try_from(fstat(file)?.st_size).is_ok_and(|size| len > 0 && size >= len);
        if !long_enough || !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) || index >= GRANTS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the region's memory is shorter than it says, or not sealed"));
        }
        let mapping = if !rights.contains(Rights::WRITE) {
            Mapping::of_file_for_reading(file, len)
        } else if len >= HUGE {
            Mapping::of_file_aligned(file.as_fd(), len, HUGE)
        } else {
            Mapping::of_file(file.as_fd(), len)
        };
        let mapping = Arc::new(mapping.map_err(io::Error::other)?);
        let at = mapping.base();
        // SAFETY: `len` bytes that the mapping, which the region counts, keeps mapped; nobody makes references into them. They are written
        // only where `rights` has WRITE (see `inside`), and then the mapping is writable.
        let region = unsafe { Region::from_alias(mapping, at, len) };
        Ok(Mapped { region, rights, memory, index, bell, cut_off: AtomicBool::new(false) })
    }

    /// The owner is gone: nothing is done here any more.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
    }

    #[inline]
    fn enter(&self, right: Rights) -> Option<Inside<'_>> {
        if !self.rights.contains(right) || self.cut_off.load(Ordering::Relaxed) {
            return None;
        }
        let at = line(self.index);
        self.memory.add(at + INSIDE, 1);
        let inside = Inside(self);
        (self.memory.load(at + OVER, Ordering::SeqCst) == 0).then_some(inside)
    }

    /// Write bytes; `false`: it must be done by the other way.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let done = self.enter(Rights::WRITE).is_some_and(|_inside| self.region.write(offset, bytes).is_ok());
        if done {
            self.bell.ring();
        }
        done
    }

    /// Write what is in a region of ours, and then add to a word, if asked.
    #[inline]
    #[must_use]
    pub fn write_from(&self, offset: u64, source: &Gather, signal: Option<(u64, u64)>) -> bool {
        let done = self.enter(Rights::WRITE).is_some_and(|_inside| {
            let may_signal = signal.is_none_or(|(at, _)| {
                self.rights.contains(Rights::ATOMIC) && at.is_multiple_of(8) && self.region.check_bounds(at, 8).is_ok()
            });
            may_signal
                && source.with_bytes(|bytes| self.region.write(offset, bytes)).is_ok()
                && signal.is_none_or(|(at, add)| self.region.fetch_add(at, add).is_ok())
        });
        if done {
            self.bell.ring();
        }
        done
    }

    /// Read into a region of ours.
    #[inline]
    #[must_use]
    pub fn read_to(&self, offset: u64, into: &Region, at: u64, len: u64) -> bool {
        self.enter(Rights::READ).is_some_and(|_inside| {
            self.region.lend(offset, len).is_ok_and(|bytes| bytes.with_bytes(|bytes| into.write_as_runtime(at, bytes)).is_ok())
        })
    }

    /// Change a word; its old value.
    #[inline]
    #[must_use]
    pub fn atomic(&self, offset: u64, op: AtomicOp) -> Option<u64> {
        let aligned = offset.is_multiple_of(op.width().bytes());
        let inside = self.enter(Rights::ATOMIC).filter(|_| aligned && self.rights.contains(Rights::WRITE))?;
        let old = self.region.atomic(offset, op).ok();
        drop(inside);
        if old.is_some() {
            self.bell.ring();
        }
        old
    }
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Mapped) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The owner may give the line to another region.
        self.memory.store(line(self.index) + DROPPED, 1, Ordering::Release);
    }
}
