//! Groups of a node as threads outside of the engine see them. The root of a broadcast looks here
//! before it makes its plan (COLL-2.7).

use oikaze_os::signals::{Locked, locked};
use oikaze_protocol::Rank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of the group of some receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// All of the receivers hear what this node sends to the group.
    Open,
    /// Some of the receivers do not hear the group, or the node uses no multicast.
    Closed,
    /// Nothing is known of these receivers. [`Request::WantGroup`](crate::Request::WantGroup)
    /// makes the engine try.
    Unknown,
}

/// A group as other threads see it.
#[derive(Debug)]
pub(crate) struct ShownGroup {
    /// Receivers for which the group was opened, sorted.
    pub receivers: Vec<Rank>,
    /// Receivers that hear the group, sorted.
    pub hearing: Vec<Rank>,
}

/// Returns `true` if a stream that was opened for `opened_for` serves messages to `receivers`. Both
/// are sorted. At least half of those that hear a datagram must be its addressees, because it costs
/// the others its time on their cables.
pub(crate) fn serves(opened_for: &[Rank], receivers: &[Rank]) -> bool {
    receivers.len() * 2 >= opened_for.len()
        && receivers.iter().all(|rank| opened_for.binary_search(rank).is_ok())
}

fn are_all_in(receivers: &[Rank], hearing: &[Rank]) -> bool {
    receivers.iter().all(|rank| hearing.binary_search(rank).is_ok())
}

/// Groups of a node, for threads outside of the engine.
#[derive(Debug, Default)]
pub struct ShownGroups {
    is_on: AtomicBool,
    sets: Mutex<Vec<ShownGroup>>,
}

impl ShownGroups {
    /// Returns the state of the group of these receivers, which are sorted.
    #[must_use]
    pub fn state(&self, receivers: &[Rank]) -> GroupState {
        if !self.is_on() {
            return GroupState::Closed;
        }
        let sets = self.sets();
        let serving = sets.iter().filter(|group| serves(&group.receivers, receivers));
        // The engine takes the smallest one, too.
        match serving.min_by_key(|group| group.receivers.len()) {
            Some(group) if are_all_in(receivers, &group.hearing) => GroupState::Open,
            Some(_) => GroupState::Closed,
            None => GroupState::Unknown,
        }
    }

    /// Returns `true` if the node uses multicast.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Takes the lock. A handler that interrupts its holder may take turns of the engine, which
    /// take the lock, too.
    fn sets(&self) -> Locked<MutexGuard<'_, Vec<ShownGroup>>> {
        locked(|| self.sets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn replace(&self, sets: Vec<ShownGroup>) {
        *self.sets() = sets;
    }
}
