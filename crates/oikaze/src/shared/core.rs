//! Core of a shared array, which knows its elements by their size and alignment only. The typed
//! array and the one of bindings are handles of it.

use super::block::array_block::ArrayBlock;
use super::builder::distribution::Distribution;
use super::element::ElementType;
use super::segment::{Agreed, NewArray};
use super::shape::Extents;
use crate::error::{Error, Result};
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::memory::tracking::{GuardKind, SharedMemory, Tracker};
use oikaze_os::shm::ArrayForm;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, ArrayStatistics, Coherence, CoherenceError, Declaration, Delivery, Homes, Ownership,
    Replacement, Spans, WriteId,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::Class;
use oikaze_runtime::node::{Node, WaitSubject};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A shared array of elements whose type only its handle knows.
pub(crate) struct ArrayCore {
    pub(super) node: Arc<Node>,
    pub(super) memory: Arc<SharedMemory>,
    homes: Homes,
    pub(super) settings: Settings,
    nodes: u32,
    pub(super) name: Arc<str>,
    len: usize,
    pub(super) limit: Option<Duration>,
    /// Why each node keeps pages of its own. `None`: all nodes map the same memory.
    why_not_shared: Option<String>,
}

/// Settings of an array that a program makes.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub element: ElementType,
    pub extents: Extents,
    pub distribution: Distribution,
    pub delivery: Option<Delivery>,
    pub update_class: Class,
    /// `true` if this node may ask to be the home of pages that it writes.
    pub moving_homes: bool,
}

impl ArrayCore {
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
        // Threads declare one after another, so that each declaration has one number on all nodes.
        let _turn = node.begin_declaration(&what, limit)?;
        let described = settings.and_then(|settings| {
            let size = settings.element.size();
            if size == 0 {
                let why = "its elements have no bytes: choose an element type that has";
                return Err(Error::invalid(what.clone(), why));
            }
            let Settings { extents, distribution, .. } = &settings;
            let bytes = (extents.len() as u64).saturating_mul(size as u64);
            let ElementType { code: element, fields, .. } = settings.element.clone();
            let homes = distribution.homes(extents, size);
            let homes = homes.map_err(|why| Error::invalid(what.clone(), why))?;
            let shape = extents.as_slice().iter().map(|extent| *extent as u64).collect();
            let name = name.to_owned();
            let declaration = Declaration { name, bytes, element, homes, shape, fields, replaces };
            match declaration.problem(node.with_engine(|engine| engine.nodes())) {
                Some(problem) => {
                    Err(Error::invalid(format!("declare array \"{}\"", declaration.name), problem))
                }
                None => Ok((declaration, settings)),
            }
        });
        // The others wait for this node in the same collective call, so this node tells them of its
        // error. The result is this node's own message, or a loss that its next call reports.
        let refuse = |request: Request| {
            let _ = node.coherence.collective(node, &what, request, limit);
        };
        let (declaration, settings) = match described {
            Ok(described) => described,
            Err(error) => {
                refuse(Request::CannotDeclare(error.to_string()));
                return Err(error);
            }
        };
        let form = ArrayForm::new(settings.extents.as_slice(), settings.element.size());
        let new = NewArray { node, tracker, declaration: &declaration, form, doing: &what, limit };
        let agreed = new.agree()?;
        let (memory, alias, why_not_shared) =
            match Self::prepare(node, tracker, &declaration, agreed) {
                Ok(prepared) => prepared,
                Err(error) => {
                    refuse(Request::CannotDeclare(error.to_string()));
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
                        alias.map(|alias| engine.memory().remove(alias));
                        engine.pages().remove(memory.array());
                    });
                } else {
                    node.with_engine(|engine| engine.coherence().drop_array(memory.array()));
                }
                return Err(error);
            }
        }
        let nodes = node.with_engine(|engine| {
            if memory.others().is_some() {
                engine.coherence().make_segment(memory.array());
            }
            engine.coherence().track_by_guards(memory.array());
            engine.coherence().set_delivery(memory.array(), settings.delivery);
            engine.coherence().set_update_class(memory.array(), settings.update_class);
            engine.coherence().set_moving_homes(memory.array(), settings.moving_homes);
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
            why_not_shared,
        })
    }

    /// Prepares memory and alias (the slot of its region) before others may ask for pages. The
    /// engine runs on meanwhile. Memory for a large array takes seconds, and peers would declare a
    /// silent node dead.
    ///
    /// Memory that all nodes map is prepared already, and no node asks for its pages.
    fn prepare(
        node: &Arc<Node>,
        tracker: &Arc<dyn Tracker>,
        declaration: &Declaration,
        agreed: Agreed,
    ) -> Result<(Arc<SharedMemory>, Option<u32>, Option<String>)> {
        let Declaration { name, bytes, homes, .. } = declaration;
        node.coherence.expect_handlers(node);
        let (memory, why_not_shared) = match agreed {
            Agreed::Segment(memory) => (memory, None),
            Agreed::Pages(why) => {
                node.coherence.locks.expect_pages();
                let (array, me, nodes) = node.with_engine(|engine| {
                    (engine.coherence().next_array(), engine.rank(), engine.nodes())
                });
                let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
                let memory = SharedMemory::new(array, name, bytes, Arc::clone(tracker))?
                    .counted(Arc::clone(node.coherence.guards()));
                for run in homes.runs(me, memory.pages(), nodes) {
                    memory.populate(run)?;
                }
                (Arc::new(memory), Some(why))
            }
        };
        let array = memory.array();
        let alias = node.with_engine(|engine| {
            if engine.coherence().next_array() != array || engine.pages().get(array).is_some() {
                return Err(at_the_same_time(name));
            }
            let mut alias = None;
            if memory.others().is_none() {
                let slot = engine.memory().insert_local(memory.alias_region())?;
                engine.coherence().set_alias_region(array, slot);
                alias = Some(slot);
            }
            engine.pages().insert(Arc::clone(&memory));
            Ok(alias)
        })?;
        Ok((memory, alias, why_not_shared))
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of elements along each axis.
    #[inline]
    pub fn shape(&self) -> Extents {
        self.settings.extents
    }

    /// Returns why each node keeps pages of its own. `None`: all nodes map the same memory, which
    /// has no page states (COH-16.2).
    pub fn why_not_shared(&self) -> Option<&str> {
        self.why_not_shared.as_deref()
    }

    /// Returns `true` if all nodes map the same memory.
    #[inline]
    pub(super) fn is_segment(&self) -> bool {
        self.why_not_shared.is_none()
    }

    /// Returns the block of the whole array.
    pub fn whole(&self) -> ArrayBlock {
        ArrayBlock::whole(self.settings.extents, self.settings.distribution.axis())
    }

    /// Returns the block with these indices, a range for each axis.
    pub fn block_of(&self, ranges: &[Range<usize>]) -> Result<ArrayBlock> {
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

    /// Returns the first block of elements that belong to a node, or an empty one.
    pub fn home_block(&self, rank: Rank) -> ArrayBlock {
        let axis = self.settings.distribution.axis();
        let none = || self.whole().with_range(axis, 0..0);
        self.home_blocks(rank).into_iter().next().unwrap_or_else(none)
    }

    /// Returns the blocks of elements that belong to a node.
    pub fn home_blocks(&self, rank: Rank) -> Vec<ArrayBlock> {
        let Settings { extents, distribution, .. } = &self.settings;
        distribution.blocks(rank, extents, self.element_size(), self.nodes)
    }

    /// Returns the home of the page where the element at this place begins.
    pub fn home_of(&self, place: usize) -> Rank {
        let page = place * self.element_size() / PAGE;
        self.homes.home(page as u64, self.memory.pages(), self.nodes)
    }

    /// Returns the elements in the first run of pages whose home is `rank`.
    pub fn home_range(&self, rank: Rank) -> Range<usize> {
        let Some(run) = self.homes.runs(rank, self.memory.pages(), self.nodes).next() else {
            return 0..0;
        };
        let first = |page: u64| (page as usize * PAGE).div_ceil(self.element_size()).min(self.len);
        first(run.start)..first(run.end)
    }

    /// Makes one range of elements valid for loads.
    #[inline]
    #[track_caller]
    pub(super) fn make_range_readable(&self, elements: &Range<usize>) -> Result<()> {
        self.check_range(elements)?;
        if self.is_segment() {
            return Ok(());
        }
        let pages = self.pages_of(elements);
        let array = self.memory.array();
        while !self.node.with_engine(|engine| engine.coherence().begin_read(array, pages.clone())) {
            self.touch(pages.clone(), Access::Read)?;
        }
        self.check_not_lost(elements)
    }

    /// Makes ranges of elements valid for loads, all at once.
    #[track_caller]
    pub(super) fn make_readable(&self, ranges: &[Range<usize>]) -> Result<()> {
        if self.is_segment() {
            return ranges.iter().try_for_each(|elements| self.check_range(elements));
        }
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

    /// Begins to fetch several ranges.
    pub fn prefetch(&self, ranges: &[Range<usize>]) -> Result<()> {
        if self.is_segment() {
            return ranges.iter().try_for_each(|elements| self.check_range(elements));
        }
        let array = self.memory.array();
        let ranges = self.invalid_ranges(ranges, |coherence, pages| {
            coherence.holds(array, pages, Access::Read)
        })?;
        if !ranges.is_empty() {
            self.node.tell(Request::Prefetch { array, ranges });
        }
        Ok(())
    }

    /// Announces a write of one range of elements, which are in bounds.
    #[inline]
    #[track_caller]
    pub(super) fn begin_range_write(
        &self,
        elements: &Range<usize>,
        ownership: Ownership,
    ) -> Result<Option<WriteId>> {
        self.check_range(elements)?;
        self.check_not_lost(elements)?;
        self.begin_write(std::slice::from_ref(elements), ownership)
    }

    /// Ends a write under which nothing was written.
    pub(super) fn abandon_write(&self, write: Option<WriteId>) {
        if let Some(write) = write {
            self.node.with_engine(|engine| engine.coherence().abandon_write(write));
        }
    }

    /// Notes that a guard owns rows of elements, if all nodes map the memory (COH-16.3).
    #[inline]
    pub(super) fn note_owned(&self, rows: &[Range<usize>], ownership: Ownership) {
        if let (Some(others), Ownership::Owned) = (self.memory.others(), ownership) {
            others.note_owned(self.spans(rows).as_slice());
        }
    }

    /// Announces a write of rows of elements, whose pages become valid first. The rows are in
    /// order. Returns `None` if there is nothing to announce, because all nodes map the memory.
    #[track_caller]
    pub(super) fn begin_write(
        &self,
        rows: &[Range<usize>],
        ownership: Ownership,
    ) -> Result<Option<WriteId>> {
        if self.is_segment() {
            return Ok(None);
        }
        let (array, bytes) = (self.memory.array(), self.spans(rows));
        loop {
            let begun = self.node.with_engine(|engine| {
                let (coherence, pages) = engine.coherence_and_pages();
                coherence.begin_write(array, bytes.clone(), ownership, pages)
            });
            match (begun, rows) {
                (Some(write), _) => return Ok(Some(write)),
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

    /// Subscribes to rows of elements, or ends that.
    pub fn change_subscription(&self, rows: &[Range<usize>], wanted: bool) -> Result<()> {
        rows.iter().try_for_each(|row| self.check_range(row))?;
        if self.is_segment() {
            return Ok(());
        }
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

    /// Returns the counters of this array on this node.
    pub fn statistics(&self) -> ArrayStatistics {
        let array = self.memory.array();
        self.node
            .with_engine(|engine| engine.coherence().array_statistics(array).copied())
            .unwrap_or_default()
    }

    /// Checks rows of a guard whose pages come when they are touched.
    pub(super) fn check_lazy(&self, rows: &[Range<usize>]) -> Result<()> {
        self.check_process()?;
        rows.iter().try_for_each(|row| self.check_not_lost(row))
    }

    /// Tracks the array by its pages from now on.
    pub(super) fn make_plain(&self) {
        if self.is_segment() {
            return;
        }
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
    #[inline]
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
    #[inline]
    pub(super) fn check_process(&self) -> Result<()> {
        self.node.check_process(|| format!("using array \"{}\"", self.name))
    }

    #[inline]
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

    /// Returns rows of elements as rows of `T`, of which an element has one, or a whole number if
    /// `T` is a byte.
    pub(super) fn rows_as<'r, T>(&self, rows: &'r [Range<usize>]) -> Cow<'r, [Range<usize>]> {
        match self.element_size() / size_of::<T>() {
            1 => Cow::Borrowed(rows),
            units => rows.iter().map(|row| row.start * units..row.end * units).collect(),
        }
    }

    /// Returns the bytes of elements that are in bounds.
    #[inline]
    pub(super) fn bytes_of(&self, elements: &Range<usize>) -> Range<u64> {
        let size = self.element_size() as u64;
        elements.start as u64 * size..elements.end as u64 * size
    }

    /// Returns the pages of elements that are in bounds.
    #[inline]
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

    /// Returns the bytes of rows.
    #[inline]
    fn spans(&self, rows: &[Range<usize>]) -> Spans {
        match rows {
            [row] => Spans::One(self.bytes_of(row)),
            rows => Spans::Many(rows.iter().map(|row| self.bytes_of(row)).collect()),
        }
    }
}

impl Drop for ArrayCore {
    /// Tells that no thread of this node uses the array any more (COH-14.1).
    fn drop(&mut self) {
        self.node.try_engine(|engine| engine.coherence().drop_array(self.memory.array()));
    }
}

/// Returns the kind of a write guard.
pub(super) fn kind_of(ownership: Ownership) -> GuardKind {
    match ownership {
        Ownership::Owned => GuardKind::Write,
        Ownership::Merged => GuardKind::Merge,
    }
}

fn at_the_same_time(name: &str) -> Error {
    let why = "two threads of this node made arrays at the same time: make them one by one";
    Error::invalid(format!("declare array \"{name}\""), why)
}
