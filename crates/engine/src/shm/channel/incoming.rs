//! Receives from a local peer: turns records of its ring into messages for the layers above (`rma`,
//! `coherence`). Another process wrote everything that is read here. [`Heading::decode`] checks
//! headings, and heads and bodies are copied before they are read.

use super::credit::GrantedCredit;
use crate::buffer_pool::{Body, BufferPool};
use oikaze_os::shm::{Reader, STEP_BODY};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{
    BODY_INLINE_MAX, BODY_MAX, CREDIT, HEAD_MAX, MESSAGE_MAX, RECORD_BODY, RECORD_BYTES_PER_POLL,
    RESERVED_MAX,
};
use oikaze_protocol::rma::{self, USER_HEAD};
use oikaze_protocol::shm::{Damaged, Heading, RecordKind};
use oikaze_protocol::wind::{Admission, Class, Delivered, Handler, Head, Refusal};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bit in the number of each message that came through a ring. Wind never sets this bit.
const RING_MESSAGE_NUMBERS: u64 = 1 << 63;
/// Number of body bytes above which a record is settled, and its room in the ring freed, before the
/// next record is read.
const LONG_BODY_BYTES: usize = 1024;

/// Receiving side of a ring: the message that is being read, and what waits to be answered.
#[derive(Debug, Default)]
pub(in crate::shm) struct Incoming {
    /// Number of messages that were begun since the rings exist.
    messages: u64,
    arriving: Option<ArrivingMessage>,
    /// Refusals that wait for room in the ring that reports refusals to the writer.
    unreported: VecDeque<UnreportedRefusal>,
    /// Buffer for bytes on their way from the ring to their destination.
    scratch: Vec<u8>,
    pub credit: GrantedCredit,
    goodbye: bool,
    /// Is `true` if the oldest record stays in the ring because its pages are absent.
    pub blocked: bool,
    /// Is `true` if the oldest record has stayed for the maximum time. The next try refuses it.
    pub patience_over: bool,
    /// Is `true` if the writer is dead. A record whose pages are absent is then refused at once.
    pub writer_is_dead: bool,
    /// Keys of regions that the local peer wants to map.
    pub asked: VecDeque<u64>,
    /// Answers of the local peer to requests of this node.
    pub given: VecDeque<MapAnswer>,
    /// Numbers of exchanges that the local peer wants.
    pub swaps: VecDeque<u64>,
    /// Answers to exchanges that this node asked for: number, and `true` if the exchange was done.
    pub swapped: VecDeque<(u64, bool)>,
}

/// Answer to [`RecordKind::Ask`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapAnswer {
    pub key: u64,
    /// Is `true` if the local peer has sent the memory's descriptor through the socket.
    pub is_there: bool,
}

#[derive(Debug)]
struct UnreportedRefusal {
    start: u64,
    end: u64,
    refusal: Refusal,
}

/// Maximum number of requests and answers that are not processed yet. A peer that obeys the limits
/// never sends more, so the ring counts as damaged beyond it.
const REQUESTS_MAX: usize = 4096;

// A short body is copied together with the bytes behind it in the same step, because a copy of
// known length is two instructions.
const _: () = assert!(USER_HEAD + BODY_INLINE_MAX <= STEP_BODY);

/// Message that does not fit into one record.
#[derive(Debug)]
struct ArrivingMessage {
    number: u64,
    class: Class,
    head: Head,
    len: u64,
    at: u64,
    charge: u64,
    destination: BodyDestination,
}

/// Destination of the body of a message.
#[derive(Debug)]
enum BodyDestination {
    Place,
    Assemble(Vec<u8>),
    Refuse(Refusal),
}

/// Number of messages that were read to their end, and of the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shm) struct DeliveredCount {
    pub messages: u64,
    pub bytes: u64,
}

impl Incoming {
    /// Takes at most `most` records, until they have `RECORD_BYTES_PER_POLL` bytes. Returns the
    /// number of records, and the messages that these records completed.
    pub fn take(
        &mut self,
        from: Rank,
        most: usize,
        reader: &mut Reader,
        handler: &mut impl Handler,
    ) -> Result<(usize, DeliveredCount), Damaged> {
        let (mut count, mut bytes, mut delivery) = (0, 0, DeliveredCount::default());
        while count < most && bytes < RECORD_BYTES_PER_POLL {
            let Some(heading) = reader.peek()? else { break };
            let before = delivery;
            let outcome = match heading.kind {
                RecordKind::Whole => self.whole(from, heading, reader, handler, &mut delivery)?,
                _ => self.other(from, heading, reader, handler, &mut delivery)?,
            };
            // A piece never stays in the ring: a message of several records that was admitted runs
            // to its end, with success or with a refusal.
            if outcome == Err(Refusal::NotPresent)
                && heading.kind != RecordKind::Piece
                && self.may_stay()
            {
                self.blocked = true;
                delivery = before;
                break;
            }
            self.patience_over = false;
            let start = reader.position();
            let end = reader.pass(heading);
            if let Err(refusal) = outcome {
                self.unreported.push_back(UnreportedRefusal { start, end, refusal });
            }
            if heading.len > LONG_BODY_BYTES {
                self.settle(reader);
            }
            count += 1;
            bytes += heading.len;
        }
        self.settle(reader);
        Ok((count, delivery))
    }

    /// Takes the oldest record for a waiting user, if the record is a whole user's message and no
    /// earlier message or refusal is unfinished. Passes class, tag and body to `each`, and returns
    /// the length of the body. [`Incoming::take`] takes all other records. The caller settles
    /// several messages together.
    #[inline]
    pub fn take_fast(
        &mut self,
        reader: &mut Reader,
        buffer_pool: &Arc<BufferPool>,
        each: &mut impl FnMut(Class, u64, Body),
    ) -> Option<usize> {
        let heading = reader.peek().ok()??;
        if heading.kind != RecordKind::Whole
            || heading.head != USER_HEAD
            || self.arriving.is_some()
            || self.has_unreported()
        {
            return None;
        }
        let tag = rma::user_tag(reader.bytes(0))?;
        let len = heading.len - USER_HEAD;
        self.credit.take(len as u64).ok()?;
        self.messages += 1;
        if len <= BODY_INLINE_MAX {
            let words = std::array::from_fn(|word| reader.bytes(USER_HEAD + 8 * word));
            each(heading.class, tag, Body::short(len, words));
        } else {
            each(heading.class, tag, long_body(len, reader, buffer_pool));
        }
        reader.pass(heading);
        Some(len)
    }

    /// Settles all records that were read, after the writer was told of refusals (MEM-16.4). Stops
    /// before the first refusal for which there is no room.
    #[inline]
    fn settle(&mut self, reader: &mut Reader) {
        while let Some(UnreportedRefusal { start, end, refusal }) = self.unreported.front() {
            if reader.refuse(*end, *refusal).is_err() {
                let start = *start;
                return reader.settle(start);
            }
            self.unreported.pop_front();
        }
        reader.settle(reader.position());
    }

    #[inline]
    fn whole(
        &mut self,
        from: Rank,
        heading: Heading,
        reader: &Reader,
        handler: &mut impl Handler,
        delivery: &mut DeliveredCount,
    ) -> Result<Result<(), Refusal>, Damaged> {
        if self.arriving.is_some() {
            return Err(Damaged);
        }
        let mut head = [0; HEAD_MAX];
        let head = head.get_mut(..heading.head).ok_or(Damaged)?;
        reader.read(0, head);
        let len = heading.len - heading.head;
        let number = self.next_number();
        delivery.messages += 1;
        delivery.bytes += len as u64;
        if rma::is_handed_up(head) {
            let is_credited = rma::costs_credit(head);
            let charge = self.take_credit(head, len as u64)?;
            let Some(mut body) = handler.buffer(len) else {
                self.credit.refund(charge);
                handler.refused(from, head, len as u64);
                // The writer may have put a parcel here by the fast path, which knows no refusals.
                // The reader's collective tells its sender (COLL-3.6).
                return Ok(if is_credited { Err(Refusal::NoMemory) } else { Ok(()) });
            };
            reader.append(heading.head, len, &mut body);
            let outcome =
                handler.deliver(from, number, heading.class, head, Delivered::Owned(body));
            // No user reads a refused message, so its credit is free again.
            self.credit.refund(if outcome.is_ok() { 0 } else { charge });
            return Ok(outcome);
        }
        let charge = self.take_credit(head, len as u64)?;
        let body = copied(&mut self.scratch, reader, heading.head, len);
        let outcome = handler.deliver(from, number, heading.class, head, Delivered::Bytes(body));
        self.credit.refund(if outcome.is_ok() { 0 } else { charge });
        Ok(outcome)
    }

    /// Processes a record that is not a whole message.
    fn other(
        &mut self,
        from: Rank,
        heading: Heading,
        reader: &Reader,
        handler: &mut impl Handler,
        delivery: &mut DeliveredCount,
    ) -> Result<Result<(), Refusal>, Damaged> {
        match heading.kind {
            RecordKind::Begin => return self.begin(from, heading, reader, handler),
            RecordKind::Piece => {
                // The pages were present when the message began (MEM-1.13). If some are absent
                // again, the placement waits for them, because a piece comes only once.
                handler.wait_for_pages(true);
                let outcome = self.piece(from, heading.len, reader, handler, delivery);
                handler.wait_for_pages(false);
                return outcome;
            }
            RecordKind::Withdrawn => {
                let arriving = self.arriving.take().ok_or(Damaged)?;
                self.credit.refund(arriving.charge);
                handler.withdrawn(from, arriving.number);
            }
            RecordKind::Goodbye => self.goodbye = true,
            RecordKind::Ask if self.asked.len() < REQUESTS_MAX => {
                self.asked.push_back(word(reader))
            }
            RecordKind::Given if self.given.len() < REQUESTS_MAX => {
                self.given.push_back(MapAnswer { key: word(reader), is_there: heading.flag });
            }
            RecordKind::Swap if self.swaps.len() < REQUESTS_MAX => {
                self.swaps.push_back(word(reader))
            }
            RecordKind::Swapped if self.swapped.len() < REQUESTS_MAX => {
                self.swapped.push_back((word(reader), heading.flag))
            }
            RecordKind::Skip
            | RecordKind::Whole
            | RecordKind::Ask
            | RecordKind::Given
            | RecordKind::Swap
            | RecordKind::Swapped => {
                return Err(Damaged);
            }
        }
        Ok(Ok(()))
    }

    /// Returns `true` if a record whose pages are absent may stay in the ring for a later try.
    fn may_stay(&self) -> bool {
        !self.patience_over && !self.writer_is_dead
    }

    fn begin(
        &mut self,
        from: Rank,
        heading: Heading,
        reader: &Reader,
        handler: &mut impl Handler,
    ) -> Result<Result<(), Refusal>, Damaged> {
        let len = word(reader);
        if self.arriving.is_some() || len <= RECORD_BODY as u64 || len > BODY_MAX {
            return Err(Damaged);
        }
        let mut head = Head::from([0; HEAD_MAX]);
        head.truncate(heading.head);
        reader.read(8, &mut head);
        let number = self.next_number();
        let mut charge = 0;
        let is_kept = rma::costs_credit(&head) && rma::charges_body(&head);
        if is_kept && len > MESSAGE_MAX {
            return Err(Damaged);
        }
        let destination = match handler.admit(from, number, heading.class, &head, len) {
            Admission::Place => {
                charge = self.take_credit(&head, len)?;
                BodyDestination::Place
            }
            // Records come in their order, so every earlier message is delivered.
            Admission::Assemble
                if rma::costs_credit(&head)
                    && handler.places_until_turn(from, number, &head, len) =>
            {
                charge = self.take_credit(&head, len)?;
                BodyDestination::Place
            }
            Admission::Assemble => {
                let mut reserved = usize::try_from(len).map_err(|_| Damaged)?;
                if rma::costs_credit(&head) {
                    charge = self.take_credit(&head, len)?;
                } else if rma::is_handed_up(&head) {
                    // Parcels have a credit of their own (COLL-1.4), which one parcel may exceed.
                    reserved = reserved.min(CREDIT as usize);
                } else {
                    reserved = reserved.min(RESERVED_MAX);
                }
                match handler.buffer(reserved) {
                    Some(buffer) => BodyDestination::Assemble(buffer),
                    None => {
                        self.credit.refund(std::mem::take(&mut charge));
                        handler.refused(from, &head, len);
                        BodyDestination::Refuse(Refusal::NoMemory)
                    }
                }
            }
            Admission::Refuse(Refusal::NotPresent) if self.may_stay() => {
                return Ok(Err(Refusal::NotPresent));
            }
            Admission::Refuse(refusal) => BodyDestination::Refuse(refusal),
        };
        self.arriving = Some(ArrivingMessage {
            number,
            class: heading.class,
            head,
            len,
            at: 0,
            charge,
            destination,
        });
        Ok(Ok(()))
    }

    fn piece(
        &mut self,
        from: Rank,
        len: usize,
        reader: &Reader,
        handler: &mut impl Handler,
        delivery: &mut DeliveredCount,
    ) -> Result<Result<(), Refusal>, Damaged> {
        let arriving = self
            .arriving
            .as_mut()
            .filter(|arriving| len as u64 <= arriving.len - arriving.at)
            .ok_or(Damaged)?;
        match &mut arriving.destination {
            BodyDestination::Place => {
                let bytes = copied(&mut self.scratch, reader, 0, len);
                handler.place(from, arriving.number, arriving.at, bytes);
            }
            BodyDestination::Assemble(body) => reader.append(0, len, body),
            BodyDestination::Refuse(_) => {}
        }
        arriving.at += len as u64;
        if arriving.at < arriving.len {
            return Ok(Ok(()));
        }
        let Some(arriving) = self.arriving.take() else { return Ok(Ok(())) };
        let ArrivingMessage { number, class, head, len, charge, destination, .. } = arriving;
        delivery.messages += 1;
        delivery.bytes += len;
        let body = match destination {
            BodyDestination::Place => Ok(Delivered::Placed(len)),
            BodyDestination::Assemble(body) => Ok(Delivered::Owned(body)),
            BodyDestination::Refuse(refusal) => Err(refusal),
        };
        let outcome = body.and_then(|body| handler.deliver(from, number, class, &head, body));
        self.credit.refund(if outcome.is_ok() { 0 } else { charge });
        Ok(outcome)
    }

    /// Charges a message with a body of `len` bytes. Returns the charge, or 0 if it costs none.
    fn take_credit(&mut self, head: &[u8], len: u64) -> Result<u64, Damaged> {
        rma::charge_of(head, len).map_or(Ok(0), |len| self.credit.take(len))
    }

    fn next_number(&mut self) -> u64 {
        self.messages += 1;
        RING_MESSAGE_NUMBERS | self.messages
    }

    #[inline]
    pub fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.arriving.is_none() && self.unreported.is_empty()
    }

    pub fn is_closed_by_peer(&self) -> bool {
        self.goodbye
    }
}

/// Returns the body of the oldest record, a user's message that is not short. Not inlined, so that
/// a short body stays in registers.
#[inline(never)]
fn long_body(len: usize, reader: &Reader, buffer_pool: &Arc<BufferPool>) -> Body {
    let mut bytes = buffer_pool.lend(len);
    reader.append(USER_HEAD, len, &mut bytes);
    Body::new(bytes, buffer_pool)
}

/// Returns the first word of the oldest record.
fn word(reader: &Reader) -> u64 {
    u64::from_le_bytes(reader.bytes(0))
}

/// Copies bytes of the oldest record to `scratch`, and returns them.
fn copied<'s>(scratch: &'s mut Vec<u8>, reader: &Reader, from: usize, len: usize) -> &'s [u8] {
    if scratch.len() < len {
        scratch.resize(len.max(RECORD_BODY + HEAD_MAX), 0);
    }
    let bytes = scratch.get_mut(..len).unwrap_or_default();
    reader.read(from, bytes);
    bytes
}
