//! The first byte of a head: what a message is about (spec/memory.md, MEM-2.1).

use crate::wind::Class;

/// The first byte of a head (MEM-2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Nothing this version knows, or no head at all.
    Unknown = 0x00,
    /// Bytes into a region.
    Put = 0x01,
    /// Bytes into a region, then an add to a word.
    PutSignal = 0x02,
    /// Ask for bytes of a region.
    Get = 0x03,
    /// Read-modify-write of a word.
    Atomic = 0x04,
    /// Ask for a region by its name.
    Lookup = 0x05,
    /// Elements to be combined with those of a region.
    Accumulate = 0x06,
    /// An element for a FIFO.
    Push = 0x07,
    /// Bytes into rows of a region.
    PutBlock = 0x08,
    /// Bytes into rows of a region, then an add to a word.
    PutBlockSignal = 0x09,
    /// Ask for rows of a region.
    GetBlock = 0x0A,
    /// A user's message.
    User = 0x10,
    /// Shared arrays: the rest of the head belongs to [`crate::coherence`].
    Coherence = 0x20,
    /// Answer to a get: the body is the bytes.
    Data = 0x81,
    /// Answer to an atomic.
    Old = 0x82,
    /// Answer to a lookup: the region.
    Found = 0x83,
    /// Answer to a lookup: no such name; the body lists names that are there.
    Missing = 0x84,
    /// Answer to a get whose data will not come any more.
    Gone = 0x85,
}

/// What a head is about; [`Kind::Unknown`] if nothing is known of it. Says nothing about whether
/// the rest is well formed.
#[must_use]
pub fn kind(head: &[u8]) -> Kind {
    match head.first().copied() {
        Some(0x01) => Kind::Put,
        Some(0x02) => Kind::PutSignal,
        Some(0x03) => Kind::Get,
        Some(0x04) => Kind::Atomic,
        Some(0x05) => Kind::Lookup,
        Some(0x06) => Kind::Accumulate,
        Some(0x07) => Kind::Push,
        Some(0x08) => Kind::PutBlock,
        Some(0x09) => Kind::PutBlockSignal,
        Some(0x0A) => Kind::GetBlock,
        Some(0x10) => Kind::User,
        Some(0x20) => Kind::Coherence,
        Some(0x81) => Kind::Data,
        Some(0x82) => Kind::Old,
        Some(0x83) => Kind::Found,
        Some(0x84) => Kind::Missing,
        Some(0x85) => Kind::Gone,
        _ => Kind::Unknown,
    }
}

/// Does such a message take of the receiver's credit (MEM-8.1)?
#[must_use]
pub fn costs_credit(head: &[u8]) -> bool {
    kind(head) == Kind::User
}

/// Is the body of such a message placed where it belongs, if the message is admitted at all?
#[must_use]
pub fn places(class: Class, head: &[u8]) -> bool {
    let placed = matches!(
        kind(head),
        Kind::Put
            | Kind::PutSignal
            | Kind::PutBlock
            | Kind::PutBlockSignal
            | Kind::Accumulate
            | Kind::Data
    );
    class == Class::Unordered && placed
}
