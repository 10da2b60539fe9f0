//! The target, which serves peers' operations on this node's memory. All input is from a network
//! (MEM-9.2).

use super::{Rma, Serving, Transfer};
use crate::Rank;
use crate::limits::{ANSWER_INLINE, MESSAGE_MAX, NAME_MAX, NAMES_LISTED};
use crate::planted::{Bug, planted};
use crate::rma::destination::Destination;
use crate::rma::event::{Notice, RmaEvent};
use crate::rma::head::{Operation, Signal, TicketId};
use crate::rma::memory::{Memory, Rights};
use crate::rma::ops::accumulate::Accumulate;
use crate::rma::ops::atomic::{AtomicOp, Width};
use crate::rma::ops::body::{bytes_of, length, within};
use crate::rma::ops::strided::{PutBlock, deliver_block, place_rows};
use crate::wind::{Admission, Body, Class, Delivered, Refusal, Segment, Token};
use alloc::vec::Vec;

impl Rma {
    /// Handler's `admit`: a fragmented message has begun. Rights and bounds are checked before the
    /// first byte is placed (MEM-3.2).
    pub fn admit(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        len: u64,
        memory: &mut impl Memory,
    ) -> Admission {
        let operation = Operation::decode(head);
        let admitted = match operation {
            Some(operation) if self.check_guesses(from, &operation).is_err() => {
                Err(Refusal::Barred)
            }
            Some(Operation::Put { key, offset, signal }) if class == Class::Unordered => {
                self.admit_put(from, number, Put { key, offset, len, signal }, memory)
            }
            Some(Operation::PutNotice { key, offset, .. }) if class == Class::Unordered => {
                self.admit_put(from, number, Put { key, offset, len, signal: None }, memory)
            }
            Some(Operation::Accumulate { key, offset, how }) if class == Class::Unordered => {
                self.admit_accumulate(from, number, Accumulate { key, offset, len, how }, memory)
            }
            Some(Operation::PutBlock { key, block, signal }) if class == Class::Unordered => {
                self.admit_block(from, number, PutBlock { key, block, signal }, len, memory)
            }
            Some(Operation::Data { ticket }) if class == Class::Unordered => {
                self.admit_data(from, number, ticket, len, memory)
            }
            Some(Operation::Push { key, offset }) => admit_push(key, offset, len, memory),
            Some(Operation::User { .. }) => room(len, MESSAGE_MAX, Refusal::NoRoom),
            Some(Operation::Parcel(_)) => room(len, MESSAGE_MAX, Refusal::NoRoom),
            Some(Operation::Lookup { .. }) => room(len, NAME_MAX as u64, Refusal::Malformed),
            Some(Operation::Missing { .. }) => room(len, NAMES_LISTED as u64, Refusal::Malformed),
            _ => Err(Refusal::Malformed),
        };
        admitted.unwrap_or_else(|refusal| {
            self.note_refusal(from, head, len, refusal, memory);
            self.refused_for_room(from, head, len);
            Admission::Refuse(refusal)
        })
    }

    /// Called when a message with a body of `len` bytes is refused for lack of memory or room.
    /// The sender of a parcel leaves this to the receiver, whose collective fails and tells the
    /// others (COLL-3.6).
    #[cold]
    pub fn refused_for_room(&mut self, from: Rank, head: &[u8], len: u64) {
        if let Some(Operation::Parcel(head)) = Operation::decode(head) {
            self.events.push_back(RmaEvent::Parcel { from, head, body: Err(len) });
        }
    }

    fn admit_put(
        &mut self,
        from: Rank,
        number: u64,
        put: Put,
        memory: &mut impl Memory,
    ) -> Result<Admission, Refusal> {
        put.check(memory)?;
        self.begin(
            from,
            number,
            Transfer::Put { key: put.key, offset: put.offset, len: put.len, missed: None },
        )?;
        if planted(Bug::SignalBeforeData) {
            raise(put.signal, memory)?;
        }
        Ok(Admission::Place)
    }

    /// Handler's `place`: verified bytes of an admitted message. It ignores them if their place is
    /// gone, or was never granted (MEM-3.3).
    pub fn place(
        &mut self,
        from: Rank,
        number: u64,
        start: u64,
        bytes: &[u8],
        memory: &mut impl Memory,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match peer.transfers.get_mut(&number) {
            Some(Transfer::Put { key, offset, len, missed }) => {
                let Some(at) = within(*offset, *len, start, bytes) else { return };
                // Locate by key again, because the region may be gone by now, its slot may be
                // another's, or it may grant less (MEM-3.4, MEM-1.7).
                let right = if planted(Bug::ForgetRights) { Rights::NONE } else { Rights::WRITE };
                match memory.locate(*key, at, bytes.len() as u64, right) {
                    Ok(region) => memory.write(region, at, bytes),
                    Err(refusal) => *missed = Some(refusal),
                }
            }
            Some(Transfer::Rows { key, block, missed }) => {
                if let Err(refusal) = place_rows(*key, *block, start, bytes, memory) {
                    *missed = Some(refusal);
                }
            }
            Some(Transfer::Data { ticket }) => {
                let ticket = *ticket;
                if let Some(into) = self.destination(from, number, ticket) {
                    into.write(start, bytes, memory);
                    self.tickets.part_came(ticket);
                }
            }
            Some(Transfer::Accumulate { asked, .. }) => {
                let asked = *asked;
                self.place_elements(from, number, asked, start, bytes, memory);
            }
            None => {}
        }
    }

    /// Returns where bytes of an admitted message would be placed now. [`Rma::place`] writes them
    /// there and nowhere else (MEM-3.7). Rows are not one place.
    pub fn place_of(
        &mut self,
        from: Rank,
        number: u64,
        start: u64,
        len: u64,
        memory: &impl Memory,
    ) -> Option<Segment> {
        let (region, offset, whole) = match self.peers.get(&from)?.transfers.get(&number)? {
            Transfer::Put { key, offset, len: whole, .. } => {
                // Locate these bytes alone, as `place` does, because the check for absent pages
                // takes longer for more pages.
                start.checked_add(len).filter(|end| end <= whole)?;
                (
                    memory.locate(*key, offset.checked_add(start)?, len, Rights::WRITE).ok()?,
                    *offset,
                    *whole,
                )
            }
            Transfer::Data { ticket } => {
                let ticket = *ticket;
                let Destination::Range(Segment { region, offset, len }) =
                    *self.destination(from, number, ticket)?
                else {
                    return None;
                };
                (region, offset, len)
            }
            Transfer::Rows { .. } => return None,
            // The arriving bytes are not the ones that will be there (MEM-12.4).
            Transfer::Accumulate { .. } => return None,
        };
        let inside = start.checked_add(len)? <= whole;
        inside.then_some(Segment { region, offset: offset.checked_add(start)?, len })
    }

    /// Handler's `deliver`: a message is whole and its turn has come (MEM-2.3, 2.4).
    ///
    /// # Errors
    /// A refusal, which the sender is told. Nothing was changed then, except that bytes of a
    /// fragmented put may have been placed.
    pub fn deliver(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let len = length(&body);
        let outcome = self.serve_or_take(from, number, class, head, body, memory);
        if let Err(refusal) = outcome {
            self.note_refusal(from, head, len, refusal, memory);
            self.refused_for_room(from, head, len);
        }
        outcome
    }

    fn serve_or_take(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        // Only a message that came in fragments and was placed has a transfer.
        let transfer =
            if matches!(body, Delivered::Placed(_)) { self.end(from, number) } else { None };
        let operation = Operation::decode(head).ok_or(Refusal::Malformed)?;
        self.check_guesses(from, &operation)?;
        match operation {
            Operation::Put { key, offset, signal } => deliver_put(
                Put { key, offset, len: length(&body), signal },
                transfer,
                &body,
                memory,
            ),
            Operation::PutNotice { key, offset, tag } => {
                let len = length(&body);
                let put = Put { key, offset, len, signal: None };
                deliver_put(put, transfer, &body, memory)?;
                // MEM-25.2: a put that fails above leaves no entry.
                let notice = Notice { key, offset, len, tag };
                self.events.push_back(RmaEvent::Placed { from, notice });
                Ok(())
            }
            Operation::Accumulate { key, offset, how } => Rma::deliver_accumulate(
                Accumulate { key, offset, len: length(&body), how },
                transfer,
                &body,
                memory,
            ),
            Operation::PutBlock { key, block, signal } => {
                deliver_block(PutBlock { key, block, signal }, transfer, &body, memory)
            }
            Operation::Push { key, offset } => {
                push(key, offset, bytes_of(&body).ok_or(Refusal::Malformed)?, memory)
            }
            Operation::Data { ticket } => {
                self.deliver_data(from, number, ticket, transfer, &body, memory)
            }
            Operation::User { tag } => self.deliver_user(from, class, tag, body),
            Operation::Parcel(head) => {
                let body = owned(body)?;
                self.events.push_back(RmaEvent::Parcel { from, head, body: Ok(body) });
                Ok(())
            }
            Operation::Lookup { ticket } => {
                self.serve_lookup(from, ticket, bytes_of(&body).ok_or(Refusal::Malformed)?)
            }
            Operation::Missing { ticket, count } => self.deliver_missing(
                from,
                ticket,
                count,
                bytes_of(&body).ok_or(Refusal::Malformed)?,
            ),
            _ if length(&body) != 0 => Err(Refusal::Malformed),
            Operation::Get { ticket, key, offset, len } => {
                self.serve_get(from, ticket, key, offset, len, memory)
            }
            Operation::GetBlock { ticket, key, block } => {
                self.serve_get_block(from, ticket, (key, block), memory)
            }
            Operation::Atomic { ticket, key, offset, op } => {
                self.serve_atomic(from, ticket, key, offset, op, memory)
            }
            Operation::Old { ticket, old } => self.deliver_old(from, ticket, old),
            Operation::Found { ticket, published } => self.deliver_found(from, ticket, published),
            Operation::Gone { ticket, refusal } => self.deliver_gone(from, ticket, refusal),
        }
    }

    /// MEM-4.1, 4.7.
    fn serve_get(
        &mut self,
        from: Rank,
        ticket: TicketId,
        key: u64,
        offset: u64,
        len: u64,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        self.room_for_answer(from)?;
        let region = memory.locate(key, offset, len, Rights::READ)?;
        let (body, token) = if len <= ANSWER_INLINE {
            (read_now(region, offset, len, memory)?, Token::NONE)
        } else {
            // The link gathers the bytes at each transmission, so the region must stay until the
            // last one (MEM-4.6).
            (
                Body::Segment(Segment { region, offset, len }),
                self.serve(Serving { region, key, offset, len, to: from, ticket }),
            )
        };
        self.answer(from, &Operation::Data { ticket }, body, token);
        Ok(())
    }

    /// MEM-5.2.
    fn serve_atomic(
        &mut self,
        from: Rank,
        ticket: TicketId,
        key: u64,
        offset: u64,
        op: AtomicOp,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        // Check everything that can refuse before the change, because a refused atomic has not
        // happened (MEM-5.3).
        if ticket != TicketId::NONE {
            self.room_for_answer(from)?;
        }
        let region = locate_word(key, offset, op.width(), memory)?;
        let mut old = memory.atomic(region, offset, op)?;
        if planted(Bug::RepeatAtomic) {
            old = memory.atomic(region, offset, op)?;
        }
        if ticket != TicketId::NONE {
            self.answer(from, &Operation::Old { ticket, old }, Body::Empty, Token::NONE);
        }
        Ok(())
    }

    /// MEM-6.2.
    fn serve_lookup(&mut self, from: Rank, ticket: TicketId, name: &[u8]) -> Result<(), Refusal> {
        self.room_for_answer(from)?;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Refusal::Malformed);
        }
        match self.names.find(name) {
            Some(published) => {
                self.answer(from, &Operation::Found { ticket, published }, Body::Empty, Token::NONE)
            }
            None if self.names.is_withdrawn(name) => return Err(Refusal::Withdrawn),
            None => {
                let (count, list) = (self.names.count(), self.names.list());
                let body = if list.is_empty() { Body::Empty } else { Body::Inline(list) };
                self.answer(from, &Operation::Missing { ticket, count }, body, Token::NONE);
            }
        }
        Ok(())
    }

    /// MEM-8.1.
    fn deliver_user(
        &mut self,
        from: Rank,
        class: Class,
        tag: u64,
        body: Delivered<'_>,
    ) -> Result<(), Refusal> {
        let body = owned(body)?;
        self.events.push_back(RmaEvent::Arrived { from, class, tag, body });
        Ok(())
    }
}

/// Returns the bytes of a body that was not placed.
fn owned(body: Delivered<'_>) -> Result<Vec<u8>, Refusal> {
    match body {
        Delivered::Bytes(bytes) => {
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes.len()).map_err(|_| Refusal::NoMemory)?;
            copy.extend_from_slice(bytes);
            Ok(copy)
        }
        Delivered::Owned(bytes) => Ok(bytes),
        Delivered::Placed(_) => Err(Refusal::Malformed),
    }
}

/// A put as it arrived.
#[derive(Clone, Copy)]
struct Put {
    key: u64,
    offset: u64,
    len: u64,
    signal: Option<Signal>,
}

impl Put {
    /// Checks data and signal before either is done. A put that is refused at once has changed
    /// nothing (MEM-3.2).
    fn check(&self, memory: &impl Memory) -> Result<u32, Refusal> {
        let len = if planted(Bug::CheckFirstByte) { self.len.min(1) } else { self.len };
        let region = memory.locate(self.key, self.offset, len, Rights::WRITE)?;
        if let Some(signal) = self.signal {
            locate_word(signal.key, signal.offset, Width::W64, memory)?;
        }
        Ok(region)
    }
}

/// MEM-3.5.
pub(super) fn raise(signal: Option<Signal>, memory: &mut impl Memory) -> Result<(), Refusal> {
    if let Some(signal) = signal {
        let region = locate_word(signal.key, signal.offset, Width::W64, memory)?;
        memory.atomic(region, signal.offset, AtomicOp::add(signal.add))?;
    }
    Ok(())
}

/// Finishes a put whose data is here, or already at its place, and only then signals (MEM-3.5).
fn deliver_put(
    put: Put,
    transfer: Option<Transfer>,
    body: &Delivered<'_>,
    memory: &mut impl Memory,
) -> Result<(), Refusal> {
    let region = put.check(memory)?;
    if planted(Bug::SignalBeforeData) && transfer.is_none() {
        raise(put.signal, memory)?;
    }
    match bytes_of(body) {
        Some(bytes) => memory.write(region, put.offset, bytes),
        None => match transfer {
            Some(Transfer::Put { missed: Some(refusal), .. }) => return Err(refusal),
            Some(Transfer::Put { key, offset, len, .. })
                if (key, offset, len) == (put.key, put.offset, put.len) => {}
            _ => return Err(Refusal::Malformed),
        },
    }
    if planted(Bug::SignalBeforeData) { Ok(()) } else { raise(put.signal, memory) }
}

/// Admits a long element, which is collected, if it fits into a slot (MEM-13.3).
fn admit_push(key: u64, offset: u64, len: u64, memory: &impl Memory) -> Result<Admission, Refusal> {
    let region = locate_fifo(key, offset, memory)?;
    room(len, memory.fifo_element(region)?, Refusal::TooLong)
}

/// MEM-13.3.
fn push(key: u64, offset: u64, element: &[u8], memory: &mut impl Memory) -> Result<(), Refusal> {
    let region = locate_fifo(key, offset, memory)?;
    if planted(Bug::RepeatPush) {
        memory.push(region, element)?;
    }
    memory.push(region, element)
}

/// Returns the region of a FIFO. A FIFO begins only at a region's beginning (MEM-13.1), where no
/// element of another FIFO can be taken for one.
fn locate_fifo(key: u64, offset: u64, memory: &impl Memory) -> Result<u32, Refusal> {
    let region = memory.locate(key, offset, 0, Rights::PUSH)?;
    if offset == 0 { Ok(region) } else { Err(Refusal::NoFifo) }
}

/// Returns the region of an aligned word that peers may change.
pub(super) fn locate_word(
    key: u64,
    offset: u64,
    width: Width,
    memory: &impl Memory,
) -> Result<u32, Refusal> {
    let region = memory.locate(key, offset, width.bytes(), Rights::ATOMIC)?;
    if offset.is_multiple_of(width.bytes()) { Ok(region) } else { Err(Refusal::Misaligned) }
}

fn read_now(region: u32, offset: u64, len: u64, memory: &impl Memory) -> Result<Body, Refusal> {
    if len == 0 {
        return Ok(Body::Empty);
    }
    let len = usize::try_from(len).map_err(|_| Refusal::NoRoom)?;
    Body::filled(len, |bytes| memory.read(region, offset, bytes)).ok_or(Refusal::OutOfBounds)
}

fn room(len: u64, max: u64, otherwise: Refusal) -> Result<Admission, Refusal> {
    if len <= max { Ok(Admission::Assemble) } else { Err(otherwise) }
}
