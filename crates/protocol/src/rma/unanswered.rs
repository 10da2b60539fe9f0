//! Detection of requests that were acknowledged and are never answered (MEM-4.8).
//!
//! An acknowledgement says that a datagram came. A datagram that was forged on the way can pass for
//! it, and then nobody answers the request. A peer answers in the order of the requests, so the
//! oldest request is the one to watch. While older answers come, the others may have to wait.

use super::Rma;
use crate::Rank;
use crate::limits::PROGRESS_FAILURE_TIMES;
use crate::rma::event::RmaEvent;
use crate::time::{Rounds, Time};
use alloc::collections::BTreeMap;
use core::time::Duration;

/// Progress of the answers of all peers, checked periodically.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// Rounds of checks, while any request is open.
    rounds: Rounds,
    oldest: BTreeMap<Rank, Oldest>,
}

/// Oldest request that a peer has acknowledged and not answered, as the last check found it.
#[derive(Clone, Copy, Debug, Default)]
struct Oldest {
    serial: u64,
    /// Number of parts of its answer that had arrived.
    parts: u32,
    /// Number of consecutive checks that found nothing new.
    vain: u32,
}

impl Rma {
    /// Checks for peers that owe an answer and bring nothing of it for three times `every`
    /// (MEM-4.8). Each such peer gives an [`RmaEvent::Unanswered`]. Call it again at
    /// [`Rma::next_check`].
    pub fn check_unanswered(&mut self, now: Time, every: Duration) {
        let is_open = self.tickets.len() > 0;
        if !is_open {
            self.unanswered.oldest.clear();
        }
        if self.unanswered.rounds.is_due(is_open, now, every) {
            self.check_oldest();
        }
    }

    /// Returns the time at which [`Rma::check_unanswered`] has something to do, if ever.
    #[must_use]
    pub fn next_check(&self) -> Option<Time> {
        self.unanswered.rounds.next
    }

    fn check_oldest(&mut self) {
        let found = self.tickets.oldest_unanswered();
        let Self { unanswered: Unanswered { oldest, .. }, events, .. } = self;
        oldest.retain(|peer, _| found.contains_key(peer));
        for (peer, (serial, parts)) in found {
            let known = oldest.entry(peer).or_default();
            if (known.serial, known.parts) != (serial, parts) {
                *known = Oldest { serial, parts, vain: 0 };
                continue;
            }
            known.vain += 1;
            if known.vain == PROGRESS_FAILURE_TIMES {
                events.push_back(RmaEvent::Unanswered { by: peer });
            }
        }
    }
}
