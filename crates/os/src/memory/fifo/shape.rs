//! Layout of a FIFO in its region (MEM-13.1).

use oikaze_protocol::limits::{FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX};

/// Number of elements that a FIFO holds, and their maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: u64,
    element: u64,
}

/// The first word of every FIFO: the beginning of SHA-256("oikaze fifo 1").
pub(super) const MAGIC: u64 = 0x2e4a_7ae3_6c16_1290;
/// Words of the header.
pub(super) const MAGIC_AT: u64 = 0;
pub(super) const SLOTS_AT: u64 = 8;
pub(super) const ELEMENT_AT: u64 = 16;
/// Each position has a pair of cache lines of its own, because producers write one and consumers
/// the other.
pub(super) const TAIL_AT: u64 = 128;
pub(super) const HEAD_AT: u64 = 256;
const HEADER_LEN: u64 = 384;
/// Bytes in front of an element: its slot's turn and its length.
const SLOT_HEADER: u64 = 16;

impl Shape {
    /// Returns the shape of at least `slots` elements (a power of two, two at least) of up to
    /// `element` bytes, or `None` if the size is not permitted.
    #[must_use]
    pub fn new(slots: u64, element: u64) -> Option<Shape> {
        let slots = slots.max(2).checked_next_power_of_two()?;
        let known = slots <= FIFO_SLOTS_MAX && (1..=FIFO_ELEMENT_MAX).contains(&element);
        known.then_some(Shape { slots, element })
    }

    /// Encodes the shape as one word, which is never 0.
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.slots.trailing_zeros()) << 32 | self.element
    }

    /// Decodes a word from [`Shape::to_bits`]. Returns `None` for 0, which means that there is no
    /// FIFO.
    pub(super) fn from_bits(bits: u64) -> Option<Shape> {
        let (slots, element) = (1 << (bits >> 32 & 63), bits & u64::from(u32::MAX));
        (element != 0).then_some(Shape { slots, element })
    }

    /// Returns the number of elements that the FIFO holds.
    #[must_use]
    pub fn slots(self) -> u64 {
        self.slots
    }

    /// Returns the maximum length of an element in bytes.
    #[must_use]
    pub fn element(self) -> u64 {
        self.element
    }

    /// Returns the total size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        HEADER_LEN + self.slots * self.stride()
    }

    /// Returns the distance from one slot to the next in bytes.
    fn stride(self) -> u64 {
        SLOT_HEADER + self.element.next_multiple_of(8)
    }

    /// Returns the offset of the slot of a position.
    pub(super) fn slot(self, position: u64) -> u64 {
        HEADER_LEN + (position & (self.slots - 1)) * self.stride()
    }
}
