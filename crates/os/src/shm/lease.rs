//! Regions of one node that a local peer has mapped, and accesses by itself until the owner takes
//! them back (spec/memory.md, MEM-18). Marks in memory that both processes map tell which threads
//! are inside ([`Marks`]).

use super::copy::copy;
use super::memory::{Memory, claim};
use crate::memory::mapping::Mapping;
use crate::memory::{Region, WeakRegion, lasting_len};
use crate::processes::origin::Origin;
use crate::shm::control_socket::ControlSocket;
use crate::shm::lease_marks::Marks;
use crate::sync::asymmetric_fence::{self, Reach};
use crate::sync::place;
use core::ptr::NonNull;
use oikaze_protocol::limits::GRANTS;
use oikaze_protocol::rma::{AtomicOp, Rights};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Size in bytes from which memory is mapped where huge pages fit.
const HUGE: usize = 2 << 20;

/// Regions that the owner has granted, by line, each with the slot number that it had.
#[derive(Debug)]
pub struct Grants {
    marks: Marks,
    given: [Option<(u32, WeakRegion)>; GRANTS],
    any: bool,
}

impl Grants {
    pub(super) fn new(memory: Memory) -> Grants {
        Grants { marks: Marks::new(memory), given: [const { None }; GRANTS], any: false }
    }

    /// Returns `true` if any region was ever granted.
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// Grants a region, and returns the index of its line. Returns `None` if no line is free.
    pub fn give(&mut self, slot: u32, region: &Region) -> Option<usize> {
        let Grants { marks, given, any } = self;
        // The line of a grant that was taken back is free when the local peer has unmapped the
        // region.
        let (index, given) = given
            .iter_mut()
            .enumerate()
            .find(|(index, given)| given.is_none() || marks.is_dropped(*index))?;
        *given = Some((slot, region.downgrade()));
        marks.begin(index);
        *any = true;
        Some(index)
    }

    /// Withdraws a grant that was not sent after all.
    pub fn withdraw(&mut self, index: usize) {
        if let Some(given) = self.given.get_mut(index) {
            *given = None;
        }
    }

    /// Takes back the region of this slot, and returns `true` if it was granted. The local peer
    /// enters the region no more once [fences](crate::sync::make_fences) are made.
    #[must_use]
    pub fn take_back(&self, slot: u32) -> bool {
        self.end(self.all().1.filter(|(number, ..)| *number == slot))
    }

    /// As [`Grants::take_back`], whatever slot number the region was granted under.
    #[must_use]
    pub fn take_back_all_of(&self, region: &Region) -> bool {
        self.end(self.all().1.filter(|(.., given)| given.is(region)))
    }

    /// Takes back all regions, and returns `true` if any was granted. The local peer enters no
    /// region any more once fences are made.
    #[must_use]
    pub fn take_all_back(&self) -> bool {
        self.end(self.all().1)
    }

    fn end<'a>(&self, given: impl Iterator<Item = (u32, usize, &'a WeakRegion)>) -> bool {
        given.inspect(|(_, index, _)| self.marks.end(*index)).count() > 0
    }

    /// Returns `true` if the local peer is still inside this region under a grant that was taken
    /// back, whatever its slot number. Grants that still hold do not count, because threads may
    /// enter and leave for ever.
    #[must_use]
    pub fn is_inside(&self, region: &Region) -> bool {
        let (marks, mut given) = self.all();
        given.any(|(_, index, given)| {
            given.is(region) && marks.is_over(index) && marks.is_inside(index)
        })
    }

    /// Forgets regions that the local peer is not inside, and regions that this node has dropped.
    /// Returns `true` if any is left. Called after all regions were taken back, with fences made.
    pub(super) fn keep_used(&mut self) -> bool {
        let Grants { marks, given, .. } = self;
        for (index, given) in given.iter_mut().enumerate() {
            given.take_if(|(_, region)| !marks.is_inside(index) || region.upgrade().is_none());
        }
        given.iter().any(Option::is_some)
    }

    /// Returns the marks, and the granted regions with their slot numbers and lines.
    fn all(&self) -> (&Marks, impl Iterator<Item = (u32, usize, &WeakRegion)>) {
        let given = self.given.iter().enumerate();
        (
            &self.marks,
            given.filter_map(|(index, given)| {
                given.as_ref().map(|(slot, region)| (*slot, index, region))
            }),
        )
    }
}

/// Returns `true` if a region of these rights is mapped for writing. An atomic operation on a word
/// needs that too (MEM-18.1).
fn is_writable(rights: Rights) -> bool {
    rights.contains(Rights::WRITE) || rights.contains(Rights::ATOMIC)
}

/// Returns a descriptor of a region's file for the local peer. It is read-only where neither writes
/// nor atomic operations are granted.
///
/// # Errors
/// The kernel opens it no second time (`/proc` is not mounted).
pub fn to_give(file: BorrowedFd<'_>, rights: Rights) -> io::Result<OwnedFd> {
    if is_writable(rights) {
        return file.try_clone_to_owned();
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Wakes the local peer that owns a region, even while no thread of this node is in the engine.
#[derive(Clone, Debug)]
pub struct Bell {
    pub(super) memory: Memory,
    pub(super) line: Arc<ControlSocket>,
}

impl Bell {
    /// Wakes the owner if it sleeps (MEM-18.4). The caller has made a fence.
    #[inline]
    fn ring(&self) {
        if crate::shm::ring::is_asleep(&self.memory) {
            self.line.wake();
        }
    }
}

/// A local peer's region, mapped here. Every access is checked against the length and the rights.
/// An operation that does not pass is sent to the owner, which judges it.
#[derive(Debug)]
pub struct Mapped {
    region: Region,
    /// Start of the memory, which `region` keeps mapped.
    at: NonNull<u8>,
    len: u64,
    rights: Rights,
    marks: Marks,
    index: usize,
    /// `true` if the owner makes this process's fences.
    asymmetric: bool,
    bell: Bell,
    cut_off: AtomicBool,
    origin: Origin,
}

// SAFETY: the pointer leads into the region's memory, which is reached from any thread, through raw
// copies and atomics only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// A grant as received from a local peer: the region's file, and the message that came with it.
#[derive(Debug)]
pub struct RegionGrant {
    /// File of the region's memory.
    pub file: OwnedFd,
    /// Length in bytes.
    pub len: usize,
    /// Rights on all of these bytes.
    pub rights: Rights,
    /// Line of the grant.
    pub index: usize,
    /// `true` if the owner makes the fences of processes that access the region
    /// ([`crate::sync::makes_fences`]).
    pub makes_fences: bool,
}

impl Mapped {
    /// Maps a granted region.
    ///
    /// # Errors
    /// The file is shorter, or an access could end this process, or it cannot be mapped.
    pub(super) fn new(grant: &RegionGrant, memory: Memory, bell: Bell) -> io::Result<Mapped> {
        let RegionGrant { file, len, rights, index, makes_fences } = grant;
        let (len, rights, index) = (*len, *rights, *index);
        if len == 0 || lasting_len(file)? < len as u64 || index >= GRANTS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the region's memory is shorter than it is said to be",
            ));
        }
        let mapping = if !is_writable(rights) {
            Mapping::of_file_for_reading(file, len)
        } else if len >= HUGE {
            Mapping::of_file_aligned(file.as_fd(), len, HUGE)
        } else {
            Mapping::of_file(file.as_fd(), len)
        };
        let mapping = Arc::new(mapping.map_err(io::Error::other)?);
        let at = mapping.base();
        // SAFETY: `len` bytes that the mapping, which the region counts, keeps mapped; nobody makes
        // `&mut` references into them. They are written only where `rights` has WRITE or ATOMIC
        // (see `reaches`), and then the mapping is writable.
        let region = unsafe { Region::from_alias(mapping, at, len) };
        let asymmetric = *makes_fences && asymmetric_fence::are_asymmetric(Reach::Machine);
        let (marks, cut_off) = (Marks::new(memory), AtomicBool::new(false));
        Ok(Mapped {
            region,
            at,
            len: len as u64,
            rights,
            marks,
            index,
            asymmetric,
            bell,
            cut_off,
            origin: Origin::here(),
        })
    }

    /// Stops all further operations here, because the owner is gone.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
    }

    /// Returns `true` if operations bypass this mapping: the owner has taken the region back, or is
    /// gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed) || self.marks.is_over(self.index)
    }

    /// Returns `true` if the operation is permitted here. Bounds and rights stay the same while the
    /// region is mapped, so the caller need not be inside.
    #[inline]
    fn reaches(&self, right: Rights, offset: u64, len: u64) -> bool {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside && self.rights.contains(right) && !self.cut_off.load(Ordering::Relaxed)
    }

    /// Enters the region unless it is over, runs `act`, and leaves. Wakes the owner if `act`
    /// changes the region, or if the region is over.
    #[inline(always)]
    fn inside<R>(&self, changes: bool, act: impl FnOnce() -> R) -> Option<R> {
        // A thread that sees the stores of `act` must also see all earlier stores of this thread,
        // in this region or another, because an earlier put is complete. The light fence does not
        // keep a processor from reordering two plain stores. This fence does, and costs no
        // instruction where the processor keeps stores in order.
        fence(Ordering::AcqRel);
        let seen = self.marks.set(self.index, place());
        asymmetric_fence::light(self.asymmetric);
        let outcome = if self.marks.is_over(self.index) { None } else { Some(act()) };
        self.marks.clear(self.index, &seen);
        // This fence also stands between the change and the check whether the owner sleeps.
        asymmetric_fence::light(self.asymmetric);
        // The owner may wait for this thread to leave.
        if (changes && outcome.is_some()) || self.marks.is_over(self.index) {
            self.bell.ring();
        }
        outcome
    }

    /// Prefetches the cache line of an offset for writing, so that it arrives while the operation
    /// passes its checks. Another processor sees a put of 8 bytes after 63 ns instead of 79 ns,
    /// measured alternately.
    #[inline]
    pub fn claim(&self, offset: u64) {
        if offset < self.len {
            // A hint, which may point anywhere.
            claim(self.at.as_ptr().wrapping_add(offset as usize));
        }
    }

    /// Writes bytes, and then adds to a word if `signal` is given. Returns `false` if the operation
    /// must be sent to the owner instead.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8], signal: Option<(u64, u64)>) -> bool {
        let may_signal = signal
            .is_none_or(|(at, _)| at.is_multiple_of(8) && self.reaches(Rights::ATOMIC, at, 8));
        if !may_signal || !self.reaches(Rights::WRITE, offset, bytes.len() as u64) {
            return false;
        }
        let done = self.inside(true, || {
            // SAFETY: `offset` is inside the mapping, and all of `bytes` behind it; where `rights`
            // has WRITE it is writable. Bytes of another region of the same memory may overlap. Who
            // reads there meanwhile is under the rule of `crate::memory` about races.
            unsafe { copy(bytes, self.at.add(offset as usize)) };
            signal.is_none_or(|(at, add)| self.region.fetch_add(at, add).is_ok())
        });
        done == Some(true)
    }

    /// Writes bytes of a region of this process, as [`Mapped::write`]. Also returns `false` if
    /// those bytes are out of that region's bounds.
    #[inline]
    #[must_use]
    pub fn write_from(
        &self,
        offset: u64,
        from: &Region,
        at: u64,
        len: u64,
        signal: Option<(u64, u64)>,
    ) -> bool {
        from.with_bytes(at, len, |bytes| self.write(offset, bytes, signal)).is_ok_and(|done| done)
    }

    /// Reads into memory of the caller. Returns `false` if the operation must be sent to the owner
    /// instead.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.reaches(Rights::READ, offset, into.len() as u64)
            && self.inside(false, || self.region.read(offset, into).is_ok()) == Some(true)
    }

    /// Reads into a region of this process.
    #[inline]
    #[must_use]
    pub fn read_to(&self, offset: u64, into: &Region, at: u64, len: u64) -> bool {
        let read = || self.region.with_bytes(offset, len, |bytes| into.write(at, bytes).is_ok());
        self.reaches(Rights::READ, offset, len) && self.inside(false, read) == Some(Ok(true))
    }

    /// Runs an atomic operation on a word, and returns the word's old value.
    #[inline]
    #[must_use]
    pub fn atomic(&self, offset: u64, op: AtomicOp) -> Option<u64> {
        let width = op.width().bytes();
        let may = offset.is_multiple_of(width) && self.reaches(Rights::ATOMIC, offset, width);
        if !may {
            return None;
        }
        self.inside(true, || self.region.atomic(offset, op).ok())?
    }
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Mapped) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The marks are shared memory: a child of fork would give up the parent's line (MEM-24.2).
        if self.origin.is_here() {
            self.marks.drop_line(self.index);
        }
    }
}
