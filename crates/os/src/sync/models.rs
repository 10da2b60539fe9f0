//! Models of marks and ends: with a fence on each side, and with both fences made by the ending
//! side.
//!
//! `membarrier` is modelled by its promise: at some step of the other thread, between the call's
//! begin and end, that thread passes a full fence. Each step where the fence can fall is a model of
//! its own.

use super::{PLACES, Rundown};
use crate::models::model;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use std::cell::Cell;

std::thread_local! {
    static NEXT: Cell<usize> = const { Cell::new(0) };
}

loom::thread_local! {
    static PLACE: usize = NEXT.replace(NEXT.get().wrapping_add(1)) % PLACES;
}

/// Gives places to two threads at a time. (Loom runs all threads of a model on one system thread,
/// so models that run at the same time do not count.)
pub(super) fn place() -> Option<usize> {
    PLACE.try_with(|place| *place).ok()
}

pub(super) fn light() {
    fence(Ordering::SeqCst);
}

pub(super) fn heavy() {
    fence(Ordering::SeqCst);
}

/// A call of `membarrier`, and the thread that it interrupts.
pub(crate) struct Interruption {
    asked: AtomicBool,
    passed: AtomicBool,
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

impl Interruption {
    pub fn new() -> Arc<Interruption> {
        Arc::new(Interruption { asked: AtomicBool::new(false), passed: AtomicBool::new(false) })
    }

    /// Makes the fence of the ending side.
    pub fn heavy(&self) {
        fence(Ordering::SeqCst);
        self.asked.store(true, Ordering::Release);
        wait_for(&self.passed);
        fence(Ordering::SeqCst);
    }

    /// Called by the other side at each step. The fence falls here if it falls at step `at`.
    pub fn step(&self, at: usize, step: usize) {
        if at == step {
            wait_for(&self.asked);
            fence(Ordering::SeqCst);
            self.passed.store(true, Ordering::Release);
        }
    }
}

/// Number of steps of the entering thread between which a fence can fall.
pub(crate) const STEPS: usize = 5;

/// The thread inside uses a value that the ending thread uses once no thread is inside. Loom
/// reports if both use it at once.
fn one_inside_one_ends(place: Option<usize>, fence_at: Option<usize>) {
    model(3, move || {
        let shared = Arc::new((Rundown::default(), UnsafeCell::new(0)));
        let interruption = Interruption::new();
        let inside = {
            let (shared, interruption) = (Arc::clone(&shared), Arc::clone(&interruption));
            thread::spawn(move || {
                let (rundown, used) = &*shared;
                let step = |step| fence_at.iter().for_each(|at| interruption.step(*at, step));
                step(0);
                let light = || if fence_at.is_some() { step(1) } else { fence(Ordering::SeqCst) };
                let inside = rundown.enter_by(place, light);
                step(2);
                if inside.is_some() {
                    // SAFETY: whoever has got in is waited for.
                    used.with_mut(|used| unsafe { *used += 1 });
                }
                step(3);
                drop(inside);
                step(4);
            })
        };
        let (rundown, used) = &*shared;
        rundown.close_by(|| {
            if fence_at.is_some() { interruption.heavy() } else { fence(Ordering::SeqCst) }
        });
        while rundown.is_draining() {
            thread::yield_now();
        }
        // SAFETY: nobody gets in any more, and nobody is inside.
        used.with_mut(|used| unsafe { *used += 1 });
        inside.join().unwrap();
    });
}

#[test]
fn loom_rundown_with_fences_on_both_sides() {
    [None, Some(PLACES - 1)].into_iter().for_each(|place| one_inside_one_ends(place, None));
}

#[test]
fn loom_rundown_with_fences_of_who_ends() {
    for at in 0..STEPS {
        [None, Some(PLACES - 1)].into_iter().for_each(|place| one_inside_one_ends(place, Some(at)));
    }
}
