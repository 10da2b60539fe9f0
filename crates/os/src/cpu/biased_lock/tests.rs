//! Tests the biased lock step by step, and with real threads.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn one_at_a_time_is_in_and_is_asked() {
    let lock = BiasedLock::new(1);
    let mut inside = lock.enter();
    assert!(lock.try_enter().is_none() && !lock.is_asked());
    lock.ask();
    lock.ask();
    *inside += 1;
    drop(inside);
    assert!(lock.is_asked());
    let mut inside = lock.try_enter().unwrap();
    inside.answer();
    assert_eq!((*inside, lock.is_asked()), (2, false));
}

#[test]
fn who_panics_inside_leaves() {
    let lock = BiasedLock::new(());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _inside = lock.enter();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err() && lock.try_enter().is_some());
}

#[test]
fn who_waits_gets_in() {
    let lock = BiasedLock::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..10_000).for_each(|_| *lock.enter() += 1));
        }
    });
    assert_eq!((*lock.enter(), lock.word.load(Ordering::Relaxed) & !AWAITED), (40_000, TAKEN));
}

#[test]
fn bias_owner_is_waited_for() {
    let lock = BiasedLock::new(0);
    let is_biased = || lock.word.load(Ordering::Relaxed) & BIASED != 0;
    for _ in 0..=PATIENCE {
        *lock.enter() += 1;
        assert!(!is_biased(), "it may stay for long");
        *lock.try_enter_often().unwrap() += 1;
    }
    assert_eq!(is_biased(), is_asymmetric());
    let inside = lock.enter();
    assert!(lock.try_enter().is_none() && lock.try_enter_often().is_none(), "not twice at once");
    std::thread::scope(|threads| {
        let other = threads.spawn(|| *lock.enter() += 1);
        while is_biased() {
            std::thread::yield_now();
        }
        assert_eq!(*inside, 2 * (PATIENCE + 1));
        drop(inside);
        other.join().unwrap();
    });
    assert_eq!(*lock.try_enter_often().unwrap(), 2 * PATIENCE + 3);
    assert!(!is_biased());
    assert!(!is_asymmetric() || lock.patience.load(Ordering::Relaxed) > PATIENCE);
}

#[test]
fn who_only_looks_in_waits_for_nobody() {
    let lock = BiasedLock::new(0);
    (0..=PATIENCE).for_each(|_| *lock.try_enter_often().unwrap() += 1);
    let look_in = || {
        std::thread::scope(|threads| threads.spawn(|| lock.try_enter().is_some()).join().unwrap())
    };
    let inside = lock.enter();
    assert!(!look_in() && !look_in());
    lock.ask();
    drop(inside);
    assert!(lock.is_asked() && look_in() && lock.try_enter().is_some());
}

#[test]
fn bias_moves_between_threads() {
    let lock = BiasedLock::new(0u64);
    std::thread::scope(|threads| {
        for often in [1, 50, 20_000] {
            let lock = &lock;
            threads.spawn(move || {
                let enter = || lock.try_enter_often().unwrap_or_else(|| lock.enter());
                for _ in 0..200_000 / often {
                    (0..often).for_each(|_| *enter() += 1);
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(*lock.enter(), 600_000);
}
