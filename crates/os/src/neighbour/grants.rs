//! Regions of one node that a neighbour has mapped (spec/memory.md, MEM-18): it reaches them by itself, until they are taken back. Who is
//! inside meanwhile stands in memory that both map ([`Marks`]).

use super::line::Line;
use super::marks::{Marks, Seen};
use super::memory::Memory;
use crate::hazard::fences::{self, Reach};
use crate::hazard::place;
use crate::memory::Region;
use crate::memory::mapping::Mapping;
use oikaze_protocol::limits::GRANTS;
use oikaze_protocol::rma::{AtomicOp, Rights};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Longer memory is mapped where huge pages fit.
const HUGE: usize = 2 << 20;

/// What an owner has given, by line: the number of the region.
#[derive(Debug)]
pub struct Grants {
    marks: Marks,
    given: [Option<u32>; GRANTS],
    any: bool,
}

impl Grants {
    pub(super) fn new(memory: Memory) -> Grants {
        Grants { marks: Marks::new(memory), given: [None; GRANTS], any: false }
    }

    /// Is anything given?
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// A line for a region, if one is free: its number.
    pub fn give(&mut self, slot: u32) -> Option<usize> {
        let Grants { marks, given, any } = self;
        // One that was taken back is free when nobody can look at it any more.
        let (index, given) = given.iter_mut().enumerate().find(|(index, given)| given.is_none() || marks.is_dropped(*index))?;
        *given = Some(slot);
        marks.begin(index);
        *any = true;
        Some(index)
    }

    /// A line was not given after all.
    pub fn withdraw(&mut self, index: usize) {
        if let Some(given) = self.given.get_mut(index) {
            *given = None;
        }
    }

    /// The neighbour is let into this region no more, once [fences](crate::hazard::make_fences) are made. Had it been given the region?
    #[must_use]
    pub fn take_back(&self, slot: u32) -> bool {
        self.lines_of(slot).inspect(|index| self.marks.end(*index)).count() > 0
    }

    /// Is somebody inside?
    #[must_use]
    pub fn is_inside(&self, slot: u32) -> bool {
        self.lines_of(slot).any(|index| self.marks.is_inside(index))
    }

    /// The regions that are given.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.given.iter().copied().flatten()
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
    /// Wake it if it sleeps (MEM-18.4). There was a fence before.
    #[inline]
    fn ring(&self) {
        if super::channel::is_asleep(&self.memory) {
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
    marks: Marks,
    index: usize,
    /// The owner makes this process's fences.
    asymmetric: bool,
    bell: Bell,
    cut_off: AtomicBool,
}

/// What a neighbour has given: its file, and what was said with it.
#[derive(Debug)]
pub struct Gift {
    /// Its memory.
    pub file: OwnedFd,
    /// Bytes.
    pub len: usize,
    /// What it grants on all of them.
    pub rights: Rights,
    /// Its line.
    pub index: usize,
    /// Its owner makes the fences of who reaches it ([`crate::hazard::makes_fences`]).
    pub makes_fences: bool,
}

/// Whoever is inside.
struct Inside<'m>(&'m Mapped, Seen);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        let Inside(mapped, seen) = self;
        mapped.marks.clear(mapped.index, seen);
        fences::light(mapped.asymmetric);
        if mapped.marks.is_over(mapped.index) {
            // Its owner may wait for that.
            mapped.bell.ring();
        }
    }
}

impl Mapped {
    /// Map what was given.
    ///
    /// # Errors
    /// The file is shorter, or may become shorter, or cannot be mapped.
    pub(super) fn new(gift: &Gift, memory: Memory, bell: Bell) -> io::Result<Mapped> {
        let Gift { file, len, rights, index, makes_fences } = gift;
        let (len, rights, index) = (*len, *rights, *index);
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
        // only where `rights` has WRITE (see `enter`), and then the mapping is writable.
        let region = unsafe { Region::from_alias(mapping, at, len) };
        let asymmetric = *makes_fences && fences::are_asymmetric(Reach::Machine);
        Ok(Mapped { region, rights, marks: Marks::new(memory), index, asymmetric, bell, cut_off: AtomicBool::new(false) })
    }

    /// The owner is gone: nothing is done here any more.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
    }

    #[inline(always)]
    fn enter(&self, right: Rights) -> Option<Inside<'_>> {
        if !self.rights.contains(right) || self.cut_off.load(Ordering::Relaxed) {
            return None;
        }
        // Whoever sees what is stored here from now on is to see all that this thread has stored before, in this region or another: an earlier
        // put is complete. A light fence keeps no processor from turning two plain stores round; this one, where the processor does not, is no
        // instruction.
        fence(Ordering::AcqRel);
        let inside = Inside(self, self.marks.set(self.index, place()));
        fences::light(self.asymmetric);
        (!self.marks.is_over(self.index)).then_some(inside)
    }

    /// Out again, having changed something: whoever waits for it is woken.
    #[inline]
    fn leave(&self, inside: Inside<'_>) {
        // Its fence is between the change and the look whether the owner sleeps, too.
        drop(inside);
        self.bell.ring();
    }

    /// Write bytes, and then add to a word, if asked; `false`: it must be done by the other way.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8], signal: Option<(u64, u64)>) -> bool {
        let Some(inside) = self.enter(Rights::WRITE) else { return false };
        let may_signal = signal.is_none_or(|(at, _)| {
            self.rights.contains(Rights::ATOMIC) && at.is_multiple_of(8) && self.region.check_bounds(at, 8).is_ok()
        });
        let done = may_signal
            && self.region.write(offset, bytes).is_ok()
            && signal.is_none_or(|(at, add)| self.region.fetch_add(at, add).is_ok());
        if done {
            self.leave(inside);
        }
        done
    }

    /// Read into a region of ours.
    #[inline]
    #[must_use]
    pub fn read_to(&self, offset: u64, into: &Region, at: u64, len: u64) -> bool {
        self.enter(Rights::READ).is_some_and(|_inside| {
            self.region.with_bytes(offset, len, |bytes| into.write_as_runtime(at, bytes).is_ok()).is_ok_and(|done| done)
        })
    }

    /// Change a word; its old value.
    #[inline]
    #[must_use]
    pub fn atomic(&self, offset: u64, op: AtomicOp) -> Option<u64> {
        let aligned = offset.is_multiple_of(op.width().bytes());
        let inside = self.enter(Rights::ATOMIC).filter(|_| aligned && self.rights.contains(Rights::WRITE))?;
        let old = self.region.atomic(offset, op).ok()?;
        self.leave(inside);
        Some(old)
    }
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Mapped) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.marks.drop_line(self.index);
    }
}
