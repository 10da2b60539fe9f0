//! Pages of this node that change place with those of another one (spec/memory.md, MEM-20).

use super::RemoteRegion;
use crate::{LocalRegion, Result};
use oikaze_os::memory::placement::{
    Pages, Placed, Placement, PlacementError, Way, check, page_size, whole_units,
};
use oikaze_os::memory::{MemoryError, Region};
use oikaze_protocol::rma::Rights;
use std::ops::Range;

/// Bytes that are copied at a time.
const COPIED: u64 = 1 << 20;
/// Bytes whose pages change place at a time: the local peer's turn is not held up for long,
/// whatever pages it has.
const SWAPPED: u64 = 64 << 20;

impl RemoteRegion {
    /// Exchange the contents of `pages` pages at `offset` of this region with those at
    /// `here_offset` of `here`, a region of this node. Between shared regions of two nodes of one
    /// machine, huge pages ([`Region::shared`] has them from 2 MiB on) change place themselves,
    /// where both offsets are the same within a huge page; all else is copied, over a network too.
    /// Returns when it is done at both ends.
    ///
    /// Offsets are multiples of the [page size](crate::page_size). Nobody may touch the two ranges
    /// meanwhile; who does sees one content or the other, and may lose what it writes there. A
    /// region whose pages have once changed place is not mapped by local peers any more: what they
    /// do with it goes through their rings.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::{Region, Rights, page_size};
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
    /// A misaligned offset, pages outside a region, ranges with bytes in common: nothing has
    /// changed. What the owner does not grant, or its end, is noticed on the way: then each page of
    /// `here` has its own content or the other one, and no content is lost that was here, but what
    /// an owner that stood still, and was given up while it lived, has had handed over to it. At
    /// `vm.max_map_count`, contents may be lost if other threads make mappings at that moment: an
    /// error says so. Deregistering `here` meanwhile ends the exchange after the step that is under
    /// way.
    pub fn exchange(
        &self,
        offset: u64,
        here: &LocalRegion,
        here_offset: u64,
        pages: u64,
    ) -> Result<Placed> {
        self.peer.node.check_process(|| "exchanging pages".into())?;
        let len = check(Pages { region: here, offset: here_offset }, pages)?;
        let page = page_size() as u64;
        if !offset.is_multiple_of(page) {
            return Err(PlacementError::Misaligned { offset, page }.into());
        }
        if self.is_of(here) && offset.abs_diff(here_offset) < len {
            return Err(PlacementError::Overlap { at: offset.max(here_offset) as usize }.into());
        }
        if offset.checked_add(len).is_none_or(|end| end > self.published.len) {
            // It may have grown: its owner knows.
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
        let both =
            Both { there: self, offset, here, here_offset, aside: None, placed: Placed::default() };
        here.exchanging(|| both.exchange(units, len))
            .unwrap_or_else(|| Err(MemoryError::NotRegistered.into()))
    }

    /// Is it the same memory, under whatever key?
    fn is_of(&self, here: &LocalRegion) -> bool {
        let (rank, key) = (self.peer.rank, self.published.key);
        self.peer.node.with_engine(|engine| {
            rank == engine.rank() && engine.memory().of_key(key).is_some_and(|of| of.is_same(here))
        })
    }

    /// The part of both ranges whose pages may change place, in bytes from their beginnings.
    fn whole_units(
        &self,
        offset: u64,
        here: &LocalRegion,
        here_offset: u64,
        len: u64,
    ) -> Range<u64> {
        // After a fence, what it holds back comes first.
        let unit = here
            .exchange_unit()
            .filter(|_| self.is_local_peers() && self.peer.node.may_go_direct());
        let Some(unit) = unit else { return 0..0 };
        let units = whole_units(offset as usize, here_offset as usize, len as usize, unit as usize);
        units.start as u64..units.end as u64
    }

    fn is_local_peers(&self) -> bool {
        self.peer.node.with_engine(|engine| engine.is_local_peer(self.peer.rank))
    }
}

/// Two ranges that are being exchanged.
struct Both<'r> {
    there: &'r RemoteRegion,
    offset: u64,
    here: &'r LocalRegion,
    here_offset: u64,
    /// Where what comes from there is kept until what is here has gone.
    aside: Option<LocalRegion>,
    placed: Placed,
}

impl Both<'_> {
    fn exchange(mut self, units: Range<u64>, len: u64) -> Result<Placed> {
        self.copy(0..units.start)?;
        let swapped = self.swap(units.clone())?;
        self.copy(units.start + swapped..len)?;
        Ok(self.placed)
    }

    /// Have pages change place (MEM-20.1), as far as the owner of the others does that; how many
    /// bytes.
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

    fn copy(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = COPIED.min(range.end - at);
            self.copy_some(at, len)?;
            at += len;
        }
        Ok(())
    }

    /// A get, a put and a copy. What fails before the put has changed nothing; what the put has
    /// taken away from there lies here already.
    fn copy_some(&mut self, at: u64, len: u64) -> Result<()> {
        let (there, here, here_offset) = (self.there, self.here, self.here_offset + at);
        let aside = self.aside()?;
        let end = usize::try_from(len).unwrap_or(usize::MAX);
        there.get(self.offset + at, aside.slice(0..end)?).wait()?;
        let from = usize::try_from(here_offset).unwrap_or(usize::MAX);
        let source = here.slice(from..from.saturating_add(end))?;
        // Without a time limit: its end is known, or the owner's.
        there.put(self.offset + at, source).wait_to_the_end()?;
        let (from, to) =
            (Pages { region: &aside, offset: 0 }, Pages { region: here, offset: here_offset });
        self.placed +=
            Placement::of_this_process().transfer(from, to, len / page_size() as u64, Way::Copy)?;
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
