//! Which datagrams have arrived, and when that is to be told (WIND-3).

use super::interactive::Interactive;
use super::ranges::RangeSet;
use crate::limits::{ACK_DELAY, ACK_EVERY, ACK_RANGES_MAX, RECEIVED_RANGES_MAX, REFUSALS_MAX};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::{Acknowledgement, Builder, Lane, RefusedMessage, Told};
use alloc::collections::VecDeque;
use core::ops::RangeInclusive;

/// What a datagram's sender expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// No acknowledgement.
    Nothing,
    /// One in time.
    Acknowledgement,
    /// One soon, for its message: somebody waits.
    Answer,
    /// One at once.
    AtOnce,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Arrivals {
    /// Datagrams that came marked CE, modulo 2³².
    pub marked: u32,
    /// Bytes that the peer may have in flight.
    pub share: u32,
    seen: RangeSet,
    /// Numbers below count as seen: their ranges are forgotten.
    floor: u64,
    largest: u64,
    largest_at: Time,
    /// The largest number of those that brought an acknowledgement.
    acknowledged_by: u64,
    /// The peer knows that we know what lies below.
    report_from: u64,
    /// Datagrams that must be acknowledged and are not.
    pending: u32,
    due: bool,
    deadline: Option<Time>,
    interactive: Interactive,
    /// Not yet confirmed, oldest first.
    pub refusals: VecDeque<RefusedMessage>,
    /// How many refusals were confirmed before these.
    confirmed: u64,
    /// This datagram caused more refusals than an ACK frame can tell; it is not acknowledged before they are told.
    withheld: Option<u64>,
}

impl Arrivals {
    /// `share`: what the peer may have in flight.
    pub fn new(share: u32) -> Arrivals {
        Arrivals {
            marked: 0,
            share,
            seen: RangeSet::new(),
            floor: 0,
            largest: 0,
            largest_at: Time(0),
            acknowledged_by: 0,
            report_from: 0,
            pending: 0,
            due: false,
            deadline: None,
            interactive: Interactive::new(),
            refusals: VecDeque::new(),
            confirmed: 0,
            withheld: None,
        }
    }

    /// Has this datagram not come before? (WIND-3.2)
    pub fn is_new(&self, number: u64) -> bool {
        planted(Bug::AcceptDuplicateDatagram) || (number >= self.floor && !self.seen.contains(number))
    }

    /// The datagram of this number brings an acknowledgement. Has none been lost since the one before: has every datagram between
    /// them come?
    pub fn acknowledgement_came(&mut self, number: u64) -> bool {
        let before = self.acknowledged_by;
        self.acknowledged_by = before.max(number);
        before < number && self.seen.covers(&(before + 1..number))
    }

    /// Are refusals waiting that must be told before anything more is taken in (WIND-4.6)?
    pub fn is_withholding(&self) -> bool {
        self.withheld.is_some()
    }

    /// A datagram has been read; before it, so many refusals waited. If there are more now than one ACK frame tells, the datagram is
    /// withheld, and its refusals are told from the largest number down: so the sender cannot count the message that all the
    /// others waited for as settled before it knows of them all (WIND-4.6).
    pub fn withhold(&mut self, number: u64, before: usize) {
        if self.refusals.len() > REFUSALS_MAX && self.refusals.len() > before {
            if let Some(new) = self.refusals.make_contiguous().get_mut(before..) {
                new.sort_unstable_by_key(|refused| core::cmp::Reverse(refused.number));
            }
            self.withheld.get_or_insert(number);
            self.due = true;
        }
    }

    /// A datagram was taken in. When is that to be told (WIND-3.3, WIND-3.8)?
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
        if wants == Wants::Nothing {
            return;
        }
        self.pending += 1;
        let held = if wants == Wants::Answer { self.interactive.asked(now, self.pending == 1) } else { None };
        // Not the one after the largest: one is missing, or one was late.
        let at_once = wants == Wants::AtOnce || (wants == Wants::Answer && held.is_none());
        self.due |= at_once || !next || self.pending >= ACK_EVERY;
        let latest = held.unwrap_or(now + ACK_DELAY);
        self.deadline = Some(self.deadline.map_or(latest, |deadline| deadline.min(latest)));
    }

    /// A datagram with a message of ours goes.
    pub fn data_goes(&mut self, now: Time) {
        self.interactive.data_goes(now);
    }

    /// Say again what is known, soon.
    pub fn remind(&mut self) {
        self.due = true;
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.due || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Would an acknowledgement say anything that is not yet told?
    pub fn has_news(&self) -> bool {
        self.due || self.pending > 0
    }

    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Ranges to be told, largest first.
    fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        let withheld = self.withheld.unwrap_or(u64::MAX);
        let lie = planted(Bug::AcknowledgeUnreceived);
        let everything = lie.then_some(1..=self.largest);
        let real = self
            .seen
            .iter()
            .rev()
            .take_while(move |range| range.end > self.report_from && !lie)
            .map(|range| (range.start.max(self.report_from), range.end - 1))
            .flat_map(move |(low, high)| {
                // A withheld number cuts its range in two.
                let cut = (low..=high).contains(&withheld);
                let upper = if cut { withheld + 1 } else { low };
                let lower = if cut { withheld } else { low };
                [(upper <= high).then_some(upper..=high), (lower > low).then(|| low..=lower - 1)]
            })
            .flatten();
        everything.into_iter().chain(real).take(ACK_RANGES_MAX)
    }

    fn told_refusals(&self) -> usize {
        self.refusals.len().min(REFUSALS_MAX)
    }

    /// Bytes of the ACK frame that [`write`](Self::write) would write now.
    pub fn frame_len(&self) -> usize {
        Acknowledgement::frame_len(self.ranges().count().max(1), self.told_refusals())
    }

    /// Write an ACK frame, into a datagram with a message of ours or one without. What to remember of it: see
    /// [`confirm`](Self::confirm). It must be acknowledged if it tells refusals.
    pub fn write(&mut self, now: Time, credit: u64, with_message: bool, builder: &mut Builder<'_>) -> (u64, u64) {
        if !with_message {
            self.interactive.goes_alone(now);
        }
        let delay = u32::try_from((now - self.largest_at).as_nanos()).unwrap_or(u32::MAX);
        let tell = Told { lane: Lane::Small, credit, delay, marked: self.marked, share: self.share };
        let told = self.told_refusals();
        let (refusals, _) = self.refusals.make_contiguous().split_at(told);
        let mut copy = [RefusedMessage { number: 0, refusal: super::Refusal::Malformed }; REFUSALS_MAX];
        copy.iter_mut().zip(refusals).for_each(|(to, from)| *to = *from);
        builder.acknowledge(self.ranges(), tell, copy.get(..told).unwrap_or_default());
        if planted(Bug::TellRefusalsOnce) {
            self.refusals.drain(..told);
            self.confirmed += told as u64;
        }
        self.pending = 0;
        self.due = false;
        self.deadline = None;
        (self.largest, self.confirmed + told as u64)
    }

    /// The datagram with an ACK frame was acknowledged: the peer knows what it told.
    pub fn confirm(&mut self, largest: u64, refusals: u64) {
        self.report_from = self.report_from.max(largest);
        while self.confirmed < refusals && self.refusals.pop_front().is_some() {
            self.confirmed += 1;
        }
        if self.refusals.len() <= REFUSALS_MAX {
            // What was withheld may be acknowledged now.
            self.due |= self.withheld.take().is_some();
        } else {
            self.due = true;
        }
    }

    /// That datagram was lost: refusals must be told again.
    pub fn tell_again(&mut self) {
        self.due |= !self.refusals.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers arrive, one a microsecond, each wanting this; is the last acknowledged at once?
    fn at_once(numbers: impl IntoIterator<Item = u64>, wants: Wants) -> bool {
        let mut arrivals = Arrivals::new(0);
        let mut now = Time(0);
        for number in numbers {
            now = Time(number * 1000);
            arrivals.record(number, now, wants);
        }
        let due = arrivals.is_due(now);
        // If not, then in time, and no sooner.
        if !due && wants != Wants::Nothing {
            let deadline = arrivals.deadline().unwrap();
            assert_eq!(deadline, Time(1000) + ACK_DELAY);
            assert!(arrivals.is_due(deadline) && !arrivals.is_due(Time(deadline.0 - 1)));
        }
        due
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
