//! A lock that is held for moments, and whose holder can be sent requests while it is inside.
//!
//! Lock, request and sleepers are bits of one word. A thread shares no other cache line to enter,
//! and enters and leaves by one locked instruction each. Such an instruction waits until all
//! earlier stores have reached the cache.
//!
//! All changes of one word have one order, and a thread that has changed it sees that change or a
//! later one. So a thread that sets the request bit and then finds the word taken has asked before
//! the holder leaves. A holder that has left finds the request by a mere load, or the request came
//! later, when the lock was open. No fence is needed for that.
//!
//! A thread becomes the *bias owner* if it enters [often](BiasedLock::try_enter_often), for
//! moments, while no other thread does. The bias owner leaves the word taken, and marks by plain
//! stores whether it is inside (biased locking: Dice, Moir and Scherer, Quickly Reacquirable Locks,
//! 2003). Another thread that wants to enter revokes the bias and makes the bias owner's fence as
//! in [`crate::sync`]. If the bias owner is outside then, it stays outside. Otherwise it finds
//! the bias revoked when it leaves, opens the lock, wakes the sleepers and checks for requests.
//! `try_enter` never waits for the bias owner, which may be blocked on the caller. Each revocation
//! takes some microseconds, and makes the next bias harder to get. `docs/decisions/018` has what it
//! buys, and why nothing simpler serves.
//!
//! Bench case: `message_rate` of 8 bytes (`bench shm`; docs/decisions/018-biased-lock.md).

#[cfg(all(test, loom))]
mod models;
mod platform;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};

use platform::{PATIENCE, PLACES, heavy, is_asymmetric, light, place};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// The lock is held, or kept for the bias owner.
const TAKEN: u32 = 1;
/// A thread has made a request.
const ASKED: u32 = 2;
/// A thread may sleep until the lock is open.
const AWAITED: u32 = 4;
/// The lock is kept for the bias owner, inside or not, whose place is in the upper bits.
const BIASED: u32 = 8;
/// The bias was revoked. The lock is kept for the first thread that [claims](BiasedLock::claim) it.
/// That is the bias owner, or a thread that wants to enter and has seen the bias owner outside.
const REVOKED: u32 = 16;
/// The revoking thread is still checking whether the bias owner is inside. Until it has finished
/// there is no new bias owner, because the mark it reads says nothing about a later bias.
const REVOKING: u32 = 32;
const PLACE_SHIFT: u32 = 8;
const PLACE: u32 = !0 << PLACE_SHIFT;

/// Upper limit of the patience. With this patience, the few microseconds of each revocation do not
/// matter.
const BIAS_PATIENCE_MAX: u32 = 1 << 16;

/// A lock around a value, which one thread at a time may use.
pub struct BiasedLock<T> {
    word: AtomicU32,
    /// For each place, `true` while its thread is inside as the bias owner. Written by that thread.
    marks: [AtomicBool; PLACES],
    /// `latest` is the place whose thread has entered often last, `streak` how many times in a row,
    /// and `patience` how many times it takes to get the bias. Written by the holder.
    latest: AtomicU32,
    streak: AtomicU32,
    patience: AtomicU32,
    may_bias: bool,
    inside: UnsafeCell<T>,
    /// Held by a thread that is about to sleep, and by a thread that wakes it.
    asleep: Mutex<()>,
    opened: Condvar,
}

/// Entry into the lock, which ends when this is dropped, also by a panic.
pub struct BiasedLockGuard<'g, T> {
    lock: &'g BiasedLock<T>,
    /// Mark of the bias owner, if the holder is one.
    mark: Option<&'g AtomicBool>,
}

// SAFETY: `inside` is reached by one thread at a time, through `BiasedLockGuard`.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

// SAFETY: a shared `BiasedLockGuard` gives out nothing but a shared reference to what is inside.
unsafe impl<T: Sync> Sync for BiasedLockGuard<'_, T> {}

#[inline]
fn is_biased_to_this_thread(word: u32) -> bool {
    word & BIASED != 0 && place() == Some(word >> PLACE_SHIFT)
}

impl<T> BiasedLock<T> {
    /// Creates an open lock.
    pub fn new(inside: T) -> BiasedLock<T> {
        BiasedLock {
            word: AtomicU32::new(0),
            marks: std::array::from_fn(|_| AtomicBool::new(false)),
            latest: AtomicU32::new(u32::MAX),
            streak: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
            may_bias: is_asymmetric(),
            inside: UnsafeCell::new(inside),
            asleep: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// Enters, unless another thread is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<BiasedLockGuard<'_, T>> {
        let word = self.word.load(Ordering::Relaxed);
        if is_biased_to_this_thread(word) {
            return self.enter_as_bias_owner(word);
        }
        if word & BIASED != 0 {
            return self.enter_by_revoking();
        }
        // If this load is stale, the holder has just left, and this attempt counts as made a moment
        // ago.
        if word & TAKEN != 0 {
            return None;
        }
        match self.word.fetch_or(TAKEN, Ordering::Acquire) {
            before if before & TAKEN == 0 => Some(BiasedLockGuard { lock: self, mark: None }),
            before if before & BIASED != 0 => self.enter_by_revoking(),
            _ => None,
        }
    }

    /// As [`BiasedLock::try_enter`], for a thread that enters often and stays for moments. Such a
    /// thread may become the bias owner.
    #[inline]
    pub fn try_enter_often(&self) -> Option<BiasedLockGuard<'_, T>> {
        let word = self.word.load(Ordering::Relaxed);
        if is_biased_to_this_thread(word) {
            return self.enter_as_bias_owner(word);
        }
        self.enter_and_take_bias()
    }

    /// Not inlined, so that the bias owner's fast path saves no registers.
    #[inline(never)]
    fn enter_and_take_bias(&self) -> Option<BiasedLockGuard<'_, T>> {
        let mut inside = self.try_enter()?;
        if inside.mark.is_none() {
            inside.mark = self.take_bias();
        }
        Some(inside)
    }

    /// Makes this thread, which is inside, the bias owner if for long no other thread has entered
    /// often. Returns the bias owner's mark.
    fn take_bias(&self) -> Option<&AtomicBool> {
        let place = place().filter(|_| self.may_bias)?;
        let before = self.latest.load(Ordering::Relaxed);
        let streak =
            if before == place { self.streak.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.latest.store(place, Ordering::Relaxed);
        self.streak.store(streak, Ordering::Relaxed);
        if streak < self.patience.load(Ordering::Relaxed) {
            return None;
        }
        let biased = TAKEN | BIASED | place << PLACE_SHIFT;
        let mark = self.mark(biased)?;
        mark.store(true, Ordering::Relaxed);
        // Fails if a thread has made a request or sleeps. A thread that finds the lock biased also
        // finds the mark.
        if self.word.compare_exchange(TAKEN, biased, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Some(mark);
        }
        mark.store(false, Ordering::Relaxed);
        None
    }

    /// Enters, and waits until no other thread is inside.
    pub fn enter(&self) -> BiasedLockGuard<'_, T> {
        self.try_enter().unwrap_or_else(|| self.await_entry())
    }

    #[cold]
    fn await_entry(&self) -> BiasedLockGuard<'_, T> {
        let mut asleep = self.lock();
        loop {
            let before = self.word.fetch_or(TAKEN | AWAITED, Ordering::Acquire);
            if before & TAKEN == 0 {
                return BiasedLockGuard { lock: self, mark: None };
            }
            if let Some(inside) = self.enter_by_revoking() {
                return inside;
            }
            // A thread that leaves from here on sees `AWAITED`, and wakes no thread before this one
            // sleeps.
            asleep = self.opened.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Enters as the bias owner, which this thread is according to `word`.
    #[inline]
    fn enter_as_bias_owner(&self, word: u32) -> Option<BiasedLockGuard<'_, T>> {
        // Fails if this thread is inside already.
        let mark = self.mark(word).filter(|mark| !mark.load(Ordering::Relaxed))?;
        mark.store(true, Ordering::Relaxed);
        light();
        // While this thread's mark is set, no thread makes it the bias owner again.
        if (self.word.load(Ordering::Relaxed) ^ word) & (BIASED | PLACE) == 0 {
            return Some(BiasedLockGuard { lock: self, mark: Some(mark) });
        }
        self.enter_after_all(mark)
    }

    /// Enters after the bias was revoked. The revoking thread may have taken this thread for one
    /// that is inside, so this thread must check for requests.
    #[cold]
    fn enter_after_all(&self, mark: &AtomicBool) -> Option<BiasedLockGuard<'_, T>> {
        let inside = self.claim(mark, 0);
        mark.store(false, Ordering::Release);
        inside
    }

    /// Leaves after the bias was revoked: as any other holder, unless the revoking thread has seen
    /// this thread leave, and is inside.
    #[cold]
    fn leave_after_all(&self, mark: &AtomicBool) {
        drop(self.claim(mark, 0));
    }

    #[cold]
    fn enter_by_revoking(&self) -> Option<BiasedLockGuard<'_, T>> {
        let withdrawn = |word| {
            if word & BIASED == 0 { None } else { Some(word ^ (BIASED | REVOKED | REVOKING)) }
        };
        let before =
            self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, withdrawn).ok()?;
        let mark = self.mark(before)?;
        heavy();
        // A bias owner that is inside sees the revocation when it leaves.
        let inside = if mark.load(Ordering::Acquire) { None } else { self.claim(mark, REVOKING) };
        if inside.is_none() {
            self.word.fetch_and(!REVOKING, Ordering::Release);
        }
        inside
    }

    /// Enters if the bias was revoked from the thread of this mark, and no other thread has claimed
    /// the lock since. Also clears the bits of `undo`.
    #[cold]
    fn claim(&self, mark: &AtomicBool, undo: u32) -> Option<BiasedLockGuard<'_, T>> {
        let is_its = |word| self.mark(word).is_some_and(|its| std::ptr::eq(its, mark));
        let claimed = |word| {
            if word & REVOKED != 0 && is_its(word) {
                Some(word & !(REVOKED | PLACE | undo))
            } else {
                None
            }
        };
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed).ok()?;
        let patience =
            self.patience.load(Ordering::Relaxed).saturating_mul(2).min(BIAS_PATIENCE_MAX);
        self.patience.store(patience, Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
        Some(BiasedLockGuard { lock: self, mark: None })
    }

    fn mark(&self, word: u32) -> Option<&AtomicBool> {
        self.marks.get((word >> PLACE_SHIFT) as usize)
    }

    /// Makes a request to the holder. There may be no holder by now, so the caller must try to
    /// enter too.
    pub fn ask(&self) {
        // A read-modify-write and not a store, so that requests of earlier threads are seen with
        // this one.
        self.word.fetch_or(ASKED, Ordering::AcqRel);
    }

    /// Returns `true` if a request was made and not answered. A thread that has just left sees all
    /// earlier requests.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & ASKED != 0
    }

    #[inline]
    fn leave(&self) {
        if self.word.fetch_sub(TAKEN, Ordering::Release) & AWAITED != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        // A thread that was about to sleep now sleeps, or has not checked the word yet.
        drop(self.lock());
        self.opened.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn place(&self) -> *mut T {
        #[cfg(loom)]
        return self.inside.with_mut(|inside| inside);
        #[cfg(not(loom))]
        self.inside.get()
    }
}

impl<T> BiasedLockGuard<'_, T> {
    /// Clears the request. Everything done before any of the requests is visible from here on.
    pub fn answer(&mut self) {
        self.lock.word.fetch_and(!ASKED, Ordering::AcqRel);
    }
}

impl<T> Drop for BiasedLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(mark) = self.mark else { return self.lock.leave() };
        mark.store(false, Ordering::Release);
        light();
        if self.lock.word.load(Ordering::Relaxed) & BIASED == 0 {
            self.lock.leave_after_all(mark);
        }
    }
}

impl<T> Deref for BiasedLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is in, and nobody else until `self` is dropped.
        unsafe { &*self.lock.place() }
    }
}

impl<T> DerefMut for BiasedLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed for as long as the reference lives.
        unsafe { &mut *self.lock.place() }
    }
}
