//! Why pages cannot change place.

use super::super::{AccessError, RegionKind};

/// Pages that cannot change place. Nothing has been changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// An offset inside a page.
    #[error(
        "offset {offset} is not at a multiple of the page size, {page} bytes; only whole pages change place"
    )]
    Misaligned {
        /// Bytes from the region's start.
        offset: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// More pages than any region has.
    #[error("{pages} pages are more than any memory holds")]
    TooMany {
        /// How many were asked for.
        pages: u64,
    },
    /// The same bytes on both sides.
    #[error(
        "the two ranges have bytes in common, from {at:#x} on; pages change place only between ranges apart"
    )]
    Overlap {
        /// Address of the first of them.
        at: usize,
    },
    /// Memory of a shared array.
    #[error(
        "this memory belongs to a shared array, whose pages the runtime keeps account of; copy its elements instead"
    )]
    SharedArray,
    /// Out of bounds, lent for reading, or the loan is over.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Moving was demanded, and cannot be.
    #[error(
        "pages of {from:?} memory cannot be moved to {to:?} memory: {why}; leave the way to the runtime, which copies where it must"
    )]
    NotMovable {
        /// Kind of the one.
        from: RegionKind,
        /// Kind of the other.
        to: RegionKind,
        /// Why not.
        why: String,
    },
    /// Memory that has only one mapping.
    #[error(
        "only a shared region has a view of its own to install pages in, and this is {kind:?} memory"
    )]
    NoView {
        /// Its kind.
        kind: RegionKind,
    },
}
