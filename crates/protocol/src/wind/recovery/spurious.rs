//! Spurious losses: remembers datagrams declared lost for a while. An acknowledgement for one shows
//! that its loss was spurious (WIND-5.6).
//!
//! Datagram numbers are never used twice, so such an acknowledgement cannot mean the
//! retransmission. TCP needs time stamps or D-SACK to know that (RFC 3522, RFC 3708).

use crate::limits::{LOST_ITEMS_REMEMBERED, LOST_REMEMBERED};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::recovery::in_flight::{Cause, Item};
use alloc::collections::VecDeque;
use core::ops::RangeInclusive;

/// Number in place of that of a flow of which nothing is known any more.
const FORGOTTEN_FLOW: u8 = u8::MAX;

/// Datagram that was declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LostDatagram {
    pub number: u64,
    pub sent: Time,
    /// Bytes on the wire.
    pub bytes: u32,
    pub cause: Cause,
    /// Flow that carried the datagram.
    pub flow: u8,
    /// Event of loss for which the window was reduced, if it was; see [`Episode`].
    pub event: Option<u32>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Record {
    doubt: LostDatagram,
    items: u32,
    cleared: bool,
}

/// Datagrams declared lost that are remembered, by number.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct SuspectedLosses {
    records: VecDeque<Record>,
    items: VecDeque<Item>,
}

impl SuspectedLosses {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Remembers a datagram. Those of one flow come in the order of their numbers, because the
    /// oldest in flight are lost first. Those of a slower flow come later (WIND-14.4).
    pub fn add(&mut self, doubt: LostDatagram, items: impl Iterator<Item = Item>) {
        let is_before = |record: &Record| record.doubt.number < doubt.number;
        let at = match self.records.back().is_none_or(is_before) {
            true => self.records.len(),
            false => self.records.partition_point(is_before),
        };
        if self.records.get(at).is_some_and(|record| record.doubt.number == doubt.number) {
            return;
        }
        let before = self.items.len();
        self.items.extend(items);
        let added = self.items.len() - before;
        let behind: usize = self.records.range(at..).map(|record| record.items as usize).sum();
        if behind > 0 && added > 0 {
            let all = self.items.make_contiguous();
            if let Some(moved) = all.get_mut(before.saturating_sub(behind)..) {
                moved.rotate_right(added);
            }
        }
        let items = u32::try_from(added).unwrap_or(u32::MAX);
        self.records.insert(at, Record { doubt, items, cleared: false });
        while self.records.len() > LOST_REMEMBERED || self.items.len() > LOST_ITEMS_REMEMBERED {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.records.pop_front() {
            self.items.drain(..(first.items as usize).min(self.items.len()));
        }
    }

    /// Clears the datagrams with these numbers, which were acknowledged. Calls `on_item` for each
    /// item of those not cleared before, then `on_doubt` for the datagram.
    pub fn clear(
        &mut self,
        acked: &RangeInclusive<u64>,
        mut on_item: impl FnMut(Item),
        mut on_doubt: impl FnMut(LostDatagram),
    ) {
        let least = if planted(Bug::TrustDoubts) { 0 } else { *acked.start() };
        let first = self.records.partition_point(|record| record.doubt.number < least);
        if self.records.get(first).is_none_or(|record| record.doubt.number > *acked.end()) {
            return;
        }
        let mut item =
            self.records.range(..first).map(|record| record.items as usize).sum::<usize>();
        for record in
            self.records.range_mut(first..).take_while(|record| record.doubt.number <= *acked.end())
        {
            if !core::mem::replace(&mut record.cleared, true) {
                self.items
                    .range(item..item + record.items as usize)
                    .copied()
                    .for_each(&mut on_item);
                on_doubt(record.doubt);
            }
            item += record.items as usize;
        }
        while self.records.front().is_some_and(|record| record.cleared) {
            self.forget_first();
        }
    }

    /// Forgets which flows carried datagrams, of those from `count` on.
    pub fn forget_flows(&mut self, count: u8) {
        let flows = self.records.iter_mut().map(|record| &mut record.doubt.flow);
        flows.filter(|flow| **flow >= count).for_each(|flow| *flow = FORGOTTEN_FLOW);
    }

    /// Forgets everything and gives memory back.
    pub fn forget(&mut self) {
        *self = SuspectedLosses::default();
    }
}

/// Event of loss, for which the window was reduced once. If all of its losses prove spurious, the
/// reduction was wrong.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct Episode {
    number: u32,
    began: Time,
    /// Number of datagrams lost in the event that have not been shown to have arrived.
    open: u32,
}

impl Episode {
    /// Counts a datagram sent at `sent` as lost. Returns the event's number, and whether the event
    /// has just begun. A datagram sent before an event began is part of it.
    pub fn lost(&mut self, sent: Time, now: Time) -> (u32, bool) {
        let begins = self.number == 0 || sent > self.began;
        if begins {
            *self = Episode { number: self.number.wrapping_add(1).max(1), began: now, open: 0 };
        }
        self.open = self.open.saturating_add(1);
        (self.number, begins)
    }

    /// Called when a datagram lost in this event has arrived. Returns `true` if it was the last one
    /// missing.
    pub fn arrived(&mut self, event: Option<u32>) -> bool {
        if event != Some(self.number) || self.open == 0 {
            return false;
        }
        self.open -= 1;
        self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    fn doubt(number: u64) -> LostDatagram {
        LostDatagram {
            number,
            bytes: 100,
            sent: Time(number),
            cause: Cause::Time,
            flow: 0,
            event: None,
        }
    }

    fn items(number: u64) -> impl Iterator<Item = Item> {
        (0..number % 4).map(move |at| Item::Message(10 * number + at))
    }

    proptest! {
        /// WIND-5.6.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 1..20u64, 0..10u64), 1..200)) {
            let mut suspected = SuspectedLosses::default();
            let (mut oracle, mut lost) = (BTreeMap::new(), BTreeSet::new());
            let mut next = 0_u64;
            for (add, by, width) in steps {
                if add {
                    // Now and then it is one of a slower flow.
                    let number = if width < 3 { next.saturating_sub(by) } else { next + by };
                    next = next.max(number);
                    // A datagram is lost once.
                    if lost.insert(number) {
                        suspected.add(doubt(number), items(number));
                        oracle.insert(number, items(number).collect::<Vec<_>>());
                    }
                } else {
                    let low = next.saturating_sub(by * 3);
                    let acked = low..=low + width;
                    let (mut reported, mut cleared) = (Vec::new(), Vec::new());
                    suspected.clear(&acked, |item| reported.push(item), |doubt| cleared.push(doubt.number));
                    let expected: Vec<u64> = oracle.range(acked).map(|(number, _)| *number).collect();
                    prop_assert_eq!(&cleared, &expected);
                    let items: Vec<Item> = expected.iter().flat_map(|number| oracle.remove(number).unwrap()).collect();
                    prop_assert_eq!(reported, items);
                }
                prop_assert_eq!(oracle.is_empty(), suspected.is_empty());
            }
        }
    }

    /// WIND-5.6.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut suspected = SuspectedLosses::default();
        (1..10_000).for_each(|number| suspected.add(doubt(number), items(number)));
        assert_eq!(suspected.records.len(), LOST_REMEMBERED);
        (10_000..20_000)
            .for_each(|number| suspected.add(doubt(number), (0..100).map(Item::Message)));
        assert!(suspected.items.len() <= LOST_ITEMS_REMEMBERED);
        assert!(suspected.records.len() <= LOST_ITEMS_REMEMBERED / 100);
        let mut cleared = 0;
        suspected.clear(&(0..=30_000), |_| {}, |_| cleared += 1);
        assert!(cleared > 0 && suspected.is_empty() && suspected.items.is_empty());
    }

    #[test]
    fn a_reduction_is_wrong_if_all_its_losses_were() {
        let mut episode = Episode::default();
        assert_eq!(episode.lost(Time(5), Time(10)), (1, true));
        assert_eq!(episode.lost(Time(10), Time(12)), (1, false));
        assert!(!episode.arrived(None) && !episode.arrived(Some(1)));
        assert!(episode.arrived(Some(1)));
        assert!(!episode.arrived(Some(1)), "once");
        assert_eq!(episode.lost(Time(11), Time(20)), (2, true));
        assert!(!episode.arrived(Some(1)), "an earlier one");
        assert!(episode.arrived(Some(2)));
    }
}
