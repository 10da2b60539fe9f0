//! Names of registrations, as plain numbers.

use super::{INDEX_BITS, REGIONS_MAX};

/// Name of a registered region on its own node: a plain number, which can be kept, copied and
/// passed through C. It names one registration. When that has ended, the name is invalid and never
/// names another region (MEM-1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RegionId(u64);

impl RegionId {
    /// Returns the name as a number, which is never 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes a name from a number. Any number is allowed: one that does not come from
    /// [`RegionId::to_bits`] names no region.
    #[must_use]
    pub const fn from_bits(bits: u64) -> RegionId {
        RegionId(bits)
    }

    pub(super) fn new(generation: u64, index: usize) -> RegionId {
        RegionId(generation << INDEX_BITS | index as u64)
    }

    pub(super) fn index(self) -> usize {
        (self.0 & (REGIONS_MAX as u64 - 1)) as usize
    }

    pub(super) fn generation(self) -> u64 {
        self.0 >> INDEX_BITS
    }
}
