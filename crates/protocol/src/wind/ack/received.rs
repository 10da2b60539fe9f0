//! Records which datagrams of a lane have arrived, and when an ACK is due for them (WIND-3).

use super::ranges::RangeSet;
use crate::limits::{
    ACK_DELAY, ACK_EVERY, ACK_PIGGYBACK_TIME, ACK_RANGES_MAX, NUMBERS_AHEAD_MAX,
    RECEIVED_BULK_RANGES_MAX, RECEIVED_RANGES_MAX, REFUSALS_MAX,
};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::delayed::AckPolicy;
use crate::wind::recv::refusals::Refusals;
use crate::wire::acknowledge::{AckFields, RefusedMessage};
use crate::wire::build::Builder;
use crate::wire::header::Lane;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;

/// Number of ranges that an ACK frame always has room for. A withheld number splits a range in two.
const ROOM: usize = ACK_RANGES_MAX - 1;
/// Time that never comes.
const NEVER: Time = Time(u64::MAX);

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
    /// Numbers that no ACK has reported yet. Kept only once an ACK may not have room for all
    /// ranges, because most peers are idle, and each costs memory.
    news: Option<Box<RangeSet>>,
    /// Number of datagrams that must be acknowledged and are not.
    pending: u32,
    due: bool,
    /// Time when an ACK is due, or `NEVER`.
    deadline: Time,
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
            news: None,
            pending: 0,
            due: false,
            deadline: NEVER,
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
        self.news = None;
    }

    /// Returns the number of ranges that are remembered.
    fn ranges_max(&self) -> usize {
        match self.lane {
            Lane::Small => RECEIVED_RANGES_MAX,
            Lane::Bulk => RECEIVED_BULK_RANGES_MAX,
        }
    }

    /// Returns the index of the first range of which the peer may not know.
    fn first_unconfirmed(&self) -> usize {
        self.seen.pieces_below(self.report_from)
    }

    /// Notes a number that no ACK has reported.
    fn note_news(&mut self, number: u64) {
        if let Some(news) = &mut self.news {
            news.insert(number..number + 1);
        } else if self.seen.pieces() >= ACK_RANGES_MAX / 2 {
            let first = self.first_unconfirmed();
            if self.seen.pieces() - first >= ACK_RANGES_MAX / 2 {
                // Which of these few ranges are new does not matter.
                let mut news = self.seen.clone();
                news.remove(0..self.report_from);
                self.news = Some(Box::new(news));
            }
        }
    }

    /// Records an accepted datagram, and decides when to acknowledge it (WIND-3.3, WIND-3.8).
    pub fn record(&mut self, number: u64, now: Time, wants: Wants) {
        let next = number == self.largest + 1;
        self.seen.insert(number..number + 1);
        self.report_from = self.report_from.min(number);
        self.least_news = self.least_news.min(number);
        self.note_news(number);
        while self.seen.pieces() > self.ranges_max() {
            if let Some(range) = self.seen.forget_first() {
                self.floor = range.end;
                self.news.iter_mut().for_each(|news| news.remove(0..range.end));
            }
        }
        if number > self.largest {
            self.largest = number;
            self.largest_at = now;
        }
        if wants == Wants::Nothing {
            return;
        }
        self.pending += 1;
        // The same ACK answers datagrams that came just before, such as the fragments before the
        // last one.
        let others_wait = |deadline: Time| {
            deadline > now + ACK_PIGGYBACK_TIME && deadline < now + (ACK_DELAY - ACK_PIGGYBACK_TIME)
        };
        let is_first = !others_wait(self.deadline);
        let held = match wants {
            Wants::Answer => self.ack_policy.asked(now, is_first),
            _ => None,
        };
        // A number that does not follow the largest means that one is missing or late.
        let at_once = wants == Wants::AtOnce || (wants == Wants::Answer && held.is_none());
        self.due |= at_once || !next || self.pending >= ACK_EVERY;
        let latest = held.unwrap_or(now + ACK_DELAY);
        self.deadline = self.deadline.min(latest);
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
        self.due || self.deadline <= now
    }

    /// Returns `true` if an ACK would say anything new.
    pub fn has_news(&self) -> bool {
        self.due || self.pending > 0
    }

    pub fn deadline(&self) -> Option<Time> {
        (self.deadline < NEVER).then_some(self.deadline)
    }

    /// Chooses the ranges for an ACK frame: first those with news, the oldest first, and then the
    /// largest (WIND-14.3). Returns the index from which on all are chosen. Puts the indices of
    /// others into `low`, in ascending order.
    fn choose(&self, low: &mut ArrayVec<usize, ROOM>) -> usize {
        let (first, count) = (self.first_unconfirmed(), self.seen.pieces());
        if count - first <= ROOM {
            return first;
        }
        for range in self.news.iter().flat_map(|news| news.iter()) {
            let index = self.seen.pieces_below(range.start);
            // The largest range always has a place.
            if low.last() != Some(&index) && (low.len() + 1 >= ROOM || low.try_push(index).is_err())
            {
                break;
            }
        }
        let (mut left, mut top) = (ROOM - low.len(), count);
        while left > 0 && top > first {
            top -= 1;
            if low.last() == Some(&top) {
                low.pop();
            } else {
                left -= 1;
            }
        }
        top
    }

    /// Lists the ranges for an ACK frame, largest first, without the number that is withheld. The
    /// result is filled in place, because a return value would be moved whole, however few the
    /// ranges.
    pub fn list(&self, withheld: Option<u64>, ranges: &mut Ranges) {
        if planted(Bug::AcknowledgeUnreceived) {
            return ranges.push(1..=self.largest);
        }
        let withheld = withheld.unwrap_or(u64::MAX);
        let mut low = ArrayVec::new();
        let top = self.choose(&mut low);
        let chosen = (top..self.seen.pieces()).rev().chain(low.into_iter().rev());
        for range in chosen.filter_map(|index| self.seen.get(index)) {
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
        (self.pending, self.due, self.deadline) = match self.forget_news(ranges) {
            0 => (0, false, NEVER),
            // The range that is left may be the withheld number.
            1 => (1, false, now + ACK_DELAY),
            _ => (1, true, NEVER),
        };
        (self.largest, through)
    }

    /// Forgets the news that an ACK of these ranges brings. Returns the number of ranges of others,
    /// for which it had no room.
    fn forget_news(&mut self, ranges: &Ranges) -> usize {
        self.least_news = u64::MAX;
        let Some(news) = &mut self.news else { return 0 };
        if ranges.len() < ROOM {
            news.clear();
        } else {
            ranges.iter().for_each(|range| news.remove(*range.start()..*range.end() + 1));
        }
        self.least_news = news.get(0).map_or(u64::MAX, |range| range.start);
        news.pieces()
    }

    /// Called when the datagram with an ACK frame was acknowledged, so that the peer knows the
    /// content of the frame.
    pub fn confirm(&mut self, largest: u64) {
        // No ACK that the peer confirms has a datagram that came after the latest ACK.
        self.report_from = self.report_from.max(largest.min(self.least_news));
        self.news.iter_mut().for_each(|news| news.remove(0..self.report_from));
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

    /// Writes an ACK, and returns its ranges.
    fn told(arrivals: &mut ReceivedDatagrams) -> Ranges {
        let mut ranges = Ranges::new();
        arrivals.list(None, &mut ranges);
        assert!(ranges.windows(2).all(|pair| pair[0].start() > pair[1].end()), "{ranges:?}");
        let mut bytes = alloc::vec::Vec::new();
        let seal = crate::wire::SealKind::EndToEnd;
        let mut builder = Builder::new(&mut bytes, 1, 1, seal, 1232);
        let reported = (&mut Refusals::default(), 0);
        arrivals.write(Time(0), (None, &ranges), 0, false, reported, &mut builder);
        builder.finish(None);
        ranges
    }

    /// Records the even numbers up to `2 * count`, and tells all of them.
    fn every_second(count: u64) -> ReceivedDatagrams {
        let mut arrivals = ReceivedDatagrams::new(Lane::Bulk, 0);
        for number in 1..=count {
            arrivals.record(2 * number, Time(0), Wants::Acknowledgement);
            told(&mut arrivals);
        }
        arrivals
    }

    /// WIND-3.3, WIND-14.3: what came late is told, however many gaps are around it.
    #[test]
    fn late_datagrams_among_many_gaps_are_listed_first() {
        let mut arrivals = every_second(500);
        let late = [51, 301, 303, 601];
        late.into_iter()
            .for_each(|number| arrivals.record(number, Time(0), Wants::Acknowledgement));
        let ranges = told(&mut arrivals);
        for range in [50..=52, 300..=304, 600..=602, 1000..=1000, 998..=998] {
            assert!(ranges.contains(&range), "{range:?} of {ranges:?}");
        }
        assert_eq!(ranges.len(), ROOM, "{ranges:?}");
        assert!(!arrivals.is_due(Time(0)) && arrivals.deadline().is_none());
    }

    /// WIND-14.3: news for which an acknowledgement has no room follow in others, at once.
    #[test]
    fn news_without_room_in_one_acknowledgement_are_in_the_next() {
        let mut arrivals = every_second(500);
        let late = || (0..100).map(|index| 9 * index + 9).filter(|number| number % 2 == 1);
        late().for_each(|number| arrivals.record(number, Time(0), Wants::Acknowledgement));
        let mut all: alloc::vec::Vec<_> = told(&mut arrivals).into_iter().collect();
        assert!(!late().all(|number| all.iter().any(|range| range.contains(&number))));
        while arrivals.is_due(Time(0) + ACK_DELAY) {
            let ranges = told(&mut arrivals);
            assert_eq!(ranges[0], 1000..=1000, "the largest is always told");
            all.extend(ranges);
        }
        assert!(late().all(|number| all.iter().any(|range| range.contains(&number))), "{all:?}");
    }

    /// WIND-3.3: a confirmed acknowledgement confirms nothing that came after it.
    #[test]
    fn late_datagram_is_told_although_a_later_number_is_confirmed() {
        let mut arrivals = every_second(3);
        arrivals.record(3, Time(0), Wants::Acknowledgement);
        arrivals.confirm(6);
        assert_eq!(told(&mut arrivals).as_slice(), [6..=6, 3..=4]);
        arrivals.confirm(6);
        assert!(!arrivals.is_unconfirmed());
    }

    /// WIND-3.2: flows of different delays leave thousands of gaps for a while.
    #[test]
    fn bulk_lane_remembers_thousands_of_ranges() {
        let most = RECEIVED_BULK_RANGES_MAX as u64;
        let mut arrivals = every_second(most);
        assert!(arrivals.is_new(3) && !arrivals.is_new(2));
        arrivals.record(2 * most + 2, Time(0), Wants::Acknowledgement);
        assert!(!arrivals.is_new(1) && arrivals.is_new(5) && !arrivals.is_new(4));
        assert!(ReceivedDatagrams::new(Lane::Small, 0).ranges_max() < arrivals.ranges_max());
    }

    /// WIND-3.2: a late number that finds no room in the ranges is not waited for.
    #[test]
    fn number_without_room_is_no_news() {
        let mut arrivals = ReceivedDatagrams::new(Lane::Small, 0);
        for number in 0..2 * RECEIVED_RANGES_MAX as u64 {
            arrivals.record(1000 + 4 * number, Time(0), Wants::Acknowledgement);
        }
        let floor = arrivals.floor;
        assert!(floor > 1000);
        arrivals.record(floor, Time(0), Wants::Acknowledgement);
        let news = arrivals.news.as_deref().and_then(|news| news.get(0));
        let first = news.map_or(u64::MAX, |range| range.start);
        assert!(first >= arrivals.floor, "{first} below {}", arrivals.floor);
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
