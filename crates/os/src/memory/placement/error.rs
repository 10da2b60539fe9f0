//! Errors of moving pages.

use crate::memory::error::AccessError;
use crate::memory::region::RegionKind;

/// Pages cannot be moved. Nothing has been changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// An offset is inside a page.
    #[error(
        "offset {offset} is not at a multiple of the page size, {page} bytes; only whole pages change place"
    )]
    Misaligned {
        /// Offset in bytes from the region's start.
        offset: u64,
        /// Size of a page in bytes.
        page: u64,
    },
    /// More pages were asked for than any region has.
    #[error("{pages} pages are more than any memory holds")]
    TooMany {
        /// Number of pages asked for.
        pages: u64,
    },
    /// The two ranges overlap.
    #[error(
        "the two ranges have bytes in common, from {at:#x} on; pages change place only between ranges apart"
    )]
    Overlap {
        /// Address of the first common byte.
        at: usize,
    },
    /// The memory belongs to a shared array.
    #[error(
        "this memory belongs to a shared array, whose pages the runtime keeps account of; copy its elements instead"
    )]
    SharedArray,
    /// The range is out of bounds, lent for reading, or its loan has ended.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Moving was demanded but is impossible.
    #[error(
        "pages of {from:?} memory cannot be moved to {to:?} memory: {why}; leave the way to the runtime, which copies where it must"
    )]
    NotMovable {
        /// Kind of the source's memory.
        from: RegionKind,
        /// Kind of the destination's memory.
        to: RegionKind,
        /// Reason of the refusal.
        why: String,
    },
    /// The memory has only one mapping.
    #[error(
        "only a shared region has a view of its own to install pages in, and this is {kind:?} memory"
    )]
    NoView {
        /// Kind of the memory.
        kind: RegionKind,
    },
}
