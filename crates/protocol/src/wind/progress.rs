//! Progress of a lane: whether the peer acknowledges what was sent to it (WIND-7.6).
//!
//! Liveness is progress. A peer that is heard but acknowledges nothing is of no use. Something on
//! the way loses datagrams to the peer or its acknowledgements, or one end disbelieves the other.
//! An acknowledged PING is not progress while parts of messages are not acknowledged.

use crate::time::Time;

/// Tracks for one lane since when the peer has acknowledged nothing outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Start of the wait, while something is outstanding.
    since: Option<Time>,
    /// Whether parts of messages were sent and have not all been acknowledged. They may count as
    /// lost and wait to be sent again.
    content: bool,
    /// Datagrams in flight that carry parts of messages.
    carriers: u32,
}

impl Progress {
    /// Called when a datagram was sent that must be acknowledged.
    pub fn sent(&mut self, now: Time, carries_content: bool) {
        self.since.get_or_insert(now);
        self.content |= carries_content;
        self.carriers += u32::from(carries_content);
    }

    /// Called when a datagram that carried parts of messages was acknowledged or counts as lost.
    pub fn carrier_retired(&mut self) {
        self.carriers = self.carriers.saturating_sub(1);
    }

    /// Called when an acknowledgement brought news. `content` tells whether it is about parts of
    /// messages, and `in_flight` whether datagrams are still in flight.
    pub fn acknowledged(&mut self, now: Time, content: bool, in_flight: bool) {
        if content || !self.content {
            self.content = self.carriers > 0;
            self.since = in_flight.then_some(now);
        }
    }

    /// Called when the peer refused a message, which settles it as an acknowledgement does.
    pub fn refused(&mut self, now: Time) {
        self.since = self.since.map(|since| since.max(now));
    }

    /// Called when nothing waits to be sent again in this lane. `in_flight` tells whether datagrams
    /// are still in flight. Content that has moved to the other lane or was withdrawn is not waited
    /// for here.
    pub fn nothing_queued(&mut self, now: Time, in_flight: bool) {
        if self.content && self.carriers == 0 {
            self.content = false;
            self.since = self.since.map(|_| now);
        }
        if !in_flight {
            self.since = None;
        }
    }

    /// Returns the start of the wait for an acknowledgement, if there is one.
    pub fn since(&self) -> Option<Time> {
        self.since
    }
}

/// Hashes nothing. The exhaustive model ends long before a peer is given up, so states that differ
/// only in this are equal.
impl core::hash::Hash for Progress {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-7.6.
    #[test]
    fn ping_acknowledged_before_content_is_no_progress() {
        let mut progress = Progress::default();
        progress.sent(Time(1), true);
        progress.sent(Time(2), false);
        progress.acknowledged(Time(3), false, true);
        assert_eq!(progress.since(), Some(Time(1)));
        // The content counts as lost, waits, and is sent again.
        progress.carrier_retired();
        progress.acknowledged(Time(4), false, false);
        assert_eq!(progress.since(), Some(Time(1)));
        progress.sent(Time(5), true);
        progress.carrier_retired();
        progress.acknowledged(Time(6), true, false);
        assert_eq!(progress.since(), None);
        progress.sent(Time(7), false);
        progress.acknowledged(Time(8), false, true);
        assert_eq!(progress.since(), Some(Time(8)));
    }

    /// WIND-7.6: the wait ends for content that goes by the other lane now or was withdrawn.
    #[test]
    fn content_that_left_the_lane_is_not_waited_for() {
        let mut progress = Progress::default();
        progress.sent(Time(1), true);
        progress.nothing_queued(Time(2), true);
        assert_eq!(progress.since(), Some(Time(1)), "it is in flight");
        progress.carrier_retired();
        progress.nothing_queued(Time(3), true);
        assert_eq!(progress.since(), Some(Time(3)), "a PING still is");
        progress.nothing_queued(Time(4), false);
        assert_eq!(progress.since(), None);
    }
}
