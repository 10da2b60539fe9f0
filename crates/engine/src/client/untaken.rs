//! Tracks failures that no caller has been told of yet, so that `quiet` and `flush` can report them
//! (MEM-15.5).
//!
//! Only operations that fail come here. The texts of the first [`KEPT_MAX`] are kept; all are
//! counted exactly.

use super::label::{OperationKind, OperationLabel};
use crate::failure::Failure;
use oikaze_os::signals::{Locked, locked};
use oikaze_protocol::Rank;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of failures whose texts are kept.
const KEPT_MAX: usize = 1024;

/// Stands for the serial number of a failed receive, which is not counted here, because the receive
/// has lost no message (MEM-26.6).
pub(super) const RECEIVE_FAILED: u64 = u64::MAX;

/// The failures of one node's operations that nobody has been told of.
#[derive(Debug, Default)]
pub struct UnreportedFailures(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    /// Serial number of the latest failure; the first is 1.
    latest: u64,
    kept: BTreeMap<u64, (OperationLabel, Failure)>,
    peers: BTreeMap<Rank, PeerFailures>,
}

#[derive(Debug, Default)]
struct PeerFailures {
    /// Failures that were neither taken nor reported.
    count: u64,
    /// Failures up to this serial number have been reported.
    reported: u64,
    /// Part of `count` that are messages put into a ring, which have no serial number.
    in_ring: u64,
    ring_failure: Option<Failure>,
}

/// Failures that are reported together.
#[derive(Debug)]
pub struct Report {
    /// Number of failures.
    pub count: u64,
    pub first: Option<(OperationLabel, Failure)>,
}

impl UnreportedFailures {
    /// Notes the failure of an operation, and returns its serial number.
    #[cold]
    pub fn note(&self, what: &OperationLabel, failure: &Failure) -> u64 {
        let mut inside = self.lock();
        inside.latest += 1;
        let serial = inside.latest;
        inside.peers.entry(what.peer).or_default().count += 1;
        if inside.kept.len() < KEPT_MAX {
            inside.kept.insert(serial, (what.clone(), failure.clone()));
        }
        serial
    }

    /// Notes the loss of `count` messages that were put into a peer's ring.
    pub fn note_in_ring(&self, peer: Rank, count: u64, failure: &Failure) {
        if count > 0 {
            let mut inside = self.lock();
            let failures = inside.peers.entry(peer).or_default();
            failures.count += count;
            failures.in_ring += count;
            failures.ring_failure.get_or_insert_with(|| failure.clone());
        }
    }

    /// Called when a caller has learned of this failure.
    #[cold]
    pub fn take(&self, peer: Rank, serial: u64) {
        if serial == RECEIVE_FAILED {
            return;
        }
        let mut inside = self.lock();
        inside.kept.remove(&serial);
        if let Some(failures) = inside.peers.get_mut(&peer)
            && serial > failures.reported
        {
            failures.count = failures.count.saturating_sub(1);
        }
    }

    /// Called when a caller has learned of the loss of one message that was put into a peer's ring.
    #[cold]
    pub fn take_in_ring(&self, peer: Rank) {
        let mut inside = self.lock();
        if let Some(failures) = inside.peers.get_mut(&peer)
            && failures.in_ring > 0
        {
            failures.in_ring -= 1;
            failures.count = failures.count.saturating_sub(1);
        }
    }

    /// Takes all failures of operations to this peer, or to all peers.
    pub fn report(&self, peer: Option<Rank>) -> Option<Report> {
        let mut inside = self.lock();
        let Failures { latest, kept, peers } = &mut *inside;
        let is_meant = |rank: Rank| peer.is_none_or(|peer| peer == rank);
        let (mut count, mut ring) = (0, None);
        for (rank, failures) in peers.iter_mut().filter(|(rank, _)| is_meant(**rank)) {
            count += std::mem::take(&mut failures.count);
            failures.reported = *latest;
            failures.in_ring = 0;
            ring = ring.or(failures.ring_failure.take().map(|failure| {
                (
                    OperationLabel { verb: OperationKind::Message, len: 0, peer: *rank, at: None },
                    failure,
                )
            }));
        }
        let mut first = None;
        kept.retain(|_, (what, failure)| {
            let is_meant = is_meant(what.peer);
            if is_meant && first.is_none() {
                first = Some((what.clone(), failure.clone()));
            }
            !is_meant
        });
        (count > 0).then(|| Report { count, first: first.or(ring) })
    }

    fn lock(&self) -> Locked<MutexGuard<'_, Failures>> {
        locked(|| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(peer: Rank) -> OperationLabel {
        OperationLabel { verb: OperationKind::Put, len: 8, peer, at: None }
    }

    fn counts(untaken: &UnreportedFailures, peer: Option<Rank>) -> u64 {
        untaken.report(peer).map_or(0, |report| report.count)
    }

    /// MEM-15.5
    #[test]
    fn failure_is_reported_once_and_not_if_it_was_taken() {
        let untaken = UnreportedFailures::default();
        let serials: Vec<u64> =
            (0..3).map(|_| untaken.note(&what(1), &Failure::Cancelled)).collect();
        untaken.take(1, serials[0]);
        assert_eq!(counts(&untaken, Some(2)), 0);
        assert_eq!(counts(&untaken, Some(1)), 2);
        assert_eq!(counts(&untaken, None), 0);
        untaken.take(1, serials[1]);
        let later = untaken.note(&what(1), &Failure::Left);
        let report = untaken.report(None).unwrap();
        assert_eq!((report.count, report.first.unwrap().1), (1, Failure::Left));
        untaken.take(1, later);
        assert_eq!(counts(&untaken, None), 0);
    }

    /// MEM-15.5: memory is bounded, the count is exact.
    #[test]
    fn many_failures_are_counted_exactly() {
        let untaken = UnreportedFailures::default();
        let many = 3 * KEPT_MAX as u64;
        let serials: Vec<u64> =
            (0..many).map(|_| untaken.note(&what(0), &Failure::Cancelled)).collect();
        assert_eq!(untaken.lock().kept.len(), KEPT_MAX);
        serials.iter().skip(10).for_each(|serial| untaken.take(0, *serial));
        untaken.note_in_ring(0, 2, &Failure::Left);
        untaken.take_in_ring(0);
        assert_eq!(counts(&untaken, None), 11);
    }
}
