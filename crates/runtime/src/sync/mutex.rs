//! Locks of mutexes, which keep signal handlers of the program out meanwhile.

use oikaze_os::signals::{Locked, locked};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also after a thread has panicked inside.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<MutexGuard<'_, T>> {
    locked(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}
