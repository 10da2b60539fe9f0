//! Checks that random programs catch bugs that were planted on purpose. A process of its own,
//! because a planted bug affects the whole process.
#![cfg(feature = "planted-bugs")]

#[path = "coherence/cluster/mod.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::{locked, notified, programs};
use oikaze_protocol::planted::{Bug, plant};
use std::panic;

/// Runs a program in which this bug is likeliest to show.
fn run(bug: Option<Bug>, seed: u64) {
    match bug {
        Some(Bug::HideSubtree | Bug::OmitIfAnyListed) => {
            drop(programs::run(10 + (seed % 5) as u32, 1, seed));
        }
        Some(Bug::TellArrivedCopies) => programs::request_over_barrier(seed),
        Some(Bug::KeepLateCopies) => programs::fetch_while_waiting(seed),
        Some(Bug::IgnoreCrossedWriters) => programs::crossed_writers(seed),
        Some(bug) if Bug::OF_DEPARTURES.contains(&bug) => {
            drop(programs::run(3 + (seed % 3) as u32, 1 + (seed % 2) as usize, seed));
        }
        Some(Bug::ForgetSubtree) => drop(programs::run(10 + (seed % 3) as u32, 1, seed)),
        Some(Bug::LoseLateInterval) => programs::late_news(3 + (seed % 2) as u32, seed),
        Some(Bug::ForgetPagesToTell | Bug::ForgetDropsToTell) => {
            programs::barriers_in_an_arena(2 + (seed % 3) as u32, seed)
        }
        Some(bug) if Bug::OF_NOTIFICATIONS.contains(&bug) => {
            drop(notified::run(2 + (seed % 3) as u32, 600, seed));
        }
        Some(Bug::BreakPassedLock | Bug::TrustDeadGiver) => {
            locked::pass_and_die(seed);
        }
        Some(Bug::AwaitAbandoned) => locked::read_beside_abandoned(seed),
        Some(Bug::AskTwice) => locked::ask_in_a_loop(seed),
        Some(Bug::QueueTries) => locked::try_locks(seed),
        Some(Bug::GrantBesideReaders) => locked::read_locks(seed),
        Some(Bug::ExpectOrderedPasses) => {
            locked::run(seed);
        }
        Some(Bug::ApplyKnownUpdate) => programs::late_update(seed),
        Some(Bug::ApplyBesideUpdates) => programs::newer_update(seed),
        Some(Bug::KeepLatePagesPrivate) => programs::late_section_before_a_home(seed),
        Some(bug) if Bug::OF_GRANTS.contains(&bug) => {
            programs::sections(2 + (seed % 3) as u32, seed);
        }
        Some(Bug::ForgetStoresOfOldHome) => programs::stores_of_an_old_home(seed),
        Some(Bug::ForgetEarlyArrival) => programs::exchange(2, seed),
        Some(Bug::TrustTwinOfRead) => programs::changes_back(seed),
        _ => drop(programs::run(2 + (seed % 3) as u32, 1 + (seed % 2) as usize, seed)),
    }
}

/// Returns the first seed whose program fails.
fn first_failure(bug: Option<Bug>, seeds: u64) -> Option<u64> {
    (0..seeds).find(|seed| panic::catch_unwind(|| run(bug, *seed)).is_err())
}

/// COH-3.6. Most of these bugs break one rule of COH-10.1 to 10.10, 10.13, 10.15 or 10.21.
#[test]
fn planted_bugs_are_caught() {
    panic::set_hook(Box::new(|_| {}));
    let others = [
        Bug::SkipInvalidation,
        Bug::LoseDiff,
        Bug::GrantLockTwice,
        Bug::ReleaseBarrierEarly,
        Bug::ForgetStaleFetch,
        Bug::MiscountUpdates,
        Bug::SendUnowned,
        Bug::ShareParts,
        Bug::ForgetRenew,
        Bug::ForgetSeen,
        Bug::ApplyKnownUpdate,
        Bug::UpdateFetching,
        Bug::OmitUnshared,
        Bug::LeaveUncounted,
        Bug::SkipDiffOfGuard,
        Bug::ForgetLiveGuard,
        Bug::TrustTwinOfRead,
        Bug::ForgetSubtree,
        Bug::LoseLateInterval,
        Bug::ForgetEarlyArrival,
        Bug::ForgetPagesToTell,
        Bug::ForgetDropsToTell,
        Bug::ForgetStoresOfOldHome,
    ];
    let named =
        [&Bug::OF_NOTIFICATIONS[..], &Bug::OF_LOCKS, &Bug::OF_GRANTS, &Bug::OF_DEPARTURES].concat();
    let bugs: Vec<Bug> = others.into_iter().chain(named).collect();
    let mut caught = Vec::new();
    for &bug in &bugs {
        plant(Some(bug));
        caught.push((bug, first_failure(Some(bug), 1500)));
    }
    plant(None);
    let sound = bugs.iter().find_map(|bug| first_failure(Some(*bug), 10));
    drop(panic::take_hook());
    println!("{caught:?}");
    assert!(caught.iter().all(|(_, seed)| seed.is_some()), "{caught:?}");
    assert_eq!(sound, None);
}
