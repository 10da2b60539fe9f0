//! Marks and ends, tried by loom: with a fence on each side, and with both made by the side that ends.
//!
//! What `membarrier` does is modelled as what it promises: somewhere in the other thread's steps, between the call's begin and its end, that
//! thread passes a full fence. Each place where that can be is a model of its own.

use super::{Hazard, PLACES};
use crate::models::model;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;

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

    /// The fence of the side that ends something.
    pub fn heavy(&self) {
        fence(Ordering::SeqCst);
        self.asked.store(true, Ordering::Release);
        wait_for(&self.passed);
        fence(Ordering::SeqCst);
    }

    /// The other side is at this step; the fence falls here if it falls at step `at`.
    pub fn step(&self, at: usize, step: usize) {
        if at == step {
            wait_for(&self.asked);
            fence(Ordering::SeqCst);
            self.passed.store(true, Ordering::Release);
        }
    }
}

/// Steps of who goes in between which a fence can fall.
pub(crate) const STEPS: usize = 5;

/// Who has got in uses what who ends it uses when nobody is inside: loom tells if they meet.
fn one_inside_one_ends(place: Option<usize>, fence_at: Option<usize>) {
    model(3, move || {
        let shared = Arc::new((Hazard::default(), UnsafeCell::new(0)));
        let interruption = Interruption::new();
        let inside = {
            let (shared, interruption) = (Arc::clone(&shared), Arc::clone(&interruption));
            thread::spawn(move || {
                let (hazard, used) = &*shared;
                let step = |step| fence_at.iter().for_each(|at| interruption.step(*at, step));
                step(0);
                let light = || if fence_at.is_some() { step(1) } else { fence(Ordering::SeqCst) };
                let inside = hazard.enter_by(place, light);
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
        let (hazard, used) = &*shared;
        hazard.end_by(|| if fence_at.is_some() { interruption.heavy() } else { fence(Ordering::SeqCst) });
        while hazard.is_ending() {
            thread::yield_now();
        }
        // SAFETY: nobody gets in any more, and nobody is inside.
        used.with_mut(|used| unsafe { *used += 1 });
        inside.join().unwrap();
    });
}

#[test]
fn loom_hazard_with_fences_on_both_sides() {
    [None, Some(PLACES - 1)].into_iter().for_each(|place| one_inside_one_ends(place, None));
}

#[test]
fn loom_hazard_with_fences_of_who_ends() {
    for at in 0..STEPS {
        [None, Some(PLACES - 1)].into_iter().for_each(|place| one_inside_one_ends(place, Some(at)));
    }
}
