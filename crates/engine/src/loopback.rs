//! Messages to our own rank: delivered without the network, in order, in the stage that posts
//! replies.
//!
//! The user's take of this node's credit, as any peer's do (MEM-8.1): else a program that sends to
//! itself and does not read would fill its memory. What needs none passes those that wait for it,
//! as in a ring (MEM-16.3).

#[cfg(test)]
mod tests;

use super::Engine;
use super::dispatch::Dispatch;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD, MESSAGE_MAX, MESSAGES_IN_FLIGHT};
use oikaze_protocol::rma::{Memory, places, read_rows};
use oikaze_protocol::wind::{
    Admission, Body, Class, Delivered, Handler, Message, PostError, Refusal, Token,
};
use std::collections::VecDeque;

/// Bytes to ourselves that are moved at a time. What is longer, and has its place, goes piece by
/// piece.
const PIECE_TO_SELF: u64 = 64 << 10;
/// Bytes to ourselves that are moved in one turn: peers wait for its end.
pub(super) const LOOPBACK_PER_TURN: u64 = 4 << 20;

/// Those that wait.
#[derive(Default)]
pub(super) struct Loopback {
    /// To be looked at, in their order.
    queue: VecDeque<Message>,
    /// They wait for credit, or behind one that does.
    held: VecDeque<Message>,
    /// One that goes piece by piece, before all others.
    under_way: Option<UnderWay>,
    /// Credit taken and not given back.
    charged: u64,
    number: u64,
}

struct UnderWay {
    number: u64,
    message: Message,
    /// Number of bytes already in place.
    at: u64,
    /// Nobody wants it any more.
    forgotten: bool,
}

/// Result of moving it in one turn.
enum Moved {
    Part,
    All,
    /// The source cannot be read any more.
    Gone,
}

impl Loopback {
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
        if message.credited && message.body.len() > MESSAGE_MAX {
            return Err(PostError::TooLong { len: message.body.len(), max: MESSAGE_MAX });
        }
        if self.is_full() {
            return Err(PostError::Full);
        }
        self.queue.push_back(message);
        Ok(())
    }

    /// The next that may be delivered.
    fn next(&mut self) -> Option<Message> {
        while let Some(message) = self.queue.pop_front() {
            let passes = message.class == Class::Unordered && !message.credited;
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

    /// The user has read so much.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.give_back(messages.saturating_mul(CREDIT_OVERHEAD).saturating_add(bytes));
        self.look_at_held();
    }

    /// Those that waited may go now, before what came after them.
    fn look_at_held(&mut self) {
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
        // There may be credit for what was behind.
        self.look_at_held();
    }
}

fn charge_of(message: &Message) -> u64 {
    if message.credited { message.body.len().saturating_add(CREDIT_OVERHEAD) } else { 0 }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Deliver one message to ourselves, if there is one, or go on with it; how many bytes were
    /// moved.
    pub(super) fn deliver_loopback(&mut self) -> Option<u64> {
        if let Some(under_way) = self.loopback.under_way.take() {
            return Some(self.go_on_to_self(under_way));
        }
        let message = self.loopback.next()?;
        let (charge, len) = (charge_of(&message), message.body.len());
        let number = self.loopback.number;
        self.loopback.number += 1;
        let mut body = match message.body {
            Body::Rows(_) => return Some(self.begin_to_self(number, message)),
            Body::Segment(_) if len > PIECE_TO_SELF && places(message.class, &message.head) => {
                return Some(self.begin_to_self(number, message));
            }
            Body::Segment(segment) => {
                let Some(mut bytes) =
                    usize::try_from(len).ok().and_then(|len| self.buffer_pool.try_lend(len))
                else {
                    self.loopback.give_back(charge);
                    self.refused(message.token, Refusal::NoMemory);
                    return Some(0);
                };
                bytes.resize(len as usize, 0);
                self.memory.wait_for_pages(true);
                let read = self.memory.read(segment.region, segment.offset, &mut bytes);
                self.memory.wait_for_pages(false);
                if !read {
                    self.loopback.give_back(charge);
                    self.unreadable(
                        self.me,
                        message.token,
                        self.why_unreadable(Some(segment.region)),
                    );
                    return Some(0);
                }
                bytes
            }
            Body::Inline(bytes) => bytes,
            body @ (Body::Empty | Body::Short(_)) => body.bytes().to_vec(),
        };
        let Self { me, pages, memory, rma, coherence, buffer_pool, .. } = self;
        let mut handler = Dispatch { rma, coherence, memory, pages, buffer_pool };
        // A user's message is handed over: it meets no absent pages that would have it come again.
        let delivered = if message.credited {
            Delivered::Owned(std::mem::take(&mut body))
        } else {
            Delivered::Bytes(&body)
        };
        let outcome = handler.deliver(*me, number, message.class, &message.head, delivered);
        match outcome {
            Ok(()) => self.acknowledged(message.token),
            Err(Refusal::NotPresent) => {
                let me = *me;
                let body = Body::Inline(body);
                let Message { class, urgent, credited, head, token, .. } = message;
                self.returned(me, Message { class, urgent, credited, head, body, token });
            }
            Err(refusal) => {
                // Nobody reads what was refused.
                self.loopback.give_back(charge);
                self.refused(message.token, refusal);
            }
        }
        Some(len)
    }

    fn begin_to_self(&mut self, number: u64, message: Message) -> u64 {
        self.go_on_to_self(UnderWay { number, message, at: 0, forgotten: false })
    }

    /// As much of it as goes in one turn: as a whole it may be longer than any memory.
    fn go_on_to_self(&mut self, mut under_way: UnderWay) -> u64 {
        let before = under_way.at;
        // Of rows the node waits for the disk, and of what has begun (MEM-1.11, MEM-1.12).
        self.memory.wait_for_pages(matches!(under_way.message.body, Body::Rows(_)));
        let outcome =
            if under_way.forgotten { Ok(Moved::Gone) } else { self.place_some(&mut under_way) };
        self.memory.wait_for_pages(false);
        let UnderWay { number, message, at, .. } = under_way;
        let (me, token) = (self.me, message.token);
        match outcome {
            Ok(Moved::Part) => {
                self.loopback.under_way = Some(UnderWay { number, message, at, forgotten: false })
            }
            Ok(Moved::All) => self.acknowledged(token),
            Ok(Moved::Gone) => {
                self.rma.withdrawn(me, number);
                self.unreadable(me, token, self.why_unreadable(message.body.region()));
            }
            Err(Refusal::NotPresent) => self.returned(me, message),
            Err(refusal) => self.refused(token, refusal),
        }
        at - before
    }

    fn place_some(&mut self, under_way: &mut UnderWay) -> Result<Moved, Refusal> {
        let Self { me, pages, memory, rma, coherence, buffer_pool, .. } = self;
        let mut handler = Dispatch { rma, coherence, memory, pages, buffer_pool };
        let UnderWay { number, message: Message { class, head, body, .. }, at, .. } = under_way;
        let len = body.len();
        if *at == 0 {
            match handler.admit(*me, *number, *class, head, len) {
                Admission::Place => {}
                Admission::Assemble => return Err(Refusal::Malformed),
                Admission::Refuse(refusal) => return Err(refusal),
            }
        }
        handler.memory.wait_for_pages(true);
        let mut piece = vec![0; len.min(PIECE_TO_SELF) as usize];
        let end = len.min(*at + LOOPBACK_PER_TURN);
        while *at < end {
            let Some(bytes) = piece.get_mut(..(end - *at).min(PIECE_TO_SELF) as usize) else {
                return Ok(Moved::Gone);
            };
            if !read_part(body, *at, bytes, handler.memory) {
                return Ok(Moved::Gone);
            }
            handler.place(*me, *number, *at, bytes);
            *at += bytes.len() as u64;
        }
        if *at < len {
            return Ok(Moved::Part);
        }
        handler.deliver(*me, *number, *class, head, Delivered::Placed(len)).map(|()| Moved::All)
    }
}

/// Bytes of a body that lies in a region, from `at` on.
fn read_part(body: &Body, at: u64, into: &mut [u8], memory: &RegionTable) -> bool {
    match body {
        Body::Segment(segment) => {
            memory.read(segment.region, segment.offset.saturating_add(at), into)
        }
        Body::Rows(rows) => read_rows(rows, at, into, memory),
        Body::Empty | Body::Short(_) | Body::Inline(_) => false,
    }
}
