//! Exchange of pages between regions of this node and of another (spec/memory.md, MEM-20).

use crate::error::Result;
use crate::memory::region::LocalRegion;
use crate::memory::remote::region::RemoteRegion;
use oikaze_os::memory::placement::{
    PageRange, Placed, Placement, PlacementError, PlacementMethod, check, page_size, whole_units,
};
use oikaze_os::memory::{MemoryError, Region};
use oikaze_protocol::rma::Rights;
use std::ops::Range;

/// Number of bytes that one step copies.
const COPIED: u64 = 1 << 20;
/// Number of bytes whose pages one step exchanges. The limit bounds the local peer's turn, whatever
/// pages it has.
const SWAPPED: u64 = 64 << 20;

impl RemoteRegion {
    /// Exchanges the contents of `pages` pages at `offset` of this region with those at
    /// `here_offset` of `here`, a region of this node. Returns when the exchange is done at both
    /// ends.
    ///
    /// Between shared regions of two nodes of one machine, huge pages themselves change place where
    /// both offsets are the same within a huge page. ([`Region::shared`] has huge pages from 2 MiB
    /// on.) All other contents are copied, over a network too.
    ///
    /// Offsets are multiples of the [page size](crate::memory::page_size). No thread and no peer
    /// may touch the two ranges meanwhile. One that does sees one content or the other, and may
    /// lose its writes there. Local peers no longer map a region whose pages have once changed
    /// place, and their operations on it go through their rings.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// use oikaze::memory::page_size;
    /// const LEN: usize = 2 << 20;
    /// let job = oikaze::join()?;
    /// let full = job.publish("full", Region::shared(LEN)?, Rights::ALL)?;
    /// full.write(0, b"wind")?;
    /// job.barrier()?;
    /// if job.rank() == 0 {
    ///     let empty = job.register(Region::shared(LEN)?)?;
    ///     let there = job.peer(job.size() - 1)?.region("full")?;
    ///     there.exchange(0, &empty, 0, (LEN / page_size()) as u64)?;
    ///     let mut bytes = [0; 4];
    ///     empty.read(0, &mut bytes)?;
    ///     assert_eq!(&bytes, b"wind");
    /// }
    /// # job.barrier()
    /// # }
    /// ```
    ///
    /// # Errors
    /// An offset is misaligned; pages are outside a region; the ranges have bytes in common. After
    /// these errors nothing has changed.
    ///
    /// A missing right, or the end of the owner, is noticed during the exchange. Then each page of
    /// `here` has its own content or the other one. No content that was here is lost, except what
    /// was already handed over to an owner that stood still and was given up while it lived.
    ///
    /// At `vm.max_map_count`, contents may be lost if other threads make mappings at that moment,
    /// and an error says so. Deregistering `here` meanwhile ends the exchange after the step that
    /// is under way.
    #[track_caller]
    pub fn exchange(
        &self,
        offset: u64,
        here: &LocalRegion,
        here_offset: u64,
        pages: u64,
    ) -> Result<Placed> {
        self.peer.node.check_process(|| "exchanging pages".into())?;
        let len = check(PageRange { region: here, offset: here_offset }, pages)?;
        let page = page_size() as u64;
        if !offset.is_multiple_of(page) {
            return Err(PlacementError::Misaligned { offset, page }.into());
        }
        if self.is_of(here) && offset.abs_diff(here_offset) < len {
            return Err(PlacementError::Overlap { at: offset.max(here_offset) as usize }.into());
        }
        if offset.checked_add(len).is_none_or(|end| end > self.published.len) {
            // The region may have grown, and only its owner knows.
            let nothing = LocalRegion::new(
                &self.peer.node,
                Region::zeroed(1)?,
                Rights::NONE,
                None,
                self.peer.limit,
            )?;
            self.get(offset.saturating_add(len), nothing.slice(0..0)?).wait()?;
        }
        let units = self.whole_units(offset, here, here_offset, len);
        let both = ExchangeRanges {
            there: self,
            offset,
            here,
            here_offset,
            aside: None,
            placed: Placed::default(),
        };
        here.exchanging(|| both.exchange(units, len))
            .unwrap_or_else(|| Err(MemoryError::NotRegistered.into()))
    }

    /// Returns `true` if this region is the memory of `here`, under any key.
    fn is_of(&self, here: &LocalRegion) -> bool {
        let (rank, key) = (self.peer.rank, self.published.key);
        self.peer.node.with_engine(|engine| {
            rank == engine.rank() && engine.memory().of_key(key).is_some_and(|of| of.is_same(here))
        })
    }

    /// Returns the part of both ranges whose pages may change place, in bytes from their
    /// beginnings.
    fn whole_units(
        &self,
        offset: u64,
        here: &LocalRegion,
        here_offset: u64,
        len: u64,
    ) -> Range<u64> {
        // After a fence, the operations that it holds back come first.
        let unit = here
            .exchange_unit()
            .filter(|_| self.is_local_peers() && self.peer.node.may_go_direct());
        let Some(unit) = unit else { return 0..0 };
        let units = whole_units(offset as usize, here_offset as usize, len as usize, unit as usize);
        units.start as u64..units.end as u64
    }

    fn is_local_peers(&self) -> bool {
        self.peer.node.with_engine(|engine| engine.shm().contains(self.peer.rank))
    }
}

/// Two ranges that are being exchanged.
struct ExchangeRanges<'r> {
    there: &'r RemoteRegion,
    offset: u64,
    here: &'r LocalRegion,
    here_offset: u64,
    /// Holds the contents from the peer until the contents of this node have been sent.
    aside: Option<LocalRegion>,
    placed: Placed,
}

impl ExchangeRanges<'_> {
    #[track_caller]
    fn exchange(mut self, units: Range<u64>, len: u64) -> Result<Placed> {
        self.copy(0..units.start)?;
        let swapped = self.swap(units.clone())?;
        self.copy(units.start + swapped..len)?;
        Ok(self.placed)
    }

    /// Exchanges pages themselves (MEM-20.1), as far as the other owner does that. Returns the
    /// number of bytes.
    #[track_caller]
    fn swap(&mut self, range: Range<u64>) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        self.here.keep_local_peers_out();
        let (mut at, rank, key) = (range.start, self.there.peer.rank, self.there.published.key);
        while at < range.end {
            let len = SWAPPED.min(range.end - at);
            let swapped =
                self.here.swap_pages(self.here_offset + at, rank, key, self.offset + at, len)?;
            if swapped == 0 {
                break;
            }
            at += swapped;
            self.placed.moved += swapped;
        }
        Ok(at - range.start)
    }

    #[track_caller]
    fn copy(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = COPIED.min(range.end - at);
            self.copy_some(at, len)?;
            at += len;
        }
        Ok(())
    }

    /// Exchanges bytes by a get, a put and a copy. A failure before the put has changed nothing.
    /// The contents that the put overwrites there are already here.
    #[track_caller]
    fn copy_some(&mut self, at: u64, len: u64) -> Result<()> {
        let (there, here, here_offset) = (self.there, self.here, self.here_offset + at);
        let aside = self.aside()?;
        let end = usize::try_from(len).unwrap_or(usize::MAX);
        there.get(self.offset + at, aside.slice(0..end)?).wait()?;
        let from = usize::try_from(here_offset).unwrap_or(usize::MAX);
        let source = here.slice(from..from.saturating_add(end))?;
        // Without a time limit, because the wait ends with the operation or with its owner.
        there.put(self.offset + at, source).wait_within(None)?;
        let (from, to) = (
            PageRange { region: &aside, offset: 0 },
            PageRange { region: here, offset: here_offset },
        );
        self.placed += Placement::of_this_process().transfer(
            from,
            to,
            len / page_size() as u64,
            PlacementMethod::Copy,
        )?;
        Ok(())
    }

    fn aside(&mut self) -> Result<LocalRegion> {
        if let Some(aside) = &self.aside {
            return Ok(aside.clone());
        }
        let region = Region::zeroed(COPIED as usize)?;
        let aside = LocalRegion::new(
            &self.there.peer.node,
            region,
            Rights::NONE,
            None,
            self.there.peer.limit,
        )?;
        self.aside = Some(aside.clone());
        Ok(aside)
    }
}
