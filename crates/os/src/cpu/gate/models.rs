//! Gates, tried by loom.

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
            thread::spawn(move || *enter_often(&gate) += 1)
        });
        *enter_often(&gate) += 1;
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
        drop(enter_often(&gate));
        let heard = gate.is_asked();
        if heard {
            gate.enter().answer();
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
        assert!(!other.join().unwrap() || heard);
    });
}

fn enter_often<T>(gate: &Gate<T>) -> Inside<'_, T> {
    gate.try_enter_often().unwrap_or_else(|| gate.enter())
}

/// The favourite goes in and out while another withdraws the favour: one at a time is inside, and who is let in gets in.
#[test]
fn loom_gate_waits_for_its_favourite() {
    model(4, || {
        let gate = Arc::new(Gate::new(0));
        *enter_often(&gate) += 1;
        let other = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                gate.try_enter().map_or(0, |mut inside| {
                    *inside += 1;
                    1
                })
            })
        };
        let mut entered = 1;
        for _ in 0..2 {
            if let Some(mut inside) = gate.try_enter_often() {
                *inside += 1;
                entered += 1;
                assert!(gate.try_enter().is_none(), "not twice at once");
            }
        }
        let others = other.join().unwrap();
        assert_eq!(*gate.enter(), entered + others);
    });
}

/// Two sleep until the favourite is out, one of them for the other.
#[test]
fn loom_gate_wakes_all_who_wait_for_its_favourite() {
    model(3, || {
        let gate = Arc::new(Gate::new(0));
        drop(enter_often(&gate));
        let mut inside = gate.enter();
        let others = [(); 2].map(|()| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || *gate.enter() += 1)
        });
        *inside += 1;
        drop(inside);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*gate.enter(), 3);
    });
}
