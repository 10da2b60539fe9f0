//! Maps and unmaps pages in the program's view of a shared region.

use super::error::PlacementError;
use super::range::PageRange;
use crate::memory::placement::range::Span;
use crate::memory::region::RegionKind;
use rustix::mm::{Advice, madvise};

/// Returns a checked range of the program's view of a shared region.
fn view_of(place: PageRange<'_>, pages: u64) -> Result<(*mut u8, usize), PlacementError> {
    let span = Span::check(place, pages)?;
    match place.region.kind() {
        RegionKind::Shared => {
            // SAFETY: the offset is inside the region, whose view is as long as its alias.
            Ok((unsafe { place.region.view_ptr().add(place.offset as usize) }, span.len))
        }
        kind => Err(PlacementError::NoView { kind }),
    }
}

/// Maps pages of a shared region, whose bytes came through the alias, into the program's view, so
/// that the program takes no fault there (MEM-17.6). Reads one byte per run of pages, because the
/// kernel maps the pages around it. That is quicker than the system calls for the purpose.
///
/// # Errors
/// [`PlacementError`]: bad pages, or a region without a view.
pub fn install(place: PageRange<'_>, pages: u64) -> Result<(), PlacementError> {
    /// Number of bytes that the kernel maps around a page that is read, aligned to this size
    /// (`fault_around_bytes`).
    const AROUND: usize = 64 << 10;
    let (at, len) = view_of(place, pages)?;
    let mut done = 0;
    while done < len {
        let next = at.wrapping_add(done);
        // SAFETY: inside the view; the file has all its pages. Others may write there: the byte is
        // read only to map its page.
        unsafe { next.read_volatile() };
        done += AROUND - next.addr() % AROUND;
    }
    Ok(())
}

/// Unmaps pages from the program's view. Their bytes stay, and [`install`] or the next touch maps
/// them again.
///
/// # Errors
/// As [`install`].
pub fn retract(place: PageRange<'_>, pages: u64) -> Result<(), PlacementError> {
    let (at, len) = view_of(place, pages)?;
    // SAFETY: inside the view, a shared file mapping of ours: unmapping its pages loses no byte,
    // and any touch maps them again.
    let _ = unsafe { madvise(at.cast(), len, Advice::LinuxDontNeed) };
    Ok(())
}
