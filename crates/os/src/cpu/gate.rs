//! A lock for what one thread at a time is in for a moment, which others can ask for more while it is taken.
//!
//! Lock, question and sleepers are bits of one word. Whoever is about to change something shares no cache line but this with others, and goes in
//! and out by one locked instruction each: such an instruction waits until all that was stored before has reached the cache, whoever has the lines.
//!
//! All that is done to one word has one order, and a thread that has done something to it sees that or what came later. So one who asks and
//! then finds the word taken has asked before the holder leaves; and a holder that has left finds the question by a mere load, or it came
//! after, when it was open. No fence is needed for that.

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
    sync::{Condvar, Mutex},
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
    sync::{Condvar, Mutex},
};

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// Somebody is in.
const TAKEN: u32 = 1;
/// Somebody has asked for something.
const ASKED: u32 = 2;
/// Somebody may sleep until it is open.
const AWAITED: u32 = 4;

/// What one thread at a time is in.
pub struct Gate<T> {
    word: AtomicU32,
    inside: UnsafeCell<T>,
    /// Held by who says that it sleeps, and by who wakes it.
    asleep: Mutex<()>,
    opened: Condvar,
}

/// Being in, until dropped; also by a panic.
pub struct Inside<'g, T> {
    gate: &'g Gate<T>,
}

// SAFETY: `inside` is reached by one thread at a time, through `Inside`.
unsafe impl<T: Send> Sync for Gate<T> {}

// SAFETY: a shared `Inside` gives out nothing but a shared reference to what is inside.
unsafe impl<T: Sync> Sync for Inside<'_, T> {}

impl<T> Gate<T> {
    /// Open.
    pub fn new(inside: T) -> Gate<T> {
        let (word, inside) = (AtomicU32::new(0), UnsafeCell::new(inside));
        Gate { word, inside, asleep: Mutex::new(()), opened: Condvar::new() }
    }

    /// Unless somebody is in.
    #[inline]
    pub fn try_enter(&self) -> Option<Inside<'_, T>> {
        // Seen late, this says that somebody is in who has just left: so it would have been a moment ago.
        let is_taken = self.word.load(Ordering::Relaxed) & TAKEN != 0;
        (!is_taken && self.take(0)).then(|| Inside { gate: self })
    }

    /// Wait until nobody is.
    pub fn enter(&self) -> Inside<'_, T> {
        self.try_enter().unwrap_or_else(|| self.await_entry())
    }

    #[cold]
    fn await_entry(&self) -> Inside<'_, T> {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.take(AWAITED) {
            // Who leaves from here on sees that it is awaited, and wakes nobody before this thread sleeps.
            asleep = self.opened.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        Inside { gate: self }
    }

    /// Take it if it is open, and set these bits.
    #[inline]
    fn take(&self, also: u32) -> bool {
        self.word.fetch_or(TAKEN | also, Ordering::Acquire) & TAKEN == 0
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

    #[cold]
    fn wake(&self) {
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        // Who was about to sleep does by now, or has not looked yet.
        drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.opened.notify_all();
    }

    #[inline]
    fn place(&self) -> *mut T {
        #[cfg(loom)]
        return self.inside.with_mut(|inside| inside);
        #[cfg(not(loom))]
        self.inside.get()
    }
}

impl<T> Inside<'_, T> {
    /// Take back what was asked: all that was done before any of the questions is seen from here on.
    pub fn answer(&mut self) {
        self.gate.word.fetch_and(!ASKED, Ordering::AcqRel);
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.gate.word.fetch_sub(TAKEN, Ordering::Release) & AWAITED != 0 {
            self.gate.wake();
        }
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is in, and nobody else until `self` is dropped.
        unsafe { &*self.gate.place() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed for as long as the reference lives.
        unsafe { &mut *self.gate.place() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn one_at_a_time_is_in_and_is_asked() {
        let gate = Gate::new(1);
        let mut inside = gate.enter();
        assert!(gate.try_enter().is_none() && !gate.is_asked());
        gate.ask();
        gate.ask();
        *inside += 1;
        drop(inside);
        assert!(gate.is_asked());
        let mut inside = gate.try_enter().unwrap();
        inside.answer();
        assert_eq!((*inside, gate.is_asked()), (2, false));
    }

    #[test]
    fn who_panics_inside_leaves() {
        let gate = Gate::new(());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _inside = gate.enter();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err() && gate.try_enter().is_some());
    }

    #[test]
    fn who_waits_gets_in() {
        let gate = Gate::new(0);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..10_000).for_each(|_| *gate.enter() += 1));
            }
        });
        assert_eq!((*gate.enter(), gate.word.load(Ordering::Relaxed) & !AWAITED), (40_000, TAKEN));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::models::model;
    use loom::sync::Arc;
    use loom::thread;

    /// Each of three is in alone, and none sleeps for ever.
    #[test]
    fn loom_gate_lets_all_in() {
        model(3, || {
            let gate = Arc::new(Gate::new(0));
            let others = [(); 2].map(|()| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || *gate.enter() += 1)
            });
            *gate.enter() += 1;
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(*gate.enter(), 3);
        });
    }

    /// Who asks and finds it taken is heard by who leaves, who then sees what was done before.
    #[test]
    fn loom_gate_hears_questions() {
        model(3, || {
            let gate = Arc::new(Gate::new(()));
            let asked = Arc::new(AtomicU32::new(0));
            let other = {
                let (gate, asked) = (Arc::clone(&gate), Arc::clone(&asked));
                thread::spawn(move || {
                    asked.store(1, Ordering::Relaxed);
                    gate.ask();
                    gate.try_enter().is_none()
                })
            };
            drop(gate.enter());
            let heard = gate.is_asked();
            if heard {
                gate.enter().answer();
                assert_eq!(asked.load(Ordering::Relaxed), 1);
            }
            assert!(!other.join().unwrap() || heard);
        });
    }
}
