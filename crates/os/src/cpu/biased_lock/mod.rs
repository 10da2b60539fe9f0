//! A lock that is held for moments, and whose holder can be asked for more while it is inside.
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
//! A thread that enters [often](BiasedLock::try_enter_often), for moments, while no other does,
//! becomes the *bias owner*: it leaves the word taken, and marks by plain stores whether it is
//! inside (biased locking: Dice, Moir and Scherer, Quickly Reacquirable Locks, 2003). Another
//! thread that wants to enter revokes the bias and makes the bias owner's fence as in
//! [`crate::hazard`]. If the bias owner is outside then, it stays outside. Otherwise it finds the
//! bias revoked when it leaves, opens the lock, wakes the sleepers and checks for requests.
//! `try_enter` never waits for the bias owner, which may be blocked on the caller. Each revocation
//! takes some microseconds, and makes the next bias harder to get.

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

/// Somebody is in, or need not ask to be.
const TAKEN: u32 = 1;
/// Somebody has asked for something.
const ASKED: u32 = 2;
/// Somebody may sleep until it is open.
const AWAITED: u32 = 4;
/// It is taken for the bias owner, inside or not, whose place stands above.
const BIASED: u32 = 8;
/// It was, and is taken for whoever [claims](BiasedLock::claim) it first: one who wants to go in,
/// and has seen the bias owner out, or the bias owner.
const REVOKED: u32 = 16;
/// Who has withdrawn it still looks whether the bias owner is out. There is none meanwhile: what is
/// seen of the mark tells nothing of a later bias.
const REVOKING: u32 = 32;
const PLACE_SHIFT: u32 = 8;
const PLACE: u32 = !0 << PLACE_SHIFT;

/// With so much of it, some microseconds for each withdrawal are not felt.
const PATIENCE_MAX: u32 = 1 << 16;

/// What one thread at a time is in.
pub struct BiasedLock<T> {
    word: AtomicU32,
    /// Is the thread of this place inside as the bias owner? Written by that thread.
    marks: [AtomicBool; PLACES],
    /// Whose place came often last, how many times one after another, and how many it takes.
    /// Written by who is in.
    latest: AtomicU32,
    streak: AtomicU32,
    patience: AtomicU32,
    may_bias: bool,
    inside: UnsafeCell<T>,
    /// Held by who says that it sleeps, and by who wakes it.
    asleep: Mutex<()>,
    opened: Condvar,
}

/// Being in, until dropped; also by a panic.
pub struct BiasedLockGuard<'g, T> {
    lock: &'g BiasedLock<T>,
    /// The bias owner's.
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
    /// Open.
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

    /// Unless somebody is in.
    #[inline]
    pub fn try_enter(&self) -> Option<BiasedLockGuard<'_, T>> {
        let word = self.word.load(Ordering::Relaxed);
        if is_biased_to_this_thread(word) {
            return self.enter_as_bias_owner(word);
        }
        if word & BIASED != 0 {
            return self.enter_by_revoking();
        }
        // Seen late, this says that somebody is in who has just left: so it would have been a
        // moment ago.
        if word & TAKEN != 0 {
            return None;
        }
        match self.word.fetch_or(TAKEN, Ordering::Acquire) {
            before if before & TAKEN == 0 => Some(BiasedLockGuard { lock: self, mark: None }),
            before if before & BIASED != 0 => self.enter_by_revoking(),
            _ => None,
        }
    }

    /// The same, for a thread that comes again soon, and stays for a moment: it may become the
    /// bias owner.
    #[inline]
    pub fn try_enter_often(&self) -> Option<BiasedLockGuard<'_, T>> {
        let word = self.word.load(Ordering::Relaxed);
        if is_biased_to_this_thread(word) {
            return self.enter_as_bias_owner(word);
        }
        self.enter_and_take_bias()
    }

    /// Apart, for the bias owner's sake: what is not called has nothing to save.
    #[inline(never)]
    fn enter_and_take_bias(&self) -> Option<BiasedLockGuard<'_, T>> {
        let mut inside = self.try_enter()?;
        if inside.mark.is_none() {
            inside.mark = self.take_bias();
        }
        Some(inside)
    }

    /// This thread, which is in, is the bias owner from now on, if none but it came often for long:
    /// its mark.
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
        // Not if somebody has asked or sleeps. Who finds it biased finds the mark.
        if self.word.compare_exchange(TAKEN, biased, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Some(mark);
        }
        mark.store(false, Ordering::Relaxed);
        None
    }

    /// Wait until nobody is.
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
            // Who leaves from here on sees that it is awaited, and wakes nobody before this thread
            // sleeps.
            asleep = self.opened.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// This thread is the bias owner, as of this word.
    #[inline]
    fn enter_as_bias_owner(&self, word: u32) -> Option<BiasedLockGuard<'_, T>> {
        // Twice at once it is not inside.
        let mark = self.mark(word).filter(|mark| !mark.load(Ordering::Relaxed))?;
        mark.store(true, Ordering::Relaxed);
        light();
        // While this thread is none, nobody makes it the bias owner again.
        if (self.word.load(Ordering::Relaxed) ^ word) & (BIASED | PLACE) == 0 {
            return Some(BiasedLockGuard { lock: self, mark: Some(mark) });
        }
        self.enter_after_all(mark)
    }

    /// Not as the bias owner any more. Who has revoked the bias may have taken this thread for
    /// one that is inside, and looks what it was asked.
    #[cold]
    fn enter_after_all(&self, mark: &AtomicBool) -> Option<BiasedLockGuard<'_, T>> {
        let inside = self.claim(mark, 0);
        mark.store(false, Ordering::Release);
        inside
    }

    /// The same, on the way out: unless who has revoked the bias has seen that, and is in,
    /// leave as anybody does.
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
        // If it is inside, it sees the bias revoked when it leaves.
        let inside = if mark.load(Ordering::Acquire) { None } else { self.claim(mark, REVOKING) };
        if inside.is_none() {
            self.word.fetch_and(!REVOKING, Ordering::Release);
        }
        inside
    }

    /// Be in, and then undo this, if the bias was revoked from the thread of this mark, and
    /// nobody else has claimed what was taken for it.
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
        let patience = self.patience.load(Ordering::Relaxed).saturating_mul(2).min(PATIENCE_MAX);
        self.patience.store(patience, Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
        Some(BiasedLockGuard { lock: self, mark: None })
    }

    fn mark(&self, word: u32) -> Option<&AtomicBool> {
        self.marks.get((word >> PLACE_SHIFT) as usize)
    }

    /// Ask whoever is in. It may be nobody by now: the caller must try to enter, too.
    pub fn ask(&self) {
        // Not a store: what earlier ones have asked is known with this, too.
        self.word.fetch_or(ASKED, Ordering::AcqRel);
    }

    /// Has somebody asked, and nobody answered? Who has just left sees all that was asked before.
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
        // Who was about to sleep does by now, or has not looked yet.
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
    /// Take back what was asked: all that was done before any of the questions is seen from here
    /// on.
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
