//! Loopback: delivers messages to this node itself without the network. The stage that posts
//! replies delivers them in order.
//!
//! Users' messages use up this node's credit, as messages of any peer do (MEM-8.1). Otherwise a
//! program that sends to itself and does not read would fill its memory. Messages that need no
//! credit pass those that wait for credit, as in a ring (MEM-16.3).

#[cfg(test)]
mod tests;

use crate::layers::Layers;
use crate::ops::Ops;
use crate::outcome::{acknowledged, refused, returned, unreadable};
use oikaze_os::memory::RegionTable;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD, MESSAGE_MAX, MESSAGES_IN_FLIGHT};
use oikaze_protocol::rma::{Memory, places, read_rows};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{
    Admission, Body, Charge, Class, Delivered, Handler, Message, PostError, Refusal, Token,
};
use std::collections::VecDeque;

/// Maximum number of loopback bytes that are moved at a time. A longer body that has its place goes
/// piece by piece.
const LOOPBACK_PIECE_BYTES: u64 = 64 << 10;
/// Maximum number of loopback bytes that are moved in one turn, because peers wait for its end.
pub(crate) const LOOPBACK_BYTES_PER_TURN: u64 = 4 << 20;

/// Messages of this node to itself that wait.
pub(crate) struct Loopback {
    me: Rank,
    /// Messages to be examined, in their order.
    queue: VecDeque<Message>,
    /// Messages that wait for credit, or behind one that does.
    held: VecDeque<Message>,
    /// Message that goes piece by piece, before all others.
    under_way: Option<PlacedMessage>,
    /// Credit taken and not given back.
    charged: u64,
    number: u64,
}

/// Message that is placed piece by piece.
struct PlacedMessage {
    number: u64,
    message: Message,
    /// Number of bytes already in place.
    at: u64,
    /// Is `true` if the message was cancelled.
    forgotten: bool,
}

/// Result of moving a message in one turn.
enum Moved {
    Part,
    All,
    /// The source cannot be read any more.
    Gone,
}

impl Loopback {
    pub fn new(me: Rank) -> Self {
        Self {
            me,
            queue: VecDeque::new(),
            held: VecDeque::new(),
            under_way: None,
            charged: 0,
            number: 0,
        }
    }

    pub fn is_due(&self) -> bool {
        !self.queue.is_empty() || self.under_way.is_some()
    }

    /// Returns `true` if [`Loopback::post`] would return [`PostError::Full`], as for a connection.
    pub fn is_full(&self) -> bool {
        self.open_messages() >= MESSAGES_IN_FLIGHT
    }

    /// Number of messages that have been posted and not been delivered.
    pub fn open_messages(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    pub fn post(&mut self, message: Message) -> Result<(), PostError> {
        if message.charge == Charge::Body && message.body.len() > MESSAGE_MAX {
            return Err(PostError::TooLong { len: message.body.len(), max: MESSAGE_MAX });
        }
        if self.is_full() {
            return Err(PostError::Full);
        }
        self.queue.push_back(message);
        Ok(())
    }

    /// Takes the next message that may be delivered.
    fn next(&mut self) -> Option<Message> {
        while let Some(message) = self.queue.pop_front() {
            let passes = message.class == Class::Unordered && !message.charge.is_credited();
            let charge = charge_of(&message);
            if passes
                || (self.held.is_empty() && (self.charged == 0 || self.charged + charge <= CREDIT))
            {
                self.charged += charge;
                return Some(message);
            }
            self.held.push_back(message);
        }
        None
    }

    /// Called when the user has read this number of messages, with this number of bytes.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.give_back(messages.saturating_mul(CREDIT_OVERHEAD).saturating_add(bytes));
        self.check_held();
    }

    /// Examines the held messages again, before the messages that came after them.
    fn check_held(&mut self) {
        self.held.append(&mut self.queue);
        std::mem::swap(&mut self.held, &mut self.queue);
    }

    fn give_back(&mut self, charge: u64) {
        self.charged = self.charged.saturating_sub(charge);
    }

    pub fn forget(&mut self, forgotten: &impl Fn(Token) -> bool) {
        self.queue.retain(|message| !forgotten(message.token));
        self.held.retain(|message| !forgotten(message.token));
        if let Some(under_way) = &mut self.under_way {
            under_way.forgotten |= forgotten(under_way.message.token);
        }
        // The forgotten messages may have held up others that wait for credit behind them.
        self.check_held();
    }
}

fn charge_of(message: &Message) -> u64 {
    let charged = message.charge.of(message.body.len());
    charged.map_or(0, |len| len.saturating_add(CREDIT_OVERHEAD))
}

impl Loopback {
    /// Delivers one message to this node, or goes on with it. Returns the number of bytes moved, or
    /// `None` if there is no message.
    pub fn deliver<P: Pages>(
        &mut self,
        now: Time,
        ops: &mut Ops,
        layers: &mut Layers<P>,
    ) -> Option<u64> {
        if let Some(under_way) = self.under_way.take() {
            return Some(self.place_more(under_way, now, ops, layers));
        }
        let message = self.next()?;
        let (me, charge, len) = (self.me, charge_of(&message), message.body.len());
        let number = self.number;
        self.number += 1;
        let mut body = match message.body {
            Body::Rows(_) => return Some(self.place_first(number, message, now, ops, layers)),
            Body::Segment(_)
                if len > LOOPBACK_PIECE_BYTES && places(message.class, &message.head) =>
            {
                return Some(self.place_first(number, message, now, ops, layers));
            }
            Body::Segment(segment) => {
                let Some(mut bytes) =
                    usize::try_from(len).ok().and_then(|len| layers.buffer_pool.try_lend(len))
                else {
                    self.give_back(charge);
                    refused(message.token, Refusal::NoMemory, ops, layers);
                    return Some(0);
                };
                bytes.resize(len as usize, 0);
                layers.memory.wait_for_pages(true);
                let read = layers.memory.read(segment.region, segment.offset, &mut bytes);
                layers.memory.wait_for_pages(false);
                if !read {
                    self.give_back(charge);
                    unreadable(me, message.token, Some(segment.region), ops, layers);
                    return Some(0);
                }
                bytes
            }
            Body::Inline(bytes) => bytes,
            body @ (Body::Empty | Body::Short(_) | Body::Shared(_)) => body.bytes().to_vec(),
        };
        // The body of a user's message is moved, because no absent page can make its delivery fail
        // and be repeated.
        let delivered = if message.charge == Charge::Body {
            Delivered::Owned(std::mem::take(&mut body))
        } else {
            Delivered::Bytes(&body)
        };
        match layers.deliver(me, number, message.class, &message.head, delivered) {
            Ok(()) => acknowledged(message.token, ops, layers),
            Err(Refusal::NotPresent) => {
                let body = Body::Inline(body);
                let Message { class, urgent, charge: cost, head, token, .. } = message;
                let message = Message { class, urgent, charge: cost, head, body, token };
                self.give_back(charge);
                returned(me, message, now, ops, layers);
            }
            Err(refusal) => {
                // A refused message is never read.
                self.give_back(charge);
                refused(message.token, refusal, ops, layers);
            }
        }
        Some(len)
    }

    fn place_first<P: Pages>(
        &mut self,
        number: u64,
        message: Message,
        now: Time,
        ops: &mut Ops,
        layers: &mut Layers<P>,
    ) -> u64 {
        let first = PlacedMessage { number, message, at: 0, forgotten: false };
        self.place_more(first, now, ops, layers)
    }

    /// Places as much of a message as goes in one turn. The whole message may be longer than any
    /// memory.
    fn place_more<P: Pages>(
        &mut self,
        mut under_way: PlacedMessage,
        now: Time,
        ops: &mut Ops,
        layers: &mut Layers<P>,
    ) -> u64 {
        let (me, before) = (self.me, under_way.at);
        // The node waits for the disk if the body is rows, or if the message has begun (MEM-1.11,
        // MEM-1.12).
        layers.memory.wait_for_pages(matches!(under_way.message.body, Body::Rows(_)));
        let outcome =
            if under_way.forgotten { Ok(Moved::Gone) } else { under_way.place(me, layers) };
        layers.memory.wait_for_pages(false);
        let PlacedMessage { number, message, at, .. } = under_way;
        let (token, charge) = (message.token, charge_of(&message));
        if !matches!(outcome, Ok(Moved::Part | Moved::All)) {
            self.give_back(charge);
        }
        match outcome {
            Ok(Moved::Part) => {
                self.under_way = Some(PlacedMessage { number, message, at, forgotten: false });
            }
            Ok(Moved::All) => acknowledged(token, ops, layers),
            Ok(Moved::Gone) => {
                layers.rma.withdrawn(me, number);
                unreadable(me, token, message.body.region(), ops, layers);
            }
            Err(Refusal::NotPresent) => returned(me, message, now, ops, layers),
            Err(refusal) => refused(token, refusal, ops, layers),
        }
        at - before
    }
}

impl PlacedMessage {
    /// Places the bytes of one turn.
    fn place<P: Pages>(&mut self, me: Rank, layers: &mut Layers<P>) -> Result<Moved, Refusal> {
        let PlacedMessage { number, message: Message { class, head, body, .. }, at, .. } = self;
        let len = body.len();
        if *at == 0 {
            match layers.admit(me, *number, *class, head, len) {
                Admission::Place => {}
                Admission::Assemble => return Err(Refusal::Malformed),
                Admission::Refuse(refusal) => return Err(refusal),
            }
        }
        layers.memory.wait_for_pages(true);
        let mut piece = vec![0; len.min(LOOPBACK_PIECE_BYTES) as usize];
        let end = len.min(*at + LOOPBACK_BYTES_PER_TURN);
        while *at < end {
            let Some(bytes) = piece.get_mut(..(end - *at).min(LOOPBACK_PIECE_BYTES) as usize)
            else {
                return Ok(Moved::Gone);
            };
            if !read_part(body, *at, bytes, &layers.memory) {
                return Ok(Moved::Gone);
            }
            Handler::place(layers, me, *number, *at, bytes);
            *at += bytes.len() as u64;
        }
        if *at < len {
            return Ok(Moved::Part);
        }
        layers.deliver(me, *number, *class, head, Delivered::Placed(len)).map(|()| Moved::All)
    }
}

/// Reads bytes of a body that lies in a region, from `at` on.
fn read_part(body: &Body, at: u64, into: &mut [u8], memory: &RegionTable) -> bool {
    match body {
        Body::Segment(segment) => {
            memory.read(segment.region, segment.offset.saturating_add(at), into)
        }
        Body::Rows(rows) => read_rows(rows, at, into, memory),
        Body::Empty | Body::Short(_) | Body::Inline(_) | Body::Shared(_) => false,
    }
}
