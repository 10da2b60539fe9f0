//! Tracks which pages of which memory files are behind a shared region. These are pages of the
//! region's own file, until some are exchanged with a region of another process (MEM-20).
//!
//! Taking other pages is one call for each of the two mappings, which atomically replaces the old
//! pages. It pays off for huge pages only: small pages have to be faulted in again one by one,
//! which takes longer than copying their bytes.

use super::super::mapping::Mapping;
use super::{Backing, Region};
use crate::features::DisabledFeatures;
use crate::memory::memfd::lasting_len;
use crate::processes::signals::{Locked, locked};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of runs of pages in a region. Each run needs one or two mappings and can keep a
/// file alive.
const RUNS_MAX: usize = 256;

/// Number of runs added when a new run splits an existing one into three.
const PIECES_ADDED: usize = 2;

/// Number of spare mappings of a region whose pages are exchanged. At the process's limit
/// (`vm.max_map_count`), a new mapping needs one to be given up first. One spare is for each of the
/// region's two mappings when fewer pages arrive than were prepared for, and one is to undo the
/// first replacement.
const SPARES: usize = 3;
const SPARES_TO_UNDO: usize = 1;

/// Reason why pages were not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// Nothing has changed.
    #[error(transparent)]
    Refused(#[from] io::Error),
    /// The region's two mappings disagree for good: other threads used up every mapping that was
    /// given up for the undo.
    #[error("one of the region's two mappings has the new pages and one the old ones: {0}")]
    Torn(io::Error),
}

/// A range of a memory file, in whole pages.
#[derive(Clone, Debug)]
pub struct FilePages {
    pub(super) file: Arc<OwnedFd>,
    /// Offset in bytes from the file's start.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl FilePages {
    /// Wraps a range of a file received from another process.
    ///
    /// # Errors
    /// The file has no such bytes, or an access to them could end this process.
    pub fn received(file: OwnedFd, offset: u64, len: u64) -> io::Result<FilePages> {
        let size = lasting_len(&file)?;
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is shorter than it is said to be",
            ));
        }
        Ok(FilePages { file: Arc::new(file), offset, len })
    }

    /// Returns the file, to be handed over.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the first `len` bytes of the range.
    #[must_use]
    pub fn until(self, len: u64) -> FilePages {
        FilePages { len: self.len.min(len), ..self }
    }

    fn from(self, skipped: u64) -> FilePages {
        FilePages { offset: self.offset + skipped, len: self.len - skipped, ..self }
    }

    fn is_of(&self, other: &FilePages) -> bool {
        let identity =
            |pages: &FilePages| fstat(&pages.file).ok().map(|stat| (stat.st_dev, stat.st_ino));
        Arc::ptr_eq(&self.file, &other.file)
            || identity(self).is_some_and(|this| identity(other) == Some(this))
    }
}

/// A run of pages that are consecutive in both the region and their file.
#[derive(Clone, Debug)]
struct FileRun {
    at: u64,
    pages: FilePages,
}

impl FileRun {
    fn end(&self) -> u64 {
        self.at + self.pages.len
    }

    /// Returns the part of the run inside this range of the region.
    fn within(&self, from: u64, to: u64) -> Option<FileRun> {
        let (from, to) = (from.max(self.at), to.min(self.end()));
        (from < to).then(|| FileRun {
            at: from,
            pages: self.pages.clone().from(from - self.at).until(to - from),
        })
    }

    fn goes_on_with(&self, next: &FileRun) -> bool {
        self.end() == next.at
            && Arc::ptr_eq(&self.pages.file, &next.pages.file)
            && self.pages.offset + self.pages.len == next.pages.offset
    }
}

/// The pages behind a shared region.
#[derive(Debug)]
pub(super) struct Backed {
    own: Arc<OwnedFd>,
    /// Runs in order, from the region's start to its end.
    runs: Mutex<Vec<FileRun>>,
    /// Set when pages other than those of its own file are behind the region, or are about to be.
    left: AtomicBool,
    /// Set while a [`PagesLock`] exists.
    locked: AtomicBool,
    /// See [`Region::is_torn`].
    torn: AtomicBool,
    /// Spare mappings, given up when the kernel grants no further mapping.
    spares: Mutex<Vec<Mapping>>,
}

impl Backed {
    pub fn by(file: OwnedFd, len: usize) -> Backed {
        let own = Arc::new(file);
        let runs = vec![FileRun {
            at: 0,
            pages: FilePages { file: Arc::clone(&own), offset: 0, len: len as u64 },
        }];
        Backed {
            own,
            runs: Mutex::new(runs),
            left: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            spares: Mutex::default(),
        }
    }

    /// Returns the file that the region's memory comes from.
    pub fn own(&self) -> &OwnedFd {
        &self.own
    }

    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        (!self.left.load(Ordering::Acquire)).then(|| self.own.as_fd())
    }

    fn runs(&self) -> Locked<MutexGuard<'_, Vec<FileRun>>> {
        locked(|| self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn spares(&self) -> Locked<MutexGuard<'_, Vec<Mapping>>> {
        locked(|| self.spares.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn save_up(&self) -> io::Result<()> {
        let mut spares = self.spares();
        while spares.len() < SPARES {
            spares.push(Mapping::of_file(self.own().as_fd(), 1).map_err(io::Error::other)?);
        }
        Ok(())
    }

    /// Makes a mapping. When the kernel refuses, gives up spares one by one until only `left`
    /// remain.
    fn with_spares(&self, left: usize, mut make: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        loop {
            let refused = match make() {
                Err(why) if why.kind() == io::ErrorKind::OutOfMemory => why,
                made => return made,
            };
            let mut spares = self.spares();
            if spares.len() <= left {
                return Err(refused);
            }
            spares.pop();
        }
    }
}

/// Returns the same runs with other pages at one place.
fn with(runs: &[FileRun], new: FileRun) -> Vec<FileRun> {
    // Keep only one descriptor of a file that is already known.
    let known =
        runs.iter().find(|run| run.pages.is_of(&new.pages)).map(|run| Arc::clone(&run.pages.file));
    let pages = FilePages { file: known.unwrap_or(new.pages.file), ..new.pages };
    let new = FileRun { pages, ..new };
    let mut all: Vec<FileRun> = runs
        .iter()
        .flat_map(|run| [run.within(0, new.at), run.within(new.end(), u64::MAX)])
        .flatten()
        .collect();
    all.push(new);
    all.sort_unstable_by_key(|run| run.at);
    all.dedup_by(|next, run| {
        let joined = run.goes_on_with(next);
        run.pages.len += if joined { next.pages.len } else { 0 };
        joined
    });
    all
}

/// Exclusive right to change the pages behind a region.
#[derive(Debug)]
pub struct PagesLock {
    region: Region,
    /// Range prepared for new pages: offset and length in bytes.
    prepared: Option<(usize, usize)>,
}

impl PagesLock {
    /// Returns the region that is locked.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the pages at `offset`, up to the end of their run in one file.
    #[must_use]
    pub fn pages(&self, offset: u64) -> Option<FilePages> {
        let runs = self.region.backed()?.runs();
        runs.iter()
            .find_map(|run| run.within(offset, u64::MAX))
            .filter(|run| run.at == offset)
            .map(|run| run.pages)
    }

    /// Prepares to take up to `len` bytes of pages at this place (MEM-20.3). Afterwards
    /// [`PagesLock::take`] does not fail for too many pieces or mappings. Returns `false` if that
    /// cannot be ensured.
    #[must_use]
    pub fn prepare(&mut self, offset: u64, len: u64) -> bool {
        let Backing::Shared { view, alias, backed } = &self.region.inner.backing else {
            return false;
        };
        let (Ok(at), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else {
            return false;
        };
        if backed.runs().len() + PIECES_ADDED > RUNS_MAX {
            return false;
        }
        self.prepared = Some((at, len));
        let apart =
            [alias, view].into_iter().all(|mapping| mapping.keep_apart(at, len, true).is_ok());
        apart && backed.save_up().is_ok()
    }

    /// Puts other pages behind the region at `offset`, in place of the old ones. Threads that touch
    /// them meanwhile see either the old or the new pages.
    ///
    /// # Errors
    /// They are not inside the region, not in units of [`Region::exchange_unit`], or from too many
    /// places (MEM-20.3); the kernel says no.
    pub fn take(&self, offset: u64, pages: FilePages) -> Result<(), NotTaken> {
        let unit = self.region.exchange_unit().unwrap_or(u64::MAX);
        let whole =
            [offset, pages.offset, pages.len].iter().all(|number| number.is_multiple_of(unit));
        if !whole || self.region.check_bounds(offset, pages.len).is_err() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        self.put_behind_by(offset, pages, &mut |mapping, run| {
            let FilePages { file, offset, len } = &run.pages;
            mapping.replace(run.at as usize, file.as_fd(), *offset, *len as usize)
        })
    }

    fn put_behind_by(
        &self,
        offset: u64,
        pages: FilePages,
        replace: &mut dyn FnMut(&Mapping, &FileRun) -> io::Result<()>,
    ) -> Result<(), NotTaken> {
        let Backing::Shared { view, alias, backed } = &self.region.inner.backing else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        };
        let end = offset + pages.len;
        backed.save_up()?;
        let mut runs = backed.runs();
        let new = with(&runs, FileRun { at: offset, pages });
        if new.len() > RUNS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "its pages come from too many places already",
            )
            .into());
        }
        let mut put = |mapping: &Mapping, runs: &[FileRun], left: usize| {
            let mut concerned = runs.iter().filter_map(|run| run.within(offset, end));
            concerned.try_for_each(|run| backed.with_spares(left, || replace(mapping, &run)))
        };
        // The kernel refuses a mapping above the limit before it touches the old one. Out of
        // memory, it may have left a hole, so the old pages are put back.
        if let Err(why) = put(alias, &new, SPARES_TO_UNDO) {
            let _ = put(alias, &runs, 0);
            return Err(why.into());
        }
        if let Err(why) = put(view, &new, SPARES_TO_UNDO) {
            let undone = put(alias, &runs, 0);
            let _ = put(view, &runs, 0);
            let Err(torn) = undone else { return Err(why.into()) };
            backed.torn.store(true, Ordering::Release);
            return Err(NotTaken::Torn(torn));
        }
        *runs = new;
        Ok(())
    }
}

impl Drop for PagesLock {
    fn drop(&mut self) {
        if let (Backing::Shared { view, alias, .. }, Some((at, len))) =
            (&self.region.inner.backing, self.prepared)
        {
            for mapping in [alias, view] {
                // A failure is harmless: the parts merely stay separate mappings.
                let _ = mapping.keep_apart(at, len, false);
            }
        }
        if let Some(backed) = self.region.backed() {
            backed.locked.store(false, Ordering::Release);
        }
    }
}

impl Region {
    pub(super) fn backed(&self) -> Option<&Backed> {
        match &self.inner.backing {
            Backing::Shared { backed, .. } => Some(backed),
            _ => None,
        }
    }

    /// Returns the unit in bytes in which pages can be exchanged with another process, or `None` if
    /// they cannot.
    #[must_use]
    #[doc(hidden)]
    pub fn exchange_unit(&self) -> Option<u64> {
        static OFF: OnceLock<bool> = OnceLock::new();
        let off =
            *OFF.get_or_init(|| DisabledFeatures::of_process().is_ok_and(|without| without.remap));
        self.backed().filter(|_| !off)?;
        self.huge_pages().map(|size| size as u64)
    }

    /// Locks the pages behind the region against changes by others. Returns `None` if they are
    /// locked already or cannot be changed.
    #[must_use]
    #[doc(hidden)]
    pub fn lock_pages(&self) -> Option<PagesLock> {
        let free = !self.backed()?.locked.swap(true, Ordering::Acquire);
        free.then(|| PagesLock { region: self.clone(), prepared: None })
    }

    /// Returns `true` if a thread is changing the pages behind the region.
    #[must_use]
    #[doc(hidden)]
    pub fn pages_are_locked(&self) -> bool {
        self.backed().is_some_and(|backed| backed.locked.load(Ordering::Acquire))
    }

    /// Returns `true` if the program and the runtime see different bytes for good
    /// ([`NotTaken::Torn`]). Such a region can grant no rights.
    #[must_use]
    #[doc(hidden)]
    pub fn is_torn(&self) -> bool {
        self.backed().is_some_and(|backed| backed.torn.load(Ordering::Acquire))
    }

    /// Makes [`Region::file`] return `None` from now on, because a process that mapped the file
    /// would not see the region's pages.
    #[doc(hidden)]
    pub fn leave_file(&self) {
        if let Some(backed) = self.backed() {
            backed.left.store(true, Ordering::Release);
        }
    }

    /// Returns `true` if both are the same memory.
    #[must_use]
    #[doc(hidden)]
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

#[cfg(test)]
mod tests;
