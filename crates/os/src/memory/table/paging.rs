//! Absent pages of regions: requested, fetched, waited for (MEM-1.10 to MEM-1.13).

use super::{RegionTable, TableEntry};
use crate::memory::paging::Lost;
use crate::memory::table::remote_access::refusal;
use crate::memory::{Region, RegionKind};
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Refusal;
use std::sync::Arc;

impl RegionTable {
    /// Returns `true` if this is a range of a live region. A source may be absent: its pages are
    /// fetched when it is [gathered](RegionTable::gather).
    #[must_use]
    pub fn is_inside(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region).is_some_and(|region| region.check_bounds(offset, len).is_ok())
    }

    /// Returns `true` if the range can be the destination of an operation of ours. A range that a
    /// file has lost cannot. Pages that have become absent again are waited for.
    #[must_use]
    pub fn is_usable(&self, region: u32, offset: u64, len: u64) -> bool {
        let has = |region: &Region| {
            let is_file = region.kind() == RegionKind::File;
            !is_file
                || region.is_present(offset, len)
                || region.make_present(offset, len, Rights::WRITE).is_ok()
        };
        self.is_inside(region, offset, len) && self.region(region).is_some_and(has)
    }

    /// Returns `true` if this range exists but is not in memory. Then nothing can be
    /// [gathered](RegionTable::gather) for a while.
    #[must_use]
    pub fn is_absent(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region)
            .is_some_and(|region| !region.is_closed() && !region.is_present(offset, len))
    }

    /// As [`RegionTable::fetch`], for a source of a send. Records the region if the source is lost
    /// for good.
    pub(super) fn fetch_source(
        &self,
        slot: u32,
        entry: &TableEntry,
        lost: &Arc<Lost>,
        offset: u64,
        len: u64,
    ) -> Option<()> {
        match self.fetch(entry, lost, offset, len, Rights::READ, self.waits) {
            Ok(()) => Some(()),
            Err(refusal) => {
                if refusal == Refusal::Lost {
                    self.broken.set(Some(slot));
                }
                None
            }
        }
    }

    /// Takes the slot of a region from which something was to be sent that is lost.
    pub fn take_broken(&mut self) -> Option<u32> {
        self.broken.take()
    }

    /// Makes requests for absent pages wait from now on, instead of being refused. Needed for
    /// requests that their sender cannot send again.
    pub fn wait_for_pages(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Checks that these bytes are in memory for the given access. If they are not, starts to fetch
    /// them, or waits for them if `waits` is set.
    pub(super) fn fetch(
        &self,
        entry: &TableEntry,
        lost: &Arc<Lost>,
        offset: u64,
        len: u64,
        right: Rights,
        waits: bool,
    ) -> Result<(), Refusal> {
        if entry.region.is_present(offset, len) {
            return Ok(());
        }
        if waits {
            return entry.region.make_present(offset, len, right).map_err(refusal);
        }
        let range = offset..offset.saturating_add(len);
        if lost.take(&range) {
            return Err(Refusal::Lost);
        }
        self.fetcher.fetch(&entry.region, range, right, lost);
        Err(Refusal::NotPresent)
    }
}
