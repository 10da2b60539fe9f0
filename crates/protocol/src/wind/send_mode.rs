//! Which fast paths of the link a peer's datagrams may take (WIND-8.10).
//!
//! A link may hand the kernel several datagrams as one (segmentation offload), or small ones past
//! its IP (kernel bypass). The system calls succeed, and a broken driver, tunnel or rule on the way
//! loses exactly those. Only the connection sees that: what took the fast path is lost again and
//! again, while the same content arrives when it goes one by one through the socket.

use crate::limits::{
    FAST_PATH_LOST_MIN, FAST_PATH_RETRY_MAX, FAST_PATH_RETRY_MIN, FAST_PATH_ROUNDS,
    FAST_PATH_WEIGHT,
};
use crate::time::Time;

/// How the link may send a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendMode {
    /// By any fast path.
    #[default]
    Any,
    /// By a call of its own: no segmentation offload, no splicing.
    Single,
    /// By a call of its own through the socket: no kernel bypass either.
    Plain,
}

/// What a datagram tells about fast paths when its fate is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// It went alone and may have bypassed the kernel's IP.
    #[default]
    Alone,
    /// It may have been a segment of a train: the one beside it was sent at the same time and is as
    /// long.
    Segment,
    /// It went alone through the socket.
    Plain,
}

/// Evidence about one fast path to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastPath {
    /// Datagrams lost that took it, less [`FAST_PATH_WEIGHT`] times those that arrived.
    score: u32,
    /// Times in a row that what took it was lost while others arrived.
    rounds: u16,
    /// A loss counts as a new round only if its datagram was sent later, …
    round_began: Time,
    /// … and something arrived meanwhile that did not take it.
    other_arrived: bool,
    /// It is not used until then; time 0 if it is in use.
    avoided_until: Time,
    /// Times in a row that it was found to lose what takes it. Each doubles the time until it is
    /// tried again.
    failures: u8,
}

impl Default for FastPath {
    fn default() -> FastPath {
        let (score, rounds, round_began, other_arrived) = (0, 0, Time(0), false);
        FastPath { score, rounds, round_began, other_arrived, avoided_until: Time(0), failures: 0 }
    }
}

impl FastPath {
    /// A datagram that took it arrived.
    pub fn arrived(&mut self) {
        if self.score > 0 {
            self.score = self.score.saturating_sub(FAST_PATH_WEIGHT);
            if self.score == 0 {
                self.rounds = 0;
            }
        }
    }

    /// A datagram arrived that did not take it.
    pub fn others_arrive(&mut self) {
        self.other_arrived = true;
    }

    /// A datagram that took it, sent at `sent`, was overtaken and counts as lost. Call
    /// [`FastPath::verdict`] for all that are lost at once.
    pub fn lost(&mut self, sent: Time, now: Time) {
        self.score = (self.score + 1).min(FAST_PATH_LOST_MIN * 4);
        if self.other_arrived && sent > self.round_began {
            (self.rounds, self.round_began, self.other_arrived) = (self.rounds + 1, now, false);
        }
    }

    /// Was something lost that took it, and not made up for?
    pub fn is_doubtful(&self) -> bool {
        self.rounds > 0
    }

    /// Is it to be avoided from now on, though it was not? Also says whether that is news: not if
    /// an earlier retry failed.
    pub fn verdict(&mut self, now: Time) -> Option<bool> {
        let failed_before = self.failures > 0;
        let rounds = if failed_before { 1 } else { FAST_PATH_ROUNDS };
        let enough = self.score >= FAST_PATH_LOST_MIN || (failed_before && self.score > 0);
        if self.rounds < rounds || !enough || self.is_avoided(now) {
            return None;
        }
        let pause =
            FAST_PATH_RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(FAST_PATH_RETRY_MAX);
        *self = FastPath {
            avoided_until: now + pause,
            failures: self.failures.saturating_add(1),
            ..FastPath::default()
        };
        Some(!failed_before)
    }

    pub fn is_avoided(&self, now: Time) -> bool {
        now < self.avoided_until
    }
}

/// The link alone sees a difference: to the exhaustive model, states that differ only in this are
/// one.
impl core::hash::Hash for Kind {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// As for [`Kind`].
impl core::hash::Hash for FastPath {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Acknowledgements that go alone are not acknowledged (WIND-8.11). Only what the peer sends next
/// tells their fate: the same again, or something new.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckPath {
    /// The latest one: when it went, and how.
    last: Option<(Time, SendMode)>,
    /// The next one goes through the socket.
    plain: bool,
}

impl AckPath {
    /// Must the next small datagram go through the socket?
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The peer asked and sent no message: what it had sent, or its acknowledgement, may have been
    /// lost.
    pub fn asked(&mut self) {
        self.plain = true;
    }

    /// A small datagram was sent; `alone`: nothing but acknowledgements.
    pub fn sent(&mut self, now: Time, mode: SendMode, alone: bool) {
        self.plain = false;
        if alone {
            self.last = Some((now, mode));
        }
    }

    /// Small messages came; `again`: some of them for another time, so their acknowledgement may
    /// have been lost.
    pub fn messages_came(&mut self, again: bool, bypass: &mut FastPath, now: Time) {
        self.plain |= again;
        match self.last.take() {
            Some((_, SendMode::Plain)) if !again => bypass.others_arrive(),
            Some((sent, mode)) if mode < SendMode::Plain && again => bypass.lost(sent, now),
            Some((_, mode)) if mode < SendMode::Plain => bypass.arrived(),
            _ => {}
        }
    }
}

/// As for [`Kind`].
impl core::hash::Hash for AckPath {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train of so many, sent now and lost, after which a single datagram arrives.
    fn round(path: &mut FastPath, now: &mut Time, len: u32) -> Option<bool> {
        let sent = *now;
        *now = Time(now.0 + 1_000_000);
        path.others_arrive();
        (0..len).for_each(|_| path.lost(sent, *now));
        *now = Time(now.0 + 1_000_000);
        path.verdict(*now)
    }

    /// WIND-8.10.
    #[test]
    fn fast_path_that_loses_everything_is_avoided_and_retried_ever_more_rarely() {
        let (mut path, mut now) = (FastPath::default(), Time(1));
        let verdicts: std::vec::Vec<_> =
            (0..FAST_PATH_ROUNDS).map(|_| round(&mut path, &mut now, 32)).collect();
        assert!(verdicts[..verdicts.len() - 1].iter().all(Option::is_none));
        assert_eq!(verdicts.last(), Some(&Some(true)));
        for factor in [1, 2, 4] {
            assert!(path.is_avoided(now));
            now += FAST_PATH_RETRY_MIN * factor;
            assert!(!path.is_avoided(now));
            assert_eq!(
                round(&mut path, &mut now, 2),
                Some(false),
                "one failed retry suffices and is no news"
            );
        }
    }

    /// WIND-8.10: an outage loses everything, whatever path it took.
    #[test]
    fn outage_is_one_round_however_much_it_loses() {
        let (mut path, mut now) = (FastPath::default(), Time(1));
        for _ in 0..20 {
            assert_eq!(round(&mut path, &mut now, 500), None);
            (0..500).for_each(|_| path.arrived());
        }
    }

    /// WIND-8.10: loss that hits everything alike is not held against a fast path.
    #[test]
    fn even_loss_of_half_of_all_does_not_count() {
        let (mut path, mut now) = (FastPath::default(), Time(1));
        for _ in 0..1000 {
            assert_eq!(round(&mut path, &mut now, 1), None);
            path.arrived();
        }
    }
}
