//! Receive queue (WIND-2, WIND-4): tracks which messages are delivered, held back or being
//! reassembled.
//!
//! All classes share one number space. Every message below `turn` is done. An ordered message is
//! delivered when it is at the turn, an unordered one when it is whole. What only group datagrams
//! have told stays known below the turn until the connection confirms it (WIND-12.12).

mod deliver;
mod group;

use crate::limits::{HEAD_MAX, MESSAGES_IN_FLIGHT};
use crate::planted::{Bug, planted};
use crate::wind::handler::{Admission, Delivered, Handler, Refusal, UpcallTarget};
use crate::wind::recv::credit::ReceiveCredit;
use crate::wind::recv::prediction::{Expected, LatestFragment};
use crate::wind::recv::reassembly::{Assembly, BodyDestination, Filled};
use crate::wind::send::message::{Class, Head};
use crate::wire::frame::{Fragment, Open, SmallMessage, Withdrawal};
use crate::wire::group::Carrier;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes of bookkeeping for a message that is held back or reassembled, beyond its own bytes.
const OVERHEAD: u64 = (HEAD_MAX + 128) as u64;

/// Maximum number of earlier messages that are checked before a message is placed until its turn.
const SETTLED_SCAN_MAX: u64 = 64;

/// Result of processing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOutcome {
    New,
    /// The content had arrived before (WIND-2.7).
    Duplicate,
    /// There is no room to hold the content, and the datagram may not be acknowledged.
    NoRoom,
    /// The fragment's message has not begun yet, and the datagram may not be acknowledged
    /// (WIND-2.6).
    Unknown,
    /// No correct peer sends this, and the datagram may not be acknowledged.
    Wrong,
}

/// Whole message that waits for its turn (WIND-2.8).
#[derive(Clone, Debug, Hash)]
struct HeldMessage {
    class: Class,
    /// Bytes of the body that cost credit, or `None` if the message costs none.
    charge: Option<u64>,
    head: Head,
    body: Vec<u8>,
}

#[derive(Clone, Debug, Hash)]
enum QueueSlot {
    Missing,
    /// The message is whole and ordered, and its turn has not come yet.
    Held(Box<HeldMessage>),
    /// The beginning of the message is known. The message may be whole if it is ordered and its
    /// turn has not come yet.
    Gathering(Box<Assembly>),
    /// The message is delivered, refused or withdrawn.
    Done,
    /// The message is done, and only group datagrams have told its beginning so far.
    DoneByGroup(Box<Beginning>),
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Inbox {
    /// Number below which all messages are done, as the connection has told.
    floor: u64,
    /// Number below which all messages are done. It is beyond `floor` while the connection has not
    /// confirmed what group datagrams have brought.
    turn: u64,
    /// Slots of the messages `floor`, `floor + 1`, and so on.
    slots: VecDeque<QueueSlot>,
    held: u64,
    /// Part of `held` that only group datagrams have begun.
    held_by_group: u64,
    held_max: u64,
    assembly_max: u64,
    credit: ReceiveCredit,
    latest: LatestFragment,
}

/// First statement about a message, as a frame makes it.
#[derive(Clone, Copy)]
struct Statement<'a> {
    carrier: Carrier,
    number: u64,
    class: Class,
    /// Bytes of the body that cost credit, or `None` if the message costs none.
    charge: Option<u64>,
    head: &'a [u8],
    len: u64,
}

/// Beginning of a message without cost, as group datagrams have told it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Beginning {
    class: Class,
    head: Head,
    len: u64,
}

impl Beginning {
    /// Returns `true` if the message began as this statement says.
    fn is(&self, statement: &Statement<'_>) -> bool {
        let Statement { class, charge, head, len, .. } = *statement;
        charge.is_none() && (self.class, &*self.head, self.len) == (class, head, len)
    }
}

impl Inbox {
    pub fn new(held_max: u64, assembly_max: u64, credit: u64) -> Inbox {
        Inbox {
            floor: 0,
            turn: 0,
            slots: VecDeque::new(),
            held: 0,
            held_by_group: 0,
            held_max,
            assembly_max,
            credit: ReceiveCredit::new(credit),
            latest: LatestFragment::default(),
        }
    }

    /// Returns the bytes that are held back or being reassembled.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns `true` if no message has begun, and the connection has told of all that are done.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Processes a whole message.
    pub fn message<U: Handler>(
        &mut self,
        message: &SmallMessage<'_>,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let SmallMessage { number, class, credited, head, body } = *message;
        let len = body.len() as u64;
        let charge = above.charge(credited, head, len);
        let carrier = Carrier::Connection;
        match self.begin(&Statement { carrier, number, class, charge, head, len }, above) {
            Ok(()) => {}
            Err(FrameOutcome::Duplicate) if planted(Bug::AcceptDuplicateMessage) => {
                above.deliver(carrier, number, class, head, Delivered::Bytes(body));
                return FrameOutcome::Duplicate;
            }
            // The message had begun in fragments.
            Err(FrameOutcome::Duplicate) => return self.whole(number, body, above),
            Err(taken) => return taken,
        }
        if above.handler.costs_credit(head, credited) != credited {
            self.charge(charge);
            above.refuse(number, Refusal::Malformed);
            self.done(number, charge, above);
            return FrameOutcome::New;
        }
        if class != Class::Unordered && number != self.turn && !planted(Bug::DeliverOrderedEarly) {
            let Ok(head) = Head::try_from(head) else { return FrameOutcome::Wrong };
            if !self.reserve(number, body.len() as u64) {
                return FrameOutcome::NoRoom;
            }
            self.charge(charge);
            self.set(
                number,
                QueueSlot::Held(Box::new(HeldMessage { class, charge, head, body: body.to_vec() })),
            );
            self.advance(above);
            return FrameOutcome::New;
        }
        self.charge(charge);
        let taken = above.deliver(carrier, number, class, head, Delivered::Bytes(body));
        self.done(number, charge.filter(|_| !taken), above);
        FrameOutcome::New
    }

    /// Processes the beginning of a message. If `whole` is given, the same datagram has all of its
    /// body, which is accepted too (WIND-2.10).
    pub fn open<U: Handler>(
        &mut self,
        open: &Open<'_>,
        whole: Option<(Fragment, &[u8])>,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let Open { number, class, credited, head, len } = *open;
        let charge = above.charge(credited, head, len);
        let carrier = Carrier::Connection;
        let statement = Statement { carrier, number, class, charge, head, len };
        match (self.begin(&statement, above), whole) {
            (Ok(()), _) => self.open_new(&statement, credited, whole, above),
            (Err(FrameOutcome::Duplicate), Some((fragment, bytes))) => {
                self.fragment(fragment, true, bytes, above)
            }
            // A beginning is repeated until it is acknowledged, so a duplicate is not unusual.
            (Err(FrameOutcome::Duplicate), None) => FrameOutcome::New,
            (Err(taken), _) => taken,
        }
    }

    /// Processes the beginning of a message of which nothing is known.
    fn open_new<U: Handler>(
        &mut self,
        statement: &Statement<'_>,
        credited: bool,
        whole: Option<(Fragment, &[u8])>,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let Statement { carrier, number, class, charge, head, len } = *statement;
        let Ok(kept_head) = Head::try_from(head) else { return FrameOutcome::Wrong };
        let now = whole
            .map(|(_, body)| body)
            .filter(|_| class == Class::Unordered || number == self.turn);
        // WIND-6.7: there is only one message beyond all credit, and its room is the credit that it
        // used.
        let is_placed = class == Class::Unordered && above.handler.places(class, head);
        let collected = if is_placed || self.is_alone(charge) { 0 } else { len };
        if now.is_none() && !self.has_room(carrier, number, collected) {
            return FrameOutcome::NoRoom;
        }
        let sound = above.handler.costs_credit(head, credited) == credited;
        let admission =
            match sound.then(|| above.handler.admit(above.from, number, class, head, len)) {
                None => Admission::Refuse(Refusal::Malformed),
                Some(Admission::Place) if class != Class::Unordered => Admission::Assemble,
                Some(other) => other,
            };
        self.charge(charge);
        let delivered = match (admission, now) {
            (Admission::Refuse(refusal), _) => {
                return self.refuse_new(statement, refusal, above);
            }
            (Admission::Assemble, _) if len > self.assembly_max => {
                return self.refuse_for_room(statement, Refusal::NoRoom, above);
            }
            (Admission::Place, Some(body)) => {
                above.handler.place(above.from, number, 0, body);
                Delivered::Placed(len)
            }
            (Admission::Assemble, Some(body)) => Delivered::Bytes(body),
            (Admission::Place, None) => {
                let place = BodyDestination::Place;
                self.gather(carrier, number, Assembly::new(class, charge, kept_head, len, place));
                return FrameOutcome::New;
            }
            (Admission::Assemble, None) => {
                let is_placed = (class == Class::Unordered || self.follows_settled(number))
                    && above.handler.places_until_turn(above.from, number, head, len);
                // Reserved but not cleared, because most fragments come in order and each byte is
                // written once.
                let mut buffer = |len| above.handler.buffer(usize::try_from(len).ok()?);
                let destination = match is_placed {
                    true => Some(BodyDestination::Place),
                    false => buffer(len).map(BodyDestination::Collect),
                };
                let Some(destination) = destination else {
                    return self.refuse_for_room(statement, Refusal::NoMemory, above);
                };
                let assembly = Assembly::new(class, charge, kept_head, len, destination);
                self.gather(carrier, number, assembly);
                return whole.map_or(FrameOutcome::New, |(fragment, bytes)| {
                    self.part(carrier, number, (fragment.offset, bytes), true, above)
                });
            }
        };
        let taken = above.deliver(carrier, number, class, head, delivered);
        match carrier {
            Carrier::Connection => self.done(number, charge.filter(|_| !taken), above),
            Carrier::Group => {
                let beginning = Beginning { class, head: kept_head, len };
                self.done_by_group(number, beginning, above);
            }
        }
        FrameOutcome::New
    }

    /// Refuses a message that begins, as the layer above wants. What only a group datagram tells
    /// causes no refusal: the message must come again by the connection (WIND-12.11).
    fn refuse_new<U: Handler>(
        &mut self,
        statement: &Statement<'_>,
        refusal: Refusal,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let Statement { carrier, number, charge, .. } = *statement;
        if carrier == Carrier::Group {
            above.handler.replaced(above.from, number);
            return FrameOutcome::NoRoom;
        }
        above.refuse(number, refusal);
        self.done(number, charge, above);
        FrameOutcome::New
    }

    /// Like [`refuse_new`](Self::refuse_new), for a message that the layer above has admitted.
    fn refuse_for_room<U: Handler>(
        &mut self,
        statement: &Statement<'_>,
        refusal: Refusal,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        if statement.carrier == Carrier::Connection {
            above.handler.refused(above.from, statement.head, statement.len);
        }
        self.refuse_new(statement, refusal, above)
    }

    /// Returns `true` if every message before this one is done, or its bytes are being placed, so
    /// that the upper layer knows where they go. Looks at a few messages only.
    fn follows_settled(&self, number: u64) -> bool {
        let (before, ahead) = (number.saturating_sub(self.turn), self.turn - self.floor);
        before <= SETTLED_SCAN_MAX
            && (ahead..ahead + before).all(|at| match self.slots.get(at as usize) {
                Some(QueueSlot::Done | QueueSlot::DoneByGroup(_)) => true,
                Some(QueueSlot::Gathering(assembly)) => {
                    assembly.destination == BodyDestination::Place
                }
                Some(QueueSlot::Held(_) | QueueSlot::Missing) | None => false,
            })
    }

    fn gather(&mut self, carrier: Carrier, number: u64, mut assembly: Assembly) {
        let cost = self.assembly_cost(&assembly);
        self.held += cost;
        if carrier == Carrier::Group {
            assembly.begun_by_group();
            self.held_by_group += cost;
        }
        self.set(number, QueueSlot::Gathering(Box::new(assembly)));
    }

    /// Frees the room of a message that is being reassembled.
    fn release(&mut self, number: u64) {
        let Some(assembly) = self.assembly(number) else { return };
        let (cost, is_begun_by_group) = (self.assembly_cost(assembly), assembly.is_begun_by_group);
        self.held -= cost;
        self.held_by_group -= if is_begun_by_group { cost } else { 0 };
    }

    /// Processes bytes of a body. `opens` tells whether the message's beginning is in the same
    /// datagram.
    pub fn fragment<U: Handler>(
        &mut self,
        fragment: Fragment,
        opens: bool,
        bytes: &[u8],
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let Some(message) = self.number(fragment.message_low) else {
            return FrameOutcome::Duplicate;
        };
        self.part(Carrier::Connection, message, (fragment.offset, bytes), opens, above)
    }

    /// Processes bytes of a message's body from this offset on.
    fn part<U: Handler>(
        &mut self,
        carrier: Carrier,
        message: u64,
        (offset, bytes): (u64, &[u8]),
        opens: bool,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let taken = self.fill(carrier, message, offset, bytes, above);
        if taken == FrameOutcome::New {
            let (len, end) = (bytes.len(), offset + bytes.len() as u64);
            self.latest = LatestFragment { message, end, len, opens };
        }
        taken
    }

    /// Completes the low half of a message number to the nearest number at or above the floor.
    /// Returns `None` for a number below the floor, which was delivered long ago (WIRE-4.5).
    pub fn number(&self, low: u32) -> Option<u64> {
        let ahead = low.wrapping_sub(self.floor as u32);
        (ahead <= u32::MAX / 2).then(|| self.floor + u64::from(ahead))
    }

    /// Returns what will probably come next, up to `bytes` bytes.
    pub fn expected(&self, bytes: usize) -> Option<Expected> {
        self.latest.expected(bytes, self.assembly(self.latest.message)?)
    }

    /// Processes a whole message of which something is known already, and accepts the missing part
    /// (WIND-2.4).
    fn whole<U: Handler>(
        &mut self,
        number: u64,
        body: &[u8],
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        match self.slot(number) {
            Some(QueueSlot::Gathering(assembly)) if assembly.len != body.len() as u64 => {
                FrameOutcome::Wrong
            }
            Some(QueueSlot::Gathering(_)) => self.fill(Carrier::Connection, number, 0, body, above),
            _ => FrameOutcome::Duplicate,
        }
    }

    fn fill<U: Handler>(
        &mut self,
        carrier: Carrier,
        number: u64,
        offset: u64,
        bytes: &[u8],
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        if number < self.floor {
            return FrameOutcome::Duplicate;
        }
        let assembly = match self.slot(number) {
            // The fragment must come again with the beginning that the connection tells.
            Some(QueueSlot::Gathering(assembly))
                if assembly.is_begun_by_group && carrier == Carrier::Connection =>
            {
                return FrameOutcome::Unknown;
            }
            Some(QueueSlot::Gathering(assembly)) => assembly,
            Some(QueueSlot::DoneByGroup(_)) if carrier == Carrier::Connection => {
                return FrameOutcome::Unknown;
            }
            Some(QueueSlot::Done | QueueSlot::DoneByGroup(_) | QueueSlot::Held(_)) => {
                return FrameOutcome::Duplicate;
            }
            Some(QueueSlot::Missing) | None => return FrameOutcome::Unknown,
        };
        let (handler, from) = (&mut *above.handler, above.from);
        let place = |offset, part: &[u8]| handler.place(from, number, offset, part);
        match assembly.fill(carrier, offset, bytes, place) {
            Filled::Outside => return FrameOutcome::Wrong,
            Filled::TooScattered => return FrameOutcome::NoRoom,
            Filled::Nothing => return FrameOutcome::Duplicate,
            Filled::New => {}
        }
        let early = assembly.class == Class::Unordered || planted(Bug::DeliverOrderedEarly);
        if assembly.is_whole() && early {
            self.complete(number, above);
        }
        self.advance(above);
        FrameOutcome::New
    }

    /// Processes a withdrawal by the sender (WIND-2.9, WIND-4.7).
    pub fn withdraw<U: Handler>(
        &mut self,
        withdrawal: Withdrawal,
        above: &mut UpcallTarget<'_, U>,
    ) -> FrameOutcome {
        let Withdrawal { number, charged, len } = withdrawal;
        let charge = charged.then_some(len);
        match self.begin_withdrawal(number, charge, above) {
            Ok(()) => {
                self.charge(charge);
                above.handler.withdrawn(above.from, number);
                self.done(number, charge, above);
                FrameOutcome::New
            }
            Err(FrameOutcome::Duplicate) => {
                let Some(QueueSlot::Gathering(assembly)) = self.slot(number) else {
                    return FrameOutcome::Duplicate;
                };
                if (assembly.charge, assembly.charge.unwrap_or(assembly.len)) != (charge, len) {
                    return FrameOutcome::Wrong;
                }
                if assembly.is_whole() {
                    return FrameOutcome::Duplicate;
                }
                self.release(number);
                above.handler.withdrawn(above.from, number);
                self.done(number, charge, above);
                FrameOutcome::New
            }
            Err(taken) => taken,
        }
    }

    /// Returns `Ok` if nothing is known of this message yet, and the sender may send it.
    fn first_sight(&mut self, number: u64, charge: Option<u64>) -> Result<(), FrameOutcome> {
        if number < self.floor {
            return Err(FrameOutcome::Duplicate);
        }
        if number.saturating_sub(self.turn) >= MESSAGES_IN_FLIGHT as u64 {
            return Err(FrameOutcome::Wrong);
        }
        if !matches!(self.slot(number), None | Some(QueueSlot::Missing)) {
            return Err(FrameOutcome::Duplicate);
        }
        let is_covered = charge.is_none_or(|len| self.credit.covers(len));
        if is_covered { Ok(()) } else { Err(FrameOutcome::Wrong) }
    }

    fn charge(&mut self, charge: Option<u64>) {
        if let Some(len) = charge {
            self.credit.take(len);
        }
    }

    fn assembly(&self, number: u64) -> Option<&Assembly> {
        match self.slots.get(usize::try_from(number.checked_sub(self.floor)?).ok()?)? {
            QueueSlot::Gathering(assembly) => Some(assembly),
            _ => None,
        }
    }

    fn slot(&mut self, number: u64) -> Option<&mut QueueSlot> {
        self.slots.get_mut(usize::try_from(number.checked_sub(self.floor)?).ok()?)
    }

    fn set(&mut self, number: u64, slot: QueueSlot) {
        let Ok(at) = usize::try_from(number.saturating_sub(self.floor)) else { return };
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || QueueSlot::Missing);
        }
        if let Some(place) = self.slots.get_mut(at) {
            *place = slot;
        }
    }

    /// Returns `true` if there is room for the message. The message that all others wait for is
    /// always accepted (WIND-6.5). Messages that only group datagrams have begun get at most half
    /// of the room, so that the connection has the rest.
    fn has_room(&self, carrier: Carrier, number: u64, len: u64) -> bool {
        let fits = |held: u64, most: u64| held.saturating_add(len).saturating_add(OVERHEAD) <= most;
        let is_bounded = carrier == Carrier::Group && !planted(Bug::GiveForgedAllRoom);
        number == self.turn
            || (fits(self.held, self.held_max)
                && (!is_bounded || fits(self.held_by_group, self.held_max / 2)))
    }

    fn reserve(&mut self, number: u64, len: u64) -> bool {
        let room = self.has_room(Carrier::Connection, number, len);
        if room {
            self.held += len + OVERHEAD;
        }
        room
    }

    /// Returns whether a message costs more than all credit, and so comes alone (WIND-6.7).
    fn is_alone(&self, charge: Option<u64>) -> bool {
        charge.is_some_and(|len| self.credit.is_exceeded_by(len))
    }

    /// Returns the bytes by which a message that is reassembled counts against the bound on held
    /// messages.
    fn assembly_cost(&self, assembly: &Assembly) -> u64 {
        let is_counted = matches!(assembly.destination, BodyDestination::Collect(_))
            && !self.is_alone(assembly.charge);
        OVERHEAD + if is_counted { assembly.len } else { 0 }
    }

    /// Marks a message as done. The credit `give_back` goes back, because nobody will read the
    /// message.
    fn done<U: Handler>(
        &mut self,
        number: u64,
        give_back: Option<u64>,
        above: &mut UpcallTarget<'_, U>,
    ) {
        if let Some(len) = give_back {
            self.consumed(1, len);
        }
        if number == self.floor && self.slots.is_empty() {
            self.floor += 1;
            self.turn += 1;
        } else {
            self.set(number, QueueSlot::Done);
            self.advance(above);
        }
    }

    /// Gives back the credit of `messages` messages that were read, whose bodies have `bytes` bytes
    /// together.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.credit.give_back(messages, bytes);
    }

    /// Returns all the credit ever granted, which the next ACK reports.
    pub fn report_credit(&mut self) -> u64 {
        self.credit.report()
    }

    /// Returns `true` if so much credit is unreported that the peer should hear of it (WIND-6.4).
    pub fn credit_due(&self) -> bool {
        self.credit.is_due()
    }

    /// Gives memory back while idle.
    pub fn shrink(&mut self) {
        if self.slots.is_empty() {
            self.slots.shrink_to(16);
        }
    }
}
