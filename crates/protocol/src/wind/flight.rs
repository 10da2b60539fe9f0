//! What was sent and is neither acknowledged nor lost (WIND-5): small records in two rings, no allocation a datagram.

use super::loss::{self, Verdict};
use super::pto::Probe;
use super::rtt::RoundTrip;
use crate::time::Time;
use crate::wire::{Acknowledgement, FIRST_NUMBER};
use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

/// What a datagram carried that matters when it is acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A whole message.
    Message(u64),
    /// A message's beginning.
    Open(u64),
    /// Bytes of a message's body.
    Fragment { message: u64, offset: u64, len: u32 },
    /// A message taken back.
    Withdrawal(u64),
    /// An ACK frame up to this datagram number, with refusals up to this count.
    Told { largest: u64, refusals: u64 },
}

/// Why a datagram counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Reordering,
    Time,
    Probe,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Sent {
    at: Time,
    /// On the wire; 0 once acknowledged or lost, and for datagrams that need no acknowledgement.
    bytes: u32,
    items: u32,
    first_item: u64,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    pub bytes: u64,
    /// When the latest of them was sent.
    pub latest: Time,
    /// A round trip that they have shown.
    pub round_trip: Option<Duration>,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Flight {
    first: u64,
    sent: VecDeque<Sent>,
    first_item: u64,
    items: VecDeque<Item>,
    open_items: u32,
    in_flight: u64,
    datagrams: usize,
    largest_acked: Option<u64>,
    loss_time: Option<Time>,
    last_sent: Time,
    pub rtt: RoundTrip,
    pub probe: Probe,
}

impl Flight {
    pub fn new(failure_time: Duration) -> Flight {
        Flight {
            first: FIRST_NUMBER,
            sent: VecDeque::new(),
            first_item: 0,
            items: VecDeque::new(),
            open_items: 0,
            in_flight: 0,
            datagrams: 0,
            largest_acked: None,
            loss_time: None,
            last_sent: Time(0),
            rtt: RoundTrip::default(),
            probe: Probe::new(failure_time),
        }
    }

    /// The number of the datagram being written.
    pub fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub fn datagrams(&self) -> usize {
        self.datagrams
    }

    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// The datagram being written carries this.
    pub fn carry(&mut self, item: Item) {
        self.items.push_back(item);
        self.open_items += 1;
    }

    /// The datagram being written is complete.
    pub fn commit(&mut self, now: Time, bytes: usize, elicits: bool) {
        let items = core::mem::take(&mut self.open_items);
        let bytes = if elicits { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 };
        let first_item = self.first_item + self.items.len() as u64 - u64::from(items);
        self.sent.push_back(Sent { at: now, bytes, items, first_item });
        if elicits {
            self.in_flight += u64::from(bytes);
            self.datagrams += 1;
            self.last_sent = now;
        } else {
            self.trim();
        }
    }

    /// The index of a datagram that is in flight.
    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok().filter(|at| *at < self.sent.len())
    }

    /// Take a datagram out of flight: its bytes and items.
    fn retire(&mut self, at: usize) -> Option<(Sent, Range<usize>)> {
        let sent = self.sent.get_mut(at).filter(|sent| sent.bytes > 0)?;
        let record = *sent;
        sent.bytes = 0;
        self.in_flight -= u64::from(record.bytes);
        self.datagrams -= 1;
        let start = usize::try_from(record.first_item - self.first_item).ok()?;
        Some((record, start..start + record.items as usize))
    }

    /// Drop records at the front that are done with.
    fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.bytes == 0) {
            if let Some(sent) = self.sent.pop_front() {
                self.first += 1;
                self.first_item += u64::from(sent.items);
                self.items.drain(..sent.items as usize);
            }
        }
    }

    /// An ACK frame came. Calls `on_item` for all that is newly acknowledged. `None`: it speaks of datagrams never sent.
    pub fn acknowledge(&mut self, now: Time, ack: &Acknowledgement<'_>, mut on_item: impl FnMut(Item)) -> Option<Acked> {
        let end = self.next_number();
        let mut acked = Acked::default();
        let mut largest_new = None;
        for range in ack.ranges() {
            if *range.end() >= end {
                return None;
            }
            let Some(last) = self.index(*range.end()) else { break };
            let first = self.index(*range.start()).unwrap_or(0);
            for at in (first..=last).rev() {
                let Some((sent, items)) = self.retire(at) else { continue };
                acked.bytes += u64::from(sent.bytes);
                acked.latest = acked.latest.max(sent.at);
                largest_new = largest_new.or(Some((self.first + at as u64, sent.at)));
                self.items.range(items).copied().for_each(&mut on_item);
            }
        }
        if let Some((number, sent)) = largest_new {
            if number == ack.largest {
                acked.round_trip = Some(self.rtt.sample(now - sent, Duration::from_nanos(u64::from(ack.delay))));
            }
            self.largest_acked = Some(self.largest_acked.map_or(number, |largest| largest.max(number)));
            self.probe.answered();
            self.trim();
        }
        Some(acked)
    }

    /// Find what is lost by now. Calls `on_lost` for each datagram's items; when the latest of them was sent.
    pub fn detect_lost(&mut self, now: Time, mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>)) -> Option<Time> {
        self.loss_time = None;
        let largest = self.largest_acked?;
        let overtaken = self.rtt.overtaken();
        let mut latest = None;
        let mut at = 0;
        while let Some(sent) = self.sent.get(at) {
            let number = self.first + at as u64;
            if number >= largest {
                break;
            }
            if sent.bytes > 0 {
                let cause = match loss::judge(number, sent.at, largest, now, overtaken) {
                    Verdict::LostByReordering => Cause::Reordering,
                    Verdict::LostByTime => Cause::Time,
                    Verdict::Wait(until) => {
                        self.loss_time = Some(until);
                        break;
                    }
                };
                latest = self.lose(at, cause, &mut on_lost).or(latest);
            }
            at += 1;
        }
        self.trim();
        latest
    }

    fn lose(&mut self, at: usize, cause: Cause, on_lost: &mut impl FnMut(Cause, &mut dyn Iterator<Item = Item>)) -> Option<Time> {
        let (sent, items) = self.retire(at)?;
        on_lost(cause, &mut self.items.range(items).copied());
        Some(sent.at)
    }

    /// The probe timer ran out: the oldest `most` datagrams in flight count as lost, so that their content is sent again.
    pub fn give_up_oldest(&mut self, most: usize, mut on_lost: impl FnMut(Cause, &mut dyn Iterator<Item = Item>)) {
        self.probe.ran_out();
        let mut left = most;
        let mut at = 0;
        while left > 0 && at < self.sent.len() {
            if self.lose(at, Cause::Probe, &mut on_lost).is_some() {
                left -= 1;
            }
            at += 1;
        }
        // A new silence begins now, also if nothing is sent for it.
        self.trim();
    }

    pub fn loss_time(&self) -> Option<Time> {
        self.loss_time
    }

    /// When the probe timer runs out.
    pub fn probe_time(&self) -> Option<Time> {
        (self.datagrams > 0).then(|| self.last_sent + self.probe.timeout(&self.rtt))
    }

    /// Give memory back while idle.
    pub fn shrink(&mut self) {
        self.sent.shrink_to(16);
        self.items.shrink_to(16);
    }
}
