//! Heads, the first bytes of a message, which tell its operation (spec/memory.md, MEM-2).
//!
//! Fields are little-endian, of fixed length for each kind, without padding. For every kind there
//! is exactly one encoding of a meaning. A head that is one byte too long or too short, or has an
//! unknown bit set, is malformed (MEM-2.2).

use crate::block::Block;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::collective::call::ParcelHead;
use crate::limits::{BODY_MAX, HEAD_MAX, STRIDE_MAX};
use crate::rma::memory::Rights;
use crate::rma::messages::kind::{MessageKind, kind};
use crate::rma::ops::atomic::AtomicOp;
use crate::rma::ops::element::Accumulation;
use crate::wind::{Head, Refusal};

/// Requester's name for its request, which comes back in the answer.
///
/// The serial makes a ticket unique for the life of the requester. So a late answer never meets
/// another request that was given the same token (MEM-4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId {
    /// Token of the requester.
    pub token: u64,
    /// Serial, which is never used twice. 0 with token 0 means that nobody waits for an answer.
    pub serial: u64,
}

impl TicketId {
    /// Ticket of a request without an answer (MEM-5.4).
    pub const NONE: TicketId = TicketId { token: 0, serial: 0 };
}

/// An add to an aligned 64-bit word of a region of the same node, after the data of a put is in
/// place (MEM-3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Key of the word's region.
    pub key: u64,
    /// Offset in bytes from that region's start, a multiple of 8.
    pub offset: u64,
    /// Number to add (wrapping).
    pub add: u64,
}

/// Region that a name stands for (MEM-6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Key that puts, gets and atomics must show.
    pub key: u64,
    /// Length of the region in bytes.
    pub len: u64,
    /// Rights that the region grants.
    pub rights: Rights,
}

/// A decoded head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Put: the body goes to `offset` of the region.
    Put {
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Signal after the data.
        signal: Option<Signal>,
    },
    /// Put with notice: the body goes to `offset` of the region, and an entry into the target's
    /// arrival queue (MEM-25).
    PutNotice {
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Tag that the sender chose.
        tag: u64,
    },
    /// Request for bytes.
    Get {
        /// Ticket to name in the answer.
        ticket: TicketId,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Put of a block: the body goes to rows of the region (MEM-10.1).
    PutBlock {
        /// Key of the region.
        key: u64,
        /// Rows to write.
        block: Block,
        /// Signal after the data.
        signal: Option<Signal>,
    },
    /// Request for rows, packed.
    GetBlock {
        /// Ticket to name in the answer.
        ticket: TicketId,
        /// Key of the region.
        key: u64,
        /// Rows to read.
        block: Block,
    },
    /// Change of a word. The answer, if any, tells its old value.
    Atomic {
        /// Ticket to name in the answer, or [`TicketId::NONE`] for no answer.
        ticket: TicketId,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Change of the word.
        op: AtomicOp,
    },
    /// Accumulate: combines the elements in the body with those from `offset` on.
    Accumulate {
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Element type and operation.
        how: Accumulation,
    },
    /// Push: the body goes into the FIFO at `offset`.
    Push {
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the region's start.
        offset: u64,
    },
    /// Request for the region with the name in the body.
    Lookup {
        /// Ticket to name in the answer.
        ticket: TicketId,
    },
    /// A user's message.
    User {
        /// Tag that the user chose.
        tag: u64,
    },
    /// Part of a collective operation.
    Parcel(ParcelHead),
    /// Answer with the requested bytes.
    Data {
        /// Ticket of the get.
        ticket: TicketId,
    },
    /// Answer with the old value of a word.
    Old {
        /// Ticket of the atomic.
        ticket: TicketId,
        /// Old value of the word.
        old: u64,
    },
    /// Answer with the region of a name.
    Found {
        /// Ticket of the lookup.
        ticket: TicketId,
        /// Region that was published.
        published: Published,
    },
    /// Answer that there is no such name. The body lists some names that are there.
    Missing {
        /// Ticket of the lookup.
        ticket: TicketId,
        /// Number of all names that are there.
        count: u32,
    },
    /// Answer that the promised data will not come, because its region is gone.
    Gone {
        /// Ticket of the get.
        ticket: TicketId,
        /// Reason of the refusal.
        refusal: Refusal,
    },
}

/// Length of an encoded block in bytes.
const BLOCK: usize = 3 * 6 + 3 * 4;
/// Maximum length of a head of this layer, in bytes: a block with a signal.
const LONGEST: usize = 1 + 8 + BLOCK + 24;
const _: () = assert!(LONGEST <= HEAD_MAX, "every head must fit into what Wind carries");
const _: () = assert!(STRIDE_MAX < 1 << 48, "offsets and strides of blocks have six bytes");

/// Returns the head of a parcel, from the head of its message, or `None` for other messages.
#[must_use]
pub fn parcel_head(head: &[u8]) -> Option<ParcelHead> {
    match Operation::decode(head) {
        Some(Operation::Parcel(head)) => Some(head),
        _ => None,
    }
}

impl Operation {
    /// Returns `true` for a request that names a region by its key.
    pub(super) fn names_key(&self) -> bool {
        matches!(
            self,
            Operation::Put { .. }
                | Operation::PutNotice { .. }
                | Operation::Get { .. }
                | Operation::PutBlock { .. }
                | Operation::GetBlock { .. }
                | Operation::Atomic { .. }
                | Operation::Accumulate { .. }
                | Operation::Push { .. }
        )
    }

    /// Encodes the head. `LONGEST` proves that nothing is cut off.
    #[must_use]
    pub fn encode(&self) -> Head {
        let mut out = Head::new();
        match *self {
            Operation::Put { key, offset, signal: None } => {
                out.put_kind(MessageKind::Put).put_u64(key).put_u64(offset)
            }
            Operation::Put { key, offset, signal: Some(signal) } => {
                out.put_kind(MessageKind::PutSignal).put_u64(key).put_u64(offset).put_signal(signal)
            }
            Operation::PutNotice { key, offset, tag } => {
                out.put_kind(MessageKind::PutNotice).put_u64(key).put_u64(offset).put_u64(tag)
            }
            Operation::Get { ticket, key, offset, len } => out
                .put_kind(MessageKind::Get)
                .put_ticket(ticket)
                .put_u64(key)
                .put_u64(offset)
                .put_u64(len),
            Operation::Atomic { ticket, key, offset, op } => {
                let (number, first, second) = op.encode();
                out.put_kind(MessageKind::Atomic).put_ticket(ticket).put_u64(key).put_u64(offset);
                out.put_u8(number).put_u64(first).put_u64(second)
            }
            Operation::Accumulate { key, offset, how } => out
                .put_kind(MessageKind::Accumulate)
                .put_u64(key)
                .put_u64(offset)
                .put(&how.encode()),
            Operation::Push { key, offset } => {
                out.put_kind(MessageKind::Push).put_u64(key).put_u64(offset)
            }
            Operation::PutBlock { key, block, signal: None } => {
                out.put_kind(MessageKind::PutBlock).put_u64(key).put_block(block)
            }
            Operation::PutBlock { key, block, signal: Some(signal) } => out
                .put_kind(MessageKind::PutBlockSignal)
                .put_u64(key)
                .put_block(block)
                .put_signal(signal),
            Operation::GetBlock { ticket, key, block } => {
                out.put_kind(MessageKind::GetBlock).put_ticket(ticket).put_u64(key).put_block(block)
            }
            Operation::Lookup { ticket } => out.put_kind(MessageKind::Lookup).put_ticket(ticket),
            Operation::User { tag } => out.put_kind(MessageKind::User).put_u64(tag),
            Operation::Parcel(head) => return head.encode(),
            Operation::Data { ticket } => out.put_kind(MessageKind::Data).put_ticket(ticket),
            Operation::Old { ticket, old } => {
                out.put_kind(MessageKind::Old).put_ticket(ticket).put_u64(old)
            }
            Operation::Found { ticket, published: Published { key, len, rights } } => {
                out.put_kind(MessageKind::Found).put_ticket(ticket);
                out.put_u64(key).put_u64(len).put_u8(rights.0)
            }
            Operation::Missing { ticket, count } => {
                out.put_kind(MessageKind::Missing).put_ticket(ticket).put_u32(count)
            }
            Operation::Gone { ticket, refusal } => {
                out.put_kind(MessageKind::Gone).put_ticket(ticket).put_u8(refusal as u8)
            }
        };
        out
    }

    /// Decodes bytes that a peer sent. Returns `None` if they make no sense (MEM-2.2). Heads of
    /// [`MessageKind::Coherence`] do not belong to this layer.
    #[must_use]
    pub fn decode(head: &[u8]) -> Option<Operation> {
        let mut bytes = ByteReader(head.get(1..)?);
        let operation = Operation::read(kind(head), &mut bytes).ok()?;
        bytes.end().ok().map(|()| operation)
    }

    fn read(kind: MessageKind, bytes: &mut ByteReader<'_>) -> Result<Operation, Invalid> {
        Ok(match kind {
            MessageKind::Put => {
                Operation::Put { key: bytes.u64()?, offset: bytes.u64()?, signal: None }
            }
            MessageKind::PutSignal => {
                let (key, offset) = (bytes.u64()?, bytes.u64()?);
                Operation::Put { key, offset, signal: Some(read_signal(bytes)?) }
            }
            MessageKind::PutNotice => {
                Operation::PutNotice { key: bytes.u64()?, offset: bytes.u64()?, tag: bytes.u64()? }
            }
            MessageKind::Get => Operation::Get {
                ticket: read_asker(bytes)?,
                key: bytes.u64()?,
                offset: bytes.u64()?,
                len: bytes.u64()?,
            },
            MessageKind::Atomic => Operation::Atomic {
                ticket: read_ticket(bytes)?,
                key: bytes.u64()?,
                offset: bytes.u64()?,
                op: AtomicOp::decode(bytes.u8()?, bytes.u64()?, bytes.u64()?).ok_or(Invalid)?,
            },
            MessageKind::Accumulate => {
                let (key, offset) = (bytes.u64()?, bytes.u64()?);
                Operation::Accumulate { key, offset, how: Accumulation::read(bytes)? }
            }
            MessageKind::Push => Operation::Push { key: bytes.u64()?, offset: bytes.u64()? },
            MessageKind::PutBlock => {
                Operation::PutBlock { key: bytes.u64()?, block: read_block(bytes)?, signal: None }
            }
            MessageKind::PutBlockSignal => {
                let (key, block) = (bytes.u64()?, read_block(bytes)?);
                Operation::PutBlock { key, block, signal: Some(read_signal(bytes)?) }
            }
            MessageKind::GetBlock => Operation::GetBlock {
                ticket: read_asker(bytes)?,
                key: bytes.u64()?,
                block: read_block(bytes)?,
            },
            MessageKind::Lookup => Operation::Lookup { ticket: read_asker(bytes)? },
            MessageKind::User => Operation::User { tag: bytes.u64()? },
            MessageKind::Parcel => Operation::Parcel(ParcelHead::read(bytes)?),
            MessageKind::Data => Operation::Data { ticket: read_ticket(bytes)? },
            MessageKind::Old => Operation::Old { ticket: read_ticket(bytes)?, old: bytes.u64()? },
            MessageKind::Found => {
                let ticket = read_ticket(bytes)?;
                let published =
                    Published { key: bytes.u64()?, len: bytes.u64()?, rights: Rights(bytes.u8()?) };
                if !Rights::ALL.contains(published.rights) {
                    return Err(Invalid);
                }
                Operation::Found { ticket, published }
            }
            MessageKind::Missing => {
                Operation::Missing { ticket: read_ticket(bytes)?, count: bytes.u32()? }
            }
            MessageKind::Gone => Operation::Gone {
                ticket: read_ticket(bytes)?,
                refusal: bytes.code(Refusal::from_code)?,
            },
            MessageKind::Coherence | MessageKind::Stream | MessageKind::Unknown => {
                return Err(Invalid);
            }
        })
    }
}

/// Fields of this layer that consist of several numbers.
trait HeadWriter: ByteWriter {
    fn put_kind(&mut self, kind: MessageKind) -> &mut Self {
        self.put_u8(kind as u8)
    }
    /// Appends a number up to [`STRIDE_MAX`].
    fn put_long(&mut self, long: u64) -> &mut Self {
        let [low @ .., _, _] = long.to_le_bytes();
        self.put(&low)
    }
    fn put_block(&mut self, block: Block) -> &mut Self {
        let Block { offset, row, rows, planes, row_stride, plane_stride } = block;
        self.put_long(offset).put_u32(row).put_u32(rows).put_u32(planes);
        self.put_long(row_stride).put_long(plane_stride)
    }
    fn put_ticket(&mut self, ticket: TicketId) -> &mut Self {
        self.put_u64(ticket.token).put_u64(ticket.serial)
    }
    fn put_signal(&mut self, signal: Signal) -> &mut Self {
        self.put_u64(signal.key).put_u64(signal.offset).put_u64(signal.add)
    }
}

impl HeadWriter for Head {}

fn read_long(bytes: &mut ByteReader<'_>) -> Result<u64, Invalid> {
    let [a, b, c, d, e, f] = bytes.array()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

fn read_signal(bytes: &mut ByteReader<'_>) -> Result<Signal, Invalid> {
    Ok(Signal { key: bytes.u64()?, offset: bytes.u64()?, add: bytes.u64()? })
}

/// MEM-10.2: the block must be countable, not empty, and in its one form.
fn read_block(bytes: &mut ByteReader<'_>) -> Result<Block, Invalid> {
    let (offset, row, rows, planes) = (read_long(bytes)?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (row_stride, plane_stride) = (read_long(bytes)?, read_long(bytes)?);
    let block = Block { offset, row, rows, planes, row_stride, plane_stride };
    let countable = block.len().is_some_and(|len| len <= BODY_MAX) && !block.is_empty();
    if countable && block == block.tidy() { Ok(block) } else { Err(Invalid) }
}

/// Serial 0 means *none*, and then the token is 0 too, so that one meaning has one encoding.
fn read_ticket(bytes: &mut ByteReader<'_>) -> Result<TicketId, Invalid> {
    let ticket = TicketId { token: bytes.u64()?, serial: bytes.u64()? };
    if ticket.serial != 0 || ticket == TicketId::NONE { Ok(ticket) } else { Err(Invalid) }
}

/// Reads the ticket of a request that has an answer.
fn read_asker(bytes: &mut ByteReader<'_>) -> Result<TicketId, Invalid> {
    let ticket = read_ticket(bytes)?;
    if ticket == TicketId::NONE { Err(Invalid) } else { Ok(ticket) }
}
