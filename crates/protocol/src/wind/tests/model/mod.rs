//! Model check of the three classes over a channel that loses, repeats and reorders. It is
//! *exhaustive* within bounds: every order in which two nodes can post, send, receive and let
//! timers run, for every assignment of classes to three messages.
//!
//! A model checker (stateright) drives the real [`Connection`](crate::wind::Connection), not a copy
//! of its rules. A state is two connections and the datagrams between them, and an action is one
//! call of the connection's own interface. The window holds two datagrams.
//!
//! The layer above (`watcher`) checks the promises of spec/wind.md: WIND-2.1 (once, unaltered),
//! WIND-2.3 (the table of pairs), WIND-2.8 to 2.11 (waiting, refusing, withdrawing, place then
//! tell), and WIND-4.4, 4.5 and 4.8 (outcomes, true when reported). Every run also ends with
//! everything settled, so that nothing waits in vain (WIND-5.5, WIND-4.6).
//!
//! Altered datagrams are not modelled, because the seal turns them into lost ones (WIND-3.4,
//! WIRE-5.3).

#[cfg(feature = "planted-bugs")]
mod bugs;
mod node;
mod scenario;
mod watcher;
mod world;

use scenario::{Fate, Scenario, every_class};
use stateright::{Checker, HasDiscoveries, Model};
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use world::{Faults, OVERTAKES, Pair, Posts};

/// Scenarios that differ only in the classes, and the number of faults in each.
#[derive(Clone, Copy, Debug)]
struct Case {
    what: &'static str,
    /// Sender of each message.
    from: [usize; 3],
    /// Whether each message is fragmented.
    long: [bool; 3],
    /// Fate of the first message.
    fate: Fate,
    posts: Posts,
    faults: Faults,
}

const ONE_WAY: Case = Case {
    what: "one way",
    from: [0; 3],
    long: [false; 3],
    fate: Fate::Taken,
    posts: Posts::AtFirst,
    faults: Faults { losses: 2, repeats: 0, early: 0, cancels: 0 },
};
const LATE: Faults = Faults { losses: 0, repeats: 0, early: 1, cancels: 0 };
const LOST_ONCE: Faults = Faults { losses: 1, ..LATE };

/// Cases that `make test` checks.
const CASES: [Case; 9] = [
    Case { faults: Faults { repeats: 1, ..ONE_WAY.faults }, ..ONE_WAY },
    Case { what: "both ways", from: [0, 0, 1], ..ONE_WAY },
    Case { what: "the first in fragments", long: [true, false, false], ..ONE_WAY },
    Case { what: "the last in fragments", long: [false, false, true], ..ONE_WAY },
    Case { what: "late", faults: LATE, ..ONE_WAY },
    Case {
        what: "posted at any time",
        posts: Posts::Anytime,
        faults: Faults { early: 0, ..LOST_ONCE },
        ..ONE_WAY
    },
    Case {
        what: "taken back",
        long: [true, false, false],
        faults: Faults { losses: 0, repeats: 0, early: 0, cancels: 1 },
        ..ONE_WAY
    },
    Case { what: "refused", fate: Fate::RefusedAtDelivery, ..ONE_WAY },
    Case {
        what: "refused at its beginning",
        fate: Fate::RefusedAtOnce,
        long: [true, false, false],
        faults: Faults { losses: 1, ..ONE_WAY.faults },
        ..ONE_WAY
    },
];

impl Case {
    fn scenarios(&self) -> Vec<Arc<Scenario>> {
        let with_fate = |mut scenario: Scenario| {
            scenario.0[0].fate = self.fate;
            Arc::new(scenario)
        };
        every_class(&self.from, &self.long).into_iter().map(with_fate).collect()
    }

    /// Checks the whole case. Returns the number of distinct states, or what was found.
    fn check(&self) -> Result<usize, String> {
        let began = std::time::Instant::now();
        let pair = Pair { scenarios: self.scenarios(), posts: self.posts, faults: self.faults };
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        // Depth first keeps only the states of one path waiting. Breadth first keeps as many as fit
        // into memory.
        let checker = pair
            .checker()
            .threads(threads)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_dfs()
            .join();
        let mut found = checker.discoveries();
        let overtaken = found.remove(OVERTAKES).is_some();
        if let Some((name, path)) = found.into_iter().next() {
            let state = path.last_state();
            let (scenario, broken) = (state.scenario.clone(), state.broken().unwrap_or_default());
            return Err(format!(
                "{}: not so: {name}. {broken} {scenario:#?} {:#?}",
                self.what,
                path.into_actions()
            ));
        }
        if !overtaken {
            return Err(format!("{}: nothing was ever overtaken", self.what));
        }
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        std::eprintln!(
            "{}: {states} states, at most {depth} steps, {:.1?}",
            self.what,
            began.elapsed()
        );
        Ok(states)
    }
}

/// Checks all cases and returns the sum of their states.
fn check_all(cases: impl IntoIterator<Item = Case>) -> usize {
    cases.into_iter().map(|case| case.check().unwrap_or_else(|found| panic!("{found}"))).sum()
}

#[test]
fn all_classes_with_a_datagram_lost() {
    check_all([Case { faults: Faults { losses: 1, ..Faults::default() }, ..ONE_WAY }]);
}

#[test]
#[ignore = "millions of states: in release, by cargo xtask test"]
fn all_classes_exhaustively() {
    let states = check_all(CASES);
    std::eprintln!("model: {states} states");
}

/// Checks all cases with larger bounds.
#[test]
#[ignore = "many millions of states: in release, by cargo xtask soak"]
fn all_classes_for_long() {
    let more = |case: Case| match case.long {
        [false, false, false] => {
            Case { faults: Faults { losses: 2, repeats: 1, ..case.faults }, ..case }
        }
        _ => case,
    };
    // With two lanes, the fragmented cases already have millions of states. There one datagram is
    // repeated instead of a second one being lost.
    let repeated =
        CASES.into_iter().filter(|case| case.long.contains(&true) && case.faults.losses == 2);
    let repeated = repeated
        .map(|case| Case { faults: Faults { losses: 1, repeats: 1, ..case.faults }, ..case });
    let states = check_all(CASES.map(more).into_iter().chain(repeated));
    std::eprintln!("model: {states} states");
}
