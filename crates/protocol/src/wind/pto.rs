//! Probe timeout (WIND-5.4, WIND-5.7; tail probes as in RFC 8985, section 7, then RFC 9002, section
//! 6.2): nothing was acknowledged for so long that the peer is asked, or the oldest data is sent
//! again.

use super::rtt::RoundTrip;
use crate::limits::{ACK_DELAY, ACK_HOLD, PATIENCE_CALM, PATIENCE_MAX, PROBE_MAX, PROBE_MIN};
use core::time::Duration;

/// So many timeouts in a row are probes of the tail; at the next one all in flight counts as lost.
const TAIL_PROBES: u32 = 2;

/// What the timeout that has run out means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing unusual on this path: ask.
    Ask,
    /// The tail may be lost: send the oldest again.
    Tail { first: bool },
    /// Whatever is in flight is not taken in.
    Lost { first: bool },
}

/// How often in a row the timer ran out, and what experience makes of it.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Probe {
    in_a_row: u32,
    /// So many timeouts in a row only ask …
    patience: u32,
    /// … but not after so many, at which the peer answered questions and nothing else.
    heard: u32,
    /// Answers since data was last sent again in vain; counted only while there is patience to be
    /// lost.
    calm: u32,
    /// Data was sent again, and it is not known yet whether in vain.
    repeated: bool,
    /// The longest, on a path that is not itself slower …
    most: Duration,
    /// … and on one that is.
    most_of_all: Duration,
}

impl Probe {
    /// Several probes must fit into the failure time, or heavy loss would look like death.
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

    /// After the latest datagram that must be acknowledged; did that one ask for it at once?
    pub fn timeout(&self, rtt: &RoundTrip, asked: bool) -> Duration {
        let base = Self::base(rtt, asked);
        // A slow path's base may itself be longer than the cap on doubling. But what was measured
        // while a peer stood still may not put off probes for as long as it takes to call it dead.
        base.saturating_mul(1 << self.in_a_row.min(16))
            .min(self.most.max(base))
            .min(self.most_of_all)
    }

    /// The first of them.
    pub fn base(rtt: &RoundTrip, asked: bool) -> Duration {
        (rtt.pessimistic() + if asked { ACK_HOLD } else { ACK_DELAY }).max(PROBE_MIN)
    }

    /// So many timeouts of this silence only ask.
    fn asks(&self) -> u32 {
        self.patience.min(self.heard)
    }

    pub fn ran_out(&mut self) -> Silence {
        let beyond = self.in_a_row.checked_sub(self.asks());
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.repeated |= beyond.is_some();
        match beyond {
            None => Silence::Ask,
            Some(nth) if nth < TAIL_PROBES => Silence::Tail { first: nth == 0 },
            Some(nth) => Silence::Lost { first: nth == TAIL_PROBES },
        }
    }

    /// Has everything that was in flight been given up, and nothing been acknowledged since?
    pub fn has_given_up(&self) -> bool {
        self.in_a_row > self.asks() + TAIL_PROBES
    }

    /// Has the timer run out since something was acknowledged?
    pub fn is_silent(&self) -> bool {
        self.in_a_row > 0
    }

    /// Questions were acknowledged, and nothing of what else is in flight: the peer is not slow, it
    /// does not get that or has no room for it.
    pub fn only_heard(&mut self) {
        self.heard = self.heard.min(self.in_a_row);
    }

    /// Something was acknowledged, and not only questions.
    pub fn answered(&mut self) {
        (self.in_a_row, self.heard) = (0, u32::MAX);
        if self.patience > 0 {
            self.calm += 1;
            if self.calm >= PATIENCE_CALM {
                (self.patience, self.calm) = (self.patience - 1, 0);
            }
        }
    }

    /// That was what a timeout had declared lost, and no acknowledgement had got lost: the peer, or
    /// the path, had only been slow (WIND-5.7).
    pub fn was_in_vain(&mut self) {
        if core::mem::take(&mut self.repeated) {
            (self.patience, self.calm) = ((self.patience + 1).min(PATIENCE_MAX), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    impl Probe {
        /// As after a silence that was none.
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
            first.abs_diff(Duration::from_micros(100) + ACK_HOLD) < Duration::from_micros(1),
            "{first:?}"
        );
        assert_eq!(probe.timeout(&rtt, false), first - ACK_HOLD + ACK_DELAY);
        probe.ran_out();
        assert_eq!(probe.timeout(&rtt, true), first * 2);
        let all: Vec<_> = (0..50).map(|_| probe.ran_out()).collect();
        assert_eq!(all.last(), Some(&Silence::Lost { first: false }));
        assert_eq!(probe.timeout(&rtt, true), PROBE_MAX);
        assert!(probe.has_given_up());
        probe.answered();
        assert_eq!(probe.timeout(&rtt, true), first);
    }

    /// What the timeouts of a silence mean, until everything is given up.
    fn silence(probe: &mut Probe) -> (usize, Vec<Silence>) {
        let mut all = Vec::new();
        while !probe.has_given_up() {
            all.push(probe.ran_out());
        }
        (all.iter().filter(|what| **what == Silence::Ask).count(), all)
    }

    /// WIND-5.4, WIND-5.7.
    #[test]
    fn what_was_repeated_in_vain_teaches_patience_and_calm_forgets_it() {
        let mut probe = Probe::new(Duration::from_secs(5));
        let (_, all) = silence(&mut probe);
        assert_eq!(
            all,
            [
                Silence::Tail { first: true },
                Silence::Tail { first: false },
                Silence::Lost { first: true }
            ]
        );
        assert_eq!(probe.ran_out(), Silence::Lost { first: false });
        probe.answered();
        assert_eq!(silence(&mut probe).0, 0, "what was lost teaches nothing");
        for patience in 1..=PATIENCE_MAX {
            // Several acknowledgements tell of one silence.
            for _ in 0..3 {
                probe.answered();
                probe.was_in_vain();
            }
            let (asked, all) = silence(&mut probe);
            assert_eq!((asked, all.len()), (patience as usize, patience as usize + 3));
        }
        probe.answered();
        probe.was_in_vain();
        assert_eq!(silence(&mut probe).0, PATIENCE_MAX as usize, "bounded");
        for patience in (0..PATIENCE_MAX).rev() {
            (0..PATIENCE_CALM).for_each(|_| probe.answered());
            assert_eq!(silence(&mut probe).0, patience as usize);
        }
    }

    #[test]
    fn a_silence_in_which_nothing_was_repeated_teaches_nothing() {
        let mut probe = Probe::new(Duration::from_secs(5));
        probe.ran_out();
        probe.was_in_vain();
        probe.answered();
        assert_eq!(probe.ran_out(), Silence::Ask);
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
