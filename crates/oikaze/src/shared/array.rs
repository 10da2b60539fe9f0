//! One shared array as a program holds it.

use super::{ReadGuard, WriteGuard};
use crate::engine::{Request, Value};
use crate::node::Node;
use crate::{Error, Result};
use bytemuck::Pod;
use oikaze_os::memory::shared::{SharedMemory, Tracker};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{self, Access, Declaration, Homes};
use oikaze_protocol::limits::PAGE;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What a shared array may hold: plain numbers, compared between nodes when the array is made.
pub trait Element: Pod {
    /// A number that differs between element types of equal size.
    const KIND: u32;
}

macro_rules! elements {
    ($($kind:literal: $type:ty),* $(,)?) => {
        $(impl Element for $type { const KIND: u32 = $kind; })*
    };
}
elements!(1: u8, 2: i8, 3: u16, 4: i16, 5: u32, 6: i32, 7: u64, 8: i64, 9: f32, 10: f64);

/// An array that all nodes of a job share.
///
/// Each page has a home. Plain loads and stores through guards; visible to others by release consistency: what was written
/// before a barrier, or before a lock is given back, is visible after the same barrier, or to the lock's next holder. Two nodes
/// must not touch the same element without such synchronisation in between if one of them writes.
pub struct SharedArray<T> {
    node: Arc<Node>,
    memory: Arc<SharedMemory>,
    homes: Arc<[Rank]>,
    name: Arc<str>,
    len: usize,
    limit: Option<Duration>,
    holds: PhantomData<T>,
}

impl<T: Element> SharedArray<T> {
    pub(crate) fn declare(
        node: &Arc<Node>,
        tracker: &Arc<dyn Tracker>,
        name: &str,
        len: usize,
        homes: Homes,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let what = format!("array \"{name}\" of {len} elements");
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| Error::invalid(what.as_str(), "it must have at least one element and fit the address space"))?;
        let element = coherence::Element { kind: T::KIND, size: u32::try_from(size_of::<T>()).unwrap_or(u32::MAX) };
        let declaration = Declaration { name: name.to_owned(), bytes: bytes as u64, element, homes };
        let (memory, page_homes) = Self::prepare(node, tracker, name, bytes, &declaration)?;
        let completion = node.submit(Request::Declare(declaration), None);
        match node.outcome(&what, &completion, limit)? {
            Value::Array(array) if array == memory.array() => {}
            _ => return Err(Error::invalid(what, "two threads of this node made arrays at the same time: make them one by one")),
        }
        Ok(Self { node: Arc::clone(node), memory, homes: page_homes, name: name.into(), len, limit, holds: PhantomData })
    }

    /// Memory, alias and homes stand before the others may ask for pages.
    fn prepare(
        node: &Arc<Node>,
        tracker: &Arc<dyn Tracker>,
        name: &str,
        bytes: usize,
        declaration: &Declaration,
    ) -> Result<(Arc<SharedMemory>, Arc<[Rank]>)> {
        node.with_engine(|engine| {
            let array = engine.coherence().next_array();
            let memory = Arc::new(SharedMemory::new(array, name, bytes, Arc::clone(tracker))?);
            let pages = memory.pages();
            let (me, nodes) = (engine.rank(), engine.nodes());
            let homes: Arc<[Rank]> = (0..pages).map(|page| declaration.homes.home(page, pages, nodes)).collect();
            for run in runs(&homes, me) {
                memory.populate(run)?;
            }
            let slot = engine.memory().insert_local(memory.alias_region())?;
            engine.pages().insert(Arc::clone(&memory));
            engine.coherence().set_alias_region(array, slot);
            Ok((memory, homes))
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No elements? Never: an array has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The node whose memory is the reference for this element's page. Writing at home costs no fault and no transfer.
    #[must_use]
    pub fn home_of(&self, element: usize) -> Option<Rank> {
        (element < self.len).then(|| self.homes.get(element * size_of::<T>() / PAGE).copied())?
    }

    /// The elements in the pages whose home is `rank`, if they are one run (as with `Homes::Block`); the first run otherwise.
    #[must_use]
    pub fn home_range(&self, rank: Rank) -> Range<usize> {
        let Some(run) = runs(&self.homes, rank).into_iter().next() else { return 0..0 };
        let first = |page: u64| (page as usize * PAGE).div_ceil(size_of::<T>()).min(self.len);
        first(run.start)..first(run.end)
    }

    /// Elements to read. Those that are not valid here are fetched first, in runs, without a page fault.
    ///
    /// # Errors
    /// Out of range; a write guard of this process overlaps; a home is lost; the time limit passed.
    pub fn read(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        self.make_valid(&elements, Access::Read)?;
        Ok(ReadGuard(self.memory.slice(elements)?))
    }

    /// Elements to write (and read).
    ///
    /// # Errors
    /// Out of range; another guard of this process overlaps; a home is lost; the time limit passed.
    pub fn write(&self, elements: Range<usize>) -> Result<WriteGuard<'_, T>> {
        self.make_valid(&elements, Access::Write)?;
        Ok(WriteGuard(self.memory.slice_mut(elements)?))
    }

    /// Elements to read with plain loads that trap where a page is not valid: nothing is fetched before it is touched.
    ///
    /// # Errors
    /// Out of range; a write guard of this process overlaps.
    pub fn read_lazily(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        Ok(ReadGuard(self.memory.slice(elements)?))
    }

    /// Elements to write with plain stores that trap where a page is not valid or not yet noticed as written.
    ///
    /// # Errors
    /// Out of range; another guard of this process overlaps.
    pub fn write_lazily(&self, elements: Range<usize>) -> Result<WriteGuard<'_, T>> {
        Ok(WriteGuard(self.memory.slice_mut(elements)?))
    }

    fn make_valid(&self, elements: &Range<usize>, access: Access) -> Result<()> {
        if elements.start > elements.end || elements.end > self.len {
            return Err(Error::invalid(
                format!("elements {}..{} of array \"{}\"", elements.start, elements.end, self.name),
                format!("the array has {} elements", self.len),
            ));
        }
        if elements.is_empty() {
            return Ok(());
        }
        let first = elements.start * size_of::<T>() / PAGE;
        let end = (elements.end * size_of::<T>()).div_ceil(PAGE);
        let pages = first as u64..end as u64;
        let array = self.memory.array();
        if self.node.with_engine(|engine| engine.coherence().holds(array, pages.clone(), access)) {
            return Ok(());
        }
        let completion = self.node.submit(Request::Touch { array, pages: pages.clone(), access }, None);
        let what = format_args!("fetching pages {}..{} of array \"{}\"", pages.start, pages.end, self.name).to_string();
        self.node.outcome(&what, &completion, self.limit).map(drop)
    }
}

/// The runs of pages whose home is `rank`.
fn runs(homes: &[Rank], rank: Rank) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (page, _) in (0u64..).zip(homes).filter(|&(_, &home)| home == rank) {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}
