//! Checked ranges of whole pages of a region.

use super::error::PlacementError;
use crate::memory::mapping::page_size;
use crate::memory::region::access::Hold;
use crate::memory::region::{Region, RegionKind};
use core::ptr::NonNull;
use oikaze_protocol::rma::Rights;

/// Start of a range of pages: a region, and an offset in it that is a multiple of [`page_size`].
#[derive(Clone, Copy, Debug)]
pub struct PageRange<'r> {
    /// Region of the pages.
    pub region: &'r Region,
    /// Offset in bytes from the region's start.
    pub offset: u64,
}

/// Returns the length of `pages` pages in bytes, if their contents may be exchanged.
///
/// # Errors
/// [`PlacementError`].
pub fn check(place: PageRange<'_>, pages: u64) -> Result<u64, PlacementError> {
    Ok(Span::check(place, pages)?.len as u64)
}

/// A range of whole pages inside its region, held in place while this lives.
#[derive(Debug)]
pub(super) struct Span<'r> {
    pub region: &'r Region,
    pub at: NonNull<u8>,
    pub len: usize,
    _hold: Hold,
}

impl<'r> Span<'r> {
    /// Checks everything before anything is changed (MEM-17.2), and refuses the memory of shared
    /// arrays (MEM-17.4).
    pub fn check(place: PageRange<'r>, pages: u64) -> Result<Span<'r>, PlacementError> {
        let (region, offset, page) = (place.region, place.offset, page_size() as u64);
        if region.kind() == RegionKind::Alias {
            return Err(PlacementError::SharedArray);
        }
        if !offset.is_multiple_of(page) {
            return Err(PlacementError::Misaligned { offset, page });
        }
        let len = pages.checked_mul(page).ok_or(PlacementError::TooMany { pages })?;
        let (at, hold) = region.hold(offset, len)?;
        if !region.rights().contains(Rights::WRITE) {
            return Err(crate::memory::error::AccessError::ReadOnly.into());
        }
        let len = usize::try_from(len).map_err(|_| PlacementError::TooMany { pages })?;
        Ok(Span { region, at, len, _hold: hold })
    }

    /// Refuses two ranges that share a byte.
    pub fn check_apart(&self, other: &Span<'_>) -> Result<(), PlacementError> {
        let (a, b) = (self.at.addr().get(), other.at.addr().get());
        let apart = self.len == 0 || a + self.len <= b || b + other.len <= a;
        if apart { Ok(()) } else { Err(PlacementError::Overlap { at: a.max(b) }) }
    }
}
