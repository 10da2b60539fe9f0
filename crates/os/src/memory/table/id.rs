//! Names of registrations that are plain numbers.

use super::{INDEX_BITS, REGIONS_MAX};

/// The name of a registered region on its own node: a plain number, which can be kept, copied and
/// handed through C. It means one registration; when that has ended it means nothing, never another
/// region (MEM-1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RegionId(u64);

impl RegionId {
    /// As a number; never 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From a number. Any will do: one that was not given out by [`RegionId::to_bits`] names no
    /// region.
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
