//! Guards over ranges of a shared array.

use crate::error::Result;
use crate::shared::core::{ArrayCore, kind_of};
use crate::shared::element::Element;
use oikaze_os::memory::tracking as os;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Ownership, WriteId};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};

/// Guard of elements that may be read. No thread of this process writes the elements meanwhile, and
/// the program's synchronisation keeps other nodes from writing them.
///
/// The contents that a guard shows do not change while it lives, not even in a program with a data
/// race. A barrier (or any other collective) is refused while a guard of this node is alive. A lock
/// is refused while a guard that the calling thread took is alive.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.array::<u64>("array", 1000)?;
/// let guard = array.read(0..10)?; // fetches what is not here
/// assert_eq!(guard.iter().sum::<u64>(), 0);
/// assert!(job.barrier().is_err()); // refused while a guard is alive
/// guard.release()?;
/// job.barrier()?;
/// # Ok(())
/// # }
/// ```
pub struct ReadGuard<'a, T> {
    array: &'a ArrayCore,
    guard: os::ReadGuard<'a, T>,
}

/// Guard of elements that may be written. No other thread of this process touches the elements
/// meanwhile, and the program's synchronisation keeps other nodes from touching them. Others see
/// the writes after the next release (barrier, unlock) here and acquire there.
///
/// [`ReadGuard`] says which calls are refused while a guard is alive.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.array::<u64>("array", 1000)?;
/// if job.rank() == 0 {
///     let mut guard = array.write(0..10)?;
///     guard[3] = 7;
/// } // the guard ends before the barrier
/// job.barrier()?;
/// assert_eq!(array.read(0..10)?[3], 7);
/// # Ok(())
/// # }
/// ```
pub struct WriteGuard<'a, T: Element> {
    array: &'a ArrayCore,
    guard: os::WriteGuard<'a, T>,
    /// Number of the announced write; `None` for a lazy guard.
    write: Option<WriteId>,
    push: Vec<Rank>,
    /// `true` if all bytes of the guard count as written.
    is_owner: bool,
}

impl<T: Element> ReadGuard<'_, T> {
    /// Ends the guard, and returns an error if it has shown bytes that were not valid. (A dropped
    /// guard reports nothing; the node's next synchronisation fails instead.)
    ///
    /// # Errors
    /// A page was lost with its home, and the guard has shown old bytes of the page.
    pub fn release(self) -> Result<()> {
        self.guard
            .lost_page()
            .map_or(Ok(()), |lost| Err(self.array.lost("give back a read guard", lost)))
    }
}

impl<T: Element> WriteGuard<'_, T> {
    /// Sends what this guard writes to these nodes with the next barrier or
    /// [notification](crate::Job::notify), whether they read it before or not. Pages that the
    /// guards of this node cover as a whole are valid there afterwards. A node that has no valid
    /// copy drops parts of pages.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let row = job.array::<f64>("row", 512)?;
    /// if job.rank() == 0 {
    ///     let mut guard = row.write(0..512)?;
    ///     guard.fill(1.5);
    ///     guard.push_to(&(1..job.size()).collect::<Vec<_>>())?;
    /// }
    /// job.barrier()?; // brings the row
    /// assert_eq!(row.read(0..512)?[511], 1.5); // no fetch
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A rank is not in the job, or the guard is a lazy one or one of
    /// [`SharedArray::write_merged`](super::SharedArray::write_merged),
    /// which do not know what they write.
    pub fn push_to(&mut self, ranks: &[Rank]) -> Result<()> {
        self.array.check_push(ranks, self.is_owner)?;
        self.push.extend_from_slice(ranks);
        Ok(())
    }

    /// As [`ReadGuard::release`].
    ///
    /// # Errors
    /// A page was lost with its home. The guard has shown old bytes of the page, and no node sees
    /// the writes to it. Or a guard of [`write_merged`](super::SharedArray::write_merged) has
    /// changed elements under a guard of another node: those are not stored.
    pub fn release(mut self) -> Result<()> {
        let array = self.array;
        let lost = self.guard.lost_page();
        if let Some(lost) = lost {
            return Err(array.lost("give back a write guard", lost));
        }
        self.guard.end().map_or(Ok(()), |race| Err(race.into()))
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.guard
    }
}

impl<T: Element> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.array.end_write(write, &self.push);
        }
    }
}

impl<T: Element> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.guard
    }
}

impl<T: Element> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.guard
    }
}

impl<T> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

impl<T: Element> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

impl ArrayCore {
    /// Returns a guard of elements to read, whose pages are valid or come when they are touched.
    #[inline]
    #[track_caller]
    pub(super) fn slice<T: Element>(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        Ok(ReadGuard { array: self, guard: self.memory.slice(elements)? })
    }

    /// Returns a guard of elements to write, as [`slice`](Self::slice).
    #[inline]
    #[track_caller]
    pub(super) fn slice_mut<T: Element>(
        &self,
        elements: Range<usize>,
        write: Option<WriteId>,
        ownership: Ownership,
    ) -> Result<WriteGuard<'_, T>> {
        let guard = self.memory.slice_mut(elements, kind_of(ownership))?;
        let is_owner = ownership == Ownership::Owned;
        Ok(WriteGuard { array: self, guard, write, push: Vec::new(), is_owner })
    }

    #[inline]
    #[track_caller]
    pub(super) fn read_range<T: Element>(
        &self,
        elements: Range<usize>,
    ) -> Result<ReadGuard<'_, T>> {
        self.make_range_readable(&elements)?;
        self.slice(elements)
    }

    #[inline]
    #[track_caller]
    pub(super) fn write_range<T: Element>(
        &self,
        elements: Range<usize>,
        ownership: Ownership,
    ) -> Result<WriteGuard<'_, T>> {
        let write = self.begin_range_write(&elements, ownership)?;
        let guard = self
            .slice_mut(elements.clone(), write, ownership)
            .inspect_err(|_| self.abandon_write(write))?;
        self.note_owned(std::slice::from_ref(&elements), ownership);
        Ok(guard)
    }
}
