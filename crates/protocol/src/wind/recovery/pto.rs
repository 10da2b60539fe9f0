//! Probe timeout (PTO), the retransmission timer (WIND-5.4, WIND-5.7). The first timeouts send tail
//! probes (RFC 8985, section 7), later ones follow RFC 9002, section 6.2. If nothing was
//! acknowledged for the timeout, the sender asks the peer for an acknowledgement or retransmits the
//! oldest data.

use super::rtt::RoundTrip;
use crate::limits::{
    ACK_DELAY, ACK_PIGGYBACK_TIME, PROBE_MAX, PROBE_MIN, PTO_PINGS_DECAY_ACKS, PTO_PINGS_MAX,
};
use core::time::Duration;

/// Number of successive timeouts that send tail probes. At the next one, all datagrams in flight
/// count as lost.
const TAIL_PROBES: u32 = 2;

/// Meaning of a probe timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PtoAction {
    /// Ask the peer only, because such a silence is usual on this path.
    Ask,
    /// Send the oldest datagrams again, because the tail may be lost.
    Tail { first: bool },
    /// Everything in flight counts as lost.
    Lost { first: bool },
}

/// Counts successive timeouts, and learns from experience what they mean.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Probe {
    in_a_row: u32,
    /// Number of successive timeouts that only ask.
    patience: u32,
    /// Number of successive timeouts after which asking stops, because the peer answered only the
    /// questions.
    heard: u32,
    /// Answers since data was last sent again in vain, counted only while `patience` is not zero.
    calm: u32,
    /// Whether data was sent again, and it is not known yet whether in vain.
    repeated: bool,
    /// Longest timeout on a path whose base is not itself longer.
    most: Duration,
    /// Longest timeout on a path whose base is longer than `most`.
    most_of_all: Duration,
}

impl Probe {
    /// Creates the timer. Several probes must fit into the failure time, or heavy loss would look
    /// like the death of the peer.
    pub fn new(failure_time: Duration) -> Probe {
        let most = PROBE_MAX.min(failure_time / 20).max(PROBE_MIN);
        Probe {
            in_a_row: 0,
            patience: 0,
            heard: u32::MAX,
            calm: 0,
            repeated: false,
            most,
            most_of_all: most.max(failure_time / 8),
        }
    }

    /// Returns the timeout after the latest datagram that must be acknowledged. `asked` tells
    /// whether that datagram asked for an acknowledgement at once.
    pub fn timeout(&self, rtt: &RoundTrip, asked: bool) -> Duration {
        let base = Self::base(rtt, asked);
        // The base of a slow path may be longer than the cap on doubling. But a round trip measured
        // while the peer stood still must not delay probes until the peer counts as dead.
        base.saturating_mul(1 << self.in_a_row.min(16))
            .min(self.most.max(base))
            .min(self.most_of_all)
    }

    /// Returns the first timeout.
    pub fn base(rtt: &RoundTrip, asked: bool) -> Duration {
        (rtt.pessimistic() + if asked { ACK_PIGGYBACK_TIME } else { ACK_DELAY }).max(PROBE_MIN)
    }

    /// Returns the number of timeouts of this silence that only ask.
    fn asks(&self) -> u32 {
        self.patience.min(self.heard)
    }

    pub fn ran_out(&mut self) -> PtoAction {
        let beyond = self.in_a_row.checked_sub(self.asks());
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.repeated |= beyond.is_some();
        match beyond {
            None => PtoAction::Ask,
            Some(nth) if nth < TAIL_PROBES => PtoAction::Tail { first: nth == 0 },
            Some(nth) => PtoAction::Lost { first: nth == TAIL_PROBES },
        }
    }

    /// Returns `true` if everything in flight was given up, and nothing was acknowledged since.
    pub fn has_given_up(&self) -> bool {
        self.in_a_row > self.asks() + TAIL_PROBES
    }

    /// Returns `true` if the timer has run out since something was acknowledged.
    pub fn is_silent(&self) -> bool {
        self.in_a_row > 0
    }

    /// Notes that only questions were acknowledged, and nothing else in flight. The peer is not
    /// slow: it does not receive the rest or has no room for it.
    pub fn only_heard(&mut self) {
        self.heard = self.heard.min(self.in_a_row);
    }

    /// Notes that something other than questions was acknowledged.
    pub fn answered(&mut self) {
        (self.in_a_row, self.heard) = (0, u32::MAX);
        if self.patience > 0 {
            self.calm += 1;
            if self.calm >= PTO_PINGS_DECAY_ACKS {
                (self.patience, self.calm) = (self.patience - 1, 0);
            }
        }
    }

    /// Notes that a datagram was acknowledged that a timeout had declared lost, and that no
    /// acknowledgement had been lost. The peer or the path had only been slow (WIND-5.7).
    pub fn was_in_vain(&mut self) {
        if core::mem::take(&mut self.repeated) {
            (self.patience, self.calm) = ((self.patience + 1).min(PTO_PINGS_MAX), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    impl Probe {
        /// Teaches patience, as a silence without any loss does.
        pub fn learn_patience(&mut self) {
            silence(self);
            self.answered();
            self.was_in_vain();
        }
    }

    /// WIND-5.4.
    #[test]
    fn doubles_from_what_was_measured_to_a_hundred_milliseconds() {
        let mut rtt = RoundTrip::default();
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(50), Duration::ZERO);
        }
        let mut probe = Probe::new(Duration::from_secs(5));
        let first = probe.timeout(&rtt, true);
        assert!(
            first.abs_diff(Duration::from_micros(100) + ACK_PIGGYBACK_TIME)
                < Duration::from_micros(1),
            "{first:?}"
        );
        assert_eq!(probe.timeout(&rtt, false), first - ACK_PIGGYBACK_TIME + ACK_DELAY);
        probe.ran_out();
        assert_eq!(probe.timeout(&rtt, true), first * 2);
        let all: Vec<_> = (0..50).map(|_| probe.ran_out()).collect();
        assert_eq!(all.last(), Some(&PtoAction::Lost { first: false }));
        assert_eq!(probe.timeout(&rtt, true), PROBE_MAX);
        assert!(probe.has_given_up());
        probe.answered();
        assert_eq!(probe.timeout(&rtt, true), first);
    }

    /// Returns the meanings of a silence's timeouts, until everything is given up.
    fn silence(probe: &mut Probe) -> (usize, Vec<PtoAction>) {
        let mut all = Vec::new();
        while !probe.has_given_up() {
            all.push(probe.ran_out());
        }
        (all.iter().filter(|what| **what == PtoAction::Ask).count(), all)
    }

    /// WIND-5.4, WIND-5.7.
    #[test]
    fn what_was_repeated_in_vain_teaches_patience_and_calm_forgets_it() {
        let mut probe = Probe::new(Duration::from_secs(5));
        let (_, all) = silence(&mut probe);
        assert_eq!(
            all,
            [
                PtoAction::Tail { first: true },
                PtoAction::Tail { first: false },
                PtoAction::Lost { first: true }
            ]
        );
        assert_eq!(probe.ran_out(), PtoAction::Lost { first: false });
        probe.answered();
        assert_eq!(silence(&mut probe).0, 0, "what was lost teaches nothing");
        for patience in 1..=PTO_PINGS_MAX {
            // Several acknowledgements report one silence.
            for _ in 0..3 {
                probe.answered();
                probe.was_in_vain();
            }
            let (asked, all) = silence(&mut probe);
            assert_eq!((asked, all.len()), (patience as usize, patience as usize + 3));
        }
        probe.answered();
        probe.was_in_vain();
        assert_eq!(silence(&mut probe).0, PTO_PINGS_MAX as usize, "bounded");
        for patience in (0..PTO_PINGS_MAX).rev() {
            (0..PTO_PINGS_DECAY_ACKS).for_each(|_| probe.answered());
            assert_eq!(silence(&mut probe).0, patience as usize);
        }
    }

    #[test]
    fn a_silence_in_which_nothing_was_repeated_teaches_nothing() {
        let mut probe = Probe::new(Duration::from_secs(5));
        probe.ran_out();
        probe.was_in_vain();
        probe.answered();
        assert_eq!(probe.ran_out(), PtoAction::Ask);
        (0..10).for_each(|_| probe.was_in_vain());
        probe.answered();
        assert_eq!(silence(&mut probe).0, 1);
    }

    #[test]
    fn a_jittery_path_is_given_its_variation_and_a_slow_one_its_time() {
        let mut jittery = RoundTrip::default();
        for n in 0..200u64 {
            jittery.sample(Duration::from_micros(20 + 180 * (n % 2)), Duration::ZERO);
        }
        assert!(
            Probe::base(&jittery, true) > Duration::from_micros(400),
            "{:?}",
            Probe::base(&jittery, true)
        );
        let mut slow = RoundTrip::default();
        slow.sample(Duration::from_millis(300), Duration::ZERO);
        assert!(
            Probe::new(Duration::from_secs(5)).timeout(&slow, true) >= Duration::from_millis(600)
        );
        let mut quick = RoundTrip::default();
        for _ in 0..200 {
            quick.sample(Duration::from_micros(5), Duration::ZERO);
        }
        assert_eq!(Probe::base(&quick, true), PROBE_MIN);
    }
}
