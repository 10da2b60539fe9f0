//! Hunts for planted bugs, to check that the simulator notices them.

use crate::hunt::{Hunt, hunt};
use crate::plan::Scenario;
use crate::run::Outcome;
use oikaze_protocol::planted::{Bug, plant};

/// Bugs that only the tests of the protocol catch. In the simulator, all threads of a node enter a
/// collective together, so no interval is late (COH-6.5). Bugs of updates need schedules that the
/// model of shared memory and the random programs of the protocol choose.
const BEYOND: [Bug; 13] = [
    Bug::LoseLateInterval,
    Bug::ReorderUpdates,
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
];

/// Returns all bugs that the simulator must catch.
pub fn catchable() -> impl Iterator<Item = Bug> {
    Bug::ALL.into_iter().filter(|bug| !BEYOND.contains(bug))
}

/// Result of the hunt for one planted bug.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Bug that was planted.
    pub bug: Bug,
    /// Run that found the bug, and the number of runs before it.
    pub by: Option<(Outcome, u64)>,
}

/// Plants a bug in this process, hunts it with at most `seeds` seeds, and removes it. A process can
/// hunt only one bug at a time, because the switch is global.
#[must_use]
pub fn seek(bug: Bug, from: u64, seeds: u64, jobs: usize) -> Caught {
    plant(Some(bug));
    let hunted =
        hunt(&Hunt { from, seeds, jobs, scenario: scenario_of(bug), stop_at_first: true }, |_| {});
    plant(None);
    let by = hunted.failures.into_iter().next().map(|outcome| {
        let tried = outcome.seed - from;
        (outcome, tried)
    });
    Caught { bug, by }
}

/// Returns the scenario in which a bug is likeliest to show.
fn scenario_of(bug: Bug) -> Option<Scenario> {
    Some(match bug {
        Bug::CompleteBeforePlaced | Bug::RepeatAtomic | Bug::SignalBeforeData => Scenario::Memory,
        Bug::SkipInvalidation
        | Bug::LoseDiff
        | Bug::GrantLockTwice
        | Bug::ReleaseBarrierEarly
        | Bug::ForgetStaleFetch
        | Bug::ForgetSubtree
        | Bug::CombineOutOfOrder
        | Bug::ForgetEarlyArrival => Scenario::Shared,
        Bug::KeepNumbersOfDead | Bug::ForgetKeepalive | Bug::NoticeDeathLate => Scenario::Kill,
        Bug::TellRefusalsOnce
        | Bug::ForgetRights
        | Bug::CheckFirstByte
        | Bug::IgnorePages
        | Bug::MisplaceRow => Scenario::Memory,
        Bug::IgnoreFence | Bug::EndFlushEarly | Bug::HoldForFailed => Scenario::Memory,
        Bug::KeepRegion | Bug::KeepAnswering | Bug::ForgetKept | Bug::RefuseBegun => {
            Scenario::Memory
        }
        Bug::ForgetPending => Scenario::Deaths,
        Bug::TrustDoubts | Bug::ForgetProbed | Bug::RepeatTooLittle => Scenario::Fire,
        Bug::DeliverOrderedEarly | Bug::IgnoreClassRule | Bug::AcceptDuplicateMessage => {
            Scenario::Messages
        }
        _ => return None,
    })
}

/// Returns the bug of this name on the command line.
#[must_use]
pub fn by_name(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name))
}
