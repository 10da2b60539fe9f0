//! Memory whose pages become absent and present by explicit calls. A simulated cluster does by
//! events what a disk and a thread do for a file's pages.

use super::super::huge;
use super::{Backing, Region};
use crate::memory::error::MemoryError;
use crate::memory::huge::PageSize;
use oikaze_protocol::limits::PAGE;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Disk that holds the absent pages of a [staged](Region::staged) region. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<SimulatedPages>>);

#[derive(Debug, Default)]
struct SimulatedPages {
    absent: BTreeSet<u64>,
    wanted: BTreeSet<u64>,
}

impl Region {
    /// Returns memory of this process alone that [may be absent](Region::may_be_absent), and the
    /// [`Disk`] that makes pages absent. Absent pages keep their content.
    ///
    /// # Errors
    /// As [`Region::private`].
    #[doc(hidden)]
    pub fn staged(len: usize) -> Result<(Region, Disk), MemoryError> {
        let memory = huge::anonymous(len, PageSize::Small)?;
        let (at, disk) = (memory.base(), Disk::default());
        let backing = Backing::Staged { _memory: memory, disk: disk.clone() };
        Ok((Region::new(at, at, len, PageSize::Small, backing), disk))
    }

    pub(in super::super) fn disk(&self) -> Option<&Disk> {
        match &self.inner.backing {
            Backing::Staged { disk, .. } => Some(disk),
            _ => None,
        }
    }
}

impl Disk {
    /// Makes these pages absent.
    pub fn evict(&self, pages: Range<u64>) {
        self.lock().absent.extend(pages);
    }

    /// Returns the absent pages that were wanted since the last call.
    #[must_use]
    pub fn take_wanted(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().wanted).into_iter().collect()
    }

    /// Makes this page present.
    pub fn bring(&self, page: u64) {
        self.lock().absent.remove(&page);
    }

    pub(super) fn is_present(&self, offset: u64, len: u64) -> bool {
        self.lock().absent.range(pages_of(offset, len)).next().is_none()
    }

    /// Makes all pages of the range present, as after a wait for the disk.
    pub(super) fn bring_all(&self, offset: u64, len: u64) {
        pages_of(offset, len).for_each(|page| self.bring(page));
    }

    pub(in super::super) fn want(&self, range: &Range<u64>) {
        let mut pages = self.lock();
        let wanted: Vec<u64> =
            pages.absent.range(pages_of(range.start, range.end - range.start)).copied().collect();
        pages.wanted.extend(wanted);
    }

    fn lock(&self) -> MutexGuard<'_, SimulatedPages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pages_of(offset: u64, len: u64) -> Range<u64> {
    let end = offset.saturating_add(len).div_ceil(PAGE as u64);
    (offset / PAGE as u64).min(end)..end
}

#[cfg(test)]
mod tests {
    use super::super::super::RegionTable;
    use super::*;
    use oikaze_protocol::rma::{Memory, Rights};
    use oikaze_protocol::wind::Refusal;

    #[test]
    fn pages_are_absent_until_they_are_brought() {
        let (region, disk) = Region::staged(10 * PAGE).unwrap();
        region.write(3 * PAGE as u64, &[7]).unwrap();
        let mut table = RegionTable::new();
        let registered = table.insert(region.clone(), Rights::ALL).unwrap();
        let ask = |offset, len| table.locate(registered.key, offset, len, Rights::WRITE);
        assert_eq!(ask(0, 10 * PAGE as u64), Ok(registered.slot));
        disk.evict(2..5);
        assert_eq!(ask(0, 2 * PAGE as u64), Ok(registered.slot));
        assert_eq!(ask(0, 3 * PAGE as u64 + 1), Err(Refusal::NotPresent));
        assert_eq!(disk.take_wanted(), [2, 3]);
        assert!(disk.take_wanted().is_empty());
        disk.bring(2);
        assert_eq!(ask(2 * PAGE as u64, 8), Ok(registered.slot));
        assert_eq!(ask(3 * PAGE as u64, 8), Err(Refusal::NotPresent));
        region.make_present(3 * PAGE as u64, 8, Rights::READ).unwrap();
        assert_eq!(ask(3 * PAGE as u64, 8), Ok(registered.slot));
        let mut byte = [0];
        region.read(3 * PAGE as u64, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}
