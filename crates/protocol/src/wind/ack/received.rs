//! Records which datagrams of a lane have arrived, and when an ACK is due for them (WIND-3).

use super::ranges::RangeSet;
use crate::limits::{
    ACK_DELAY, ACK_EVERY, ACK_PIGGYBACK_TIME, ACK_RANGES_MAX, NUMBERS_AHEAD_MAX,
    RECEIVED_RANGES_MAX, REFUSALS_MAX,
};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::delayed::AckPolicy;
use crate::wind::recv::refusals::Refusals;
use crate::wire::acknowledge::{AckFields, RefusedMessage};
use crate::wire::build::Builder;
use crate::wire::header::Lane;
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;

/// Ranges of datagram numbers, largest first.
pub(crate) type Ranges = ArrayVec<RangeInclusive<u64>, ACK_RANGES_MAX>;

/// Acknowledgement that a datagram's sender expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// No acknowledgement is expected.
    Nothing,
    /// An acknowledgement is expected in time.
    Acknowledgement,
    /// An acknowledgement is expected soon, because somebody waits for the datagram's message.
    Answer,
    /// An acknowledgement is expected at once.
    AtOnce,
}

impl Wants {
    /// Returns what the sender of a datagram expects that must be acknowledged.
    pub fn of(has_message: bool, ack_now: bool) -> Wants {
        match (has_message, ack_now) {
            (_, false) => Wants::Acknowledgement,
            (true, true) => Wants::Answer,
            (false, true) => Wants::AtOnce,
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct ReceivedDatagrams {
    lane: Lane,
    /// Number of datagrams that came marked CE, modulo 2³².
    pub marked: u32,
    /// Bytes that the peer may have in flight.
    pub share: u32,
    seen: RangeSet,
    /// Number below which all datagrams count as seen, because their ranges are forgotten.
    floor: u64,
    largest: u64,
    largest_at: Time,
    /// Largest number of a datagram that brought an acknowledgement.
    acknowledged_by: u64,
    /// Number below which the peer knows what has arrived.
    report_from: u64,
    /// Least number recorded since the latest ACK, or `u64::MAX`.
    least_news: u64,
    /// Number of datagrams that must be acknowledged and are not.
    pending: u32,
    due: bool,
    deadline: Option<Time>,
    ack_policy: AckPolicy,
}

impl ReceivedDatagrams {
    /// Creates the record. `share` is the number of bytes that the peer may have in flight.
    pub fn new(lane: Lane, share: u32) -> ReceivedDatagrams {
        ReceivedDatagrams {
            lane,
            marked: 0,
            share,
            seen: RangeSet::new(),
            floor: 0,
            largest: 0,
            largest_at: Time(0),
            acknowledged_by: 0,
            report_from: 0,
            least_news: u64::MAX,
            pending: 0,
            due: false,
            deadline: None,
            ack_policy: AckPolicy::new(),
        }
    }

    /// Returns `true` if a datagram can have this number, which it cannot if the number is farther
    /// ahead than any window reaches (WIND-3.2).
    pub fn is_plausible(&self, number: u64) -> bool {
        number <= self.largest.saturating_add(NUMBERS_AHEAD_MAX)
    }

    /// Returns `true` if this number is at most so far from the largest that came before it.
    pub fn is_near(&self, number: u64, distance: u64) -> bool {
        self.largest.abs_diff(number) <= distance
    }

    /// Returns `true` if this datagram has not arrived before (WIND-3.2).
    pub fn is_new(&self, number: u64) -> bool {
        planted(Bug::AcceptDuplicateDatagram)
            || (number >= self.floor && !self.seen.contains(number))
    }

    /// Notes that the datagram with this number brings an acknowledgement. Returns `true` if every
    /// datagram since the previous acknowledgement has arrived, so that no acknowledgement was
    /// lost.
    pub fn acknowledgement_came(&mut self, number: u64) -> bool {
        let before = self.acknowledged_by;
        self.acknowledged_by = before.max(number);
        before < number && self.seen.covers(&(before + 1..number))
    }

    #[cfg(test)]
    pub fn pieces(&self) -> usize {
        self.seen.pieces()
    }

    /// Gives memory back after a silence. Datagrams that have not arrived by now do not count when
    /// they arrive.
    pub fn shrink(&mut self) {
        if let Some(begin) = self.seen.keep_last() {
            self.floor = self.floor.max(begin);
        }
    }

    /// Records an accepted datagram, and decides when to acknowledge it (WIND-3.3, WIND-3.8).
    pub fn record(&mut self, number: u64, now: Time, wants: Wants) {
        let next = number == self.largest + 1;
        self.seen.insert(number..number + 1);
        while self.seen.pieces() > RECEIVED_RANGES_MAX {
            if let Some(range) = self.seen.forget_first() {
                self.floor = range.end;
            }
        }
        if number > self.largest {
            self.largest = number;
            self.largest_at = now;
        }
        self.report_from = self.report_from.min(number);
        self.least_news = self.least_news.min(number);
        if wants == Wants::Nothing {
            return;
        }
        self.pending += 1;
        // The same ACK answers datagrams that came just before, such as the fragments before the
        // last one.
        let others_wait = |deadline: Time| {
            deadline > now + ACK_PIGGYBACK_TIME && deadline < now + (ACK_DELAY - ACK_PIGGYBACK_TIME)
        };
        let held = match wants {
            Wants::Answer => self.ack_policy.asked(now, !self.deadline.is_some_and(others_wait)),
            _ => None,
        };
        // A number that does not follow the largest means that one is missing or late.
        let at_once = wants == Wants::AtOnce || (wants == Wants::Answer && held.is_none());
        self.due |= at_once || !next || self.pending >= ACK_EVERY;
        let latest = held.unwrap_or(now + ACK_DELAY);
        self.deadline = Some(self.deadline.map_or(latest, |deadline| deadline.min(latest)));
    }

    /// Called when a datagram with a message of this node is sent.
    pub fn data_goes(&mut self, now: Time) {
        self.ack_policy.data_goes(now);
    }

    /// Makes an ACK due that repeats what is known.
    pub fn remind(&mut self) {
        self.due = true;
    }

    /// Returns `true` if the peer may not know of everything that has arrived.
    pub fn is_unconfirmed(&self) -> bool {
        self.largest > self.report_from
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.due || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns `true` if an ACK would say anything new.
    pub fn has_news(&self) -> bool {
        self.due || self.pending > 0
    }

    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Lists the ranges for an ACK frame, largest first, without the number that is withheld. The
    /// result is filled in place, because a return value would be moved whole, however few the
    /// ranges.
    pub fn list(&self, withheld: Option<u64>, ranges: &mut Ranges) {
        if planted(Bug::AcknowledgeUnreceived) {
            return ranges.push(1..=self.largest);
        }
        let withheld = withheld.unwrap_or(u64::MAX);
        // With many gaps, half of the ranges are the largest ones, and half are those from the
        // least new number on. A datagram of a slow flow arrives below many others (WIND-14.3).
        let count = self.seen.pieces();
        let omitted = match count - self.seen.pieces_below(self.report_from) < ACK_RANGES_MAX {
            true => 0..0,
            false => {
                let low = self.seen.pieces_below(self.least_news) + ACK_RANGES_MAX / 2;
                low..(count - ACK_RANGES_MAX / 2).max(low)
            }
        };
        let ranges_down = (0..count).rev().zip(self.seen.iter().rev());
        for (_, range) in ranges_down
            .filter(|(index, _)| !omitted.contains(index))
            .take_while(|(_, range)| range.end > self.report_from)
        {
            let (low, high) = (range.start.max(self.report_from), range.end - 1);
            // A withheld number splits its range in two.
            let cut = (low..=high).contains(&withheld);
            let upper = if cut { withheld + 1 } else { low };
            let reported = upper > high || ranges.try_push(upper..=high).is_ok();
            if !reported || (cut && low < withheld && ranges.try_push(low..=withheld - 1).is_err())
            {
                break;
            }
        }
    }

    /// Writes an ACK frame of these ranges ([`list`](Self::list)) into a datagram with or without a
    /// message of this node. It is a GROUP_ACK frame if there is a stream. Returns what to remember
    /// of it: the largest number reported, see [`confirm`](Self::confirm), and the result of
    /// [`Refusals::report`] for the first `count` refusals. The datagram must be acknowledged if
    /// the frame reports any refusals.
    pub fn write(
        &mut self,
        now: Time,
        (stream, ranges): (Option<u64>, &Ranges),
        credit: u64,
        with_message: bool,
        (refusals, count): (&mut Refusals, usize),
        builder: &mut Builder<'_>,
    ) -> (u64, u64) {
        if !with_message {
            self.ack_policy.goes_alone(now);
        }
        let delay = u32::try_from((now - self.largest_at).as_nanos()).unwrap_or(u32::MAX);
        let fields =
            AckFields { lane: self.lane, credit, delay, marked: self.marked, share: self.share };
        let mut refused = ArrayVec::<RefusedMessage, REFUSALS_MAX>::new();
        let through = refusals.report(count, &mut refused);
        match stream {
            None => builder.acknowledge(ranges.iter().cloned(), fields, &refused),
            Some(stream) => {
                builder.group_acknowledge(stream, ranges.iter().cloned(), fields, &refused);
            }
        }
        self.least_news = u64::MAX;
        self.pending = 0;
        self.due = false;
        self.deadline = None;
        (self.largest, through)
    }

    /// Called when the datagram with an ACK frame was acknowledged, so that the peer knows the
    /// content of the frame.
    pub fn confirm(&mut self, largest: u64) {
        self.report_from = self.report_from.max(largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `true` if the last of these datagrams is acknowledged at once. One datagram arrives
    /// each microsecond, and each wants `wants`.
    fn at_once(numbers: impl IntoIterator<Item = u64>, wants: Wants) -> bool {
        let mut arrivals = ReceivedDatagrams::new(Lane::Small, 0);
        let mut now = Time(0);
        for number in numbers {
            now = Time(number * 1000);
            arrivals.record(number, now, wants);
        }
        let due = arrivals.is_due(now);
        // Otherwise it is acknowledged in time, and no sooner.
        if !due && wants != Wants::Nothing {
            let deadline = arrivals.deadline().unwrap();
            assert_eq!(deadline, Time(1000) + ACK_DELAY);
            assert!(arrivals.is_due(deadline) && !arrivals.is_due(Time(deadline.0 - 1)));
        }
        due
    }

    /// WIND-3.3, WIND-14.3: what came late is told, however many gaps are above it.
    #[test]
    fn late_datagram_below_many_gaps_is_listed() {
        let mut arrivals = ReceivedDatagrams::new(Lane::Bulk, 0);
        let listed = |arrivals: &ReceivedDatagrams| {
            let mut ranges = Ranges::new();
            arrivals.list(None, &mut ranges);
            assert!(ranges.windows(2).all(|pair| pair[0].start() > pair[1].end()), "{ranges:?}");
            ranges
        };
        for number in 1..100 {
            arrivals.record(2 * number, Time(0), Wants::Acknowledgement);
        }
        let ranges = listed(&arrivals);
        assert!(ranges.is_full() && ranges[0] == (198..=198), "{ranges:?}");
        let mut bytes = alloc::vec::Vec::new();
        let seal = crate::wire::SealKind::EndToEnd;
        let mut builder = Builder::new(&mut bytes, 1, 1, seal, 1232);
        let reported = (&mut Refusals::default(), 0);
        arrivals.write(Time(0), (None, &ranges), 0, false, reported, &mut builder);
        builder.finish(None);
        arrivals.record(51, Time(0), Wants::Acknowledgement);
        let ranges = listed(&arrivals);
        assert!(ranges.contains(&(50..=52)) && ranges[0] == (198..=198), "{ranges:?}");
        assert!(ranges.len() > ACK_RANGES_MAX - 2, "{ranges:?}");
    }

    /// WIND-3.3.
    #[test]
    fn when_it_is_told() {
        let all = u64::from(ACK_EVERY);
        assert!(at_once([1], Wants::AtOnce));
        assert!(!at_once([1], Wants::Acknowledgement));
        assert!(!at_once(1..all, Wants::Acknowledgement), "all in order, and few");
        assert!(at_once(1..=all, Wants::Acknowledgement), "many");
        assert!(at_once([1, 3], Wants::Acknowledgement), "one is missing");
        assert!(at_once([2, 1], Wants::Acknowledgement), "one was late");
        assert!(!at_once(1..100, Wants::Nothing));
    }
}
