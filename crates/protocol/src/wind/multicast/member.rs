//! One member of a stream, as the sender sees it: whether multicast reaches the member, and when it
//! is tried again.

use super::groups::GroupFate;
use crate::Rank;
use crate::limits::{
    GROUP_HELD_PART, GROUP_HOLD_MIN, GROUP_HOLD_ROUND_TRIPS, GROUP_JOIN_TIME, GROUP_LOSS_MAX,
    GROUP_LOSS_SLOWING, GROUP_LOSS_SPAN, GROUP_PROBES_MAX, GROUP_RETRY_MAX, GROUP_RETRY_MIN,
    GROUP_ROUNDS_MAX, GROUP_SPANS_CALM,
};
use crate::time::Time;
use core::time::Duration;

/// State of a member of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member was asked to follow the stream and has not answered.
    Invited,
    /// The member follows the stream, and probes show whether multicast reaches it.
    Joined,
    /// The member has acknowledged a group datagram, and gets messages by them.
    Proven,
    /// The member gets its messages alone, because it answered no probe, held the others up or lost
    /// too much. It is probed again later.
    Out,
    /// The member does not follow the stream, or did not answer in time.
    Refused,
    /// The connection to the member has ended, or the member is a new process.
    Lost,
}

/// Member of a stream.
#[derive(Debug)]
pub(super) struct Member {
    pub rank: Rank,
    pub state: MemberState,
    /// Least number whose acknowledgement proves that multicast reaches the member.
    proof_from: u64,
    /// Number of probes since then that were sent.
    probes: u8,
    /// Number of rounds of probes since the member was proven last, none of which was answered.
    vain_rounds: u8,
    /// Time by which the member has to answer whether it follows the stream.
    join_by: Option<Time>,
    /// Time of the next probe, or of the end of the wait for an answer.
    due: Time,
    /// Time until the next retry, once the member is left out.
    retry: Duration,
    /// Start of the time in which the member holds others up.
    held_since: Option<Time>,
    /// Time for which the member has held others up since the beginning of the span.
    held: Duration,
    /// Fate at the beginning of the span over which loss is judged.
    judged: GroupFate,
    /// Beginning of this span, and the time for which the stream had been busy then.
    judged_at: (Time, Duration),
    /// Number of datagrams that were lost at the latest look.
    lost: u64,
    /// Spans without too much loss since the member was proven.
    calm: u32,
}

impl Member {
    pub fn new(rank: Rank) -> Member {
        Member {
            rank,
            state: MemberState::Invited,
            proof_from: 0,
            probes: 0,
            vain_rounds: 0,
            join_by: None,
            due: Time(0),
            retry: GROUP_RETRY_MIN,
            held_since: None,
            held: Duration::ZERO,
            judged: GroupFate::default(),
            judged_at: (Time(0), Duration::ZERO),
            lost: 0,
            calm: 0,
        }
    }

    /// Returns `true` if the member can still be proven.
    pub fn is_possible(&self) -> bool {
        !matches!(self.state, MemberState::Refused | MemberState::Lost)
    }

    /// Returns `true` if the member can still be proven, and multicast is not known to be lost on
    /// the way to it.
    pub fn is_hopeful(&self) -> bool {
        self.is_possible() && self.vain_rounds < GROUP_ROUNDS_MAX
    }

    /// Notes that the member is asked to follow the stream.
    pub fn invited(&mut self, now: Time) {
        self.join_by = Some(now + GROUP_JOIN_TIME);
    }

    /// Returns `true` if the member's answer is awaited. One that comes too late is a refusal.
    pub fn is_awaited(&mut self, now: Time) -> bool {
        if self.state != MemberState::Invited {
            return false;
        }
        if self.join_by.is_some_and(|at| at <= now) {
            self.state = MemberState::Refused;
        }
        true
    }

    pub fn is_proven(&self) -> bool {
        self.state == MemberState::Proven
    }

    /// Begins to probe the member. The next group datagram has number `next`.
    pub fn joined(&mut self, next: u64, now: Time) {
        (self.state, self.proof_from, self.probes, self.due) = (MemberState::Joined, next, 0, now);
    }

    /// Leaves the member out until it is tried again (WIND-12.9).
    pub fn leave_out(&mut self, now: Time) {
        (self.state, self.due) = (MemberState::Out, now + self.retry);
        self.retry = (self.retry * 2).min(GROUP_RETRY_MAX);
        self.held_since = None;
    }

    /// Returns `true` if a probe to the member is due.
    pub fn wants_probe(&self, now: Time) -> bool {
        self.state == MemberState::Joined && self.probes < GROUP_PROBES_MAX && self.due <= now
    }

    /// Called when a probe was sent that counts as unanswered after `timeout`.
    pub fn probed(&mut self, now: Time, timeout: Duration) {
        self.due = now + timeout.max(GROUP_HOLD_MIN);
        self.probes += 1;
    }

    /// Returns the next time at which the member's state may change by itself.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.state {
            MemberState::Joined | MemberState::Out => Some(self.due),
            MemberState::Invited => self.join_by,
            MemberState::Proven | MemberState::Refused | MemberState::Lost => None,
        }
    }

    /// Returns `true` if more datagrams were lost than at the latest look.
    pub fn has_lost_more(&mut self, fate: GroupFate) -> bool {
        core::mem::replace(&mut self.lost, fate.lost) < fate.lost
    }

    /// Learns from the fate of the group datagrams that were addressed to the member. `busy` is the
    /// time for which messages have waited in the stream so far. Returns `true` if the member is to
    /// be left out.
    pub fn learn(&mut self, fate: GroupFate, next: u64, now: Time, busy: Duration) -> bool {
        match self.state {
            MemberState::Joined if self.probes > 0 && fate.largest >= self.proof_from => {
                (self.state, self.calm, self.vain_rounds) = (MemberState::Proven, 0, 0);
                self.begin_span(fate, now, busy);
                false
            }
            MemberState::Joined => {
                let is_in_vain = self.probes >= GROUP_PROBES_MAX && self.due <= now;
                self.vain_rounds = self.vain_rounds.saturating_add(u8::from(is_in_vain));
                is_in_vain
            }
            MemberState::Proven => fate.given_up || self.loses_too_much(fate, now, busy),
            MemberState::Out if self.due <= now => {
                self.joined(next, now);
                false
            }
            _ => false,
        }
    }

    fn begin_span(&mut self, fate: GroupFate, now: Time, busy: Duration) {
        (self.judged, self.judged_at, self.held) = (fate, (now, busy), Duration::ZERO);
    }

    /// Returns the time from `since` on that belongs to this span.
    fn in_span(&self, since: Time, now: Time) -> Duration {
        now - since.max(self.judged_at.0)
    }

    /// Judges the loss of a whole span (WIND-12.9).
    fn loses_too_much(&mut self, fate: GroupFate, now: Time, busy: Duration) -> bool {
        let lost = fate.lost.saturating_sub(self.judged.lost);
        let all = lost + fate.acknowledged.saturating_sub(self.judged.acknowledged);
        if all < GROUP_LOSS_SPAN {
            return false;
        }
        let last = self.held_since.map_or(Duration::ZERO, |since| self.in_span(since, now));
        let slows = (self.held + last) * GROUP_HELD_PART > busy.saturating_sub(self.judged_at.1);
        self.begin_span(fate, now, busy);
        self.calm += 1;
        if self.calm >= GROUP_SPANS_CALM {
            self.retry = GROUP_RETRY_MIN;
        }
        let most = if slows { GROUP_LOSS_SLOWING } else { GROUP_LOSS_MAX };
        lost * 100 > all * most
    }

    /// Notes whether the member holds all others up, and then its round trip. Returns when it is
    /// left out for that (WIND-12.9).
    pub fn holds_up(&mut self, round_trip: Option<Duration>, now: Time) -> Option<Time> {
        let Some(round_trip) = round_trip else {
            if let Some(since) = self.held_since.take() {
                self.held += self.in_span(since, now);
            }
            return None;
        };
        let longest = (round_trip * GROUP_HOLD_ROUND_TRIPS).max(GROUP_HOLD_MIN);
        Some(*self.held_since.get_or_insert(now) + longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven() -> Member {
        let mut member = Member::new(1);
        member.joined(5, Time(0));
        member.probed(Time(0), Duration::ZERO);
        member.learn(GroupFate { largest: 4, ..GroupFate::default() }, 6, Time(1), Duration::ZERO);
        assert_eq!(member.state, MemberState::Joined, "it acknowledged something older");
        member.learn(GroupFate { largest: 5, ..GroupFate::default() }, 6, Time(1), Duration::ZERO);
        assert!(member.is_proven());
        member
    }

    /// WIND-12.9: a member is left out that has no room for long, and the wait begins anew once it
    /// has some.
    #[test]
    fn time_without_room_counts_while_it_lasts() {
        let mut member = proven();
        let (slow, quick) = (Some(Duration::from_millis(10)), Some(Duration::from_micros(10)));
        assert_eq!(member.holds_up(quick, Time(7)), Some(Time(7) + GROUP_HOLD_MIN));
        assert_eq!(member.holds_up(quick, Time(9)), Some(Time(7) + GROUP_HOLD_MIN));
        assert_eq!(member.holds_up(None, Time(10)), None);
        assert_eq!(member.holds_up(slow, Time(11)), Some(Time(11) + Duration::from_millis(40)));
    }

    /// WIND-12.9: loss is judged over spans of 64 datagrams.
    #[test]
    fn member_that_loses_more_than_a_tenth_is_left_out() {
        for (lost, is_too_much) in [(0, false), (6, false), (7, true), (69, true)] {
            let mut member = proven();
            let early = GroupFate { lost, acknowledged: 69 - lost, ..GroupFate::default() };
            let few = GroupFate { lost: 63, acknowledged: 0, ..GroupFate::default() };
            assert!(!member.learn(few, 9, Time(2), Duration::ZERO), "too few to judge");
            assert_eq!(
                member.learn(early, 9, Time(3), Duration::ZERO),
                is_too_much,
                "{lost} of them"
            );
        }
        let given_up = GroupFate { given_up: true, ..GroupFate::default() };
        assert!(proven().learn(given_up, 9, Time(2), Duration::ZERO));
    }

    /// WIND-12.9: a member with less loss is left out if the others wait for it for too long.
    #[test]
    fn member_that_loses_some_is_left_out_if_it_slows_the_others() {
        let busy = Duration::from_millis(10);
        for (lost, held_ms, is_left_out) in
            [(1, 9, false), (2, 3, true), (2, 1, false), (6, 2, false), (6, 3, true)]
        {
            let mut member = proven();
            let round_trip = Some(Duration::from_micros(10));
            let began = Time(1) + Duration::from_millis(1);
            member.holds_up(round_trip, began);
            member.holds_up(None, began + Duration::from_millis(held_ms - 1));
            // The rest is not over yet.
            let last = began + Duration::from_millis(50);
            member.holds_up(round_trip, last);
            let now = last + Duration::from_millis(1);
            let fate = GroupFate { lost, acknowledged: 64 - lost, ..GroupFate::default() };
            assert_eq!(member.learn(fate, 9, now, busy), is_left_out, "{lost} and {held_ms} ms");
            // The next span begins anew.
            let fate = GroupFate { lost: 2 * lost, acknowledged: 2 * (64 - lost), ..fate };
            assert!(!member.learn(fate, 9, now, busy + busy), "{lost} and {held_ms} ms");
        }
    }

    /// WIND-12.9: retries become rarer, until the member has behaved well for long.
    #[test]
    fn pauses_between_retries_double_and_begin_anew_after_calm() {
        let mut member = proven();
        let mut now = Time(0);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            member.leave_out(now);
            assert_eq!(member.next_timeout(), Some(now + Duration::from_secs(expected)));
            now += Duration::from_secs(expected);
            assert!(!member.learn(GroupFate::default(), 9, now, Duration::ZERO));
            assert!(member.wants_probe(now));
        }
        for _ in 0..GROUP_PROBES_MAX {
            member.probed(now, Duration::ZERO);
        }
        let late = now + GROUP_HOLD_MIN;
        assert!(
            member.learn(GroupFate::default(), 9, late, Duration::ZERO),
            "no probe was answered"
        );
        let mut fate = GroupFate { largest: 9, ..GroupFate::default() };
        member.learn(fate, 9, now, Duration::ZERO);
        for _ in 0..GROUP_SPANS_CALM {
            fate.acknowledged += GROUP_LOSS_SPAN;
            assert!(!member.learn(fate, 9, now, Duration::ZERO));
        }
        member.leave_out(now);
        assert_eq!(member.next_timeout(), Some(now + GROUP_RETRY_MIN));
    }

    /// WIND-12.8: a stream is not kept for a member that multicast never reaches, until the member
    /// answers a probe after all.
    #[test]
    fn member_that_answers_no_probe_is_without_hope() {
        let mut member = proven();
        let mut now = Time(0);
        let mut fate = GroupFate { largest: 8, ..GroupFate::default() };
        for round in 1..=GROUP_ROUNDS_MAX {
            assert!(member.is_hopeful(), "before round {round}");
            member.joined(9, now);
            (0..GROUP_PROBES_MAX).for_each(|_| member.probed(now, Duration::ZERO));
            assert!(!member.learn(fate, 12, now, Duration::ZERO), "the last probe may be answered");
            now += GROUP_HOLD_MIN;
            assert!(member.learn(fate, 12, now, Duration::ZERO));
            member.leave_out(now);
        }
        assert!(!member.is_hopeful() && member.is_possible());
        now += GROUP_RETRY_MAX;
        member.learn(fate, 12, now, Duration::ZERO);
        member.probed(now, Duration::ZERO);
        fate.largest = 12;
        member.learn(fate, 13, now, Duration::ZERO);
        assert!(member.is_proven() && member.is_hopeful());
    }

    /// WIND-12.8: a member that does not say in time whether it follows the stream does not.
    #[test]
    fn member_that_does_not_answer_in_time_has_refused() {
        let mut member = Member::new(1);
        assert!(member.is_awaited(Time(u64::MAX)), "it was not asked");
        assert_eq!((member.state, member.next_timeout()), (MemberState::Invited, None));
        member.invited(Time(7));
        let end = Time(7) + GROUP_JOIN_TIME;
        assert_eq!(member.next_timeout(), Some(end));
        assert!(member.is_awaited(Time(end.0 - 1)) && member.is_possible());
        member.is_awaited(end);
        assert_eq!((member.state, member.next_timeout()), (MemberState::Refused, None));
    }
}
