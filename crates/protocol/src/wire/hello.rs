//! Handshake frames (WIRE-4.8, WIRE-4.9): who I am, whom I see, and why you do not fit.

use super::cursor::{Reader, Write};
use super::frame::{PREFIX_LEN, kind, put_prefix};
use crate::Rank;
use crate::limits::{PAGE, WIRE_VERSION};
use alloc::vec::Vec;

const ANSWER_WANTED: u8 = 1;
const INTRODUCTION_LEN: usize = 52;
const HELLO_LEN: usize = PREFIX_LEN + INTRODUCTION_LEN + 4 + 4 + 16;
const REFUSE_LEN: usize = PREFIX_LEN + 4 + 4 + 8 + 8 + 8;

/// What a node says of itself; both ends compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Of the wire format.
    pub version: u16,
    /// Its place in the job.
    pub rank: Rank,
    /// How many nodes it thinks the job has.
    pub nodes: u32,
    /// Greater for a newer process at the same rank.
    pub incarnation: u64,
    /// The id by which it wants this connection's datagrams to be named; random, not 0.
    pub connection: u64,
    /// Bytes of its unit of coherence.
    pub page_size: u32,
    /// 1 = little-endian, 2 = big-endian.
    pub byte_order: u8,
    /// 1 = x86-64, 2 = AArch64, 3 = RISC-V 64, 0 = other.
    pub architecture: u8,
    /// The largest datagram (UDP payload) it wants to get.
    pub datagram_max: u16,
    /// Bytes its socket buffers: more in flight would be lost.
    pub receive_buffer: u32,
    /// Bytes of credited messages it will keep before they are read.
    pub credit: u64,
    /// Where its bulk lane is, at the address of the others: what it gets there and what it sends
    /// from there; 0: nowhere of its own.
    pub bulk_port: u16,
    /// The kind of seal it sets up connections with, as [`SealKind`](super::SealKind) numbers them.
    pub seal: u8,
}

impl Introduction {
    /// This program on this machine. What [`Settings`](crate::wind::Settings) say too is filled in
    /// from there by [`Connection::new`](crate::wind::Connection::new).
    #[must_use]
    pub const fn here(rank: Rank, nodes: u32, incarnation: u64, connection: u64) -> Introduction {
        Introduction {
            version: WIRE_VERSION,
            rank,
            nodes,
            incarnation,
            connection,
            page_size: PAGE as u32,
            byte_order: if cfg!(target_endian = "little") { 1 } else { 2 },
            architecture: if cfg!(target_arch = "x86_64") {
                1
            } else if cfg!(target_arch = "aarch64") {
                2
            } else if cfg!(target_arch = "riscv64") {
                3
            } else {
                0
            },
            datagram_max: 0,
            receive_buffer: 0,
            credit: 0,
            bulk_port: 0,
            seal: 0,
        }
    }

    fn parse(body: &mut Reader<'_>) -> Option<Introduction> {
        let version = body.u16()?;
        let introduction = Introduction {
            version,
            byte_order: body.u8()?,
            architecture: body.u8()?,
            rank: body.u32()?,
            nodes: body.u32()?,
            page_size: body.u32()?,
            incarnation: body.u64()?,
            connection: body.u64()?,
            credit: body.u64()?,
            receive_buffer: body.u32()?,
            datagram_max: body.u16()?,
            seal: body.u8()?,
            bulk_port: body.u16()?,
        };
        body.zeros::<3>()?;
        (introduction.connection != 0).then_some(introduction)
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.put_u16(self.version);
        into.put_u8(self.byte_order);
        into.put_u8(self.architecture);
        into.put_u32(self.rank);
        into.put_u32(self.nodes);
        into.put_u32(self.page_size);
        into.put_u64(self.incarnation);
        into.put_u64(self.connection);
        into.put_u64(self.credit);
        into.put_u32(self.receive_buffer);
        into.put_u16(self.datagram_max);
        into.put_u8(self.seal);
        into.put_u16(self.bulk_port);
        into.put(&[0; 3]);
    }
}

/// What the sender of a HELLO has seen of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The receiver's connection id.
    pub connection: u64,
    /// The receiver's incarnation.
    pub incarnation: u64,
    /// Which of the receiver's candidate paths brought it here.
    pub path: u8,
}

/// A HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender.
    pub mine: Introduction,
    /// Whom it means to reach.
    pub to: Rank,
    /// Which of its candidate paths the sender has put this on; comes back in [`Shown::path`].
    pub path: u8,
    /// The receiver, if the sender has heard of it.
    pub yours: Option<Shown>,
    /// The sender is not yet established and wants to be answered.
    pub answer_wanted: bool,
}

impl Hello {
    pub(super) fn parse(flags: u8, body: &mut Reader<'_>) -> Option<Hello> {
        let mine = Introduction::parse(body)?;
        let to = body.u32()?;
        let (path, yours_path) = (body.u8()?, body.u8()?);
        body.zeros::<2>()?;
        let (connection, incarnation) = (body.u64()?, body.u64()?);
        let yours =
            (connection != 0).then_some(Shown { connection, incarnation, path: yours_path });
        if yours.is_none() && (incarnation != 0 || yours_path != 0) {
            return None;
        }
        (flags & !ANSWER_WANTED == 0).then_some(Hello {
            mine,
            to,
            path,
            yours,
            answer_wanted: flags & ANSWER_WANTED != 0,
        })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(into, kind::HELLO, u8::from(self.answer_wanted) * ANSWER_WANTED, HELLO_LEN);
        self.mine.write(into);
        into.put_u32(self.to);
        into.put_u8(self.path);
        let yours = self.yours.unwrap_or(Shown { connection: 0, incarnation: 0, path: 0 });
        into.put_u8(yours.path);
        into.put_u16(0);
        into.put_u64(yours.connection);
        into.put_u64(yours.incarnation);
    }
}

/// What two nodes must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Misfit {
    /// Wire format.
    Version = 1,
    /// Number of nodes in the job.
    Nodes = 2,
    /// Unit of coherence.
    PageSize = 3,
    /// Of numbers in memory.
    ByteOrder = 4,
    /// Of the processor.
    Architecture = 5,
    /// Who is at that address.
    Rank = 6,
    /// What the checksums cover.
    Seal = 7,
}

impl Misfit {
    /// From its number on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Misfit> {
        Some(match code {
            1 => Misfit::Version,
            2 => Misfit::Nodes,
            3 => Misfit::PageSize,
            4 => Misfit::ByteOrder,
            5 => Misfit::Architecture,
            6 => Misfit::Rank,
            7 => Misfit::Seal,
            _ => return None,
        })
    }
}

/// A REFUSE: the answer to a HELLO that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Who refuses.
    pub rank: Rank,
    /// In what we differ.
    pub misfit: Misfit,
    /// The refusing side's value.
    pub mine: u64,
    /// The refused side's value, as it was understood.
    pub yours: u64,
    /// The refused side's incarnation: an old refusal does not hit a new process.
    pub incarnation: u64,
}

impl Refuse {
    pub(super) fn parse(body: &mut Reader<'_>) -> Option<Refuse> {
        let rank = body.u32()?;
        let misfit = Misfit::from_code(body.u8()?)?;
        body.zeros::<3>()?;
        Some(Refuse {
            rank,
            misfit,
            mine: body.u64()?,
            yours: body.u64()?,
            incarnation: body.u64()?,
        })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(into, kind::REFUSE, 0, REFUSE_LEN);
        into.put_u32(self.rank);
        into.put_u8(self.misfit as u8);
        into.put(&[0; 3]);
        into.put_u64(self.mine);
        into.put_u64(self.yours);
        into.put_u64(self.incarnation);
    }
}
