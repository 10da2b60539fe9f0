//! Heads, the first bytes of a message, which tell its operation (spec/memory.md, MEM-2).
//!
//! Fields are little-endian, of fixed length for each kind, without padding. For every kind there
//! is exactly one encoding of a meaning. A head that is one byte too long or too short, or has an
//! unknown bit set, is malformed (MEM-2.2).

use super::{Accumulation, AtomicOp, MessageKind, Rights};
use crate::block::Block;
use crate::limits::{BODY_MAX, HEAD_MAX, STRIDE_MAX};
use crate::rma::kind;
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

impl Operation {
    /// Encodes the head.
    #[must_use]
    pub fn encode(&self) -> Head {
        let mut out = Writer(Head::new());
        match *self {
            Operation::Put { key, offset, signal: None } => {
                out.kind(MessageKind::Put).word(key).word(offset)
            }
            Operation::Put { key, offset, signal: Some(signal) } => out
                .kind(MessageKind::PutSignal)
                .word(key)
                .word(offset)
                .word(signal.key)
                .word(signal.offset)
                .word(signal.add),
            Operation::Get { ticket, key, offset, len } => {
                out.kind(MessageKind::Get).ticket(ticket).word(key).word(offset).word(len)
            }
            Operation::Atomic { ticket, key, offset, op } => {
                let (number, first, second) = op.encode();
                out.kind(MessageKind::Atomic)
                    .ticket(ticket)
                    .word(key)
                    .word(offset)
                    .byte(number)
                    .word(first)
                    .word(second)
            }
            Operation::Accumulate { key, offset, how } => {
                out.kind(MessageKind::Accumulate).word(key).word(offset).bytes(&how.encode())
            }
            Operation::Push { key, offset } => out.kind(MessageKind::Push).word(key).word(offset),
            Operation::PutBlock { key, block, signal: None } => {
                out.kind(MessageKind::PutBlock).word(key).block(block)
            }
            Operation::PutBlock { key, block, signal: Some(signal) } => out
                .kind(MessageKind::PutBlockSignal)
                .word(key)
                .block(block)
                .word(signal.key)
                .word(signal.offset)
                .word(signal.add),
            Operation::GetBlock { ticket, key, block } => {
                out.kind(MessageKind::GetBlock).ticket(ticket).word(key).block(block)
            }
            Operation::Lookup { ticket } => out.kind(MessageKind::Lookup).ticket(ticket),
            Operation::User { tag } => out.kind(MessageKind::User).word(tag),
            Operation::Data { ticket } => out.kind(MessageKind::Data).ticket(ticket),
            Operation::Old { ticket, old } => out.kind(MessageKind::Old).ticket(ticket).word(old),
            Operation::Found { ticket, published } => out
                .kind(MessageKind::Found)
                .ticket(ticket)
                .word(published.key)
                .word(published.len)
                .byte(published.rights.0),
            Operation::Missing { ticket, count } => {
                out.kind(MessageKind::Missing).ticket(ticket).half(count)
            }
            Operation::Gone { ticket, refusal } => {
                out.kind(MessageKind::Gone).ticket(ticket).byte(refusal as u8)
            }
        };
        out.0
    }

    /// Decodes bytes that a peer sent. Returns `None` if they make no sense (MEM-2.2). Heads of
    /// [`MessageKind::Coherence`] do not belong to this layer.
    #[must_use]
    pub fn decode(head: &[u8]) -> Option<Operation> {
        let mut bytes = Reader(head.get(1..)?);
        let operation = match kind(head) {
            MessageKind::Put => {
                Operation::Put { key: bytes.word()?, offset: bytes.word()?, signal: None }
            }
            MessageKind::PutSignal => {
                let (key, offset) = (bytes.word()?, bytes.word()?);
                Operation::Put { key, offset, signal: Some(bytes.signal()?) }
            }
            MessageKind::Get => Operation::Get {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
                key: bytes.word()?,
                offset: bytes.word()?,
                len: bytes.word()?,
            },
            MessageKind::Atomic => Operation::Atomic {
                ticket: bytes.ticket()?,
                key: bytes.word()?,
                offset: bytes.word()?,
                op: bytes.atomic()?,
            },
            MessageKind::Accumulate => {
                let (key, offset) = (bytes.word()?, bytes.word()?);
                Operation::Accumulate {
                    key,
                    offset,
                    how: Accumulation::decode(bytes.byte()?, bytes.byte()?)?,
                }
            }
            MessageKind::Push => Operation::Push { key: bytes.word()?, offset: bytes.word()? },
            MessageKind::PutBlock => {
                Operation::PutBlock { key: bytes.word()?, block: bytes.block()?, signal: None }
            }
            MessageKind::PutBlockSignal => {
                let (key, block) = (bytes.word()?, bytes.block()?);
                Operation::PutBlock { key, block, signal: Some(bytes.signal()?) }
            }
            MessageKind::GetBlock => Operation::GetBlock {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
                key: bytes.word()?,
                block: bytes.block()?,
            },
            MessageKind::Lookup => Operation::Lookup {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
            },
            MessageKind::User => Operation::User { tag: bytes.word()? },
            MessageKind::Data => Operation::Data { ticket: bytes.ticket()? },
            MessageKind::Old => Operation::Old { ticket: bytes.ticket()?, old: bytes.word()? },
            MessageKind::Found => {
                let ticket = bytes.ticket()?;
                let published = Published {
                    key: bytes.word()?,
                    len: bytes.word()?,
                    rights: Rights(bytes.byte()?),
                };
                if !Rights::ALL.contains(published.rights) {
                    return None;
                }
                Operation::Found { ticket, published }
            }
            MessageKind::Missing => {
                Operation::Missing { ticket: bytes.ticket()?, count: bytes.half()? }
            }
            MessageKind::Gone => Operation::Gone {
                ticket: bytes.ticket()?,
                refusal: Refusal::from_code(bytes.byte()?)?,
            },
            MessageKind::Coherence | MessageKind::Unknown => return None,
        };
        bytes.0.is_empty().then_some(operation)
    }
}

/// Appends to a head. `LONGEST` proves that nothing is cut off.
struct Writer(Head);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let fits = self.0.try_extend_from_slice(bytes);
        debug_assert!(fits.is_ok(), "LONGEST is wrong");
        self
    }
    fn kind(&mut self, kind: MessageKind) -> &mut Self {
        self.byte(kind as u8)
    }
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }
    fn half(&mut self, half: u32) -> &mut Self {
        self.bytes(&half.to_le_bytes())
    }
    fn word(&mut self, word: u64) -> &mut Self {
        self.bytes(&word.to_le_bytes())
    }
    /// Appends a number up to [`STRIDE_MAX`].
    fn long(&mut self, long: u64) -> &mut Self {
        let [low @ .., _, _] = long.to_le_bytes();
        self.bytes(&low)
    }
    fn block(&mut self, block: Block) -> &mut Self {
        let Block { offset, row, rows, planes, row_stride, plane_stride } = block;
        self.long(offset).half(row).half(rows).half(planes).long(row_stride).long(plane_stride)
    }
    fn ticket(&mut self, ticket: TicketId) -> &mut Self {
        self.word(ticket.token).word(ticket.serial)
    }
}

/// Takes fields from the front of unchecked bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }
    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }
    fn half(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn word(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn long(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.take::<6>()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
    fn signal(&mut self) -> Option<Signal> {
        Some(Signal { key: self.word()?, offset: self.word()?, add: self.word()? })
    }
    /// MEM-10.2: the block must be countable, not empty, and in its one form.
    fn block(&mut self) -> Option<Block> {
        let (offset, row, rows, planes) = (self.long()?, self.half()?, self.half()?, self.half()?);
        let block = Block {
            offset,
            row,
            rows,
            planes,
            row_stride: self.long()?,
            plane_stride: self.long()?,
        };
        let countable = block.len().is_some_and(|len| len <= BODY_MAX) && !block.is_empty();
        (countable && block == block.tidy()).then_some(block)
    }
    /// Serial 0 means *none*, and then the token is 0 too, so that one meaning has one encoding.
    fn ticket(&mut self) -> Option<TicketId> {
        let ticket = TicketId { token: self.word()?, serial: self.word()? };
        (ticket.serial != 0 || ticket == TicketId::NONE).then_some(ticket)
    }
    fn atomic(&mut self) -> Option<AtomicOp> {
        AtomicOp::decode(self.byte()?, self.word()?, self.word()?)
    }
}
