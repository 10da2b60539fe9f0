//! Huge pages for regions: requested, but never relied on.
//!
//! A region that is at least as long as a huge page begins at a multiple of one. Private memory
//! gets `madvise`, and the kernel decides at the first touch of each huge page. A memory file is
//! *collapsed* while it is made. Since Linux 6.1, that works whatever the policy for tmpfs. If the
//! file has one small page in each huge one, collapsing costs less than allocating all small pages.
//! Where the kernel refuses, the memory has small pages.

use super::error::MemoryError;
use super::mapping::Mapping;
use super::memfd;
use crate::features::DisabledFeatures;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::sync::OnceLock;

/// Page size that a region asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageSize {
    /// Small pages: the whole region can be moved page by page.
    Small,
    /// Huge pages wherever the kernel grants them, each allocated and moved as one. They have 2 MiB
    /// on most machines. The usual choice.
    Huge,
}

/// `MADV_COLLAPSE` (Linux 6.1), not in `rustix`.
const COLLAPSE: libc::c_int = 25;

/// Returns the size of a huge page in bytes, or `None` if there are none or with
/// `OIKAZE_WITHOUT=huge`.
#[must_use]
pub fn huge_page() -> Option<usize> {
    static SIZE: OnceLock<Option<usize>> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let text =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
        let switched_off = DisabledFeatures::of_process().is_ok_and(|without| without.huge);
        text.trim().parse().ok().filter(|size: &usize| size.is_power_of_two() && !switched_off)
    })
}

/// Returns the size of the huge pages that memory of this length is made of, if any.
pub(super) fn suits(len: usize, pages: PageSize) -> Option<usize> {
    huge_page().filter(|size| pages == PageSize::Huge && len >= *size)
}

/// Maps private memory, of huge pages if they suit. Memory of small pages is aligned to the size of
/// a huge page too, which is the range of one page table. Moving pages one by one between tables
/// costs an interrupt of each other processor per table.
pub(super) fn anonymous(len: usize, pages: PageSize) -> Result<Mapping, MemoryError> {
    let Some(size) = huge_page().filter(|size| len >= *size) else {
        return Mapping::anonymous(len);
    };
    let mapping = Mapping::anonymous_aligned(len, size)?;
    let advice =
        if pages == PageSize::Huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: a live mapping of ours; the advice changes none of its bytes. A refusal by the kernel
    // is harmless.
    let _ = unsafe { madvise(mapping.base().as_ptr().cast(), mapping.len(), advice) };
    Ok(mapping)
}

/// Asks for huge pages in the unused part of a vector that was just allocated. A page fault per
/// small page takes longer than receiving the bytes. Memory that is shorter than two huge pages has
/// small ones.
pub fn ask_for_huge_pages(fresh: &mut Vec<u8>) {
    let room = fresh.spare_capacity_mut();
    let Some(size) = huge_page().filter(|size| room.len() >= 2 * size) else { return };
    let skipped = room.as_ptr().align_offset(size);
    let Some(aligned) = room.get_mut(skipped..).filter(|rest| rest.len() >= size) else { return };
    let len = aligned.len() - aligned.len() % size;
    // SAFETY: the range is in memory that is borrowed exclusively, and begins and ends at pages.
    // The advice changes none of its bytes. A refusal by the kernel is harmless.
    let _ = unsafe { madvise(aligned.as_mut_ptr().cast(), len, Advice::LinuxHugepage) };
}

/// Allocates a file that has no pages yet, huge pages first. `alias` is its first mapping.
pub(super) fn fill(file: &OwnedFd, alias: &Mapping, pages: PageSize) -> Result<(), MemoryError> {
    if suits(alias.len(), pages).is_some() {
        fill_huge(file, alias, 0..alias.len())?;
    }
    memfd::reserve(file, 0, alias.len())
}

/// Allocates huge pages that lie in a range of a file without pages there, as far as the kernel
/// grants them. `alias` begins where the file does, at a multiple of a huge page.
pub(super) fn fill_huge(
    file: &OwnedFd,
    alias: &Mapping,
    range: Range<usize>,
) -> Result<(), MemoryError> {
    let Some(size) = huge_page() else { return Ok(()) };
    let whole = range.start.next_multiple_of(size)..range.end.min(alias.len()) / size * size;
    for at in whole.clone().step_by(size) {
        // The kernel does not collapse a range of the file without any page.
        memfd::reserve(file, at, 1)?;
    }
    if !whole.is_empty() {
        collapse(alias, whole, size);
    }
    Ok(())
}

/// Collapses each huge page of a range. Returns `false` if the kernel refuses any. One call for all
/// takes a tenth of the time: each call waits for a thread on every core.
fn collapse(alias: &Mapping, range: Range<usize>, size: usize) -> bool {
    for at in range.clone().step_by(size) {
        // SAFETY: inside the alias, whose file has this page, so it can be read. Nothing else uses
        // these bytes yet.
        unsafe { alias.base().add(at).read_volatile() };
    }
    let first = alias.base().as_ptr().wrapping_add(range.start);
    // SAFETY: inside the alias; collapsing changes no bytes.
    unsafe { libc::madvise(first.cast(), range.len(), COLLAPSE) == 0 }
}

/// Tries whether the kernel makes huge pages for a memory file, as arrays of one machine are in. It
/// need not where there are none ([`huge_page`]).
///
/// # Errors
/// The kernel refuses, or has no memory for the trial.
pub fn collapses_files() -> Result<(), MemoryError> {
    let Some(size) = huge_page() else { return Ok(()) };
    let file = memfd::sparse("oikaze:doctor", size)?;
    let mapping = Mapping::of_file_aligned(file.as_fd(), size, size)?;
    memfd::reserve(&file, 0, 1)?;
    if collapse(&mapping, 0..size, size) {
        return Ok(());
    }
    let why = std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::INVAL, Errno::from_raw_os_error);
    Err(MemoryError::system("collapse a huge page (MADV_COLLAPSE)", size, why))
}

#[cfg(test)]
mod tests {
    use super::super::Region;
    use super::*;

    /// Returns the sum of a field of this process's `smaps`, in KiB, over the region's mapping.
    fn field(region: &Region, name: &str) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", region.view_ptr().addr());
        let line = maps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn large_regions_begin_where_huge_pages_do_and_those_of_small_ones_ask_for_none() {
        let Some(size) = huge_page() else { return };
        let small = Region::private_of(2 * size + 1, PageSize::Small).unwrap();
        for region in [
            &Region::shared(2 * size + 1).unwrap(),
            &Region::private(2 * size + 1).unwrap(),
            &small,
        ] {
            assert!(region.view_ptr().addr().is_multiple_of(size), "{region:?}");
        }
        small.fill(0, 2 * size as u64, 1).unwrap();
        assert_eq!(field(&small, "AnonHugePages:"), 0);
    }

    #[test]
    fn a_file_is_whole_and_zero_whatever_the_kernel_granted() {
        let Some(size) = huge_page() else { return };
        for pages in [PageSize::Small, PageSize::Huge] {
            let region = Region::shared_of(2 * size + 5000, pages).unwrap();
            let stat = rustix::fs::fstat(region.file().unwrap()).unwrap();
            assert!(stat.st_blocks as usize * 512 >= region.len());
            let mut bytes = vec![1; region.len()];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
            if pages == PageSize::Small {
                assert_eq!(field(&region, "ShmemPmdMapped:"), 0);
            }
        }
    }
}
