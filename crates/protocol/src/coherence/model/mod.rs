//! Model check of shared memory. Random race-free programs run on the real
//! [`Coherence`](crate::coherence::Coherence) of two or three nodes, in every order of events that
//! Wind permits.
//!
//! Small programs are checked *exhaustively* by a model checker (stateright), up to a number of
//! states. Larger ones run in random orders. A read must return what a sequential machine would
//! return, a lock has one holder, no barrier ends before all nodes have called it, nobody waits for
//! ever, and in the end the homes hold what was written (COH-1.1, COH-3.6, COH-3.7, COH-4.4,
//! COH-5.4, COH-5.5, COH-6.4, COH-6.5, COH-7.1, COH-7.3, COH-7.4). In some programs, homes move
//! (COH-11.1 to 11.6).
//!
//! Deaths, refusals, guards that outlive an acquire, and machines that fail are not modelled. The
//! tests in `tests/coherence` have them.

#[cfg(feature = "planted-bugs")]
mod bugs;
mod check;
mod digest;
mod machine;
mod program;
mod world;

use alloc::vec::Vec;
use check::{Bounds, Case, check_all, replay};
use program::Shape;
use world::Settling;

/// Number of states of one program that `cargo test` looks at.
const STATES: usize = 40_000;
/// Number of states of one program that a soak looks at.
const STATES_LONG: usize = 400_000;

const SHAPE: Shape = Shape { nodes: 3, threads: 1, phases: 1, cells: 2, rovers: 0.0, moves: 0.0 };

const ALL: Case = Case {
    name: "three",
    shape: SHAPE,
    settling: Settling::AtDelivery,
    bounds: Bounds::States(STATES),
};

/// Programs whose schedules are all run, up to a number of states.
const SMALL: [Case; 6] = [
    ALL,
    Case { name: "two", shape: Shape { nodes: 2, phases: 2, cells: 3, ..SHAPE }, ..ALL },
    Case {
        name: "settled",
        shape: Shape { nodes: 2, ..SHAPE },
        settling: Settling::Anytime,
        ..ALL
    },
    Case { name: "phases", shape: Shape { phases: 2, ..SHAPE }, ..ALL },
    Case { name: "threads", shape: Shape { nodes: 2, threads: 2, rovers: 0.5, ..SHAPE }, ..ALL },
    Case { name: "moves", shape: Shape { nodes: 2, moves: 1.0, ..SHAPE }, ..ALL },
];

const RANDOM: Case = Case {
    name: "walks",
    shape: Shape { phases: 3, cells: 4, rovers: 0.3, ..SHAPE },
    settling: Settling::Anytime,
    bounds: Bounds::Walks(20),
};

/// Programs that run in random orders.
const WALKS: [Case; 6] = [
    RANDOM,
    Case { name: "late", shape: Shape { cells: 2, rovers: 1.0, ..RANDOM.shape }, ..RANDOM },
    Case { name: "two-walks", shape: Shape { nodes: 2, ..RANDOM.shape }, ..RANDOM },
    Case { name: "threaded-walks", shape: Shape { threads: 2, ..RANDOM.shape }, ..RANDOM },
    MOVING,
    Case {
        name: "two-moving-walks",
        shape: Shape { nodes: 2, threads: 2, ..MOVING.shape },
        ..MOVING
    },
];

/// Programs whose homes move, with threads that take part in no barrier.
const MOVING: Case = Case {
    name: "moving-walks",
    shape: Shape { rovers: 0.7, moves: 1.0, ..RANDOM.shape },
    ..RANDOM
};

/// COH-1.1, COH-3.6, COH-3.7, COH-4.4, COH-5.4, COH-5.5, COH-6.4, COH-7.1, COH-7.3.
#[test]
fn all_orders_of_small_programs_read_what_was_written() {
    for case in &SMALL {
        let sums = check_all(case, 0..8);
        assert!(sums.cut < sums.programs, "no program of {case:?} was checked as a whole");
    }
}

/// COH-1.1, COH-3.6, COH-3.7, COH-4.4, COH-5.4, COH-5.5, COH-6.5, COH-7.3, COH-7.4.
#[test]
fn random_orders_of_programs_read_what_was_written() {
    for case in &WALKS {
        let sums = check_all(case, 0..120);
        let seen = [sums.reread, sums.overtaking, sums.stale, sums.updates];
        assert!(seen.iter().all(|count| *count > 0), "nothing interesting happened: {sums:?}");
        assert_eq!(sums.moves > 0, case.shape.moves > 0.0, "{sums:?}");
    }
}

/// Checks more programs, each in more orders.
#[test]
#[ignore = "hours: in release, by cargo xtask soak"]
fn programs_of_shared_memory_for_long() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let (first, seeds) = (number("OIKAZE_MODEL_FIRST", 0), number("OIKAZE_MODEL_SEEDS", 1_000));
    for case in &WALKS {
        check_all(case, first..first + seeds);
    }
    for case in SMALL {
        let case = Case { bounds: Bounds::States(STATES_LONG), ..case };
        check_all(&case, first..first + seeds.div_ceil(100));
    }
}

/// Runs one schedule again, which a violation has printed.
#[test]
#[ignore = "needs a schedule in OIKAZE_MODEL"]
fn one_schedule_again() {
    let schedule = std::env::var("OIKAZE_MODEL").expect("OIKAZE_MODEL names a schedule");
    let cases: Vec<Case> = SMALL.into_iter().chain(WALKS).collect();
    if let Err(what) = replay(&schedule, &cases) {
        panic!("{what}");
    }
}
