//! Channels of notifications: what [`Job`](crate::Job) keeps of them between calls (COH-15.4).

use crate::collective::begin::Start;
use crate::collective::pending::Pending;
use crate::collective::team::Team;
use crate::error::Result;
use oikaze_protocol::Rank;
use oikaze_runtime::node::{WaitSubject, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Rank of the sender in the team of a channel.
pub(super) const SENDER: Rank = 0;

/// Channels of a node, each by its sender and its receiver.
#[derive(Default)]
pub(crate) struct Channels(pub(super) Mutex<BTreeMap<(Rank, Rank), Arc<Channel>>>);

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channels").field(&lock(&self.0).len()).finish()
    }
}

impl Channels {
    /// Forgets what was told, and the notifications for which nobody waits any more, because the
    /// nodes were brought in step (COLL-3.7) and notifications that had come are lost.
    pub(crate) fn forget(&self) {
        for channel in lock(&self.0).values() {
            lock(&channel.told).clear();
            *lock(&channel.next) = None;
        }
    }
}

/// Way of the notifications from one node to another: broadcasts in a team of the two.
pub(super) struct Channel {
    pub(super) team: Team,
    /// Intervals that notifications of this node have told ([`told_by`], COH-15.5), or nothing
    /// before the first one.
    ///
    /// [`told_by`]: oikaze_protocol::coherence::told_by
    pub(super) told: Mutex<Vec<u8>>,
    /// The next notification, for which threads of the receiver wait. It stays after a time limit.
    pub(super) next: Mutex<Option<Arc<Notification>>>,
}

/// A notification that comes or has come.
pub(super) struct Notification {
    pending: Pending<Vec<u8>>,
    /// Knowledge of the sender, once it was taken out of `pending`.
    told: Mutex<Option<Vec<u8>>>,
}

impl Notification {
    /// Waits until the notification of this node has come, and leaves it.
    #[track_caller]
    pub(super) fn wait(&self, from: Rank, deadline: Option<Instant>) -> Result<()> {
        let what = || format!("a notification of node {from}");
        let subject = || WaitSubject::Operation { what: what(), peer: Some(from) };
        self.pending.wait_as(&subject, deadline, &mut || ())
    }

    /// Returns what the sender knows. The notification has come.
    pub(super) fn told(&self) -> Result<Vec<u8>> {
        let mut told = lock(&self.told);
        if let Some(told) = &*told {
            return Ok(told.clone());
        }
        Ok(told.insert(self.pending.wait_for(Duration::ZERO)?).clone())
    }
}

impl Channel {
    /// Returns the next notification, which may not have come yet.
    pub(super) fn next(&self) -> Arc<Notification> {
        let mut next = lock(&self.next);
        let begin = || {
            let pending = Start::of(&self.team).broadcast(SENDER, &[]);
            Arc::new(Notification { pending, told: Mutex::default() })
        };
        Arc::clone(next.get_or_insert_with(begin))
    }

    /// Takes a notification. Returns `false` if another thread has taken it.
    pub(super) fn take(&self, taken: &Arc<Notification>) -> bool {
        let mut next = lock(&self.next);
        let is_next = next.as_ref().is_some_and(|next| Arc::ptr_eq(next, taken));
        if is_next {
            *next = None;
        }
        is_next
    }
}
