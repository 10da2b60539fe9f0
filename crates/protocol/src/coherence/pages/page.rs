//! Pages of shared arrays: their numbers, their bytes, and the state of each on this node (COH-3).

use crate::coherence::pages::machine::{Access, ArrayId};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use alloc::vec::Vec;
use core::ops::Range;

/// Array number and page number of one page.
pub(crate) type PageId = (ArrayId, u64);

/// State of a page on this node (COH-3.1). The first five are of pages whose home is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
#[repr(u8)]
pub(crate) enum PageState {
    /// Not mapped, with old bytes.
    Invalid,
    /// Not mapped, and requested from its home.
    Fetching,
    /// As [`PageState::Fetching`], but a write notice has overtaken the page. Its arriving bytes
    /// may be older than what must be seen (COH-3.6).
    Stale,
    /// Mapped for loads, as new as this node's knowledge.
    Read,
    /// Mapped for stores. A twin keeps its bytes from before the first store.
    Write,
    /// Home is here, no other node has a copy, never touched, not mapped.
    HomeUntouched,
    /// Home is here, no other node has a copy: mapped for stores and not tracked.
    HomePrivate,
    /// Home is here, other nodes may have copies, not mapped.
    HomeShared,
    /// Home is here, other nodes may have copies: mapped for loads.
    HomeRead,
    /// Home is here, other nodes may have copies, written since the last release.
    HomeWrite,
}

impl PageState {
    #[inline]
    pub fn is_home(self) -> bool {
        !self.is_requested()
            && !matches!(self, PageState::Invalid | PageState::Read | PageState::Write)
    }

    /// Returns `true` if the page is on its way to this node.
    #[inline]
    pub fn is_requested(self) -> bool {
        matches!(self, PageState::Fetching | PageState::Stale)
    }

    /// Returns `true` if this node has a copy of a page homed elsewhere, or has requested one.
    #[inline]
    pub fn is_copy(self) -> bool {
        (self.is_requested() && !planted(Bug::TellArrivedCopies))
            || matches!(self, PageState::Read | PageState::Write)
    }

    #[inline]
    pub fn holds(self, access: Access) -> bool {
        match self {
            PageState::Write | PageState::HomePrivate | PageState::HomeWrite => true,
            PageState::Read | PageState::HomeRead => access == Access::Read,
            _ => false,
        }
    }
}

/// Joins sorted page numbers into ranges.
pub(crate) fn ranges(sorted: impl IntoIterator<Item = PageId>) -> Vec<(ArrayId, Range<u64>)> {
    let mut out: Vec<(ArrayId, Range<u64>)> = Vec::new();
    for (array, page) in sorted {
        match out.last_mut() {
            Some((a, range)) if *a == array && range.end == page => range.end += 1,
            _ => out.push((array, page..page + 1)),
        }
    }
    out
}

/// Returns the pages that hold these bytes. No bytes have no pages, wherever they lie.
#[inline]
pub(crate) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let first = bytes.start / PAGE as u64;
    let end = if bytes.is_empty() { first } else { bytes.end.div_ceil(PAGE as u64) };
    first..end
}

/// Returns the bytes of one page.
#[inline]
pub(crate) fn bytes_of(page: u64) -> Range<u64> {
    bytes_of_pages(&(page..page + 1))
}

/// Returns the bytes of consecutive pages.
#[inline]
pub(crate) fn bytes_of_pages(pages: &Range<u64>) -> Range<u64> {
    pages.start * PAGE as u64..pages.end * PAGE as u64
}
