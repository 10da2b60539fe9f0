//! Interface of remote memory to the machine's memory.

use crate::rma::ops::atomic::AtomicOp;
use crate::rma::ops::element::Accumulation;
use crate::wind::Refusal;

/// Rights that a region grants to peers, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(pub u8);

impl Rights {
    /// No right at all.
    pub const NONE: Rights = Rights(0);
    /// Right to get.
    pub const READ: Rights = Rights(1);
    /// Right to put.
    pub const WRITE: Rights = Rights(2);
    /// Right to change single words, signals included.
    pub const ATOMIC: Rights = Rights(4);
    /// Right to push into a FIFO.
    pub const PUSH: Rights = Rights(8);
    /// All rights together.
    pub const ALL: Rights = Rights(15);

    /// Returns `true` if `self` contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Formats as `read and write`.
impl core::fmt::Display for Rights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut first = true;
        for (right, name) in [
            (Rights::READ, "read"),
            (Rights::WRITE, "write"),
            (Rights::ATOMIC, "atomic"),
            (Rights::PUSH, "push"),
        ] {
            if self.contains(right) {
                write!(f, "{}{name}", if first { "" } else { " and " })?;
                first = false;
            }
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

impl core::ops::BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// The machine's table of regions, as the protocol sees it. `oikaze-os` has the real one, and tests
/// use vectors.
pub trait Memory {
    /// Finds the region with this key, checks right and bounds (without overflow), and returns its
    /// slot in the table.
    ///
    /// # Errors
    /// [`Refusal::UnknownKey`], [`Refusal::NotPermitted`], [`Refusal::OutOfBounds`] (MEM-1.2, 1.3
    /// and 1.4); [`Refusal::NotPresent`] and [`Refusal::Lost`] (MEM-1.10) if that is all that is in
    /// the way.
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal>;

    /// Like [`Memory::locate`], for an operation that has taken effect in part. It waits for absent
    /// pages, because the operation cannot be sent again.
    ///
    /// # Errors
    /// As [`Memory::locate`], but for [`Refusal::NotPresent`].
    fn locate_begun(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        self.locate(key, offset, len, right)
    }

    /// Returns `true` if a region has this key, or had it,
    /// as far as this node remembers (MEM-1.16).
    fn has_had(&self, key: u64) -> bool;

    /// Returns `true` if this range is still inside a live region in that slot. It serves
    /// destinations of this node's own gets.
    fn covers(&self, region: u32, offset: u64, len: u64) -> bool;

    /// Copies `bytes` in. A range outside a live region is ignored and counted.
    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]);

    /// Copies bytes out. Returns `false` if the range is not inside a live region.
    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool;

    /// Performs one atomic operation on the aligned word at `offset`. Returns the old value, zero
    /// above its width.
    ///
    /// # Errors
    /// [`Refusal::Misaligned`], [`Refusal::OutOfBounds`].
    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal>;

    /// Combines whole elements, as they stand in memory, with those from `offset` on, each
    /// atomically. It detects every error before the first element changes, also if there are no
    /// elements.
    ///
    /// # Errors
    /// [`Refusal::Misaligned`], [`Refusal::OutOfBounds`], [`Refusal::NotPermitted`].
    fn accumulate(
        &mut self,
        region: u32,
        offset: u64,
        how: Accumulation,
        elements: &[u8],
    ) -> Result<(), Refusal>;

    /// Returns the maximum length of an element, in bytes, of the FIFO that the region's owner has
    /// made at its beginning.
    ///
    /// # Errors
    /// [`Refusal::NoFifo`].
    fn fifo_element(&self, region: u32) -> Result<u64, Refusal>;

    /// Appends an element to that FIFO.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::NoFifo`], [`Refusal::TooLong`], [`Refusal::NotPermitted`]
    /// (MEM-13). Nothing has changed then.
    fn push(&mut self, region: u32, element: &[u8]) -> Result<(), Refusal>;
}
