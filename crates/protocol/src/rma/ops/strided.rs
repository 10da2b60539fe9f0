//! Blocks: operations on rows of a region, packed on their way (spec/memory.md, MEM-10).
//!
//! This module holds the requester's and the target's part. The region must grant the right on the
//! block's *hull*, from its first byte to its last, gaps included. That is one check, however many
//! rows there are (MEM-10.4).

use crate::Rank;
use crate::block::{BadBlock, Block};
use crate::limits::ANSWER_INLINE;
use crate::planted::{Bug, planted};
use crate::rma::destination::{Destination, read_rows, write_rows};
use crate::rma::event::RmaError;
use crate::rma::head::{Operation, Signal, TicketId};
use crate::rma::memory::{Memory, Rights};
use crate::rma::ops::atomic::Width;
use crate::rma::ops::body::{bytes_of, length};
use crate::rma::serve::{locate_word, raise};
use crate::rma::ticket::ExpectedAnswer;
use crate::rma::{Rma, Serving, Transfer};
use crate::wind::{Admission, Body, Class, Delivered, Message, Refusal, Rows, Token};
use alloc::sync::Arc;

/// Requester's part of strided operations.
impl Rma {
    /// Writes `body`, packed rows, to a block of the region with this key. Then, if requested, adds
    /// to a word (MEM-10.1). Rows that follow each other without a gap travel as any put.
    ///
    /// # Errors
    /// The block is invalid, or the body has another length.
    pub fn put_block(
        &mut self,
        key: u64,
        block: Block,
        body: Body,
        signal: Option<Signal>,
        token: Token,
    ) -> Result<Message, RmaError> {
        let len = block.check_destination()?;
        if body.len() != len {
            return Err(BadBlock::Lengths { there: block, here: body.len() }.into());
        }
        if block.as_range().is_some() {
            return self.put(key, block.offset, body, signal, token);
        }
        let head = Operation::PutBlock { key, block: block.tidy(), signal }.encode();
        let urgent = token != Token::NONE;
        Ok(Message { urgent, ..Message::new(Class::Unordered, head, body, token) })
    }

    /// Reads a block of the region with this key of node `to` into memory of this node.
    ///
    /// # Errors
    /// The block is invalid, the destination has another length, or as for [`Rma::get`].
    pub fn get_block(
        &mut self,
        to: Rank,
        key: u64,
        block: Block,
        into: Destination,
        token: Token,
    ) -> Result<Message, RmaError> {
        let len = block.check_source()?;
        if let Destination::Rows(rows) = &into {
            rows.block.check_destination()?;
        }
        if into.len() != len {
            return Err(BadBlock::Lengths { there: block, here: into.len() }.into());
        }
        let ticket = self.tickets.open(to, ExpectedAnswer::Data(into), token)?;
        let operation = match block.as_range() {
            Some(len) => Operation::Get { ticket, key, offset: block.offset, len },
            None => Operation::GetBlock { ticket, key, block: block.tidy() },
        };
        Ok(Message::new(Class::Unordered, operation.encode(), Body::Empty, token))
    }
}

/// A put of a block as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct PutBlock {
    pub key: u64,
    pub block: Block,
    pub signal: Option<Signal>,
}

impl PutBlock {
    /// Checks everything that can refuse the put, before the first byte is placed and again when it
    /// is whole (MEM-10.4).
    fn check(&self, len: u64, memory: &impl Memory) -> Result<Rows, Refusal> {
        if self.block.len() != Some(len) || !self.block.is_disjoint() {
            return Err(Refusal::Malformed);
        }
        let rows = locate_rows(self.key, self.block, Rights::WRITE, memory)?;
        if let Some(signal) = self.signal {
            locate_word(signal.key, signal.offset, Width::W64, memory)?;
        }
        Ok(rows)
    }
}

/// Target's part of strided operations.
impl Rma {
    pub(crate) fn admit_block(
        &mut self,
        from: Rank,
        number: u64,
        put: PutBlock,
        len: u64,
        memory: &mut impl Memory,
    ) -> Result<Admission, Refusal> {
        put.check(len, memory)?;
        self.begin(from, number, Transfer::Rows { key: put.key, block: put.block, missed: None })?;
        if planted(Bug::SignalBeforeData) {
            raise(put.signal, memory)?;
        }
        Ok(Admission::Place)
    }

    /// MEM-10.5.
    pub(crate) fn serve_get_block(
        &mut self,
        from: Rank,
        ticket: TicketId,
        (key, block): (u64, Block),
        memory: &impl Memory,
    ) -> Result<(), Refusal> {
        self.room_for_answer(from)?;
        let rows = locate_rows(key, block, Rights::READ, memory)?;
        let (body, token) = if rows.len() <= ANSWER_INLINE {
            let len = usize::try_from(rows.len()).map_err(|_| Refusal::NoRoom)?;
            let body = Body::filled(len, |bytes| read_rows(&rows, 0, bytes, memory));
            (body.ok_or(Refusal::OutOfBounds)?, Token::NONE)
        } else {
            // The range on which the right was granted is the block's hull.
            let (region, offset, len) =
                (rows.region, block.offset, block.hull().unwrap_or(u64::MAX));
            (
                Body::Rows(Arc::new(rows)),
                self.serve(Serving { region, key, offset, len, to: from, ticket }),
            )
        };
        self.answer(from, &Operation::Data { ticket }, body, token);
        Ok(())
    }
}

/// Places bytes of a fragmented block into their rows. It locates by key again, because the region
/// may be gone by now, and its slot another's (MEM-3.4).
///
/// # Errors
/// The bytes have no place. The whole put is to be refused for that (MEM-3.8).
pub(crate) fn place_rows(
    key: u64,
    block: Block,
    start: u64,
    bytes: &[u8],
    memory: &mut impl Memory,
) -> Result<(), Refusal> {
    let rows = locate_rows(key, block, Rights::WRITE, memory)?;
    let start =
        if planted(Bug::MisplaceRow) { start - start % u64::from(block.row) } else { start };
    write_rows(&rows, start, bytes, memory);
    Ok(())
}

/// Finishes a put of a block whose data is here, or already at its place, and only then signals
/// (MEM-3.5).
pub(crate) fn deliver_block(
    put: PutBlock,
    transfer: Option<Transfer>,
    body: &Delivered<'_>,
    memory: &mut impl Memory,
) -> Result<(), Refusal> {
    let rows = put.check(length(body), memory)?;
    if planted(Bug::SignalBeforeData) && transfer.is_none() {
        raise(put.signal, memory)?;
    }
    match bytes_of(body) {
        Some(bytes) => write_rows(&rows, 0, bytes, memory),
        None => match transfer {
            Some(Transfer::Rows { missed: Some(refusal), .. }) => return Err(refusal),
            Some(Transfer::Rows { key, block, .. }) if (key, block) == (put.key, put.block) => {}
            _ => return Err(Refusal::Malformed),
        },
    }
    if planted(Bug::SignalBeforeData) { Ok(()) } else { raise(put.signal, memory) }
}

fn locate_rows(
    key: u64,
    block: Block,
    right: Rights,
    memory: &impl Memory,
) -> Result<Rows, Refusal> {
    let hull = block.hull().ok_or(Refusal::OutOfBounds)?;
    let region = memory.locate(key, block.offset, hull, right)?;
    Ok(Rows { region, block })
}
