//! Recovery state of one flow (WIND-14): what the fate of its own datagrams says about its path.
//!
//! A lane has one sequence of datagram numbers, however many flows carry it. MPTCP and multipath
//! QUIC number each path apart, so that a receiver sees no gaps. Here the receiver does not know
//! which flow a datagram belongs to, and the sender compares only datagrams of one flow.

use super::loss::Overtaker;
use super::reordering::Reordering;
use super::rtt::RoundTrip;
use super::spurious::Episode;
use crate::limits::{FLOW_RETRY_MAX, FLOW_RETRY_MIN, FLOW_SILENT_ROUNDS};
use crate::time::Time;
use alloc::boxed::Box;
use core::time::Duration;

/// Effects of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct Acked {
    pub bytes: u64,
    pub datagrams: u32,
    /// Time when the latest of the acknowledged datagrams was sent.
    pub latest: Time,
    /// Round trip that the acknowledgement shows.
    pub round_trip: Option<Duration>,
    /// Number of datagrams that had been declared lost and have arrived.
    pub spurious: u64,
    /// Whether a probe timeout had declared some of these lost.
    pub probed_in_vain: bool,
    /// Whether with these all losses have arrived for which the window was last reduced.
    pub undo: bool,
}

/// Datagrams that an acknowledgement newly reports: the one sent last, and the least number.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct News {
    pub newest: (u64, Time),
    pub least: u64,
}

impl News {
    pub fn add(news: &mut Option<News>, number: u64, sent: Time) {
        let (newest, least) =
            news.map_or(((number, sent), number), |news| (news.newest, news.least));
        *news = Some(News { newest: newest.max((number, sent)), least: least.min(number) });
    }
}

/// State of one flow, as the fate of its datagrams shows it.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct FlowRecord {
    pub rtt: RoundTrip,
    pub(super) reordering: Reordering,
    pub(super) episode: Episode,
    pub(super) overtaker: Option<Overtaker>,
    /// Kept only while the lane has several flows. Most peers are idle, and each costs memory.
    share: Option<Box<FlowShare>>,
}

/// Part that one of several flows has of the lane's state.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct FlowShare {
    /// Bytes in flight.
    pub in_flight: u64,
    /// Datagrams sent that must be acknowledged, and those of them that were declared lost.
    pub sent: u64,
    pub losses: u64,
    /// Effects of the latest acknowledgement.
    pub acked: Acked,
    pub(super) news: Option<News>,
    /// Time when the latest datagram was sent of those that were just found lost.
    pub lost: Option<Time>,
    pub silence: FlowSilence,
}

impl FlowRecord {
    /// Returns the flow's share of a lane with several flows.
    pub fn share_mut(&mut self) -> &mut FlowShare {
        self.share.get_or_insert_default()
    }

    /// Returns the number of bytes in flight, in a lane with several flows.
    pub fn in_flight(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.in_flight)
    }

    /// Returns the flow's share, in a lane with several flows.
    pub fn share(&self) -> Option<&FlowShare> {
        self.share.as_deref()
    }

    /// Returns `true` if the flow is not to be used.
    pub fn is_cut(&self, now: Time) -> bool {
        self.share.as_ref().is_some_and(|share| share.silence.is_cut(now))
    }

    /// Returns `true` if the flow carries nothing, as far as is known. One round may be that of a
    /// path whose round trip is longer than those known before.
    pub fn is_silent(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.silence.rounds > 1)
    }

    /// Called when the lane is back to one flow.
    pub(super) fn forget_share(&mut self) {
        self.share = None;
    }

    /// Holds nothing against the flow any more.
    pub(super) fn forgive(&mut self) {
        if let Some(share) = &mut self.share {
            share.silence = FlowSilence::default();
        }
    }

    /// Returns the number of the latest acknowledged datagram, or 0 if there is none.
    pub(super) fn largest_acked(&self) -> u64 {
        self.overtaker.map_or(0, |overtaker| overtaker.number)
    }

    /// Notes which datagrams have arrived, after the round trip was sampled.
    pub(super) fn note_order(&mut self, now: Time, news: News) {
        let largest = self.largest_acked();
        let (number, sent) = news.newest;
        if news.least < largest {
            self.reordering.seen();
        }
        if number > largest {
            self.overtaker = Some(Overtaker { number, round_trip: now - sent });
        }
    }
}

/// Evidence that a flow carries nothing, while others do (WIND-14.5).
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct FlowSilence {
    /// Rounds in a row in which all datagrams of the flow were lost.
    rounds: u8,
    /// Time when the latest round was noticed. A datagram sent later begins another one.
    noticed: Time,
    /// Time until which the flow is not used, or 0 if it is in use.
    cut_until: Time,
    /// Number of times that the flow was cut, without an arrival between them.
    cuts: u8,
    /// Whether a round has just ended, and the controller does not know yet.
    is_news: bool,
    /// Whether the flow was just cut for the first time, and its owner does not know yet.
    was_cut: bool,
}

impl FlowSilence {
    /// Notes that a datagram was lost that was sent at `sent`, and that nothing of the flow has
    /// arrived since.
    pub(super) fn lost(&mut self, sent: Time, now: Time) {
        if sent <= self.noticed && self.rounds > 0 {
            return;
        }
        (self.rounds, self.noticed, self.is_news) = (self.rounds.saturating_add(1), now, true);
        if self.rounds >= FLOW_SILENT_ROUNDS || self.cuts > 0 {
            let pause = FLOW_RETRY_MIN.saturating_mul(1 << self.cuts.min(16)).min(FLOW_RETRY_MAX);
            self.was_cut = self.cuts == 0;
            (self.cut_until, self.cuts) = (now + pause, self.cuts.saturating_add(1));
        }
    }

    /// Returns `true` if the flow is not to be used.
    pub fn is_cut(&self, now: Time) -> bool {
        now < self.cut_until
    }

    /// Returns the time for which the flow is still not to be used.
    pub fn cut_for(&self, now: Time) -> Duration {
        self.cut_until - now
    }

    /// Returns `true` once after each round.
    pub fn take_round(&mut self) -> bool {
        core::mem::take(&mut self.is_news)
    }

    /// Returns `true` once after the flow was first cut.
    pub fn take_cut(&mut self) -> bool {
        core::mem::take(&mut self.was_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-14.5.
    #[test]
    fn flow_is_cut_after_silent_rounds_and_tried_ever_more_rarely() {
        let mut silence = FlowSilence::default();
        let mut now = Time(1000);
        for round in 1..=FLOW_SILENT_ROUNDS {
            assert!(!silence.is_cut(now), "round {round}");
            let sent = Time(now.0 + 1);
            now += Duration::from_millis(2);
            (0..5).for_each(|_| silence.lost(sent, now));
            assert!(silence.take_round() && !silence.take_round(), "several losses, one round");
        }
        assert!(silence.is_cut(now) && silence.take_cut() && !silence.take_cut());
        for factor in [1, 2, 4] {
            now += FLOW_RETRY_MIN * factor;
            assert!(!silence.is_cut(now), "it is tried again");
            silence.lost(now, now + Duration::from_millis(2));
            now += Duration::from_millis(2);
            assert!(silence.is_cut(now) && !silence.take_cut(), "one failed retry is enough");
        }
    }
}
