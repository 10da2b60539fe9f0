//! How much may be in flight (WIND-6). A new algorithm is a new [`Controller`].

use crate::time::Time;

/// Decides the window from what happens to datagrams. Counts in bytes on the wire.
pub trait Controller: Send {
    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// `bytes`, the latest of them sent at `sent`, were acknowledged. `limited`: the window, not the application, was the bound.
    fn acknowledged(&mut self, bytes: u64, sent: Time, limited: bool);

    /// Datagrams were lost, the latest of them sent at `sent`.
    fn lost(&mut self, sent: Time, now: Time);

    /// Nothing was acknowledged through several probe timeouts.
    fn stalled(&mut self, now: Time);

    /// All that was lost since the window was last reduced ([`lost`](Self::lost) or [`stalled`](Self::stalled)) has arrived after all:
    /// the reduction was wrong (WIND-5.6).
    fn spurious(&mut self, now: Time) {
        let _ = now;
    }
}

/// Slow start, then one datagram more a round trip; at loss the window shrinks to 7/10 once a round trip (RFC 5681, RFC 9002 with
/// CUBIC's factor).
#[derive(Clone, Debug)]
pub struct Aimd {
    window: u64,
    threshold: u64,
    datagram: u64,
    least: u64,
    most: u64,
    /// Losses of what was sent before this moment are part of the same event.
    recovery: Option<Time>,
    /// Window and threshold before the last reduction.
    before: Option<(u64, u64)>,
    /// Acknowledged bytes that have not yet made a datagram's worth of growth.
    credit: u64,
}

impl Aimd {
    /// `datagram`: bytes of a full one; `most`: what the peer can buffer.
    #[must_use]
    pub fn new(datagram: u64, most: u64) -> Aimd {
        let least = (4 * datagram).min(most).max(datagram);
        let most = most.max(least);
        let window = (32 * datagram).clamp(least, most);
        Aimd { window, threshold: u64::MAX, datagram, least, most, recovery: None, before: None, credit: 0 }
    }
}

impl Controller for Aimd {
    fn window(&self) -> u64 {
        self.window
    }

    fn acknowledged(&mut self, bytes: u64, sent: Time, limited: bool) {
        if !limited || self.recovery.is_some_and(|start| sent <= start) {
            return;
        }
        if self.window < self.threshold {
            self.window += bytes;
        } else {
            self.credit += bytes;
            if self.credit >= self.window {
                self.credit -= self.window;
                self.window += self.datagram;
            }
        }
        self.window = self.window.min(self.most);
    }

    fn lost(&mut self, sent: Time, now: Time) {
        if self.recovery.is_some_and(|start| sent <= start) {
            return;
        }
        self.recovery = Some(now);
        self.before = Some((self.window, self.threshold));
        self.window = (self.window / 10 * 7).max(self.least);
        self.threshold = self.window;
        self.credit = 0;
    }

    fn stalled(&mut self, now: Time) {
        self.before = Some((self.window, self.threshold));
        self.threshold = (self.window / 2).max(self.least);
        self.window = self.least;
        self.recovery = Some(now);
    }

    fn spurious(&mut self, _: Time) {
        if let Some((window, threshold)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = threshold;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_slowly_shrinks_once_a_round_trip_and_never_below_the_least() {
        let mut aimd = Aimd::new(1000, 1_000_000);
        let start = aimd.window();
        aimd.acknowledged(start, Time(1), true);
        assert_eq!(aimd.window(), 2 * start);
        aimd.lost(Time(5), Time(10));
        let after = aimd.window();
        assert_eq!(after, 2 * start / 10 * 7);
        aimd.lost(Time(9), Time(11));
        assert_eq!(aimd.window(), after, "same round trip");
        aimd.acknowledged(after, Time(11), true);
        assert_eq!(aimd.window(), after + 1000, "one datagram a window");
        aimd.acknowledged(after, Time(12), false);
        assert_eq!(aimd.window(), after + 1000, "not limited by the window");
        (20..60).for_each(|t| aimd.lost(Time(t), Time(t)));
        assert_eq!(aimd.window(), 4000);
    }

    /// WIND-5.6.
    #[test]
    fn a_wrong_reduction_is_taken_back() {
        let mut aimd = Aimd::new(1000, 1_000_000);
        let start = aimd.window();
        aimd.lost(Time(5), Time(10));
        aimd.spurious(Time(11));
        assert_eq!((aimd.window(), aimd.threshold), (start, u64::MAX));
        aimd.spurious(Time(12));
        aimd.stalled(Time(20));
        assert_eq!(aimd.window(), 4000);
        aimd.acknowledged(1000, Time(21), true);
        aimd.spurious(Time(30));
        assert_eq!((aimd.window(), aimd.threshold), (start, u64::MAX));
    }

    #[test]
    fn the_peers_buffer_bounds_it() {
        let mut aimd = Aimd::new(1000, 50_000);
        (1..100).for_each(|t| aimd.acknowledged(10_000, Time(t), true));
        assert_eq!(aimd.window(), 50_000);
    }
}
