//! The three classes over a channel that loses, repeats and reorders, *exhaustively*: every order
//! in which two nodes can post, send, receive and let timers run, for every assignment of classes
//! to three messages, within bounds.
//!
//! A model checker (stateright) drives the real [`Connection`](crate::wind::Connection), not a copy
//! of its rules: a state is two connections and the datagrams between them, an action is one call
//! of the connection's own interface. The window holds two datagrams. What must hold is what
//! spec/wind.md promises, checked by the layer above (`watcher`): WIND-2.1 (once, unaltered),
//! WIND-2.3 (the table of pairs), WIND-2.8 to 2.11 (waiting, refusing, taking back, place then
//! tell), WIND-4.4, 4.5 and 4.8 (outcomes, true when told); and that every run ends with everything
//! settled, so that nothing is ever waited for in vain (WIND-5.5, WIND-4.6).
//!
//! Altered datagrams are not modelled: the seal makes them lost ones (WIND-3.4, WIRE-5.3).

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

/// Scenarios that have all but the classes in common, and how much may go wrong in each.
#[derive(Clone, Copy, Debug)]
struct Case {
    what: &'static str,
    /// Who posts each message.
    from: [usize; 3],
    /// Which are in fragments.
    long: [bool; 3],
    /// What becomes of the first.
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

/// What `make test` checks.
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

    /// All of it; distinct states, or what was found.
    fn check(&self) -> Result<usize, String> {
        let began = std::time::Instant::now();
        let pair = Pair { scenarios: self.scenarios(), posts: self.posts, faults: self.faults };
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        // Depth first, the states that wait are those of one path: breadth first, as many as the
        // memory holds.
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

/// Checks all cases; the sum of their states.
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

/// Larger bounds.
#[test]
#[ignore = "many millions of states: in release, by cargo xtask soak"]
fn all_classes_for_long() {
    let more = |case: Case| match case.long {
        [false, false, false] => {
            Case { faults: Faults { losses: 2, repeats: 1, ..case.faults }, ..case }
        }
        _ => case,
    };
    // With two lanes, those with fragments have millions of states as they are: one goes twice,
    // then, instead of a second one that is lost.
    let repeated =
        CASES.into_iter().filter(|case| case.long.contains(&true) && case.faults.losses == 2);
    let repeated = repeated
        .map(|case| Case { faults: Faults { losses: 1, repeats: 1, ..case.faults }, ..case });
    let states = check_all(CASES.map(more).into_iter().chain(repeated));
    std::eprintln!("model: {states} states");
}
