//! Pages of regions that are absent: asked for, fetched, waited for (MEM-1.10 to MEM-1.13).

use super::super::residence::Lost;
use super::asked::refusal;
use super::{Entry, RegionTable};
use crate::memory::{Region, RegionKind};
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Refusal;
use std::sync::Arc;

impl RegionTable {
    /// Is this a range of a live region? As a source it may be absent: it is fetched when it is
    /// [gathered](RegionTable::gather).
    #[must_use]
    pub fn is_inside(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region).is_some_and(|region| region.check_bounds(offset, len).is_ok())
    }

    /// Can this be the destination of an operation of ours? Not what a file has not got any more;
    /// pages of it that have gone again are waited for.
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

    /// Is this range there, but not in memory? Then there is nothing to
    /// [gather](RegionTable::gather) for a while.
    #[must_use]
    pub fn is_absent(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region)
            .is_some_and(|region| !region.is_closed() && !region.is_present(offset, len))
    }

    /// As [`RegionTable::fetch`], for something that is to be sent: if it never can be, that is to
    /// be known.
    pub(super) fn fetch_source(
        &self,
        slot: u32,
        entry: &Entry,
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

    /// A region from which something was to be sent that cannot be had any more.
    pub fn take_broken(&mut self) -> Option<u32> {
        self.broken.take()
    }

    /// From now on, who asks for absent pages waits for them, instead of being refused: for
    /// requests that their sender cannot send again.
    pub fn wait_for_pages(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Are these bytes in memory, for what is to be done there? If not, they are being fetched; or
    /// this waits for them.
    pub(super) fn fetch(
        &self,
        entry: &Entry,
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
