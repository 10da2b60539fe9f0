//! Kind of a message, which is the first byte of its head (spec/memory.md, MEM-2.1).

use crate::wind::Class;

crate::wire_enum! {
    /// Kind of a message, as the first byte of its head (MEM-2.1).
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
        /// Put of bytes into a region, followed by an entry in the target's arrival queue.
        PutNotice = 0x0B,
        /// A user's message.
        User = 0x10,
        /// Part of a collective operation. The rest of the head belongs to [`crate::collective`].
        Parcel = 0x11,
        /// Message of shared arrays. The rest of the head belongs to [`crate::coherence`].
        Coherence = 0x20,
        /// Message about a multicast stream.
        Stream = 0x30,
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
}

/// Returns the kind of a head, or [`MessageKind::Unknown`]. It does not check whether the rest is
/// well formed.
#[must_use]
pub fn kind(head: &[u8]) -> MessageKind {
    head.first().and_then(|code| MessageKind::from_code(*code)).unwrap_or(MessageKind::Unknown)
}

/// Returns `true` if such a message takes of the receiver's credit (MEM-8.1).
#[must_use]
pub fn costs_credit(head: &[u8]) -> bool {
    matches!(kind(head), MessageKind::User | MessageKind::PutNotice)
}

/// Returns `true` if the body of such a message costs credit, too (MEM-25.4).
#[must_use]
pub fn charges_body(head: &[u8]) -> bool {
    kind(head) != MessageKind::PutNotice
}

/// Returns the bytes of a body of `len` bytes that cost credit, or `None` if the message costs
/// none.
#[must_use]
pub fn charge_of(head: &[u8], len: u64) -> Option<u64> {
    costs_credit(head).then(|| if charges_body(head) { len } else { 0 })
}

/// Returns `true` if the body of such a message is handed up in a buffer of its own.
#[must_use]
pub fn is_handed_up(head: &[u8]) -> bool {
    matches!(kind(head), MessageKind::User | MessageKind::Parcel)
}

/// Returns `true` if the body of such a message, once admitted, is placed directly into its
/// destination.
#[must_use]
pub fn places(class: Class, head: &[u8]) -> bool {
    let placed = matches!(
        kind(head),
        MessageKind::Put
            | MessageKind::PutSignal
            | MessageKind::PutNotice
            | MessageKind::PutBlock
            | MessageKind::PutBlockSignal
            | MessageKind::Accumulate
            | MessageKind::Data
    );
    class == Class::Unordered && placed
}
