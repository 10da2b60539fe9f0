//! Fast paths of the link that a peer's datagrams may take (WIND-8.10).
//!
//! A link may hand the kernel several datagrams as one (segmentation offload), or small ones past
//! its IP (kernel bypass). The system calls succeed, but a broken driver, tunnel or rule on the way
//! loses exactly those datagrams. Only the connection notices. A datagram that took the fast path
//! is lost again and again, while the same content arrives when it is sent in single datagrams
//! through the socket.

use crate::limits::{
    FAST_PATH_LOST_MIN, FAST_PATH_RETRY_MAX, FAST_PATH_RETRY_MIN, FAST_PATH_ROUNDS,
    FAST_PATH_WEIGHT,
};
use crate::time::Time;

/// Ways by which the link may send a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendMode {
    /// Any fast path is permitted.
    #[default]
    Any,
    /// One system call for the datagram: no segmentation offload, no splicing.
    Single,
    /// One system call through the socket: no kernel bypass either.
    Plain,
}

/// Evidence that a datagram gives about fast paths when its fate is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The datagram was sent alone and may have bypassed the kernel's IP.
    #[default]
    Alone,
    /// The datagram may have been a segment of a train, because the datagram beside it was sent at
    /// the same time and is as long.
    Segment,
    /// The datagram was sent alone through the socket.
    Plain,
}

/// Evidence about one fast path to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastPath {
    /// Number of lost datagrams that took the fast path, less [`FAST_PATH_WEIGHT`] times those that
    /// arrived.
    score: u32,
    /// Successive rounds in which datagrams that took the fast path were lost while others arrived.
    rounds: u16,
    /// Start of the round. A loss begins a new round only if its datagram was sent later and
    /// `other_arrived` is set.
    round_began: Time,
    /// Whether a datagram that did not take the fast path has arrived in this round.
    other_arrived: bool,
    /// Time until which the fast path is not used, or 0 if it is in use.
    avoided_until: Time,
    /// Successive times that the fast path was found to lose datagrams. Each doubles the time until
    /// the next retry.
    failures: u8,
}

impl Default for FastPath {
    fn default() -> FastPath {
        let (score, rounds, round_began, other_arrived) = (0, 0, Time(0), false);
        FastPath { score, rounds, round_began, other_arrived, avoided_until: Time(0), failures: 0 }
    }
}

impl FastPath {
    /// Called when a datagram that took the fast path arrived.
    pub fn arrived(&mut self) {
        if self.score > 0 {
            self.score = self.score.saturating_sub(FAST_PATH_WEIGHT);
            if self.score == 0 {
                self.rounds = 0;
            }
        }
    }

    /// Called when a datagram that did not take the fast path arrived.
    pub fn others_arrive(&mut self) {
        self.other_arrived = true;
    }

    /// Called when a datagram that took the fast path, sent at `sent`, was overtaken and counts as
    /// lost. Call [`FastPath::verdict`] after all datagrams that are lost at once.
    pub fn lost(&mut self, sent: Time, now: Time) {
        self.score = (self.score + 1).min(FAST_PATH_LOST_MIN * 4);
        if self.other_arrived && sent > self.round_began {
            (self.rounds, self.round_began, self.other_arrived) = (self.rounds + 1, now, false);
        }
    }

    /// Returns `true` if datagrams that took the fast path were lost and too few have arrived
    /// since.
    pub fn is_doubtful(&self) -> bool {
        self.rounds > 0
    }

    /// Returns `Some` if the fast path is to be avoided from now on, and was not so far. The value
    /// is `true` if that is news, and `false` if an earlier retry had failed.
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

/// Hashes nothing, because only the link sees a difference. To the exhaustive model, states that
/// differ only in this are equal.
impl core::hash::Hash for Evidence {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Hashes nothing, as for [`Evidence`].
impl core::hash::Hash for FastPath {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Tracks acknowledgements that are sent alone, which are not acknowledged themselves (WIND-8.11).
/// Only the peer's next datagram shows their fate: it brings the same content again, or something
/// new.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckPath {
    /// Time and mode of the latest such acknowledgement.
    last: Option<(Time, SendMode)>,
    /// Whether the next one goes through the socket.
    plain: bool,
}

impl AckPath {
    /// Returns `true` if the next small datagram must go through the socket.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Called when the peer asked and sent no message. The peer's datagrams, or their
    /// acknowledgements, may have been lost.
    pub fn asked(&mut self) {
        self.plain = true;
    }

    /// Called when a small datagram was sent. `alone` means that it has nothing but
    /// acknowledgements.
    pub fn sent(&mut self, now: Time, mode: SendMode, alone: bool) {
        self.plain = false;
        if alone {
            self.last = Some((now, mode));
        }
    }

    /// Called when small messages came. `repeated` means that some of them had come before, so that
    /// their acknowledgement may have been lost.
    pub fn messages_came(&mut self, repeated: bool, bypass: &mut FastPath, now: Time) {
        self.plain |= repeated;
        match self.last.take() {
            Some((_, SendMode::Plain)) if !repeated => bypass.others_arrive(),
            Some((sent, mode)) if mode < SendMode::Plain && repeated => bypass.lost(sent, now),
            Some((_, mode)) if mode < SendMode::Plain => bypass.arrived(),
            _ => {}
        }
    }
}

/// Hashes nothing, as for [`Evidence`].
impl core::hash::Hash for AckPath {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses a train of `len` datagrams sent now, after which a single datagram arrives.
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
                "one failed retry suffices and is not news"
            );
        }
    }

    /// WIND-8.10: an outage loses everything, by any path.
    #[test]
    fn outage_is_one_round_however_much_it_loses() {
        let (mut path, mut now) = (FastPath::default(), Time(1));
        for _ in 0..20 {
            assert_eq!(round(&mut path, &mut now, 500), None);
            (0..500).for_each(|_| path.arrived());
        }
    }

    /// WIND-8.10: loss that hits everything alike does not count against a fast path.
    #[test]
    fn even_loss_of_half_of_all_does_not_count() {
        let (mut path, mut now) = (FastPath::default(), Time(1));
        for _ in 0..1000 {
            assert_eq!(round(&mut path, &mut now, 1), None);
            path.arrived();
        }
    }
}
