//! The requester, which turns calls into messages and Wind's events into completions (MEM-7.3).

use super::ticket::ExpectedAnswer;
use super::{Rma, names};
use crate::Rank;
use crate::collective::call::ParcelHead;
use crate::limits::{BODY_MAX, FIFO_ELEMENT_MAX, MESSAGE_MAX};
use crate::rma::event::{OperationValue, RmaError, RmaEvent};
use crate::rma::head::{Operation, Signal, TicketId};
use crate::rma::ops::atomic::AtomicOp;
use crate::rma::ops::element::Accumulation;
use crate::wind::{Body, Charge, Class, Message, Refusal, Segment, Token};
use alloc::borrow::ToOwned;

impl Rma {
    /// Writes `body` at `offset` of the region with this key. Then, if requested, adds to a word
    /// (MEM-3, MEM-3.1, 3.6).
    ///
    /// # Errors
    /// The body is longer than one operation carries.
    pub fn put(
        &mut self,
        key: u64,
        offset: u64,
        body: Body,
        signal: Option<Signal>,
        token: Token,
    ) -> Result<Message, RmaError> {
        fits(body.len(), BODY_MAX)?;
        let urgent = token != Token::NONE;
        let head = Operation::Put { key, offset, signal }.encode();
        Ok(Message { urgent, ..Message::new(Class::Unordered, head, body, token) })
    }

    /// Writes `body` as [`Rma::put`] does. Then an entry with this tag appears in the target's
    /// arrival queue (MEM-25).
    ///
    /// # Errors
    /// The body is longer than one operation carries.
    pub fn put_notice(
        key: u64,
        offset: u64,
        body: Body,
        tag: u64,
        token: Token,
    ) -> Result<Message, RmaError> {
        fits(body.len(), BODY_MAX)?;
        let urgent = token != Token::NONE;
        let head = Operation::PutNotice { key, offset, tag }.encode();
        Ok(Message { class: Class::Unordered, urgent, charge: Charge::Entry, head, body, token })
    }

    /// Reads `into.len` bytes at `offset` of the region with this key of node `to`, into a region
    /// of this node (MEM-4).
    ///
    /// # Errors
    /// The length is too great, too many requests are outstanding, or the token is none or in use.
    pub fn get(
        &mut self,
        to: Rank,
        key: u64,
        offset: u64,
        into: Segment,
        token: Token,
    ) -> Result<Message, RmaError> {
        fits(into.len, BODY_MAX)?;
        let ticket = self.tickets.open(to, ExpectedAnswer::Data(into.into()), token)?;
        Ok(request(&Operation::Get { ticket, key, offset, len: into.len }, Body::Empty, token))
    }

    /// Changes an aligned word of node `to`, at most once, with its old value as the result
    /// (MEM-5). With [`Token::NONE`] nobody waits, and no answer is sent.
    ///
    /// # Errors
    /// Too many requests are outstanding, or the token is in use.
    pub fn atomic(
        &mut self,
        to: Rank,
        key: u64,
        offset: u64,
        op: AtomicOp,
        token: Token,
    ) -> Result<Message, RmaError> {
        if token == Token::NONE {
            return Ok(Rma::change(key, offset, op, token));
        }
        let ticket = self.tickets.open(to, ExpectedAnswer::Old(op.width()), token)?;
        Ok(request(&Operation::Atomic { ticket, key, offset, op }, Body::Empty, token))
    }

    /// Changes a word like [`Rma::atomic`], but without its old value. No answer is sent. The
    /// change is done when Wind has the acknowledgement (MEM-5.4).
    #[must_use]
    pub fn change(key: u64, offset: u64, op: AtomicOp, token: Token) -> Message {
        let head = Operation::Atomic { ticket: TicketId::NONE, key, offset, op }.encode();
        let urgent = token != Token::NONE;
        Message { urgent, ..Message::new(Class::Unordered, head, Body::Empty, token) }
    }

    /// Combines the elements of `body` with those from `offset` on of the region with this key,
    /// each at most once (MEM-12).
    ///
    /// # Errors
    /// The body is longer than one operation carries.
    pub fn accumulate(
        key: u64,
        offset: u64,
        how: Accumulation,
        body: Body,
        token: Token,
    ) -> Result<Message, RmaError> {
        fits(body.len(), BODY_MAX)?;
        let head = Operation::Accumulate { key, offset, how }.encode();
        let urgent = token != Token::NONE;
        Ok(Message { urgent, ..Message::new(Class::Unordered, head, body, token) })
    }

    /// Puts an element into the FIFO of the region with this key, at most once (MEM-13). It follows
    /// all elements that were pushed to that node before. If `urgent`, the peer acknowledges it at
    /// once, because somebody waits for it.
    ///
    /// # Errors
    /// The element is longer than any FIFO's slots.
    pub fn push(key: u64, element: Body, urgent: bool, token: Token) -> Result<Message, RmaError> {
        fits(element.len(), FIFO_ELEMENT_MAX)?;
        let head = Operation::Push { key, offset: 0 }.encode();
        Ok(Message { urgent, ..Message::new(Class::Ordered, head, element, token) })
    }

    /// Asks which region node `to` has published under this name (MEM-6).
    ///
    /// # Errors
    /// The name is invalid, too many requests are outstanding, or the token is none or in use.
    pub fn lookup(&mut self, to: Rank, name: &str, token: Token) -> Result<Message, RmaError> {
        names::check(name)?;
        let ticket = self.tickets.open(to, ExpectedAnswer::Name(name.to_owned()), token)?;
        Ok(request(&Operation::Lookup { ticket }, Body::copy_of(name.as_bytes()), token))
    }

    /// Makes a user's message (MEM-8).
    ///
    /// # Errors
    /// The body is longer than a receiver would hold.
    pub fn user(class: Class, tag: u64, body: Body, token: Token) -> Result<Message, RmaError> {
        fits(body.len(), MESSAGE_MAX)?;
        let (urgent, head) = (class == Class::Sync, Operation::User { tag }.encode());
        Ok(Message { class, urgent, charge: Charge::Body, head, body, token })
    }

    /// Makes a parcel, a part of a collective operation (COLL-1.1). It needs no credit.
    ///
    /// # Errors
    /// The body is longer than a receiver would hold.
    pub fn parcel(head: &ParcelHead, body: Body, token: Token) -> Result<Message, RmaError> {
        fits(body.len(), MESSAGE_MAX)?;
        Ok(Message::new(Class::Unordered, head.encode(), body, token))
    }

    /// Called when Wind has delivered the message with this token at the peer. It completes an
    /// operation without an answer. For a request it only shows that an answer will come (MEM-7.2).
    pub fn acknowledged(&mut self, token: Token) {
        if !self.settled_elsewhere(token) && self.tickets.settle(token).is_none() {
            self.done(token, OperationValue::Nothing);
        }
    }

    /// Called when the peer refused the message with this token.
    pub fn refused(&mut self, token: Token, refusal: Refusal) {
        self.end_of_message(token, RmaError::Refused(refusal));
    }

    /// Called when Wind's connection to `node` has failed while the message with this token was
    /// unconfirmed.
    pub fn failed(&mut self, token: Token, node: Rank) {
        self.end_of_message(token, RmaError::PeerDead(node));
    }

    /// Cancels a request whose caller no longer waits. From now on nothing is placed for it, so the
    /// destination of a get may be removed (MEM-4.5). The caller must cancel the message at Wind,
    /// which reports it no more. Returns `false` if no such request waits.
    pub fn cancel(&mut self, token: Token) -> bool {
        let waits = self.tickets.forget(token);
        if waits {
            self.events.push_back(RmaEvent::Failed { token, error: RmaError::Cancelled });
        }
        waits
    }

    /// Forgets a message, without an event, that could not be posted and never will be. A call
    /// above (or [`Rma::poll_answer`]) returned it.
    pub fn unposted(&mut self, message: &Message) {
        if !self.settled_elsewhere(message.token) {
            self.tickets.forget(message.token);
        }
    }

    fn end_of_message(&mut self, token: Token, error: RmaError) {
        if self.settled_elsewhere(token) {
            return;
        }
        match self.tickets.settle(token) {
            Some(true) => self.fail(token, error),
            Some(false) => {}
            None => self.events.push_back(RmaEvent::Failed { token, error }),
        }
    }

    /// Returns `true` if the token is none or belongs to an answer of this node.
    fn settled_elsewhere(&mut self, token: Token) -> bool {
        if Rma::owns(token) {
            self.serving.remove(&token);
            return true;
        }
        token == Token::NONE
    }
}

fn request(operation: &Operation, body: Body, token: Token) -> Message {
    Message::new(Class::Unordered, operation.encode(), body, token)
}

fn fits(len: u64, max: u64) -> Result<(), RmaError> {
    if len > max { Err(RmaError::TooLong { len, max }) } else { Ok(()) }
}
