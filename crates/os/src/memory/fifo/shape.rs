//! Where the parts of a FIFO lie in its region (MEM-13.1).

use oikaze_protocol::limits::{FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX};

/// How many elements a FIFO holds, and how long each may be.
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
/// The positions are alone in their pairs of cache lines: producers write the one, consumers the
/// other.
pub(super) const TAIL_AT: u64 = 128;
pub(super) const HEAD_AT: u64 = 256;
const HEADER_LEN: u64 = 384;
/// In front of an element: its slot's turn and its length.
const SLOT_HEADER: u64 = 16;

impl Shape {
    /// At least `slots` elements (a power of two, two at least) of up to `element` bytes; `None` if
    /// there is nothing of that size.
    #[must_use]
    pub fn new(slots: u64, element: u64) -> Option<Shape> {
        let slots = slots.max(2).checked_next_power_of_two()?;
        let known = slots <= FIFO_SLOTS_MAX && (1..=FIFO_ELEMENT_MAX).contains(&element);
        known.then_some(Shape { slots, element })
    }

    /// One word; never 0.
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.slots.trailing_zeros()) << 32 | self.element
    }

    /// From [`Shape::to_bits`]; `None`: 0, there is no FIFO.
    pub(super) fn from_bits(bits: u64) -> Option<Shape> {
        let (slots, element) = (1 << (bits >> 32 & 63), bits & u64::from(u32::MAX));
        (element != 0).then_some(Shape { slots, element })
    }

    /// Elements that it holds.
    #[must_use]
    pub fn slots(self) -> u64 {
        self.slots
    }

    /// Bytes of the longest element.
    #[must_use]
    pub fn element(self) -> u64 {
        self.element
    }

    /// Bytes of the whole.
    #[must_use]
    pub fn bytes(self) -> u64 {
        HEADER_LEN + self.slots * self.stride()
    }

    /// From one slot to the next.
    fn stride(self) -> u64 {
        SLOT_HEADER + self.element.next_multiple_of(8)
    }

    /// Where the slot of a position begins.
    pub(super) fn slot(self, position: u64) -> u64 {
        HEADER_LEN + (position & (self.slots - 1)) * self.stride()
    }
}
