//! Handle of a shared array.

use super::builder::distribution::Distribution;
use super::element::{Element, ElementLayout};
use super::part::Part;
use super::shape::{ElementIndex, Extents};
use crate::error::{Error, Result};
use crate::shared::block::array_block::ArrayBlock;
use crate::shared::guard::{ReadGuard, WriteGuard};
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::memory::tracking::{SharedMemory, Tracker};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, ArrayStatistics, Coherence, CoherenceError, Declaration, Delivery, Homes, Ownership,
    Replacement, WriteId,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::Class;
use oikaze_runtime::node::{Node, WaitSubject};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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
    pub(super) node: Arc<Node>,
    pub(super) memory: Arc<SharedMemory>,
    homes: Homes,
    pub(super) settings: Settings,
    pub(super) nodes: u32,
    pub(super) name: Arc<str>,
    len: usize,
    pub(super) limit: Option<Duration>,
    holds: PhantomData<T>,
}

/// Settings of an array that a program makes.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub element: ElementLayout,
    pub extents: Extents,
    pub distribution: Distribution,
    pub delivery: Option<Delivery>,
    pub update_class: Class,
}

impl<T: Element> SharedArray<T> {
    /// Makes an array, or an array that replaces one of the same name.
    #[track_caller]
    pub(super) fn declare(
        node: &Arc<Node>,
        tracker: &Arc<dyn Tracker>,
        name: &str,
        settings: Result<Settings>,
        replaces: Option<Replacement>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let doing = replaces.as_ref().map_or("declare", |replaces| &replaces.call);
        let what = format!("{doing} array \"{name}\"");
        node.check_process(|| what.clone())?;
        node.coherence.check_no_guard(node, &what)?;
        let prepared = settings.and_then(|settings| {
            let size = settings.element.size();
            if size == 0 {
                let why = "its elements have no bytes: choose an element type that has";
                return Err(Error::invalid(what.clone(), why));
            }
            let Settings { extents, distribution, .. } = &settings;
            let bytes = (extents.len() as u64).saturating_mul(size as u64);
            let ElementLayout { code: element, fields, .. } = settings.element.clone();
            let homes = distribution.homes(extents, size);
            let homes = homes.map_err(|why| Error::invalid(what.clone(), why))?;
            let shape = extents.as_slice().iter().map(|extent| *extent as u64).collect();
            let name = name.to_owned();
            let declaration = Declaration { name, bytes, element, homes, shape, fields, replaces };
            Ok((Self::prepare(node, tracker, &declaration)?, declaration, settings))
        });
        let ((memory, alias), declaration, settings) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                // The others wait for this node in the same collective call, so this node tells
                // them of its error. The result is this node's own message, or a loss that its next
                // call reports.
                let _ = node.coherence.collective(
                    node,
                    &what,
                    Request::CannotDeclare(error.to_string()),
                    limit,
                );
                return Err(error);
            }
        };
        let homes = declaration.homes.clone();
        match node.coherence.collective(node, &what, Request::Declare(declaration), limit) {
            Ok(Value::Array(array)) if array == memory.array() => {}
            Ok(_) => return Err(at_the_same_time(name)),
            Err(error) => {
                // No node has this array, so no node will ask for its pages. (After any other
                // error, other nodes may have agreed on the array.)
                if error.is_mismatch() {
                    node.with_engine(|engine| {
                        engine.memory().remove(alias);
                        engine.pages().remove(memory.array());
                    });
                } else {
                    node.with_engine(|engine| engine.coherence().drop_array(memory.array()));
                }
                return Err(error);
            }
        }
        let nodes = node.with_engine(|engine| {
            engine.coherence().track_by_guards(memory.array());
            engine.coherence().set_delivery(memory.array(), settings.delivery);
            engine.coherence().set_update_class(memory.array(), settings.update_class);
            engine.nodes()
        });
        Ok(Self {
            node: Arc::clone(node),
            memory,
            homes,
            nodes,
            name: name.into(),
            len: settings.extents.len(),
            settings,
            limit,
            holds: PhantomData,
        })
    }

    /// Prepares memory and alias (the slot of its region) before others may ask for pages. The
    /// engine runs on meanwhile. Memory for a large array takes seconds, and peers would declare a
    /// silent node dead.
    fn prepare(
        node: &Arc<Node>,
        tracker: &Arc<dyn Tracker>,
        declaration: &Declaration,
    ) -> Result<(Arc<SharedMemory>, u32)> {
        let Declaration { name, bytes, homes, .. } = declaration;
        let (array, me, nodes) = node
            .with_engine(|engine| (engine.coherence().next_array(), engine.rank(), engine.nodes()));
        if let Some(problem) = declaration.problem(nodes) {
            return Err(Error::invalid(format!("declare array \"{name}\""), problem));
        }
        node.coherence.expect_handlers(node);
        let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
        let memory = Arc::new(
            SharedMemory::new(array, name, bytes, Arc::clone(tracker))?
                .counted(Arc::clone(node.coherence.guards())),
        );
        for run in homes.runs(me, memory.pages(), nodes) {
            memory.populate(run)?;
        }
        let alias = node.with_engine(|engine| {
            if engine.coherence().next_array() != array || engine.pages().get(array).is_some() {
                return Err(at_the_same_time(name));
            }
            let slot = engine.memory().insert_local(memory.alias_region())?;
            engine.pages().insert(Arc::clone(&memory));
            engine.coherence().set_alias_region(array, slot);
            Ok(slot)
        })?;
        Ok((memory, alias))
    }

    /// Returns the array's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        self.settings.extents
    }

    /// Returns the block of the whole array.
    #[must_use]
    pub fn whole(&self) -> ArrayBlock {
        ArrayBlock::whole(self.settings.extents, self.settings.distribution.axis())
    }

    /// Returns the block with these indices, a range for each axis.
    ///
    /// # Errors
    /// There are not as many ranges as axes, or a range lies outside the array.
    pub fn block<const N: usize>(&self, ranges: [Range<usize>; N]) -> Result<ArrayBlock> {
        self.block_of(&ranges)
    }

    pub(super) fn block_of(&self, ranges: &[Range<usize>]) -> Result<ArrayBlock> {
        let extents = self.settings.extents;
        let is_inside = |(axis, range): (usize, &Range<usize>)| {
            range.start <= range.end && range.end <= extents.extent(axis)
        };
        if ranges.len() != extents.dimensions() || !ranges.iter().enumerate().all(is_inside) {
            return Err(Error::invalid(
                format!("block {ranges:?} of array \"{}\"", self.name),
                format!("the array has the shape {extents:?}"),
            ));
        }
        let ranges = ranges.iter().cloned().enumerate();
        Ok(ranges.fold(self.whole(), |block, (axis, range)| block.with_range(axis, range)))
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
        let axis = self.settings.distribution.axis();
        let none = || self.whole().with_range(axis, 0..0);
        self.home_blocks(rank).into_iter().next().unwrap_or_else(none)
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
        let Settings { extents, distribution, .. } = &self.settings;
        distribution.blocks(rank, extents, self.element_size(), self.nodes)
    }

    /// Returns the node whose memory is the reference for this element's page. Writing at home
    /// costs no fault and no transfer. Of a page with elements of several blocks
    /// ([`home_blocks`](Self::home_blocks)), one node is the home.
    #[must_use]
    pub fn home_of(&self, element: impl ElementIndex) -> Option<Rank> {
        let element = element.position(&self.settings.extents)?;
        let page = element * self.element_size() / PAGE;
        Some(self.homes.home(page as u64, self.memory.pages(), self.nodes))
    }

    /// Returns the elements, in row-major order, in the pages whose home is `rank`, if they are one
    /// run (as with `Homes::Block`). Otherwise the first run is returned.
    #[must_use]
    pub fn home_range(&self, rank: Rank) -> Range<usize> {
        let Some(run) = self.homes.runs(rank, self.memory.pages(), self.nodes).next() else {
            return 0..0;
        };
        let first = |page: u64| (page as usize * PAGE).div_ceil(self.element_size()).min(self.len);
        first(run.start)..first(run.end)
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

    #[track_caller]
    pub(super) fn read_range(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        self.check_range(&elements)?;
        let pages = self.pages_of(&elements);
        let array = self.memory.array();
        while !self.node.with_engine(|engine| engine.coherence().begin_read(array, pages.clone())) {
            self.touch(pages.clone(), Access::Read)?;
        }
        self.check_not_lost(&elements)?;
        Ok(ReadGuard { array: self, guard: self.memory.slice(elements)? })
    }

    /// Makes ranges of elements valid for loads, all at once.
    #[track_caller]
    pub(super) fn make_readable(&self, ranges: &[Range<usize>]) -> Result<()> {
        let array = self.memory.array();
        loop {
            let invalid =
                self.invalid_ranges(ranges, |coherence, pages| coherence.begin_read(array, pages))?;
            if invalid.is_empty() {
                return ranges.iter().try_for_each(|elements| self.check_not_lost(elements));
            }
            self.touch_many(invalid)?;
        }
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
        self.make_readable(ranges)?;
        let mut guards = Vec::with_capacity(ranges.len());
        for elements in ranges {
            guards.push(ReadGuard { array: self, guard: self.memory.slice(elements.clone())? });
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
        self.prefetch_many(&part.rows_of(self)?)
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
        let array = self.memory.array();
        let ranges = self.invalid_ranges(ranges, |coherence, pages| {
            coherence.holds(array, pages, Access::Read)
        })?;
        if !ranges.is_empty() {
            self.node.tell(Request::Prefetch { array, ranges });
        }
        Ok(())
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

    #[track_caller]
    pub(super) fn write_range(
        &self,
        elements: Range<usize>,
        ownership: Ownership,
    ) -> Result<WriteGuard<'_, T>> {
        self.check_range(&elements)?;
        self.check_not_lost(&elements)?;
        let write = self.begin_write(std::slice::from_ref(&elements), ownership)?;
        let is_owner = ownership == Ownership::Owned;
        let guard = self.memory.slice_mut(elements).inspect_err(|_| self.abandon_write(write))?;
        Ok(WriteGuard { array: self, guard, write: Some(write), push: Vec::new(), is_owner })
    }

    /// Ends a write under which nothing was written.
    pub(super) fn abandon_write(&self, write: WriteId) {
        self.node.with_engine(|engine| engine.coherence().abandon_write(write));
    }

    /// Announces a write of rows of elements, whose pages become valid first. The rows are in
    /// order.
    #[track_caller]
    pub(super) fn begin_write(
        &self,
        rows: &[Range<usize>],
        ownership: Ownership,
    ) -> Result<WriteId> {
        let (array, bytes) = (self.memory.array(), self.spans(rows));
        loop {
            let begun = self.node.with_engine(|engine| {
                let (coherence, pages) = engine.coherence_and_pages();
                coherence.begin_write(array, bytes.clone(), ownership, pages)
            });
            match (begun, rows) {
                (Some(write), _) => return Ok(write),
                (None, [row]) => self.touch(self.pages_of(row), Access::Write)?,
                (None, rows) => {
                    let pages = rows.iter().map(|row| self.pages_of(row)).collect();
                    self.touch_pages(pages, Access::Write)?;
                }
            }
        }
    }

    /// Ends a write that [`Self::begin_write`] announced. What it wrote goes to readers now, if it
    /// is much, or with the next barrier.
    pub(super) fn end_write(&self, write: WriteId, push: &[Rank]) {
        let owes = self.node.with_engine(|engine| {
            let (coherence, pages) = engine.coherence_and_pages();
            coherence.end_write(write, push, pages);
            coherence.owes()
        });
        if owes {
            self.node.send_what_was_held();
        }
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
        self.change_subscription(part, true)
    }

    /// Ends what [`SharedArray::subscribe`] began.
    ///
    /// # Errors
    /// The part is out of bounds.
    pub fn unsubscribe(&self, part: impl Part) -> Result<()> {
        self.change_subscription(part, false)
    }

    fn change_subscription(&self, part: impl Part, wanted: bool) -> Result<()> {
        let rows = part.rows_of(self)?;
        rows.iter().try_for_each(|row| self.check_range(row))?;
        let array = self.memory.array();
        let result = self.node.with_engine(|engine| {
            let (coherence, pages) = engine.coherence_and_pages();
            rows.iter()
                .map(|row| self.bytes_of(row))
                .try_for_each(|bytes| coherence.subscribe(array, bytes, wanted, pages))
        });
        self.node.send_what_was_held();
        result
            .map_err(|error| self.node.departures.failure(&"subscribe", Failure::Coherence(error)))
    }

    /// Returns the counters of this array on this node since it was made: pages fetched and served,
    /// and updates sent, received, and received in vain.
    #[must_use]
    pub fn statistics(&self) -> ArrayStatistics {
        let array = self.memory.array();
        self.node
            .with_engine(|engine| engine.coherence().array_statistics(array).copied())
            .unwrap_or_default()
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
        self.check_process()?;
        self.check_not_lost(&elements)?;
        Ok(ReadGuard { array: self, guard: self.memory.slice(elements)? })
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
        self.check_process()?;
        self.check_not_lost(&elements)?;
        self.make_plain();
        let guard = self.memory.slice_mut(elements)?;
        Ok(WriteGuard { array: self, guard, write: None, push: Vec::new(), is_owner: false })
    }

    /// Tracks the array by its pages from now on.
    pub(super) fn make_plain(&self) {
        let array = self.memory.array();
        self.node.with_engine(|engine| {
            let (coherence, pages) = engine.coherence_and_pages();
            coherence.track_by_pages(array, pages);
        });
    }

    /// Refuses ranks that are not in the job, and guards that do not know what they write.
    pub(super) fn check_push(&self, ranks: &[Rank], is_owner: bool) -> Result<()> {
        let operation = || format!("push elements of array \"{}\" to {ranks:?}", self.name);
        if let Some(unknown) = ranks.iter().find(|rank| **rank >= self.nodes) {
            let why = format!("there is no node {unknown}: the job has {} nodes", self.nodes);
            return Err(Error::invalid(operation(), why));
        }
        if !is_owner {
            let why = "a lazy guard or one of write_merged does not know what it writes: take it with write";
            return Err(Error::invalid(operation(), why));
        }
        Ok(())
    }

    /// Refuses pages whose home was lost, because their bytes are old (COH-8.8).
    pub(super) fn check_not_lost(&self, elements: &Range<usize>) -> Result<()> {
        let size = self.element_size();
        let bytes = elements.start.saturating_mul(size)..elements.end.saturating_mul(size);
        self.memory.lost_page(&bytes).map_or(Ok(()), |lost| Err(self.lost("take a guard", lost)))
    }

    /// Returns the error of a guard with a page that was lost with its home.
    pub(super) fn lost(&self, doing: &str, (page, rank): (u64, Rank)) -> Error {
        let lost = CoherenceError::PageLost {
            doing: doing.to_owned(),
            array: self.name.to_string(),
            page,
            rank,
        };
        self.node.departures.failure(&doing, Failure::Coherence(lost))
    }

    /// Fails in a child of fork, which has no view of the array (MEM-24.3).
    pub(super) fn check_process(&self) -> Result<()> {
        self.node.check_process(|| format!("using array \"{}\"", self.name))
    }

    fn check_range(&self, elements: &Range<usize>) -> Result<()> {
        self.check_process()?;
        if elements.start > elements.end || elements.end > self.len {
            return Err(Error::invalid(
                format!("elements {}..{} of array \"{}\"", elements.start, elements.end, self.name),
                format!("the array has {} elements", self.len),
            ));
        }
        Ok(())
    }

    /// Checks that the block is one of an array of this shape.
    pub(super) fn check_block(&self, block: &ArrayBlock) -> Result<()> {
        self.check_process()?;
        if block.array_extents() == self.settings.extents {
            return Ok(());
        }
        let (other, own) = (block.array_extents(), self.settings.extents);
        Err(Error::invalid(
            format!("block {block:?} of array \"{}\"", self.name),
            format!("the block is one of an array of shape {other:?}, this one has {own:?}"),
        ))
    }

    /// Returns the bytes of one element.
    #[inline]
    pub(crate) fn element_size(&self) -> usize {
        self.settings.element.size()
    }

    /// Returns rows of elements as rows of units, of which an element of an array whose type is
    /// known at run time has several.
    pub(super) fn units_of<'r>(&self, rows: &'r [Range<usize>]) -> Cow<'r, [Range<usize>]> {
        match self.settings.element.units {
            1 => Cow::Borrowed(rows),
            units => rows.iter().map(|row| row.start * units..row.end * units).collect(),
        }
    }

    /// Returns the bytes of elements that are in bounds.
    pub(super) fn bytes_of(&self, elements: &Range<usize>) -> Range<u64> {
        let size = self.element_size() as u64;
        elements.start as u64 * size..elements.end as u64 * size
    }

    /// Returns the pages of elements that are in bounds.
    fn pages_of(&self, elements: &Range<usize>) -> Range<u64> {
        let size = self.element_size();
        let first = elements.start * size / PAGE;
        if elements.is_empty() {
            return first as u64..first as u64;
        }
        first as u64..(elements.end * size).div_ceil(PAGE) as u64
    }

    /// Returns the page ranges of those ranges of elements that are not valid as a whole.
    fn invalid_ranges(
        &self,
        elements: &[Range<usize>],
        mut is_valid: impl FnMut(&mut Coherence, Range<u64>) -> bool,
    ) -> Result<Vec<Range<u64>>> {
        elements.iter().try_for_each(|elements| self.check_range(elements))?;
        let pages = elements.iter().map(|elements| self.pages_of(elements));
        let mut ranges: Vec<Range<u64>> = pages.collect();
        self.node.with_engine(|engine| {
            ranges.retain(|pages| !is_valid(engine.coherence(), pages.clone()));
        });
        Ok(ranges)
    }

    /// Makes pages of several ranges valid for loads, and waits for those that have to be fetched.
    #[track_caller]
    fn touch_many(&self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.touch_pages(ranges, Access::Read)
    }

    #[track_caller]
    fn touch_pages(&self, ranges: Vec<Range<u64>>, access: Access) -> Result<()> {
        let array = self.memory.array();
        let what = format!("fetching {} ranges of array \"{}\"", ranges.len(), self.name);
        self.wait_for(Request::TouchMany { array, ranges, access }, &what, None)
    }

    /// Makes pages valid, and waits for those that have to be fetched.
    #[track_caller]
    fn touch(&self, pages: Range<u64>, access: Access) -> Result<()> {
        let array = self.memory.array();
        let Range { start, end } = pages;
        let what = format!("fetching pages {start}..{end} of array \"{}\"", self.name);
        let home = self.homes.home(start, self.memory.pages(), self.nodes);
        let peer = (end - start == 1).then_some(home);
        self.wait_for(Request::Touch { array, pages, access }, &what, peer)
    }

    #[track_caller]
    fn wait_for(&self, request: Request, what: &str, peer: Option<Rank>) -> Result<()> {
        let completion = self.node.submit(request, None);
        let subject = || WaitSubject::Operation { what: what.to_owned(), peer };
        self.node.outcome_of(&subject, &what, || completion.outcome(), self.limit).map(drop)
    }
}

impl<T> Drop for SharedArray<T> {
    /// Tells that no thread of this node uses the array any more (COH-14.1).
    fn drop(&mut self) {
        self.node.try_engine(|engine| engine.coherence().drop_array(self.memory.array()));
    }
}

fn at_the_same_time(name: &str) -> Error {
    let why = "two threads of this node made arrays at the same time: make them one by one";
    Error::invalid(format!("declare array \"{name}\""), why)
}
