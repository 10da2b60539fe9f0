//! Gates, tried by loom.

use super::*;
use crate::models::model;
use loom::sync::Arc;
use loom::thread;

/// Each of three is in alone, and none sleeps for ever.
#[test]
fn loom_gate_lets_all_in() {
    model(2, || {
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
    model(3, || hears_questions(Gate::new(())));
}

/// The favourite does, too, although who asks does not wait for it.
#[test]
fn loom_gate_hears_what_its_favourite_is_asked() {
    model(4, || {
        let gate = Gate::new(());
        drop(enter_often(&gate));
        hears_questions(gate);
    });
}

fn hears_questions(gate: Gate<()>) {
    let gate = Arc::new(gate);
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
}

fn enter_often<T>(gate: &Gate<T>) -> Inside<'_, T> {
    gate.try_enter_often().unwrap_or_else(|| gate.enter())
}

/// The favourite goes in and out while another withdraws the favour: one at a time is inside, and
/// it opens when all are out.
#[test]
fn loom_gate_takes_its_favour_back() {
    model(4, || {
        let gate = Arc::new(Gate::new(0));
        *enter_often(&gate) += 1;
        let other = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || look_in(&gate))
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

/// Two look in while the favourite comes and goes, which nobody waits for.
#[test]
fn loom_gate_opens_after_all_who_look_in() {
    model(3, || {
        let gate = Arc::new(Gate::new(0));
        *enter_often(&gate) += 1;
        let others = [(); 2].map(|()| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || look_in(&gate))
        });
        let entered = 1 + look_in(&gate) + look_in(&gate);
        let entered: u32 =
            entered + others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        assert_eq!(*gate.try_enter().unwrap(), entered);
    });
}

fn look_in(gate: &Gate<u32>) -> u32 {
    gate.try_enter_often().map_or(0, |mut inside| {
        *inside += 1;
        1
    })
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
