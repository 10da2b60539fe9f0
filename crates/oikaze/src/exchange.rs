//! Pages of this node's regions that change place instead of bytes (spec/memory.md, MEM-17).

use crate::{Job, LocalRegion, Result};
use oikaze_os::memory::MemoryError;
use oikaze_os::memory::placement::{Pages, Placed, Placement, PlacementError, Way};

/// Whole pages of a region: where they begin.
fn at(region: &LocalRegion, offset: u64) -> Pages<'_> {
    Pages { region, offset }
}

/// The end of either registration waits until it is done (MEM-17.7); it is not begun after.
fn while_registered(
    one: &LocalRegion,
    other: &LocalRegion,
    work: impl FnOnce() -> std::result::Result<Placed, PlacementError>,
) -> Result<Placed> {
    let outcome = one.exchanging(|| other.exchanging(work)).flatten();
    Ok(outcome.ok_or(MemoryError::NotRegistered)??)
}

impl Job {
    /// Exchange the contents of `pages` pages at `offset` of `one` with those at `other_offset` of
    /// `other`: the pages themselves change place where that is quicker, else their bytes do.
    /// Addresses stay, and so does all that peers know of the regions.
    ///
    /// Offsets are multiples of the [page size](crate::page_size). Nobody may touch the two ranges
    /// meanwhile, neither threads of this program nor peers: what they see there may be either
    /// content, or zeros, and what they write may be lost. Afterwards the two ranges are what they
    /// should be all the same. To a put or get that is under way it is as if all bytes of both
    /// ranges had been written. The engine goes on between steps of a few MiB.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::{Region, page_size};
    /// let job = oikaze::join()?;
    /// let one = job.register(Region::zeroed(8 * page_size())?)?;
    /// let other = job.register(Region::zeroed(8 * page_size())?)?;
    /// one.write(0, b"wind")?;
    /// job.exchange(&one, 0, &other, 0, 8)?;
    /// let mut bytes = [0; 4];
    /// other.read(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"wind");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A misaligned offset, pages outside a region, ranges with bytes in common, memory lent for
    /// reading, a region that is registered no more; nothing has been changed.
    pub fn exchange(
        &self,
        one: &LocalRegion,
        offset: u64,
        other: &LocalRegion,
        other_offset: u64,
        pages: u64,
    ) -> Result<Placed> {
        self.node.check_process(|| "exchanging pages".into())?;
        let (one_pages, other_pages) = (at(one, offset), at(other, other_offset));
        let mut each = |step: &mut dyn FnMut()| self.node.with_engine(|_| step());
        while_registered(one, other, || {
            Placement::of_this_process().exchange_in_steps(
                one_pages,
                other_pages,
                pages,
                Way::Auto,
                &mut each,
            )
        })
    }

    /// Bring the contents of `pages` pages at `offset` of `from` to `to_offset` of `to`, as
    /// [`Job::exchange`] does, for half the price: what is at `from` afterwards is not said.
    ///
    /// # Errors
    /// As [`Job::exchange`].
    pub fn move_pages(
        &self,
        from: &LocalRegion,
        offset: u64,
        to: &LocalRegion,
        to_offset: u64,
        pages: u64,
    ) -> Result<Placed> {
        self.node.check_process(|| "moving pages".into())?;
        let (from_pages, to_pages) = (at(from, offset), at(to, to_offset));
        let mut each = |step: &mut dyn FnMut()| self.node.with_engine(|_| step());
        while_registered(from, to, || {
            Placement::of_this_process().transfer_in_steps(
                from_pages,
                to_pages,
                pages,
                Way::Auto,
                &mut each,
            )
        })
    }
}
