//! Handshake frames (WIRE-4.8, WIRE-4.9): introduction, what was heard of the peer, and refusal.

use super::prefix::{PREFIX_LEN, kind, put_prefix};
use super::versions::Versions;
use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::PAGE;
use crate::seal::KeyStep;
use alloc::vec::Vec;

const ANSWER_WANTED: u8 = 1;
const INTRODUCTION_LEN: usize = 52;
/// Length of the fields between the introduction and the highest version.
const ADDRESSEE_LEN: usize = 4 + 4 + 16 + KeyStep::LEN + size_of::<Cookie>();
const HELLO_LEN: usize = PREFIX_LEN + INTRODUCTION_LEN + ADDRESSEE_LEN + 4;
const REFUSE_LEN: usize = PREFIX_LEN + 4 + 4 + 8 + 8 + 8;
const COOKIE_LEN: usize = PREFIX_LEN + 4 + 4 + 8 + 8 + size_of::<Cookie>();

/// Proof that a node receives at the address from which it sends (WIND-10.6).
pub type Cookie = [u8; 16];

/// Description of a node, which both ends compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Versions of the wire format that the node speaks.
    pub versions: Versions,
    /// Rank of the node.
    pub rank: Rank,
    /// Number of nodes in the job, as this node knows it.
    pub nodes: u32,
    /// Incarnation, which is greater for a newer process at the same rank.
    pub incarnation: u64,
    /// Connection id by which the node wants this connection's datagrams to be named. It is random
    /// and not 0.
    pub connection: u64,
    /// Unit of coherence in bytes.
    pub page_size: u32,
    /// 1 = little-endian, 2 = big-endian.
    pub byte_order: u8,
    /// 1 = x86-64, 2 = AArch64, 3 = RISC-V 64, 0 = other.
    pub architecture: u8,
    /// Maximum size of a datagram (UDP payload) that the node wants to receive, in bytes.
    pub datagram_max: u16,
    /// Size of its socket's buffer in bytes. More bytes in flight would be lost.
    pub receive_buffer: u32,
    /// Maximum number of bytes of credited messages that it keeps before they are read.
    pub credit: u64,
    /// Port of its bulk lane, at the same address as its other port. The node receives and sends
    /// bulk datagrams there. 0 if the bulk lane has no port of its own.
    pub bulk_port: u16,
    /// Kind of seal for its connections, as numbered by [`SealKind`](super::SealKind).
    pub seal: u8,
}

impl Introduction {
    /// Describes this program on this machine. [`Connection::new`](crate::wind::Connection::new)
    /// fills in the fields that [`Settings`](crate::wind::Settings) also have.
    #[must_use]
    pub const fn here(rank: Rank, nodes: u32, incarnation: u64, connection: u64) -> Introduction {
        Introduction {
            versions: Versions::SPOKEN,
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

    fn parse(body: &mut ByteReader<'_>) -> Result<Introduction, Invalid> {
        let lowest = body.u16()?;
        let introduction = Introduction {
            versions: Versions::told(lowest, 0),
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
        if introduction.connection != 0 { Ok(introduction) } else { Err(Invalid) }
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.put_u16(self.versions.lowest);
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

/// Knowledge that the sender of a HELLO has of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The receiver's connection id.
    pub connection: u64,
    /// The receiver's incarnation.
    pub incarnation: u64,
    /// Index of the receiver's candidate path that brought its HELLO here.
    pub path: u8,
}

/// Content of a HELLO frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Description of the sender.
    pub mine: Introduction,
    /// Rank of the node that the sender means to reach. Unknown in a HELLO of another version.
    pub to: Option<Rank>,
    /// Index of the sender's candidate path that carries this HELLO. It comes back in
    /// [`Shown::path`].
    pub path: u8,
    /// Knowledge of the receiver, if the sender has heard of it.
    pub yours: Option<Shown>,
    /// `true` if the sender is not yet established and wants an answer.
    pub answer_wanted: bool,
    /// Message of the key exchange, for a kind of seal that needs keys.
    pub key: KeyStep,
    /// Latest cookie that the receiver has demanded.
    pub cookie: Option<Cookie>,
}

impl Hello {
    pub(super) fn parse(flags: u8, body: &mut ByteReader<'_>) -> Result<Hello, Invalid> {
        let mut mine = Introduction::parse(body)?;
        // The highest version stands at the same place in every version, if it is there (WIRE-6.2).
        let mut behind = *body;
        let highest = behind.take(ADDRESSEE_LEN).and_then(|_| behind.u16()).unwrap_or(0);
        mine.versions = Versions::told(mine.versions.lowest, highest);
        if mine.versions.common(Versions::SPOKEN).is_none() {
            // The fields in between may be absent, or mean something else.
            let (to, path, yours, key, cookie) = (None, 0, None, KeyStep::Nothing, None);
            return Ok(Hello { mine, to, path, yours, answer_wanted: false, key, cookie });
        }
        let to = Some(body.u32()?);
        let (path, yours_path) = (body.u8()?, body.u8()?);
        body.zeros::<2>()?;
        let (connection, incarnation) = (body.u64()?, body.u64()?);
        let yours =
            (connection != 0).then_some(Shown { connection, incarnation, path: yours_path });
        if yours.is_none() && (incarnation != 0 || yours_path != 0) || flags & !ANSWER_WANTED != 0 {
            return Err(Invalid);
        }
        let key = KeyStep::parse(body)?;
        let cookie = Some(body.array()?).filter(|cookie| *cookie != Cookie::default());
        let answer_wanted = flags & ANSWER_WANTED != 0;
        Ok(Hello { mine, to, path, yours, answer_wanted, key, cookie })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(into, kind::HELLO, u8::from(self.answer_wanted) * ANSWER_WANTED, HELLO_LEN);
        self.mine.write(into);
        into.put_u32(self.to.unwrap_or(Rank::MAX));
        into.put_u8(self.path);
        let yours = self.yours.unwrap_or(Shown { connection: 0, incarnation: 0, path: 0 });
        into.put_u8(yours.path);
        into.put_u16(0);
        into.put_u64(yours.connection);
        into.put_u64(yours.incarnation);
        self.key.write(into);
        into.put(&self.cookie.unwrap_or_default());
        into.put_u16(self.mine.versions.highest);
        into.put_u16(0);
    }
}

/// Content of a COOKIE frame (WIRE-4.11): the demand that a HELLO be repeated with this cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieReply {
    /// Rank of the sender.
    pub rank: Rank,
    /// Incarnation of the HELLO's sender.
    pub incarnation: u64,
    /// Number of the HELLO's datagram.
    pub number: u64,
    /// Cookie to repeat.
    pub cookie: Cookie,
}

impl CookieReply {
    pub(super) fn parse(body: &mut ByteReader<'_>) -> Result<CookieReply, Invalid> {
        let rank = body.u32()?;
        body.zeros::<4>()?;
        let (incarnation, number) = (body.u64()?, body.u64()?);
        Ok(CookieReply { rank, incarnation, number, cookie: body.array()? })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(into, kind::COOKIE, 0, COOKIE_LEN);
        into.put_u32(self.rank);
        into.put_u32(0);
        into.put_u64(self.incarnation);
        into.put_u64(self.number);
        into.put(&self.cookie);
    }
}

crate::wire_enum! {
    /// Property that two nodes must agree on.
    pub enum Misfit {
        /// Property that this release does not know (WIRE-6.2).
        Other = 0,
        /// Versions of the wire format: no version is in both ranges.
        Version = 1,
        /// Number of nodes in the job.
        Nodes = 2,
        /// Unit of coherence.
        PageSize = 3,
        /// Byte order of numbers in memory.
        ByteOrder = 4,
        /// Architecture of the processor.
        Architecture = 5,
        /// Rank of the node at that address.
        Rank = 6,
        /// Kind of seal, which sets what the checksums cover.
        Seal = 7,
    }
}

/// A REFUSE: the answer to a HELLO that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Rank of the node that refuses.
    pub rank: Rank,
    /// Property in which the two nodes differ.
    pub misfit: Misfit,
    /// Value of the refusing side.
    pub mine: u64,
    /// Value of the refused side, as it was understood.
    pub yours: u64,
    /// Incarnation of the refused side, so that an old refusal does not hit a new process.
    pub incarnation: u64,
}

impl Refuse {
    pub(super) fn parse(body: &mut ByteReader<'_>) -> Result<Refuse, Invalid> {
        let rank = body.u32()?;
        let misfit = Misfit::from_code(body.u8()?).unwrap_or(Misfit::Other);
        body.zeros::<3>()?;
        Ok(Refuse { rank, misfit, mine: body.u64()?, yours: body.u64()?, incarnation: body.u64()? })
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
