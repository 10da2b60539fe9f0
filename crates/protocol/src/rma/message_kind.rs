//! Kind of a message, which is the first byte of its head (spec/memory.md, MEM-2.1).

use crate::wind::Class;

/// Kind of a message, as the first byte of its head (MEM-2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// A kind that this version does not know, or no head at all.
    Unknown = 0x00,
    /// Put of bytes into a region.
    Put = 0x01,
    /// Put of bytes into a region, followed by an add to a word.
    PutSignal = 0x02,
    /// Request for bytes of a region.
    Get = 0x03,
    /// Read-modify-write of a word.
    Atomic = 0x04,
    /// Request for a region by its name.
    Lookup = 0x05,
    /// Elements to combine with those of a region.
    Accumulate = 0x06,
    /// Element to push into a FIFO.
    Push = 0x07,
    /// Put of bytes into rows of a region.
    PutBlock = 0x08,
    /// Put of bytes into rows of a region, followed by an add to a word.
    PutBlockSignal = 0x09,
    /// Request for rows of a region.
    GetBlock = 0x0A,
    /// A user's message.
    User = 0x10,
    /// Message of shared arrays. The rest of the head belongs to [`crate::coherence`].
    Coherence = 0x20,
    /// Answer to a get, with the bytes as its body.
    Data = 0x81,
    /// Answer to an atomic.
    Old = 0x82,
    /// Answer to a lookup, with the region.
    Found = 0x83,
    /// Answer to a lookup that found no such name. The body lists names that are there.
    Missing = 0x84,
    /// Answer to a get whose data will not come any more.
    Gone = 0x85,
}

/// Returns the kind of a head, or [`MessageKind::Unknown`]. It does not check whether the rest is
/// well formed.
#[must_use]
pub fn kind(head: &[u8]) -> MessageKind {
    match head.first().copied() {
        Some(0x01) => MessageKind::Put,
        Some(0x02) => MessageKind::PutSignal,
        Some(0x03) => MessageKind::Get,
        Some(0x04) => MessageKind::Atomic,
        Some(0x05) => MessageKind::Lookup,
        Some(0x06) => MessageKind::Accumulate,
        Some(0x07) => MessageKind::Push,
        Some(0x08) => MessageKind::PutBlock,
        Some(0x09) => MessageKind::PutBlockSignal,
        Some(0x0A) => MessageKind::GetBlock,
        Some(0x10) => MessageKind::User,
        Some(0x20) => MessageKind::Coherence,
        Some(0x81) => MessageKind::Data,
        Some(0x82) => MessageKind::Old,
        Some(0x83) => MessageKind::Found,
        Some(0x84) => MessageKind::Missing,
        Some(0x85) => MessageKind::Gone,
        _ => MessageKind::Unknown,
    }
}

/// Returns `true` if such a message takes of the receiver's credit (MEM-8.1).
#[must_use]
pub fn costs_credit(head: &[u8]) -> bool {
    kind(head) == MessageKind::User
}

/// Returns `true` if the body of such a message, once admitted, is placed directly into its
/// destination.
#[must_use]
pub fn places(class: Class, head: &[u8]) -> bool {
    let placed = matches!(
        kind(head),
        MessageKind::Put
            | MessageKind::PutSignal
            | MessageKind::PutBlock
            | MessageKind::PutBlockSignal
            | MessageKind::Accumulate
            | MessageKind::Data
    );
    class == Class::Unordered && placed
}
