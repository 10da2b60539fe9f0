//! Sends to a local peer: keeps messages that wait for room or credit, and those that are not
//! settled.
//!
//! The reader takes records in their order, which satisfies all three classes (MEM-16.3). A message
//! may wait for credit until the peer's user reads (MEM-16.6). If messages that need no credit
//! waited behind it, two nodes could wait for each other. Unordered messages that need no credit
//! therefore overtake messages that wait for credit, which WIND-2.3 allows.

use super::credit::Credit;
use super::record::{self, PutOutcome, put_parcel, put_user};
use super::unsettled::{Settled, UnsettledQueue};
use crate::ops::backoff::RetryTimer;
use oikaze_os::memory::RegionTable;
use oikaze_os::shm::{Part, Writer};
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::limits::{
    BODY_MAX, GRANTS, HEAD_MAX, MESSAGE_MAX, MESSAGES_IN_FLIGHT, RECORD_BODY,
};
use oikaze_protocol::rma::USER_HEAD;
use oikaze_protocol::shm::{Damaged, Heading, RecordKind};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Charge, Class, Death, Message, PostError, Token};
use std::collections::VecDeque;

/// Sending side of a ring: the messages that are not settled, and those that wait for room.
#[derive(Debug, Default)]
pub(in crate::shm) struct Outgoing {
    /// Number of messages that were posted since the rings exist.
    posted: u64,
    /// Unordered messages that need no credit and wait for room, in their order.
    passing: VecDeque<WaitingMessage>,
    /// All other messages that wait, in their order.
    lined: VecDeque<WaitingMessage>,
    /// Message that does not fit into one record, of which the first record was written.
    under_way: Option<BegunMessage>,
    /// Timer of a message whose source has absent pages.
    pub retry: RetryTimer,
    /// Requests and answers about memory that wait for room.
    notices: VecDeque<(Heading, u64)>,
    pub unsettled: UnsettledQueue,
    /// Messages whose source was removed before it could be read.
    lost: VecDeque<Token>,
    credit: Credit,
    /// Buffer in which rows are packed before they are written as a record.
    packed: Vec<u8>,
    closed: bool,
}

#[derive(Debug)]
struct WaitingMessage {
    number: u64,
    message: Message,
}

#[derive(Debug)]
struct BegunMessage {
    /// Content of the message; `None` if the message is to be withdrawn.
    body: Option<Body>,
    /// Number of bytes of the message that precede `body`.
    before_body: u64,
    len: u64,
    at: u64,
    token: Token,
    charge: u64,
}

impl BegunMessage {
    /// Withdraws the message. Its source is not read again, and a record of kind
    /// [`RecordKind::Withdrawn`] follows.
    fn give_up(&mut self) -> Token {
        self.body = None;
        std::mem::replace(&mut self.token, Token::NONE)
    }
}

impl Outgoing {
    #[inline]
    pub fn post(
        &mut self,
        mut message: Message,
        memory: &RegionTable,
        writer: &mut Writer,
        now: Time,
    ) -> Result<(), PostError> {
        if self.closed {
            return Err(PostError::Dead(Death::Closed));
        }
        let len = message.body.len();
        let max = if message.charge == Charge::Body { MESSAGE_MAX } else { BODY_MAX };
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        if self.is_full() {
            return Err(PostError::Full);
        }
        self.posted += 1;
        if self.waiting() == 0 && self.credit.is_there(Credit::charge_of(&message), writer) {
            match self.begin(&mut message, memory, writer) {
                PutOutcome::Full | PutOutcome::Absent => {}
                PutOutcome::Done(_) => {
                    self.pump(memory, writer, now);
                    return Ok(());
                }
                PutOutcome::Gone => {
                    self.lost.push_back(message.token);
                    return Ok(());
                }
            }
        }
        let passes = message.class == Class::Unordered && !message.charge.is_credited();
        let queue = if passes { &mut self.passing } else { &mut self.lined };
        queue.push_back(WaitingMessage { number: self.posted, message });
        Ok(())
    }

    /// Puts a user's message into the ring, if no message waits and there is room and credit for
    /// all of it in one record. Returns the position behind the record, which the sender keeps.
    /// [`UnsettledQueue::push_fast`] follows.
    #[inline]
    pub fn put_fast(
        &mut self,
        class: Class,
        tag: u64,
        body: &[u8],
        writer: &mut Writer,
    ) -> Option<u64> {
        let charge = Credit::charge(body.len() as u64);
        if self.closed
            || body.len() > RECORD_BODY
            || self.waiting() > 0
            || !self.credit.is_there(charge, writer)
        {
            return None;
        }
        let len = USER_HEAD + body.len();
        if !writer.has_room(len) && !writer.await_room(len) {
            return None;
        }
        let end = put_user(class, tag, body, writer).ok()?;
        self.posted += 1;
        self.credit.take(charge);
        Some(end)
    }

    /// Puts a parcel into the ring, if no message waits and there is room for all of it in one
    /// record. Returns the position behind the record. [`UnsettledQueue::push_fast`] follows.
    #[inline]
    pub fn put_parcel_fast(
        &mut self,
        head: &ParcelHead,
        body: &[u8],
        writer: &mut Writer,
    ) -> Option<u64> {
        if self.closed || body.len() > RECORD_BODY || self.waiting() > 0 {
            return None;
        }
        let end = put_parcel(head, body, writer).ok()?;
        self.posted += 1;
        Some(end)
    }

    pub fn is_full(&self) -> bool {
        self.open_messages() >= MESSAGES_IN_FLIGHT
    }

    /// Returns the number of messages that have been posted and not been settled.
    pub fn open_messages(&self) -> usize {
        self.waiting() + self.unsettled.len()
    }

    #[inline]
    pub fn waiting(&self) -> usize {
        self.passing.len()
            + self.lined.len()
            + self.notices.len()
            + usize::from(self.under_way.is_some())
    }

    pub fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.unsettled.is_empty()
    }

    /// Puts waiting messages into the ring: the message under way, then the others in the order in
    /// which they were posted, except those without credit. Returns `true` if anything was put in.
    pub fn pump(&mut self, memory: &RegionTable, writer: &mut Writer, now: Time) -> bool {
        let mut any = false;
        while let Some((heading, key)) = self.notices.front() {
            if writer.put(*heading, &[Part::Bytes(&key.to_le_bytes())]).is_err() {
                return any;
            }
            self.notices.pop_front();
            any = true;
        }
        match self.pump_messages(memory, writer, &mut any) {
            Some(PutOutcome::Absent) if self.retry.begin(now) => {}
            // The wait for a source has no time limit. Its pages become present, or its region
            // breaks and the message fails.
            _ => self.retry.end(),
        }
        any
    }

    /// Puts waiting messages into the ring. Returns what stopped this, if anything did.
    fn pump_messages(
        &mut self,
        memory: &RegionTable,
        writer: &mut Writer,
        any: &mut bool,
    ) -> Option<PutOutcome> {
        loop {
            if let Some(stopped) = self.go_on(memory, writer, any) {
                return Some(stopped);
            }
            let WaitingMessage { mut message, number } = self.next(writer)?;
            match self.begin(&mut message, memory, writer) {
                PutOutcome::Done(_) => *any = true,
                PutOutcome::Gone => self.lost.push_back(message.token),
                stopped @ (PutOutcome::Full | PutOutcome::Absent) => {
                    let passes = message.class == Class::Unordered && !message.charge.is_credited();
                    let queue = if passes { &mut self.passing } else { &mut self.lined };
                    queue.push_front(WaitingMessage { message, number });
                    return Some(stopped);
                }
            }
        }
    }

    fn next(&mut self, writer: &Writer) -> Option<WaitingMessage> {
        let passing = self.passing.front().map(|waiting| waiting.number);
        let lined =
            self.lined.front().map(|waiting| (waiting.number, Credit::charge_of(&waiting.message)));
        match (passing, lined) {
            (Some(passing), Some((lined, charge)))
                if lined < passing && self.credit.is_there(charge, writer) =>
            {
                self.lined.pop_front()
            }
            (Some(_), _) => self.passing.pop_front(),
            (None, Some((_, charge))) if self.credit.is_there(charge, writer) => {
                self.lined.pop_front()
            }
            _ => None,
        }
    }

    /// Returns `true` if [`Outgoing::pump`] would put anything into the ring.
    pub fn could_go(&mut self, writer: &mut Writer) -> bool {
        if !self.notices.is_empty() {
            return writer.has_room(8);
        }
        if self.retry.until().is_some() {
            return false;
        }
        if let Some(under_way) = &self.under_way {
            let left = usize::try_from(under_way.len - under_way.at)
                .unwrap_or(usize::MAX)
                .min(RECORD_BODY);
            return writer.has_room(if under_way.body.is_some() { left } else { 0 });
        }
        let lined = self.lined.front().map(|waiting| Credit::charge_of(&waiting.message));
        let may = !self.passing.is_empty()
            || lined.is_some_and(|charge| self.credit.is_there(charge, writer));
        may && writer.has_room(HEAD_MAX + RECORD_BODY)
    }

    /// Puts a message into the ring, or its first record. The body of a message of several records
    /// is taken from `message`, because a copy of it may be as long as 1 GiB.
    #[inline]
    fn begin(
        &mut self,
        message: &mut Message,
        memory: &RegionTable,
        writer: &mut Writer,
    ) -> PutOutcome {
        let len = message.body.len();
        let charge = Credit::charge_of(message);
        let (class, token) = (message.class, message.token);
        let heading = Heading {
            kind: RecordKind::Whole,
            class,
            head: message.head.len(),
            len: 0,
            flag: false,
        };
        let put = if len > RECORD_BODY as u64 {
            let parts = [Part::Bytes(&len.to_le_bytes()), Part::Bytes(&message.head)];
            PutOutcome::of(writer.put(Heading { kind: RecordKind::Begin, ..heading }, &parts))
        } else {
            let whole = 0..usize::try_from(len).unwrap_or(usize::MAX);
            let (head, body, scratch) = (&message.head, &message.body, &mut self.packed);
            record::put(heading, head, body, whole, memory, scratch, writer)
        };
        let PutOutcome::Done(end) = put else { return put };
        self.credit.take(charge);
        if len > RECORD_BODY as u64 {
            let body = Some(std::mem::replace(&mut message.body, Body::Empty));
            self.under_way = Some(BegunMessage { body, before_body: 0, len, at: 0, token, charge });
        } else {
            self.unsettled.push(end, token, charge);
        }
        PutOutcome::Done(end)
    }

    /// Puts in as much of the message under way as there is room for. Returns what stopped this, if
    /// the message is still under way.
    fn go_on(
        &mut self,
        memory: &RegionTable,
        writer: &mut Writer,
        any: &mut bool,
    ) -> Option<PutOutcome> {
        while let Some(under_way) = &mut self.under_way {
            let left = usize::try_from(under_way.len - under_way.at).unwrap_or(usize::MAX);
            let from = usize::try_from(under_way.at - under_way.before_body).unwrap_or(usize::MAX);
            let len = left.min(RECORD_BODY);
            let put = match &under_way.body {
                None => PutOutcome::of(writer.put(Heading::plain(RecordKind::Withdrawn, 0), &[])),
                Some(body) => {
                    let piece = Heading::plain(RecordKind::Piece, 0);
                    let (part, scratch) = (from..from.saturating_add(len), &mut self.packed);
                    record::put(piece, &[], body, part, memory, scratch, writer)
                }
            };
            let end = match put {
                PutOutcome::Done(end) => end,
                PutOutcome::Full | PutOutcome::Absent => return Some(put),
                PutOutcome::Gone => {
                    self.lost.push_back(under_way.give_up());
                    continue;
                }
            };
            *any = true;
            under_way.at += len as u64;
            let BegunMessage { token, charge, .. } = *under_way;
            if under_way.body.is_none() {
                self.credit.give_back(charge);
                self.under_way = None;
            } else if under_way.at == under_way.len {
                self.unsettled.push(end, token, charge);
                self.under_way = None;
            }
        }
        None
    }

    /// Returns `true` if [`Outgoing::next_settled`] has something to report.
    #[inline]
    pub fn has_settled(&mut self, writer: &mut Writer) -> bool {
        if self.unsettled.is_empty() {
            // Reports damage, because waiting messages never find room in a damaged ring.
            return self.waiting() > 0 && writer.settled().is_err();
        }
        self.unsettled.has_settled(writer)
    }

    /// Returns the outcome of the oldest message, if the local peer is done with it.
    pub fn next_settled(&mut self, writer: &mut Writer) -> Result<Option<Settled>, Damaged> {
        let settled = self.unsettled.next(writer)?;
        if let Some(Settled::Message { outcome: Err(_), charge, .. }) = &settled {
            // No user reads a refused message, so its credit is free again.
            self.credit.give_back(*charge);
        }
        Ok(settled)
    }

    /// Returns `true` if another request or answer about memory may be sent. Otherwise the local
    /// peer must first read some of those that wait.
    pub fn has_notice_room(&self) -> bool {
        self.notices.len() < GRANTS
    }

    /// Sends a request or an answer about the region with this key.
    pub fn queue_notice(&mut self, heading: Heading, key: u64) {
        self.notices.push_back((heading, key));
    }

    /// Returns the number of bytes of this region that are still to be put into the ring. Returns
    /// `None` if no message needs the region any more.
    pub fn unsent_of(&self, region: u32) -> Option<u64> {
        let is_of = |body: &Body| body.region() == Some(region);
        let begun = self.under_way.iter().filter(|begun| begun.body.as_ref().is_some_and(is_of));
        let waiting = self.passing.iter().chain(&self.lined);
        let waiting = waiting.filter(|waiting| is_of(&waiting.message.body));
        begun
            .map(|begun| begun.len - begun.at)
            .chain(waiting.map(|waiting| waiting.message.body.len()))
            .reduce(|sum, len| sum.saturating_add(len))
    }

    /// Copies what is still to be sent of the one message whose body is this whole region, which
    /// has these bytes. The region is not read again. Returns the message's token, and the number
    /// of bytes that were copied.
    pub fn detach(&mut self, region: u32, bytes: &[u8]) -> Option<(Token, u64)> {
        let is_of = |body: &Body| body.region() == Some(region);
        if let Some(begun) = &mut self.under_way
            && begun.body.as_ref().is_some_and(is_of)
        {
            let sent = usize::try_from(begun.at).unwrap_or(usize::MAX);
            let unsent = bytes.get(sent..).unwrap_or_default();
            begun.body = Some(Body::copy_of(unsent));
            begun.before_body = begun.at;
            return Some((begun.token, unsent.len() as u64));
        }
        let mut waiting = self.passing.iter_mut().chain(&mut self.lined);
        let message = &mut waiting.find(|waiting| is_of(&waiting.message.body))?.message;
        message.body = Body::copy_of(bytes);
        Some((message.token, bytes.len() as u64))
    }

    pub fn next_lost(&mut self) -> Option<Token> {
        self.lost.pop_front()
    }

    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool, writer: &mut Writer) {
        let waits = |waiting: &WaitingMessage| {
            waiting.message.token == Token::NONE || !cancelled(waiting.message.token)
        };
        self.passing.retain(waits);
        self.lined.retain(waits);
        self.retry.end();
        self.unsettled.cancel(cancelled);
        let is_cancelled = |token| token != Token::NONE && cancelled(token);
        if let Some(under_way) =
            self.under_way.as_mut().filter(|under_way| is_cancelled(under_way.token))
        {
            under_way.give_up();
            if writer.put(Heading::plain(RecordKind::Withdrawn, 0), &[]).is_ok() {
                self.credit.give_back(under_way.charge);
                self.under_way = None;
            }
        }
    }

    pub fn close(&mut self, writer: &mut Writer) {
        if !std::mem::replace(&mut self.closed, true) {
            // A local peer whose ring has no room for the goodbye learns of it from the connection.
            let _ = writer.put(Heading::plain(RecordKind::Goodbye, 0), &[]);
        }
    }

    /// Returns all messages that are not settled, except fast-path messages.
    pub fn into_unsettled(self) -> impl Iterator<Item = Token> {
        let waiting =
            self.passing.into_iter().chain(self.lined).map(|waiting| waiting.message.token);
        self.lost
            .into_iter()
            .chain(self.unsettled.into_tokens())
            .chain(self.under_way.map(|under_way| under_way.token))
            .chain(waiting)
    }
}
