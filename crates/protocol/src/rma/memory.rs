//! What remote memory asks of the machine's memory.

use super::{Accumulation, AtomicOp};
use crate::wind::Refusal;

/// What a region grants to peers: a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(pub u8);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// Get.
    pub const READ: Rights = Rights(1);
    /// Put.
    pub const WRITE: Rights = Rights(2);
    /// Changes of single words, signals.
    pub const ATOMIC: Rights = Rights(4);
    /// Push into a FIFO.
    pub const PUSH: Rights = Rights(8);
    /// All of them.
    pub const ALL: Rights = Rights(15);

    /// Are all of `other` in `self`?
    #[must_use]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// As it is said: `read and write`.
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

/// The machine's table of regions, as the protocol sees it. `oikaze-os` has the real one; tests
/// have vectors.
pub trait Memory {
    /// Find the region with this key and check right and bounds (without overflow): its slot in the
    /// table.
    ///
    /// # Errors
    /// [`Refusal::UnknownKey`], [`Refusal::NotPermitted`], [`Refusal::OutOfBounds`] (MEM-1.2, 1.3
    /// and 1.4); [`Refusal::NotPresent`] and [`Refusal::Lost`] (MEM-1.10) if that is all that is in
    /// the way.
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal>;

    /// As [`Memory::locate`], for an operation of which something has happened already: absent
    /// pages are waited for, for it cannot be sent again.
    ///
    /// # Errors
    /// As [`Memory::locate`], but for [`Refusal::NotPresent`].
    fn locate_begun(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        self.locate(key, offset, len, right)
    }

    /// Is this range still inside a live region in that slot? (For destinations of our own gets.)
    fn covers(&self, region: u32, offset: u64, len: u64) -> bool;

    /// Copy `bytes` in. A range outside a live region is ignored and counted.
    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]);

    /// Copy bytes out; `false` if the range is not inside a live region.
    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool;

    /// One atomic operation on the aligned word at `offset`; the old value, zero above its width.
    ///
    /// # Errors
    /// [`Refusal::Misaligned`], [`Refusal::OutOfBounds`].
    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal>;

    /// Combine whole elements, as they stand in memory, with those from `offset` on, each
    /// atomically. What can be wrong is found before the first one changes, also if there are none.
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

    /// The longest element of the FIFO that the region's owner has made at its beginning, in bytes.
    ///
    /// # Errors
    /// [`Refusal::NoFifo`].
    fn fifo_element(&self, region: u32) -> Result<u64, Refusal>;

    /// Put an element into that FIFO, behind all others.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::NoFifo`], [`Refusal::TooLong`], [`Refusal::NotPermitted`]
    /// (MEM-13). Nothing has changed then.
    fn push(&mut self, region: u32, element: &[u8]) -> Result<(), Refusal>;
}
