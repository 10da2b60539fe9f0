//! Delivery of messages that were held back or reassembled, once nothing before them is missing
//! (WIND-2.8, WIND-2.11).

use super::{Beginning, HeldMessage, Inbox, OVERHEAD, QueueSlot};
use crate::limits::MESSAGES_IN_FLIGHT;
use crate::planted::{Bug, planted};
use crate::wind::handler::{Delivered, Handler, UpcallTarget};
use crate::wind::recv::reassembly::{Assembly, BodyDestination};
use crate::wind::send::message::Class;
use crate::wire::group::Carrier;
use alloc::boxed::Box;

impl Inbox {
    /// Delivers the messages whose turn has come, and forgets those that are done as the
    /// connection has told.
    pub(crate) fn advance<U: Handler>(&mut self, above: &mut UpcallTarget<'_, U>) {
        loop {
            let number = self.turn;
            match self.slot(number) {
                Some(QueueSlot::Done | QueueSlot::DoneByGroup(_)) => self.turn += 1,
                Some(QueueSlot::Held(_)) => self.complete(number, above),
                Some(QueueSlot::Gathering(assembly)) if assembly.is_whole() => {
                    self.complete(number, above)
                }
                _ => break,
            }
        }
        // The sender has settled a message that is so far behind, because it waits for no more than
        // so many.
        while self.floor < self.turn
            && (matches!(self.slots.front(), Some(QueueSlot::Done))
                || self.turn - self.floor > MESSAGES_IN_FLIGHT as u64)
        {
            self.slots.pop_front();
            self.floor += 1;
        }
        if planted(Bug::IgnoreClassRule) {
            self.advance_past_unordered(above);
        }
    }

    /// Delivers ordered messages without waiting for unordered ones: the planted bug.
    fn advance_past_unordered<U: Handler>(&mut self, above: &mut UpcallTarget<'_, U>) {
        let passable = |slot: &&QueueSlot| match slot {
            QueueSlot::Done | QueueSlot::DoneByGroup(_) => true,
            QueueSlot::Gathering(assembly) => assembly.class == Class::Unordered,
            QueueSlot::Held(_) | QueueSlot::Missing => false,
        };
        let at = self.slots.iter().take_while(passable).count();
        if matches!(self.slots.get(at), Some(QueueSlot::Held(_))) {
            self.complete(self.floor + at as u64, above);
        }
    }

    /// Delivers a whole message that is held or reassembled, and marks its slot as done
    /// (WIND-2.11).
    pub(crate) fn complete<U: Handler>(&mut self, number: u64, above: &mut UpcallTarget<'_, U>) {
        self.release(number);
        let Some(slot) = self.slot(number) else { return };
        let (taken, charge) = match core::mem::replace(slot, QueueSlot::Done) {
            QueueSlot::Held(held) => {
                let HeldMessage { class, charge, head, body } = *held;
                self.held -= body.len() as u64 + OVERHEAD;
                let body = Delivered::Owned(body);
                (above.deliver(Carrier::Connection, number, class, &head, body), charge)
            }
            QueueSlot::Gathering(assembly) => {
                let Assembly { class, charge, head, len, destination, is_begun_by_group, .. } =
                    *assembly;
                let body = match destination {
                    BodyDestination::Place => Delivered::Placed(len),
                    BodyDestination::Collect(buffer) => Delivered::Owned(buffer),
                };
                let carrier = if is_begun_by_group { Carrier::Group } else { Carrier::Connection };
                let taken = above.deliver(carrier, number, class, &head, body);
                if is_begun_by_group {
                    let beginning = Box::new(Beginning { class, head, len });
                    self.set(number, QueueSlot::DoneByGroup(beginning));
                }
                (taken, charge)
            }
            other @ (QueueSlot::Missing | QueueSlot::Done | QueueSlot::DoneByGroup(_)) => {
                *slot = other;
                return;
            }
        };
        if let Some(len) = charge.filter(|_| !taken) {
            self.consumed(1, len);
        }
    }
}
