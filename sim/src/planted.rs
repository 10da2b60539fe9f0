//! Hunts for planted bugs, to check that the simulator notices them.

use crate::hunt::{Hunt, hunt};
use crate::plan::Scenario;
use crate::run::Outcome;
use oikaze_protocol::planted::{Bug, plant};

/// Returns all bugs that the simulator must catch. Others are left to the tests of the protocol:
/// bugs of updates, those of multicast, those of locks that are passed on, those of moving homes,
/// those of barriers in arenas, those of messages that are read late (COH-10.21), and those of late
/// intervals (COH-6.5), because all threads of a simulated node enter a collective together.
pub fn catchable() -> impl Iterator<Item = Bug> {
    let is_beyond = |bug: &Bug| {
        matches!(bug, Bug::LoseLateInterval | Bug::TrustTwinOfRead)
            || Bug::OF_UPDATES.contains(bug)
            || Bug::OF_ARENAS.contains(bug)
            || Bug::OF_LOCKS.contains(bug)
            || Bug::OF_GRANTS.contains(bug)
            || Bug::OF_NOTIFICATIONS.contains(bug)
            || Bug::OF_DEPARTURES.contains(bug)
            || Bug::OF_MOVING_HOMES.contains(bug)
            || Bug::OF_MULTICAST.contains(bug)
            || Bug::OF_FORGERIES.contains(bug)
    };
    Bug::ALL.into_iter().filter(move |bug| !is_beyond(bug))
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
