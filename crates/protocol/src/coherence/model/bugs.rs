//! The model finds bugs that are planted in coherence.

use super::check::{Case, Sums};
use super::{SMALL, WALKS};
use crate::planted::{Bug, plant};
use alloc::vec::Vec;

/// Bugs beside those of updates that random schedules find. The first four are also found where all
/// schedules are run.
const BUGS: [Bug; 7] = [
    Bug::SkipInvalidation,
    Bug::LoseDiff,
    Bug::GrantLockTwice,
    Bug::ReleaseBarrierEarly,
    Bug::ForgetStaleFetch,
    Bug::LoseLateInterval,
    Bug::ForgetEarlyArrival,
];

/// Bugs that these programs show too rarely. `tests/planted_coherence` finds them.
const RARE: [Bug; 4] = [
    Bug::ApplyKnownUpdate,
    Bug::TellEarlyPages,
    Bug::ForgetStoresOfOldHome,
    Bug::KeepLatePagesPrivate,
];

/// Returns the first seed of a violation, and the length of its schedule.
fn first(bug: Bug, cases: &[Case], seeds: u64) -> Option<(&'static str, u64, usize)> {
    let all = (0..seeds).flat_map(|seed| cases.iter().map(move |case| (case, seed)));
    all.into_iter().find_map(|(case, seed)| {
        plant(Some(bug));
        let violation = case.check(seed, &mut Sums::default()).err()?;
        plant(None);
        // Without the bug, the program is right.
        let sound = case.check(seed, &mut Sums::default());
        sound.is_ok().then_some((case.name, seed, violation.schedule.len()))
    })
}

#[test]
#[ignore = "plants bugs in the whole process: by cargo xtask test, one test at a time"]
fn bugs_are_found() {
    let mut missed = Vec::new();
    let random = BUGS
        .iter()
        .chain(&Bug::OF_UPDATES)
        .chain(&Bug::OF_GRANTS)
        .chain(&Bug::OF_MOVING_HOMES)
        .filter(|bug| !RARE.contains(bug))
        .map(|bug| (bug, &WALKS[..], 150));
    let exhaustive = BUGS.iter().take(4).map(|bug| (bug, &SMALL[..], 10));
    for (bug, cases, seeds) in random.chain(exhaustive) {
        let found = first(*bug, cases, seeds);
        std::eprintln!("{bug:?}: case, seed and number of steps: {found:?}");
        if found.is_none() {
            missed.push(bug);
        }
    }
    plant(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
