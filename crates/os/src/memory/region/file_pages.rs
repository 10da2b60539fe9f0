//! Which pages of which memory files are behind a shared region: those of its own file, until some
//! have changed place with those of a region of another process (MEM-20).
//!
//! To take other pages is one call for each of the two mappings, which replaces what was there from
//! one moment to the next. It pays for huge pages alone: small ones have to be found again one by
//! one, which takes longer than to copy their bytes.

use super::super::lasting_len;
use super::super::mapping::Mapping;
use super::{Backing, Region};
use crate::signals::{Locked, locked};
use crate::without::Without;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Runs of pages that a region may consist of: each is a mapping or two, and can keep a file alive.
const RUNS_MAX: usize = 256;

/// What comes into the middle of a run makes three of it.
const PIECES_ADDED: usize = 2;

/// Mappings that a region whose pages change place keeps in hand: as many as a process may have
/// (`vm.max_map_count`), it may make none before another is given up. One for each of its two where
/// fewer pages come than it has made ready for, and one to undo the first.
const SPARES: usize = 3;
const SPARES_TO_UNDO: usize = 1;

/// Why pages were not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// Nothing has changed.
    #[error(transparent)]
    Refused(#[from] io::Error),
    /// The region's two mappings do not agree any more: other threads have made mappings of all
    /// that was given up for this.
    #[error("one of the region's two mappings has the new pages and one the old ones: {0}")]
    Torn(io::Error),
}

/// Some bytes of a memory file, in whole pages.
#[derive(Clone, Debug)]
pub struct FilePages {
    pub(super) file: Arc<OwnedFd>,
    /// Bytes from the file's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl FilePages {
    /// What another process has handed over.
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

    /// The file, to be handed over.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first of them, as many as `len` bytes.
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

/// Pages that are one behind the other in the region and in their file.
#[derive(Clone, Debug)]
struct Run {
    at: u64,
    pages: FilePages,
}

impl Run {
    fn end(&self) -> u64 {
        self.at + self.pages.len
    }

    /// The part of it that is in this range of the region.
    fn within(&self, from: u64, to: u64) -> Option<Run> {
        let (from, to) = (from.max(self.at), to.min(self.end()));
        (from < to).then(|| Run {
            at: from,
            pages: self.pages.clone().from(from - self.at).until(to - from),
        })
    }

    fn goes_on_with(&self, next: &Run) -> bool {
        self.end() == next.at
            && Arc::ptr_eq(&self.pages.file, &next.pages.file)
            && self.pages.offset + self.pages.len == next.pages.offset
    }
}

/// The pages behind a shared region.
#[derive(Debug)]
pub(super) struct Backed {
    own: Arc<OwnedFd>,
    /// What has taken the place of that ([`PagesLock::leave_memory`]).
    renewed: OnceLock<Arc<OwnedFd>>,
    /// Held by who adds to it, and by who changes what it takes its memory from.
    growing: Mutex<()>,
    /// From the region's start to its end.
    runs: Mutex<Vec<Run>>,
    /// Its own file is not all there is behind it, or will not be in a moment.
    left: AtomicBool,
    /// Somebody is changing what is behind it.
    locked: AtomicBool,
    /// See [`Region::is_torn`].
    torn: AtomicBool,
    /// Given up where the kernel grants no mapping more.
    spares: Mutex<Vec<Mapping>>,
}

impl Backed {
    pub fn by(file: OwnedFd, len: usize) -> Backed {
        let own = Arc::new(file);
        let runs = vec![Run {
            at: 0,
            pages: FilePages { file: Arc::clone(&own), offset: 0, len: len as u64 },
        }];
        Backed {
            own,
            renewed: OnceLock::new(),
            growing: Mutex::new(()),
            runs: Mutex::new(runs),
            left: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            spares: Mutex::default(),
        }
    }

    /// The file that it takes its memory from.
    pub fn own(&self) -> &OwnedFd {
        self.renewed.get().unwrap_or(&self.own)
    }

    /// Until this is dropped, it does not become longer, and takes its memory from the same file.
    pub fn growing(&self) -> Locked<MutexGuard<'_, ()>> {
        locked(|| self.growing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does it take its memory from another file than its first?
    pub fn is_renewed(&self) -> bool {
        self.renewed.get().is_some()
    }

    /// It takes its memory from this one from here on. There is no second time: nobody else maps
    /// its memory any more.
    pub fn renew(&self, file: Arc<OwnedFd>) {
        let _ = self.renewed.set(file);
    }

    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        (!self.left.load(Ordering::Acquire)).then(|| self.own.as_fd())
    }

    fn runs(&self) -> Locked<MutexGuard<'_, Vec<Run>>> {
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

    /// Make a mapping. Spares are given up for it one by one, and only where there is no other way,
    /// until so many are left.
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

/// The same runs with other pages at one place.
fn with(runs: &[Run], new: Run) -> Vec<Run> {
    // A file that is known already is kept open once.
    let known =
        runs.iter().find(|run| run.pages.is_of(&new.pages)).map(|run| Arc::clone(&run.pages.file));
    let pages = FilePages { file: known.unwrap_or(new.pages.file), ..new.pages };
    let new = Run { pages, ..new };
    let mut all: Vec<Run> = runs
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

/// Nobody else changes what is behind a region while this lives.
#[derive(Debug)]
pub struct PagesLock {
    region: Region,
    /// Where others are to take their place: offset and length.
    prepared: Option<(usize, usize)>,
}

impl PagesLock {
    /// Whose.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The pages at `offset`, as far as they are one behind the other in one file.
    #[must_use]
    pub fn pages(&self, offset: u64) -> Option<FilePages> {
        let runs = self.region.backed()?.runs();
        runs.iter()
            .find_map(|run| run.within(offset, u64::MAX))
            .filter(|run| run.at == offset)
            .map(|run| run.pages)
    }

    /// Make sure of being able to take pages at this place, or fewer (MEM-20.3): however many
    /// pieces the region consists of already, and however many mappings this process has. `false`:
    /// it cannot.
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

    /// Put other pages behind the region, at `offset`: what it had there it has no more. Threads
    /// that touch them meanwhile see the one or the other.
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
        self.put_behind(offset, pages)
    }

    /// As [`PagesLock::take`], in units of any pages.
    pub(super) fn put_behind(&self, offset: u64, pages: FilePages) -> Result<(), NotTaken> {
        self.put_behind_by(offset, pages, &mut |mapping, run| {
            let FilePages { file, offset, len } = &run.pages;
            mapping.replace(run.at as usize, file.as_fd(), *offset, *len as usize)
        })
    }

    fn put_behind_by(
        &self,
        offset: u64,
        pages: FilePages,
        replace: &mut dyn FnMut(&Mapping, &Run) -> io::Result<()>,
    ) -> Result<(), NotTaken> {
        let Backing::Shared { view, alias, backed } = &self.region.inner.backing else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        };
        let end = offset + pages.len;
        backed.save_up()?;
        let mut runs = backed.runs();
        let new = with(&runs, Run { at: offset, pages });
        if new.len() > RUNS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "its pages come from too many places already",
            )
            .into());
        }
        let mut put = |mapping: &Mapping, runs: &[Run], left: usize| {
            let mut concerned = runs.iter().filter_map(|run| run.within(offset, end));
            concerned.try_for_each(|run| backed.with_spares(left, || replace(mapping, &run)))
        };
        // A mapping that would be one too many the kernel refuses before it touches the old one; in
        // want of memory it may have left a hole, into which what was there is put back.
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
                // What stays apart harms nobody.
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

    /// In multiples of how many bytes its pages can change place with those of another process;
    /// `None`: they cannot.
    #[must_use]
    pub fn exchange_unit(&self) -> Option<u64> {
        static OFF: OnceLock<bool> = OnceLock::new();
        let off = *OFF.get_or_init(|| Without::from_env().is_ok_and(|without| without.remap));
        self.backed().filter(|_| !off)?;
        self.huge_pages().map(|size| size as u64)
    }

    /// Keep others from changing what is behind it; `None` if somebody does already, or nothing can
    /// be changed.
    #[must_use]
    pub fn lock_pages(&self) -> Option<PagesLock> {
        let free = !self.backed()?.locked.swap(true, Ordering::Acquire);
        free.then(|| PagesLock { region: self.clone(), prepared: None })
    }

    /// Is somebody changing what is behind it?
    #[must_use]
    pub fn pages_are_locked(&self) -> bool {
        self.backed().is_some_and(|backed| backed.locked.load(Ordering::Acquire))
    }

    /// Does the program see other bytes in it than the runtime, for good ([`NotTaken::Torn`])? Then
    /// it can grant nothing.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.backed().is_some_and(|backed| backed.torn.load(Ordering::Acquire))
    }

    /// From here on [`Region::file`] says nothing: who maps it would not see what is behind the
    /// region.
    pub fn leave_file(&self) {
        if let Some(backed) = self.backed() {
            backed.left.store(true, Ordering::Release);
        }
    }

    /// Do both stand for the same memory?
    #[must_use]
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

#[cfg(test)]
mod tests;
