//! Flow control, receiver's side: the receive credit that this node grants, which limits what the
//! peer may send and the program has not read (WIND-6.3, WIND-6.4).

use crate::limits::{CREDIT_OVERHEAD, MESSAGE_MAX};
use crate::planted::{Bug, planted};
use crate::wind::send::outgoing::cost;

/// Receive credit in bytes, as sums that only grow, so that the next grant makes up for a lost one.
#[derive(Clone, Debug, Hash)]
pub(crate) struct ReceiveCredit {
    /// Bytes that the peer may have unread at once.
    span: u64,
    limit: u64,
    used: u64,
    reported: u64,
}

impl ReceiveCredit {
    /// Creates the initial credit, which the peer knows.
    pub fn new(span: u64) -> ReceiveCredit {
        ReceiveCredit { span, limit: span, used: 0, reported: span }
    }

    /// Returns whether the peer may send a body of `len` bytes, because there is credit for it
    /// or the message is alone (WIND-6.7).
    pub fn covers(&self, len: u64) -> bool {
        let is_alone = self.limit == self.used.saturating_add(self.span);
        self.used.saturating_add(cost(len)) <= self.limit || (is_alone && len <= MESSAGE_MAX)
    }

    /// Returns whether a body of `len` bytes costs more than all credit.
    pub fn is_exceeded_by(&self, len: u64) -> bool {
        cost(len) > self.span
    }

    /// Charges the peer for a message that it has sent.
    pub fn take(&mut self, len: u64) {
        self.used = self.used.saturating_add(cost(len));
    }

    /// Gives back the credit of `messages` messages that were read, whose bodies have `bytes` bytes
    /// together.
    pub fn give_back(&mut self, messages: u64, bytes: u64) {
        if !planted(Bug::ForgetCredit) {
            let freed = bytes.saturating_add(messages.saturating_mul(CREDIT_OVERHEAD));
            // The peer was not charged for messages of its earlier incarnation that were read now.
            self.limit = self.limit.saturating_add(freed).min(self.used.saturating_add(self.span));
        }
    }

    /// Returns all credit ever granted, which the next ACK reports.
    pub fn report(&mut self) -> u64 {
        self.reported = self.limit;
        self.limit
    }

    /// Returns `true` if so much credit is unreported that the peer should hear of it (WIND-6.4).
    pub fn is_due(&self) -> bool {
        self.limit - self.reported > self.span / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-6.4
    #[test]
    fn what_is_read_may_be_sent_again_and_is_told_in_quarters() {
        let one = 100;
        let mut granted = ReceiveCredit::new(8 * cost(one));
        for _ in 0..8 {
            assert!(granted.covers(one));
            granted.take(one);
        }
        assert!(!granted.covers(0));
        granted.give_back(2, 2 * one);
        assert!(granted.covers(one) && !granted.is_due());
        granted.give_back(1, one);
        assert!(granted.is_due());
        assert_eq!(granted.report(), 11 * cost(one));
        assert!(!granted.is_due());
    }

    #[test]
    fn absurd_lengths_are_not_covered() {
        let granted = ReceiveCredit::new(1 << 20);
        assert!(!granted.covers(u64::MAX) && !granted.covers(u64::MAX - 1));
        assert!(!granted.covers(MESSAGE_MAX + 1));
    }

    /// WIND-6.7: such a message is covered up to the limit of all messages, and nothing beside it
    /// until it is read.
    #[test]
    fn message_beyond_all_credit_is_covered_only_alone() {
        let mut granted = ReceiveCredit::new(1 << 20);
        assert!(granted.covers(MESSAGE_MAX) && granted.is_exceeded_by(1 << 20));
        granted.take(1);
        assert!(!granted.covers(1 << 20), "something is unread");
        granted.give_back(1, 1);
        granted.take(MESSAGE_MAX);
        assert!(!granted.covers(0));
        granted.give_back(1, MESSAGE_MAX);
        assert!(granted.covers(0) && granted.covers(MESSAGE_MAX) && granted.is_due());
    }
}
