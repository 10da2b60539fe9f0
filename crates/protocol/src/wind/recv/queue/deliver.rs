//! Delivery of messages that were held back or reassembled, once nothing before them is missing
//! (WIND-2.8, WIND-2.11).

use super::{Inbox, OVERHEAD, QueueSlot};
use crate::planted::{Bug, planted};
use crate::wind::handler::{Delivered, Handler, UpcallTarget};
use crate::wind::recv::reassembly::{Assembly, BodyDestination};
use crate::wind::send::message::Class;

impl Inbox {
    /// Delivers the messages whose turn has come.
    pub(crate) fn advance<U: Handler>(&mut self, above: &mut UpcallTarget<'_, U>) {
        loop {
            let number = self.floor;
            match self.slots.front() {
                Some(QueueSlot::Done) => {
                    self.slots.pop_front();
                    self.floor += 1;
                }
                Some(QueueSlot::Held(_)) => self.complete(number, above),
                Some(QueueSlot::Gathering(assembly)) if assembly.is_whole() => {
                    self.complete(number, above)
                }
                _ => break,
            }
        }
        if planted(Bug::IgnoreClassRule) {
            self.advance_past_unordered(above);
        }
    }

    /// Delivers ordered messages without waiting for unordered ones: the planted bug.
    fn advance_past_unordered<U: Handler>(&mut self, above: &mut UpcallTarget<'_, U>) {
        let passable = |slot: &&QueueSlot| match slot {
            QueueSlot::Done => true,
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
        let assembly_cost =
            self.assembly(number).map_or(0, |assembly| self.assembly_cost(assembly));
        let Some(slot) = self.slot(number) else { return };
        let (taken, charge, cost) = match core::mem::replace(slot, QueueSlot::Done) {
            QueueSlot::Held(held) => {
                let len = held.body.len() as u64;
                (
                    above.deliver(number, held.class, &held.head, Delivered::Owned(held.body)),
                    held.charge,
                    len + OVERHEAD,
                )
            }
            QueueSlot::Gathering(assembly) => {
                let (len, cost, charge) = (assembly.len, assembly_cost, assembly.charge);
                if assembly.is_begun_by_group {
                    self.note_done_by_group(number);
                }
                let Assembly { class, head, destination, .. } = *assembly;
                let body = match destination {
                    BodyDestination::Place => Delivered::Placed(len),
                    BodyDestination::Collect(buffer) => Delivered::Owned(buffer),
                };
                (above.deliver(number, class, &head, body), charge, cost)
            }
            QueueSlot::Missing | QueueSlot::Done => return,
        };
        self.held -= cost;
        if let Some(len) = charge.filter(|_| !taken) {
            self.consumed(1, len);
        }
    }
}
