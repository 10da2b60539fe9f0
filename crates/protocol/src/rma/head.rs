//! Heads: the first bytes of a message, which say what it is (spec/memory.md, MEM-2).
//!
//! Little-endian, fixed length for each kind, no padding: for every kind there is exactly one
//! encoding of a meaning, and a head that is one byte too long or too short, or has a bit set that
//! means nothing, is malformed (MEM-2.2).

use super::{Accumulation, AtomicOp, Kind, Rights, kind};
use crate::block::Block;
use crate::limits::{BODY_MAX, HEAD_MAX, STRIDE_MAX};
use crate::wind::{Head, Refusal};

/// What the requester calls its request; comes back in the answer.
///
/// The serial makes a ticket unique for the life of the requester, so that an answer that comes
/// late never meets another request that was given the same token (MEM-4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId {
    /// The requester's token.
    pub token: u64,
    /// Never used twice. 0 with token 0: nobody waits for an answer.
    pub serial: u64,
}

impl TicketId {
    /// Nobody waits: no answer is sent (MEM-5.4).
    pub const NONE: TicketId = TicketId { token: 0, serial: 0 };
}

/// An add to an aligned 64-bit word of a region of the same node, after the data of a put is in
/// place (MEM-3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Key of the word's region.
    pub key: u64,
    /// Bytes from that region's start; a multiple of 8.
    pub offset: u64,
    /// What is added (wrapping).
    pub add: u64,
}

/// What a name stands for (MEM-6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The key that puts, gets and atomics must show.
    pub key: u64,
    /// Bytes.
    pub len: u64,
    /// What the region grants.
    pub rights: Rights,
}

/// A head, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The body goes to `offset` of the region.
    Put {
        /// The region's key.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// What follows the data.
        signal: Option<Signal>,
    },
    /// Send me these bytes.
    Get {
        /// To be named in the answer.
        ticket: TicketId,
        /// The region's key.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The body goes to rows of the region (MEM-10.1).
    PutBlock {
        /// The region's key.
        key: u64,
        /// Which rows.
        block: Block,
        /// What follows the data.
        signal: Option<Signal>,
    },
    /// Send me these rows, packed.
    GetBlock {
        /// To be named in the answer.
        ticket: TicketId,
        /// The region's key.
        key: u64,
        /// Which rows.
        block: Block,
    },
    /// Change a word; tell me what it was, if I wait for that.
    Atomic {
        /// To be named in the answer; [`TicketId::NONE`]: no answer.
        ticket: TicketId,
        /// The region's key.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// The change.
        op: AtomicOp,
    },
    /// Combine the elements in the body with those from `offset` on.
    Accumulate {
        /// The region's key.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// What they are and how.
        how: Accumulation,
    },
    /// The body goes into the FIFO at `offset`.
    Push {
        /// The region's key.
        key: u64,
        /// Bytes from its start.
        offset: u64,
    },
    /// Which region has the name in the body?
    Lookup {
        /// To be named in the answer.
        ticket: TicketId,
    },
    /// A user's message.
    User {
        /// The user's own number.
        tag: u64,
    },
    /// The bytes that were asked for.
    Data {
        /// Of the get.
        ticket: TicketId,
    },
    /// What the word was before.
    Old {
        /// Of the atomic.
        ticket: TicketId,
        /// The word.
        old: u64,
    },
    /// The region of that name.
    Found {
        /// Of the lookup.
        ticket: TicketId,
        /// The region.
        published: Published,
    },
    /// No region of that name; the body lists some that are there.
    Missing {
        /// Of the lookup.
        ticket: TicketId,
        /// How many names are there in all.
        count: u32,
    },
    /// The data that was promised will not come: its region is gone.
    Gone {
        /// Of the get.
        ticket: TicketId,
        /// Why.
        refusal: Refusal,
    },
}

/// Bytes of a block.
const BLOCK: usize = 3 * 6 + 3 * 4;
/// The longest head of this layer: a block with a signal.
const LONGEST: usize = 1 + 8 + BLOCK + 24;
const _: () = assert!(LONGEST <= HEAD_MAX, "every head must fit into what Wind carries");
const _: () = assert!(STRIDE_MAX < 1 << 48, "offsets and strides of blocks have six bytes");

impl Operation {
    /// To bytes.
    #[must_use]
    pub fn encode(&self) -> Head {
        let mut out = Writer(Head::new());
        match *self {
            Operation::Put { key, offset, signal: None } => {
                out.kind(Kind::Put).word(key).word(offset)
            }
            Operation::Put { key, offset, signal: Some(signal) } => out
                .kind(Kind::PutSignal)
                .word(key)
                .word(offset)
                .word(signal.key)
                .word(signal.offset)
                .word(signal.add),
            Operation::Get { ticket, key, offset, len } => {
                out.kind(Kind::Get).ticket(ticket).word(key).word(offset).word(len)
            }
            Operation::Atomic { ticket, key, offset, op } => {
                let (number, first, second) = op.encode();
                out.kind(Kind::Atomic)
                    .ticket(ticket)
                    .word(key)
                    .word(offset)
                    .byte(number)
                    .word(first)
                    .word(second)
            }
            Operation::Accumulate { key, offset, how } => {
                out.kind(Kind::Accumulate).word(key).word(offset).bytes(&how.encode())
            }
            Operation::Push { key, offset } => out.kind(Kind::Push).word(key).word(offset),
            Operation::PutBlock { key, block, signal: None } => {
                out.kind(Kind::PutBlock).word(key).block(block)
            }
            Operation::PutBlock { key, block, signal: Some(signal) } => out
                .kind(Kind::PutBlockSignal)
                .word(key)
                .block(block)
                .word(signal.key)
                .word(signal.offset)
                .word(signal.add),
            Operation::GetBlock { ticket, key, block } => {
                out.kind(Kind::GetBlock).ticket(ticket).word(key).block(block)
            }
            Operation::Lookup { ticket } => out.kind(Kind::Lookup).ticket(ticket),
            Operation::User { tag } => out.kind(Kind::User).word(tag),
            Operation::Data { ticket } => out.kind(Kind::Data).ticket(ticket),
            Operation::Old { ticket, old } => out.kind(Kind::Old).ticket(ticket).word(old),
            Operation::Found { ticket, published } => out
                .kind(Kind::Found)
                .ticket(ticket)
                .word(published.key)
                .word(published.len)
                .byte(published.rights.0),
            Operation::Missing { ticket, count } => {
                out.kind(Kind::Missing).ticket(ticket).half(count)
            }
            Operation::Gone { ticket, refusal } => {
                out.kind(Kind::Gone).ticket(ticket).byte(refusal as u8)
            }
        };
        out.0
    }

    /// From bytes that a peer sent; `None` if they make no sense (MEM-2.2). Heads of
    /// [`Kind::Coherence`] are not of this layer.
    #[must_use]
    pub fn decode(head: &[u8]) -> Option<Operation> {
        let mut bytes = Reader(head.get(1..)?);
        let operation = match kind(head) {
            Kind::Put => Operation::Put { key: bytes.word()?, offset: bytes.word()?, signal: None },
            Kind::PutSignal => {
                let (key, offset) = (bytes.word()?, bytes.word()?);
                Operation::Put { key, offset, signal: Some(bytes.signal()?) }
            }
            Kind::Get => Operation::Get {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
                key: bytes.word()?,
                offset: bytes.word()?,
                len: bytes.word()?,
            },
            Kind::Atomic => Operation::Atomic {
                ticket: bytes.ticket()?,
                key: bytes.word()?,
                offset: bytes.word()?,
                op: bytes.atomic()?,
            },
            Kind::Accumulate => {
                let (key, offset) = (bytes.word()?, bytes.word()?);
                Operation::Accumulate {
                    key,
                    offset,
                    how: Accumulation::decode(bytes.byte()?, bytes.byte()?)?,
                }
            }
            Kind::Push => Operation::Push { key: bytes.word()?, offset: bytes.word()? },
            Kind::PutBlock => {
                Operation::PutBlock { key: bytes.word()?, block: bytes.block()?, signal: None }
            }
            Kind::PutBlockSignal => {
                let (key, block) = (bytes.word()?, bytes.block()?);
                Operation::PutBlock { key, block, signal: Some(bytes.signal()?) }
            }
            Kind::GetBlock => Operation::GetBlock {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
                key: bytes.word()?,
                block: bytes.block()?,
            },
            Kind::Lookup => Operation::Lookup {
                ticket: bytes.ticket().filter(|ticket| *ticket != TicketId::NONE)?,
            },
            Kind::User => Operation::User { tag: bytes.word()? },
            Kind::Data => Operation::Data { ticket: bytes.ticket()? },
            Kind::Old => Operation::Old { ticket: bytes.ticket()?, old: bytes.word()? },
            Kind::Found => {
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
            Kind::Missing => Operation::Missing { ticket: bytes.ticket()?, count: bytes.half()? },
            Kind::Gone => Operation::Gone {
                ticket: bytes.ticket()?,
                refusal: Refusal::from_code(bytes.byte()?)?,
            },
            Kind::Coherence | Kind::Unknown => return None,
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
    fn kind(&mut self, kind: Kind) -> &mut Self {
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
    /// Of a number up to [`STRIDE_MAX`].
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

/// Takes from the front of bytes that nobody has checked.
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
    /// MEM-10.2: countable, not empty, and in its one form.
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
    /// Serial 0 means *none*, and then the token is 0 too: one meaning, one encoding.
    fn ticket(&mut self) -> Option<TicketId> {
        let ticket = TicketId { token: self.word()?, serial: self.word()? };
        (ticket.serial != 0 || ticket == TicketId::NONE).then_some(ticket)
    }
    fn atomic(&mut self) -> Option<AtomicOp> {
        AtomicOp::decode(self.byte()?, self.word()?, self.word()?)
    }
}
