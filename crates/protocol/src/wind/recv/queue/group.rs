//! Parts of messages from group datagrams, which any member of the stream can have forged. What the
//! connection says of a message replaces what only group datagrams have said (WIND-12.12).

use super::{Beginning, FrameOutcome, Inbox, QueueSlot, Statement};
use crate::limits::MESSAGES_IN_FLIGHT;
use crate::planted::{Bug, planted};
use crate::wind::handler::{Handler, UpcallTarget};
use crate::wind::recv::reassembly::Assembly;
use crate::wire::frame::{Fragment, Open};
use crate::wire::group::Carrier;
use alloc::boxed::Box;

impl Assembly {
    /// Returns `true` if the message began as this statement says.
    fn began_as(&self, statement: &Statement<'_>) -> bool {
        let Statement { class, charge, head, len, .. } = *statement;
        (self.class, self.charge, &*self.head, self.len) == (class, charge, head, len)
    }
}

impl Inbox {
    /// Processes bytes of a message from a group datagram, and the message's beginning if the
    /// datagram has it. A group datagram is wrong that contradicts what is known of the message, or
    /// whose message is never shared (WIND-12.13).
    pub fn group_part<U: Handler>(
        &mut self,
        number: u64,
        fragment: Fragment,
        open: Option<Open<'_>>,
        bytes: &[u8],
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let may_be_shared = |above: &UpcallTarget<'_, U>, class, head: &[u8]| {
            planted(Bug::TakeAnyByGroup) || above.handler.may_be_shared(class, head)
        };
        if open.is_some_and(|open| open.credited || !may_be_shared(above, open.class, open.head)) {
            return FrameOutcome::Wrong;
        }
        let statement = open.map(|Open { class, head, len, .. }| {
            let (carrier, charge) = (Carrier::Group, None);
            Statement { carrier, number, class, charge, head, len }
        });
        let contradicts = |began_as: &dyn Fn(&Statement<'_>) -> bool| {
            statement.as_ref().is_some_and(|statement| !began_as(statement))
        };
        if number < self.floor {
            return FrameOutcome::Duplicate;
        }
        match self.slot(number) {
            Some(QueueSlot::Done | QueueSlot::Held(_)) => return FrameOutcome::Duplicate,
            Some(QueueSlot::DoneByGroup(beginning)) => {
                let is_other = contradicts(&|statement| beginning.is(statement));
                return if is_other { FrameOutcome::Wrong } else { FrameOutcome::Duplicate };
            }
            Some(QueueSlot::Gathering(assembly)) => {
                if contradicts(&|statement| assembly.began_as(statement))
                    || !(assembly.is_begun_by_group
                        || may_be_shared(above, assembly.class, &assembly.head))
                {
                    return FrameOutcome::Wrong;
                }
            }
            Some(QueueSlot::Missing) | None => {
                let Some(statement) = statement else { return FrameOutcome::Unknown };
                if number - self.floor >= MESSAGES_IN_FLIGHT as u64 {
                    return FrameOutcome::Wrong;
                }
                if statement.len > self.assembly_max {
                    // The layer above would refuse it.
                    return FrameOutcome::NoRoom;
                }
                let is_whole = fragment.offset == 0 && bytes.len() as u64 == statement.len;
                let whole = is_whole.then_some((fragment, bytes));
                let outcome = self.open_new(&statement, false, whole, above);
                if is_whole || outcome != FrameOutcome::New {
                    return outcome;
                }
            }
        }
        self.part(Carrier::Group, number, (fragment.offset, bytes), open.is_some(), above)
    }

    /// Marks a message as done of which the connection has said nothing.
    pub(super) fn done_by_group<U: Handler>(
        &mut self,
        number: u64,
        beginning: Beginning,
        above: &mut UpcallTarget<'_, U>,
    ) {
        self.set(number, QueueSlot::DoneByGroup(Box::new(beginning)));
        self.advance(above);
    }

    /// Returns `Ok` if a message of the connection begins of which the connection has said nothing
    /// yet, and the sender may send it. If group datagrams have begun the message otherwise, what
    /// they said is forgotten.
    pub(super) fn begin<U: Handler>(
        &mut self,
        statement: &Statement<'_>,
        above: &mut UpcallTarget<'_, U>,
    ) -> Result<(), FrameOutcome> {
        let Statement { number, charge, .. } = *statement;
        match self.slot(number) {
            Some(QueueSlot::Gathering(assembly)) if assembly.is_begun_by_group => {
                if assembly.began_as(statement) {
                    self.confirm_begun(number);
                } else {
                    self.forget_told(number, above);
                }
            }
            Some(QueueSlot::DoneByGroup(beginning)) => {
                if beginning.is(statement) || planted(Bug::KeepForgedInPlace) {
                    self.confirm_done(number, above);
                } else {
                    self.forget_told(number, above);
                }
            }
            _ => {}
        }
        self.first_sight(number, charge)
    }

    /// Like [`begin`](Self::begin), for a message that the sender has withdrawn. What group
    /// datagrams have begun of it is forgotten. A message that is done stays so, unless it cost
    /// credit.
    pub(super) fn begin_withdrawal<U: Handler>(
        &mut self,
        number: u64,
        charge: Option<u64>,
        above: &mut UpcallTarget<'_, U>,
    ) -> Result<(), FrameOutcome> {
        match self.slot(number) {
            Some(QueueSlot::Gathering(assembly)) if assembly.is_begun_by_group => {
                self.forget_told(number, above);
            }
            Some(QueueSlot::DoneByGroup(_)) if charge.is_none() => {
                self.confirm_done(number, above);
            }
            Some(QueueSlot::DoneByGroup(_)) => self.forget_told(number, above),
            _ => {}
        }
        self.first_sight(number, charge)
    }

    /// Called when the sender has settled all messages below this number. Those that this node
    /// lacks never come: another member has forged a group datagram of the same number as the one
    /// that brought them (WIND-12.14).
    pub fn settled_below<U: Handler>(&mut self, number: u64, above: &mut UpcallTarget<'_, U>) {
        if number.saturating_sub(self.floor) > u64::from(u32::MAX / 2) {
            // No message so far ahead can be told from an old one (WIRE-4.5).
            return;
        }
        // All that is known of messages is known of these.
        let known = self.slots.len().max(MESSAGES_IN_FLIGHT) as u64;
        let last = number.min(self.floor.saturating_add(known));
        while self.floor < last {
            let turn = self.turn;
            if self.floor < turn {
                self.slots.pop_front();
                self.floor += 1;
                continue;
            }
            let charge = self.assembly(turn).and_then(|assembly| assembly.charge);
            self.release(turn);
            if let Some(len) = charge {
                self.consumed(1, len);
            }
            above.handler.withdrawn(above.from, turn);
            self.set(turn, QueueSlot::Done);
            self.advance(above);
        }
        if self.floor < number && self.slots.is_empty() {
            (self.floor, self.turn) = (number, number);
        }
    }

    /// Notes that the connection tells the same beginning of a message as group datagrams.
    fn confirm_begun(&mut self, number: u64) {
        let Some(cost) = self.assembly(number).map(|assembly| self.assembly_cost(assembly)) else {
            return;
        };
        if let Some(QueueSlot::Gathering(assembly)) = self.slot(number) {
            assembly.is_begun_by_group = false;
            self.held_by_group -= cost;
        }
    }

    /// Notes that the connection tells the same of a message as the group datagrams that brought
    /// it.
    fn confirm_done<U: Handler>(&mut self, number: u64, above: &mut UpcallTarget<'_, U>) {
        self.set(number, QueueSlot::Done);
        self.advance(above);
    }

    /// Forgets what group datagrams have told of a message. What comes after it in order waits for
    /// it from now on.
    fn forget_told<U: Handler>(&mut self, number: u64, above: &mut UpcallTarget<'_, U>) {
        self.release(number);
        self.set(number, QueueSlot::Missing);
        self.turn = self.turn.min(number);
        above.handler.replaced(above.from, number);
    }
}
