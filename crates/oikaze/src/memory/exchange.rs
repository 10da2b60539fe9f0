//! Exchange of pages between this node's regions, in place of copying bytes (spec/memory.md,
//! MEM-17).

use crate::error::Result;
use crate::job::handle::Job;
use crate::memory::region::LocalRegion;
use oikaze_os::memory::MemoryError;
use oikaze_os::memory::placement::{PageRange, Placed, Placement, PlacementError, PlacementMethod};

/// Returns the pages of a region from `offset` on.
fn at(region: &LocalRegion, offset: u64) -> PageRange<'_> {
    PageRange { region, offset }
}

/// Runs the exchange while both regions are registered. The end of either registration waits until
/// the exchange is done (MEM-17.7). No exchange begins after that end.
fn while_registered(
    one: &LocalRegion,
    other: &LocalRegion,
    work: impl FnOnce() -> std::result::Result<Placed, PlacementError>,
) -> Result<Placed> {
    let outcome = one.exchanging(|| other.exchanging(work)).flatten();
    Ok(outcome.ok_or(MemoryError::NotRegistered)??)
}

impl Job {
    /// Exchanges the contents of `pages` pages at `offset` of `one` with those at `other_offset` of
    /// `other`. The pages themselves change place where that is quicker, otherwise their bytes are
    /// copied. Addresses stay the same, and so does all that peers know of the regions.
    ///
    /// Offsets are multiples of the [page size](crate::memory::page_size). Neither threads of this
    /// program nor peers may touch the two ranges meanwhile. A read there may return either
    /// content, or zeros, and a write may be lost. Afterwards both ranges are correct all the same.
    /// A put or get that is under way sees all bytes of both ranges as written. The engine
    /// continues between steps of a few MiB.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// use oikaze::memory::page_size;
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
    /// An offset is misaligned; pages are outside a region; the ranges have bytes in common; the
    /// memory is lent for reading; a region is no longer registered. After an error nothing has
    /// changed.
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
                PlacementMethod::Auto,
                &mut each,
            )
        })
    }

    /// Moves the contents of `pages` pages at `offset` of `from` to `to_offset` of `to`, as
    /// [`Job::exchange`] does, at half the cost. The contents at `from` are undefined afterwards.
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
                PlacementMethod::Auto,
                &mut each,
            )
        })
    }
}
