//! Parts of messages from group datagrams, which any member of the stream can have forged. What the
//! connection says of a message replaces what only group datagrams have said (WIND-12.12).

use super::{Beginning, FrameOutcome, Inbox, QueueSlot};
use crate::limits::MESSAGES_IN_FLIGHT;
use crate::wind::handler::{Handler, UpcallTarget};
use crate::wind::recv::reassembly::Assembly;
use crate::wire::frame::{Fragment, Open};
use crate::wire::group::Carrier;

impl Assembly {
    /// Returns `true` if the message began as this beginning says.
    fn began_as(&self, beginning: &Beginning<'_>) -> bool {
        let Beginning { class, charge, head, len, .. } = *beginning;
        (self.class, self.charge, &*self.head, self.len) == (class, charge, head, len)
    }
}

impl Inbox {
    /// Processes bytes of a message from a group datagram, and the message's beginning if the
    /// datagram has it. A group datagram that contradicts what is known of the message is wrong.
    pub fn group_part<U: Handler>(
        &mut self,
        number: u64,
        fragment: Fragment,
        open: Option<Open<'_>>,
        bytes: &[u8],
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        if self.is_done(number) {
            return FrameOutcome::Duplicate;
        }
        if let Some(Open { class, credited, head, len, .. }) = open {
            // WIND-12.13: no message that costs credit is shared, so that no member can make the
            // credit of the two ends differ.
            if credited {
                return FrameOutcome::Wrong;
            }
            let beginning = Beginning { number, class, charge: None, head, len };
            match self.slot(number) {
                Some(QueueSlot::Gathering(assembly)) if !assembly.began_as(&beginning) => {
                    return FrameOutcome::Wrong;
                }
                Some(QueueSlot::Missing) | None => {
                    if let Err(outcome) = self.first_sight(number, None) {
                        return outcome;
                    }
                    let is_whole = fragment.offset == 0 && bytes.len() as u64 == len;
                    let whole = is_whole.then_some((fragment, bytes));
                    let outcome = self.open_new(&beginning, false, whole, above);
                    self.note_begun_by_group(number);
                    if whole.is_some() || outcome != FrameOutcome::New {
                        return outcome;
                    }
                }
                _ => {}
            }
        }
        self.part(Carrier::Group, number, (fragment.offset, bytes), open.is_some(), above)
    }

    fn is_done(&mut self, number: u64) -> bool {
        number < self.floor || matches!(self.slot(number), Some(QueueSlot::Done))
    }

    /// Notes that a group datagram has begun this message, which may be done by now.
    fn note_begun_by_group(&mut self, number: u64) {
        if self.is_done(number) {
            self.note_done_by_group(number);
        } else if let Some(QueueSlot::Gathering(assembly)) = self.slot(number) {
            assembly.begun_by_group();
        }
    }

    /// Notes that a message is done of which the connection has said nothing.
    pub(super) fn note_done_by_group(&mut self, number: u64) {
        self.done_by_group.insert(number..number + 1);
        // Between two ranges lies a message of the connection, or one that is not done. So the
        // first of so many is older than all messages that the sender has not settled.
        if self.done_by_group.pieces() > MESSAGES_IN_FLIGHT {
            self.done_by_group.forget_first();
        }
    }

    /// Returns `Ok` if a message of the connection begins of which the connection has said nothing
    /// yet, and the sender may send it. If group datagrams have begun the message otherwise, what
    /// they said is forgotten.
    pub(super) fn begin<U: Handler>(
        &mut self,
        beginning: &Beginning<'_>,
        above: &mut UpcallTarget<'_, U>,
    ) -> Result<(), FrameOutcome> {
        let Beginning { number, charge, .. } = *beginning;
        let outcome = self.first_sight(number, charge);
        if outcome != Err(FrameOutcome::Duplicate) {
            return outcome;
        }
        self.settle_credit(number, charge);
        match self.slot(number) {
            Some(QueueSlot::Gathering(assembly)) if assembly.is_begun_by_group => {
                if assembly.began_as(beginning) {
                    assembly.is_begun_by_group = false;
                    return outcome;
                }
                self.forget_begun(number, above);
                self.first_sight(number, charge)
            }
            _ => outcome,
        }
    }

    /// Like [`begin`](Self::begin), for a message that the sender has withdrawn. It is withdrawn
    /// whatever group datagrams have brought of it.
    pub(super) fn begin_withdrawal<U: Handler>(
        &mut self,
        number: u64,
        charge: Option<u64>,
        above: &mut UpcallTarget<'_, U>,
    ) -> Result<(), FrameOutcome> {
        let outcome = self.first_sight(number, charge);
        if outcome == Err(FrameOutcome::Duplicate) {
            self.settle_credit(number, charge);
            if self.assembly(number).is_some_and(|assembly| assembly.is_begun_by_group) {
                self.forget_begun(number, above);
                return self.first_sight(number, charge);
            }
        }
        outcome
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
        let last = number.min(self.floor.saturating_add(MESSAGES_IN_FLIGHT as u64));
        while self.floor < last {
            let floor = self.floor;
            let begun = self.assembly(floor);
            let (cost, charge) =
                begun.map_or((0, None), |assembly| (self.assembly_cost(assembly), assembly.charge));
            self.held -= cost;
            if let Some(len) = charge {
                self.consumed(1, len);
            }
            above.handler.withdrawn(above.from, floor);
            self.set(floor, QueueSlot::Done);
            self.advance(above);
        }
        self.floor = self.floor.max(number);
    }

    /// Forgets a message that group datagrams have begun.
    fn forget_begun<U: Handler>(&mut self, number: u64, above: &mut UpcallTarget<'_, U>) {
        self.held -= self.assembly(number).map_or(0, |assembly| self.assembly_cost(assembly));
        self.set(number, QueueSlot::Missing);
        above.handler.replaced(above.from, number);
    }

    /// Charges a message that was done before the connection told its cost. The credit goes back at
    /// once, because nobody will read the message as one that costs credit.
    fn settle_credit(&mut self, number: u64, charge: Option<u64>) {
        if self.done_by_group.is_empty() {
            return;
        }
        if self.done_by_group.contains(number) {
            self.done_by_group.remove(number..number + 1);
            if let Some(len) = charge.filter(|len| self.credit.covers(*len)) {
                self.credit.take(len);
                self.consumed(1, len);
            }
        }
    }

    /// Returns the outcome of a part of a message that is done. A fragment of the connection must
    /// come again with the beginning if the connection has not told that yet.
    pub(super) fn part_of_done(&self, carrier: Carrier, number: u64) -> FrameOutcome {
        let is_unsaid = carrier == Carrier::Connection && self.done_by_group.contains(number);
        if is_unsaid { FrameOutcome::Unknown } else { FrameOutcome::Duplicate }
    }
}
