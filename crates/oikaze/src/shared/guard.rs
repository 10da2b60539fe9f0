//! Guards over ranges of a shared array.

use super::{Element, SharedArray};
use crate::Result;
use oikaze_os::memory::shared as os;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Elements that may be read: nobody in this process writes them meanwhile, and no other node may
/// by the program's synchronisation.
///
/// The contents that a guard shows do not change while it lives, not even in a program with a data
/// race. A barrier (or any other collective) is refused while a guard of this node is alive. A lock
/// is refused while a guard that the calling thread took is alive.
pub struct ReadGuard<'a, T> {
    pub(super) array: &'a SharedArray<T>,
    pub(super) guard: os::ReadGuard<'a, T>,
}

/// Elements that may be written: nobody else in this process touches them meanwhile, and no other
/// node may by the program's synchronisation. Others see the writes after the next release
/// (barrier, unlock) here and acquire there.
///
/// See [`ReadGuard`] about what is refused while a guard is alive.
pub struct WriteGuard<'a, T> {
    pub(super) array: &'a SharedArray<T>,
    pub(super) guard: os::WriteGuard<'a, T>,
}

impl<T: Element> ReadGuard<'_, T> {
    /// Ends the guard and says whether all that it has shown was valid. (A dropped guard says
    /// nothing; the node's next synchronisation fails instead.)
    ///
    /// # Errors
    /// A page was lost with its home: what the guard has shown of it was old.
    pub fn release(self) -> Result<()> {
        self.guard
            .lost_page()
            .map_or(Ok(()), |lost| Err(self.array.lost("give back a read guard", lost)))
    }
}

impl<T: Element> WriteGuard<'_, T> {
    /// As [`ReadGuard::release`].
    ///
    /// # Errors
    /// A page was lost with its home: what the guard has shown of it was old, and what was written
    /// there is seen by nobody.
    pub fn release(self) -> Result<()> {
        self.guard
            .lost_page()
            .map_or(Ok(()), |lost| Err(self.array.lost("give back a write guard", lost)))
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.guard
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.guard
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.guard
    }
}

impl<T> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

impl<T> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
