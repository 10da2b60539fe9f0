//! Refusals by the layer above, kept until the peer is known to have received them (WIND-4.6). Both
//! lanes share one queue, and the first ACK frame of every datagram reports it.

use crate::limits::REFUSALS_MAX;
use crate::planted::{Bug, planted};
use crate::wire::acknowledge::RefusedMessage;
use crate::wire::header::Lane;
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Refusals {
    /// Refusals that are not confirmed yet, oldest first.
    pub queue: VecDeque<RefusedMessage>,
    /// Number of refusals confirmed before those in the queue.
    confirmed: u64,
    /// Datagram that caused more refusals than one datagram can report. It is not acknowledged
    /// before they are reported.
    withheld: Option<(Lane, u64)>,
    /// Whether the refusals, or the number withheld for them, are to be reported now.
    due: bool,
}

impl Refusals {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns `true` if refusals must be reported without waiting for anything else.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Returns `true` if refusals must be reported now, without messages. No message is accepted
    /// before they are confirmed. A peer in the same state confirms only a datagram without
    /// messages.
    pub fn go_alone(&self) -> bool {
        self.due && self.is_withholding()
    }

    /// Returns `true` if refusals must be reported before any more messages are accepted.
    pub fn is_withholding(&self) -> bool {
        self.withheld.is_some()
    }

    /// Returns the number of this lane that may not be acknowledged yet.
    pub fn withheld(&self, lane: Lane) -> Option<u64> {
        self.withheld.filter(|withheld| withheld.0 == lane).map(|withheld| withheld.1)
    }

    /// Called after a datagram was processed, before which `before` refusals were waiting. If one
    /// datagram cannot report all refusals now, the number is withheld, and its refusals are
    /// reported from the largest message number down. So the sender cannot settle the message that
    /// all others waited for before it knows of all refusals.
    pub fn withhold(&mut self, lane: Lane, number: u64, before: usize) {
        if self.queue.len() > REFUSALS_MAX && self.queue.len() > before {
            if let Some(new) = self.queue.make_contiguous().get_mut(before..) {
                new.sort_unstable_by_key(|refused| core::cmp::Reverse(refused.number));
            }
            self.withheld.get_or_insert((lane, number));
            self.due = true;
        }
    }

    /// Returns the number of refusals that a datagram reports.
    pub fn reportable(&self) -> usize {
        self.queue.len().min(REFUSALS_MAX)
    }

    /// Adds the first `count` refusals, or all if there are fewer, to `reported`. Returns what to
    /// remember of it: see [`confirm`](Self::confirm).
    pub fn report(
        &mut self,
        count: usize,
        reported: &mut ArrayVec<RefusedMessage, REFUSALS_MAX>,
    ) -> u64 {
        let count = count.min(self.reportable());
        reported.extend(self.queue.iter().take(count).copied());
        if planted(Bug::TellRefusalsOnce) {
            self.queue.drain(..count);
            self.confirmed += count as u64;
            return self.confirmed;
        }
        self.confirmed + count as u64
    }

    /// Called when the ACK frames of both lanes have been written.
    pub fn all_reported(&mut self) {
        self.due = false;
    }

    /// Called when the datagram with an ACK frame was acknowledged, so that the peer knows the
    /// content of the frame.
    pub fn confirm(&mut self, through: u64) {
        while self.confirmed < through && self.queue.pop_front().is_some() {
            self.confirmed += 1;
        }
        if self.queue.len() <= REFUSALS_MAX {
            // The withheld number may be acknowledged now.
            self.due |= self.withheld.take().is_some();
        } else {
            self.due = true;
        }
    }

    /// Called when the datagram with the ACK frame was lost, and its refusals must be reported
    /// again.
    pub fn report_again(&mut self) {
        self.due |= !self.queue.is_empty();
    }
}
