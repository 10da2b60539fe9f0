//! Does the peer acknowledge anything of what was sent to it (WIND-7.6)?
//!
//! Liveness is progress. A peer that is heard, but acknowledges nothing, is of no use: something on
//! the way loses what is sent to it, or its acknowledgements, or one end disbelieves the other. A
//! PING that is acknowledged is no progress while parts of messages are not.

use crate::time::Time;

/// Tracks for one lane since when nothing of what is outstanding was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Start of the wait, while something is outstanding.
    since: Option<Time>,
    /// Parts of messages were sent and have not all been acknowledged. They may count as lost and
    /// wait to be sent again.
    content: bool,
    /// Datagrams in flight that carry parts of messages.
    carriers: u32,
}

impl Progress {
    /// A datagram was sent that must be acknowledged.
    pub fn sent(&mut self, now: Time, carries_content: bool) {
        self.since.get_or_insert(now);
        self.content |= carries_content;
        self.carriers += u32::from(carries_content);
    }

    /// A datagram that carried parts of messages was acknowledged or counts as lost.
    pub fn carrier_retired(&mut self) {
        self.carriers = self.carriers.saturating_sub(1);
    }

    /// An acknowledgement told something new, perhaps about parts of messages; `in_flight`:
    /// something still is.
    pub fn acknowledged(&mut self, now: Time, content: bool, in_flight: bool) {
        if content || !self.content {
            self.content = self.carriers > 0;
            self.since = in_flight.then_some(now);
        }
    }

    /// The peer refused a message, which settles it as an acknowledgement does.
    pub fn refused(&mut self, now: Time) {
        self.since = self.since.map(|since| since.max(now));
    }

    /// Nothing waits to be sent again in this lane; `in_flight`: something still is. What has moved
    /// to the other lane, or was withdrawn, is not waited for here.
    pub fn nothing_queued(&mut self, now: Time, in_flight: bool) {
        if self.content && self.carriers == 0 {
            self.content = false;
            self.since = self.since.map(|_| now);
        }
        if !in_flight {
            self.since = None;
        }
    }

    /// Start of the wait for an acknowledgement, if one is waited for.
    pub fn since(&self) -> Option<Time> {
        self.since
    }
}

/// The exhaustive model ends long before a peer is given up: states that differ only in this are
/// one.
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
        // The content counts as lost, waits, and goes again.
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

    /// WIND-7.6: a wait for what goes by the other lane now, or not at all any more, has ended.
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
