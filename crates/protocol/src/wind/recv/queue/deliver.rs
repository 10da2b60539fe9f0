//! Delivery of messages that were held back or reassembled, once nothing before them is missing
//! (WIND-2.8, WIND-2.11).

use super::{Inbox, OVERHEAD, Slot};
use crate::planted::{Bug, planted};
use crate::wind::handler::Above;
use crate::wind::recv::reassembly::{Assembly, Destination};
use crate::wind::{Class, Delivered, Handler};

impl Inbox {
    /// Delivers the messages whose turn has come.
    pub(crate) fn advance<U: Handler>(&mut self, above: &mut Above<'_, U>) {
        loop {
            let number = self.floor;
            match self.slots.front() {
                Some(Slot::Done) => {
                    self.slots.pop_front();
                    self.floor += 1;
                }
                Some(Slot::Held(_)) => self.complete(number, above),
                Some(Slot::Gathering(assembly)) if assembly.is_whole() => {
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
    fn advance_past_unordered<U: Handler>(&mut self, above: &mut Above<'_, U>) {
        let passable = |slot: &&Slot| match slot {
            Slot::Done => true,
            Slot::Gathering(assembly) => assembly.class == Class::Unordered,
            Slot::Held(_) | Slot::Missing => false,
        };
        let at = self.slots.iter().take_while(passable).count();
        if matches!(self.slots.get(at), Some(Slot::Held(_))) {
            self.complete(self.floor + at as u64, above);
        }
    }

    /// Delivers a whole message that is held or reassembled, and marks its slot as done
    /// (WIND-2.11).
    pub(crate) fn complete<U: Handler>(&mut self, number: u64, above: &mut Above<'_, U>) {
        let assembly_cost =
            self.assembly(number).map_or(0, |assembly| self.assembly_cost(assembly));
        let Some(slot) = self.slot(number) else { return };
        let (taken, credited, len, cost) = match core::mem::replace(slot, Slot::Done) {
            Slot::Held(held) => {
                let len = held.body.len() as u64;
                (
                    above.deliver(number, held.class, &held.head, Delivered::Owned(held.body)),
                    held.credited,
                    len,
                    len + OVERHEAD,
                )
            }
            Slot::Gathering(assembly) => {
                let (len, cost, credited) = (assembly.len, assembly_cost, assembly.credited);
                let Assembly { class, head, destination, .. } = *assembly;
                let body = match destination {
                    Destination::Place => Delivered::Placed(len),
                    Destination::Collect(buffer) => Delivered::Owned(buffer),
                };
                (above.deliver(number, class, &head, body), credited, len, cost)
            }
            Slot::Missing | Slot::Done => return,
        };
        self.held -= cost;
        if credited && !taken {
            self.consumed(1, len);
        }
    }
}
