//! Gates, step by step and with real threads.

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

#[test]
fn a_favourite_is_waited_for() {
    let gate = Gate::new(0);
    let is_favoured = || gate.word.load(Ordering::Relaxed) & FAVOURED != 0;
    for _ in 0..=PATIENCE {
        *gate.enter() += 1;
        assert!(!is_favoured(), "it may stay for long");
        *gate.try_enter_often().unwrap() += 1;
    }
    assert_eq!(is_favoured(), is_asymmetric());
    let inside = gate.enter();
    assert!(gate.try_enter().is_none() && gate.try_enter_often().is_none(), "not twice at once");
    std::thread::scope(|threads| {
        let other = threads.spawn(|| *gate.enter() += 1);
        while is_favoured() {
            std::thread::yield_now();
        }
        assert_eq!(*inside, 2 * (PATIENCE + 1));
        drop(inside);
        other.join().unwrap();
    });
    assert_eq!(*gate.try_enter_often().unwrap(), 2 * PATIENCE + 3);
    assert!(!is_favoured());
    assert!(!is_asymmetric() || gate.patience.load(Ordering::Relaxed) > PATIENCE);
}

#[test]
fn who_only_looks_in_waits_for_nobody() {
    let gate = Gate::new(0);
    (0..=PATIENCE).for_each(|_| *gate.try_enter_often().unwrap() += 1);
    let look_in = || {
        std::thread::scope(|threads| threads.spawn(|| gate.try_enter().is_some()).join().unwrap())
    };
    let inside = gate.enter();
    assert!(!look_in() && !look_in());
    gate.ask();
    drop(inside);
    assert!(gate.is_asked() && look_in() && gate.try_enter().is_some());
}

#[test]
fn favours_come_and_go() {
    let gate = Gate::new(0u64);
    std::thread::scope(|threads| {
        for often in [1, 50, 20_000] {
            let gate = &gate;
            threads.spawn(move || {
                let enter = || gate.try_enter_often().unwrap_or_else(|| gate.enter());
                for _ in 0..200_000 / often {
                    (0..often).for_each(|_| *enter() += 1);
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(*gate.enter(), 600_000);
}
