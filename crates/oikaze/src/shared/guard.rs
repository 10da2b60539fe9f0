//! Guards over ranges of a shared array.

use oikaze_os::memory::shared as os;
use std::ops::{Deref, DerefMut};

/// Elements that may be read: nobody in this process writes them meanwhile, and no other node may by the program's
/// synchronisation.
pub struct ReadGuard<'a, T>(pub(super) os::ReadGuard<'a, T>);

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// Elements that may be written: nobody else in this process touches them meanwhile, and no other node may by the program's
/// synchronisation. Others see the writes after the next release (barrier, unlock) here and acquire there.
pub struct WriteGuard<'a, T>(pub(super) os::WriteGuard<'a, T>);

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
