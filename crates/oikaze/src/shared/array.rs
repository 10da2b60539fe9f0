//! Handle of a shared array.

use super::block::array_block::ArrayBlock;
use super::core::ArrayCore;
use super::element::Element;
use super::guard::{ReadGuard, WriteGuard};
use super::part::Part;
use super::shape::{ElementIndex, Extents};
use crate::error::Result;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{ArrayStatistics, Ownership};
use std::marker::PhantomData;
use std::ops::Range;

/// An array that all nodes of a job share.
///
/// Each page has a home. A program uses plain loads and stores through guards, and release
/// consistency makes writes visible. Writes before a barrier are visible after the same barrier.
/// Writes before a lock is given back are visible to its next holder. Two nodes must not touch the
/// same element without such synchronisation in between if one of them writes.
///
/// An array has one to four dimensions ([`Shape`](super::Shape)), in row-major order.
///
/// Dropping the array tells that this node needs it no more. The first barrier before which all
/// nodes have dropped it frees memory and name on all of them. [`SharedArray::free`] does both. A
/// handle that outlives the job shows the last bytes this node had.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let field = job.array::<f64>("field", 10_000)?;
/// let mine = field.home_range(job.rank());
/// field.write(mine)?.fill(f64::from(job.rank())); // plain stores
/// job.barrier()?; // everyone sees everyone's writes
/// assert_eq!(field.read(0..1)?[0], 0.0); // a plain load
/// # Ok(())
/// # }
/// ```
pub struct SharedArray<T> {
    pub(super) core: ArrayCore,
    holds: PhantomData<T>,
}

impl<T: Element> SharedArray<T> {
    /// Returns the handle of an array whose elements were declared as `T`.
    pub(super) fn over(core: ArrayCore) -> Self {
        Self { core, holds: PhantomData }
    }

    /// Returns the array's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements along each axis.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let field = job.array::<f32>("field", [4, 8, 16])?;
    /// assert_eq!(field.shape().as_slice(), [4, 8, 16]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.core.shape()
    }

    /// Returns the block of the whole array.
    #[must_use]
    pub fn whole(&self) -> ArrayBlock {
        self.core.whole()
    }

    /// Returns the block with these indices, a range for each axis.
    ///
    /// # Errors
    /// There are not as many ranges as axes, or a range lies outside the array.
    pub fn block<const N: usize>(&self, ranges: [Range<usize>; N]) -> Result<ArrayBlock> {
        self.core.block_of(&ranges)
    }

    /// Returns the block of elements that belong to a node, if they are one block, as with
    /// [`Distribution::Block`]. Otherwise it is the first one of
    /// [`home_blocks`](Self::home_blocks). It never changes. A node without elements has an empty
    /// block.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let field = job.array::<f32>("field", [12, 30])?;
    /// let mine = field.home_block(job.rank());
    /// field.write(mine)?.fill(job.rank() as f32);
    /// job.barrier()?;
    /// assert_eq!(field.read(field.whole())?[[11, 29]], (job.size() - 1) as f32);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn home_block(&self, rank: Rank) -> ArrayBlock {
        self.core.home_block(rank)
    }

    /// Returns the blocks of elements that belong to a node. The blocks of all nodes hold each
    /// element once. They never change.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// use oikaze::shared::builder::Distribution;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let dealt = job
    ///     .array_builder::<u8>("dealt", [10, 4096])
    ///     .distribution(Distribution::Cyclic { axis: 0, indices: 1 })
    ///     .build()?;
    /// let rows: usize = (0..job.size()).map(|rank| dealt.home_blocks(rank).len()).sum();
    /// assert!(job.size() == 1 || rows == 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn home_blocks(&self, rank: Rank) -> Vec<ArrayBlock> {
        self.core.home_blocks(rank)
    }

    /// Returns the node that was declared as the home of this element's page. Writing at home
    /// costs no fault and no transfer. Of a page with elements of several blocks
    /// ([`home_blocks`](Self::home_blocks)), one node is the home. The answer never changes, also
    /// if the page [moves](crate::shared::builder::ArrayBuilder::moving_homes).
    #[must_use]
    pub fn home_of(&self, element: impl ElementIndex) -> Option<Rank> {
        Some(self.core.home_of(element.position(&self.shape())?))
    }

    /// Returns the elements, in row-major order, in the pages whose declared home is `rank`, if
    /// they are one run (as with `Homes::Block`). Otherwise the first run is returned. As
    /// [`home_of`](Self::home_of), it never changes.
    #[must_use]
    pub fn home_range(&self, rank: Rank) -> Range<usize> {
        self.core.home_range(rank)
    }

    /// Returns a guard of elements to read: of a range in row-major order, of a [`ArrayBlock`], or
    /// of a range for each axis ([`Part`]). Elements that are not valid here are fetched first, in
    /// runs, without a page fault.
    ///
    /// The guard counts as a read of all its elements for as long as it lives. A node that writes
    /// one of them meanwhile makes a data race. The contents that the guard shows do not change
    /// even then.
    ///
    /// # Errors
    /// The part is out of bounds; a write guard of this process overlaps; a page was lost with its
    /// home; the time limit passed.
    #[track_caller]
    pub fn read<P: Part>(&self, part: P) -> Result<P::Reading<'_, T>> {
        part.read_from(self)
    }

    /// Returns guards of several ranges to read, in the order of the ranges. Elements that are not
    /// valid here are fetched first, all at once. Each home gets one request, or one per 1 MiB or
    /// 32 runs of pages. [`SharedArray::read`] says more about each guard.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let grid = job.array::<f64>("grid", 64 * 1024)?;
    /// // The first 16 elements of rows 3, 17 and 40, which have 1024 elements each.
    /// let rows = [3, 17, 40].map(|row| row * 1024..row * 1024 + 16);
    /// let sum: f64 = grid.read_many(&rows)?.iter().flat_map(|row| row.iter()).sum();
    /// assert_eq!(sum, 0.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`SharedArray::read`], if any range is wrong. No guard is left then.
    #[track_caller]
    pub fn read_many(&self, ranges: &[Range<usize>]) -> Result<Vec<ReadGuard<'_, T>>> {
        self.core.make_readable(ranges)?;
        let mut guards = Vec::with_capacity(ranges.len());
        // A closure has no caller's place, which errors of later calls name.
        for elements in ranges {
            guards.push(self.core.slice(elements.clone())?);
        }
        Ok(guards)
    }

    /// Begins to fetch the elements that are not valid here, and returns without waiting for them.
    /// A later guard waits for what is still on its way.
    ///
    /// Call it as early as the range is known, and compute meanwhile. At most 4 MiB are on their
    /// way at a time; the rest is requested as pages arrive. What another node writes before the
    /// next barrier or lock is fetched again by the guard that needs it. Nothing is reported if a
    /// home dies, until a guard needs its pages.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let steps = job.array::<u64>("steps", 8 * 4096)?;
    /// steps.prefetch(0..4096)?;
    /// for step in 0..8 {
    ///     let next = (step + 1).min(7) * 4096;
    ///     steps.prefetch(next..next + 4096)?; // comes while this step computes
    ///     let sum: u64 = steps.read(step * 4096..(step + 1) * 4096)?.iter().sum();
    ///     assert_eq!(sum, 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The part is out of bounds.
    pub fn prefetch(&self, part: impl Part) -> Result<()> {
        self.core.prefetch(&part.rows_of(self)?)
    }

    /// Begins to fetch several ranges, as [`SharedArray::prefetch`] does with one. Each home gets
    /// as few requests as for [`SharedArray::read_many`].
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let table = job.array::<u32>("table", 100_000)?;
    /// let wanted = [0..100, 50_000..50_100, 99_000..99_100];
    /// table.prefetch_many(&wanted)?;
    /// assert!(table.read_many(&wanted)?.iter().all(|part| part.len() == 100));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A range is out of bounds. Nothing is fetched then.
    pub fn prefetch_many(&self, ranges: &[Range<usize>]) -> Result<()> {
        self.core.prefetch(ranges)
    }

    /// Returns a guard of elements to write (and read), of any [`Part`]. The guard owns its
    /// elements: no other node writes any of them before it synchronises with this one, and all of
    /// them count as written. [`SharedArray::write_merged`] is for elements between which other
    /// nodes write.
    ///
    /// Nodes that read the elements' pages after each barrier get what the guard wrote with the
    /// barrier, without asking. [`WriteGuard::push_to`] and [`SharedArray::subscribe`] say so
    /// beforehand.
    ///
    /// # Errors
    /// The range is out of bounds; another guard of this process overlaps; a page was lost with its
    /// home; the time limit passed. If guards of two nodes own one byte between two barriers, the
    /// barrier fails on all nodes and names both.
    #[track_caller]
    pub fn write<P: Part>(&self, part: P) -> Result<P::Writing<'_, T>> {
        part.write_to(self, Ownership::Owned)
    }

    /// Returns a guard of elements to write (and read) in which only elements that change count as
    /// written. Other nodes may write other elements of the same range at the same time.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let marks = job.array::<u32>("marks", 1000)?;
    /// marks.write_merged(0..1000)?[job.rank() as usize] = 1; // all nodes at once
    /// job.barrier()?;
    /// assert_eq!(marks.read(0..1000)?.iter().sum::<u32>(), job.size());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`SharedArray::write`].
    #[track_caller]
    pub fn write_merged<P: Part>(&self, part: P) -> Result<P::Writing<'_, T>> {
        part.write_to(self, Ownership::Merged)
    }

    /// Subscribes this node to these elements: whoever writes them sends them to this node with the
    /// next barrier. A node that reads elements after each barrier is subscribed without a call.
    /// The subscription covers whole pages, and begins with the next barrier at the latest.
    ///
    /// An update keeps valid pages valid, and brings no page that is not here. So the first read
    /// fetches. A program can call [`SharedArray::prefetch`] together with `subscribe`.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let steps = job.array::<u64>("steps", 512)?;
    /// steps.subscribe(0..512)?;
    /// for step in 0..10 {
    ///     assert_eq!(steps.read(0..512)?[100], step); // only the first one fetches
    ///     job.barrier()?;
    ///     if job.rank() == 0 {
    ///         steps.write(0..512)?.fill(step + 1);
    ///     }
    ///     job.barrier()?; // brings the elements
    /// }
    /// assert!(steps.statistics().fetched_pages <= 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The part is out of bounds.
    pub fn subscribe(&self, part: impl Part) -> Result<()> {
        self.core.change_subscription(&part.rows_of(self)?, true)
    }

    /// Ends what [`SharedArray::subscribe`] began.
    ///
    /// # Errors
    /// The part is out of bounds.
    pub fn unsubscribe(&self, part: impl Part) -> Result<()> {
        self.core.change_subscription(&part.rows_of(self)?, false)
    }

    /// Returns the counters of this array on this node since it was made: pages fetched and served,
    /// and updates sent, received, and received in vain.
    #[must_use]
    pub fn statistics(&self) -> ArrayStatistics {
        self.core.statistics()
    }

    /// Returns why each node keeps pages of its own of the array. `None`: all nodes map the same
    /// memory, because the job is on one machine, and nothing is fetched or sent.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let field = job.array::<f64>("field", 1000)?;
    /// if let Some(why) = field.why_not_shared() {
    ///     println!("each node has a copy: {why}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn why_not_shared(&self) -> Option<&str> {
        self.core.why_not_shared()
    }

    /// Returns a guard of elements to read with plain loads. A load traps where a page is not
    /// valid, and nothing is fetched before that.
    ///
    /// A load cannot fail. If the home of a page dies before the page has come, the load gives the
    /// last bytes that were here. [`ReadGuard::release`] reports that, as does this node's next
    /// synchronisation.
    ///
    /// # Errors
    /// The range is out of bounds; a write guard of this process overlaps; a page was lost with its
    /// home.
    #[track_caller]
    pub fn read_lazily(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        self.core.check_lazy(std::slice::from_ref(&elements))?;
        self.core.slice(elements)
    }

    /// Returns a guard of elements to write with plain stores. A store traps where a page is not
    /// valid, or not yet known as written.
    ///
    /// The first such guard makes the array *plain* on this node: its pages are tracked from then
    /// on, and each first store to a page between two barriers traps.
    ///
    /// See [`SharedArray::read_lazily`] about pages whose home dies.
    ///
    /// # Errors
    /// The range is out of bounds; another guard of this process overlaps; a page was lost with its
    /// home.
    #[track_caller]
    pub fn write_lazily(&self, elements: Range<usize>) -> Result<WriteGuard<'_, T>> {
        self.core.check_lazy(std::slice::from_ref(&elements))?;
        self.core.make_plain();
        self.core.slice_mut(elements, None, Ownership::Merged)
    }
}
