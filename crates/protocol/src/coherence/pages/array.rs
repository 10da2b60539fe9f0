//! One shared array on this node: its declaration, the homes of its pages, and the state of each
//! (COH-2, COH-3).

use crate::Rank;
use crate::coherence::fetching::streams::Streams;
use crate::coherence::pages::copies::Copies;
use crate::coherence::pages::homes::Homes;
use crate::coherence::pages::machine::Access;
use crate::coherence::pages::moving::MovingHomes;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::PageState;
use crate::coherence::statistics::ArrayStatistics;
use crate::coherence::types::{CoherenceError, Declaration};
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::updating::readers::Readers;
use crate::limits::{NAME_MAX, PAGE};
use crate::wind::Class;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::ops::Range;

/// Maximum number of pages of one array.
pub const ARRAY_PAGES_MAX: u64 = 1 << 28;

impl Declaration {
    /// Returns the number of pages that hold the array's bytes.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE as u64)
    }

    /// Returns why the declaration is unsound on a job of `nodes` nodes, or `None`.
    #[must_use]
    pub fn problem(&self, nodes: u32) -> Option<String> {
        let (name, pages) = (&self.name, self.pages());
        if name.is_empty() || name.len() > NAME_MAX {
            return Some(format!("its name has {} bytes, allowed are 1 to {NAME_MAX}", name.len()));
        }
        if pages > ARRAY_PAGES_MAX {
            return Some(format!(
                "it has {} bytes, allowed are at most {}",
                self.bytes,
                ARRAY_PAGES_MAX * PAGE as u64
            ));
        }
        self.homes.problem(pages, nodes)
    }
}

/// State of an array on this node.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Array {
    pub name: String,
    pub homes: Homes,
    pub pages: u64,
    pub nodes: u32,
    /// `true` once all nodes have declared the same.
    pub agreed: bool,
    /// `true` if all nodes map the same memory. Such an array has no pages here (COH-16.2).
    pub is_segment: bool,
    states: Vec<PageState>,
    /// Copies of pages homed elsewhere, as this node tells them.
    pub copies: Copies,
    /// Bytes of each dirty page from when it was last clean.
    pub twins: BTreeMap<u64, Box<[u8]>>,
    /// `true` while this node writes the array under guards alone, so that its pages need no
    /// protection (COH-10.13).
    pub guarded: bool,
    /// How transfers end at their receiver; `None` if the runtime chooses.
    pub delivery: Option<Delivery>,
    /// Class of updates that need not keep their order.
    pub update_class: Class,
    /// Histories of pages homed here that other nodes have fetched.
    pub readers: BTreeMap<u64, Readers>,
    /// Subscribers of pages homed elsewhere, as their homes told.
    pub remote_subscribers: BTreeMap<u64, Vec<Rank>>,
    /// Grows with each change of the subscribers of pages homed here.
    pub subscription: u64,
    /// Value of `subscription` when each writer was last told.
    pub reported_subscription: BTreeMap<Rank, u64>,
    pub statistics: ArrayStatistics,
    /// Pages homed here that nobody has fetched since this node's interval that names them. The
    /// value is the interval's number (COH-3.5).
    pub noticed: BTreeMap<u64, u64>,
    pub streams: Streams,
    pub moving: MovingHomes,
}

/// Leaves out the counters.
#[cfg(test)]
impl core::hash::Hash for Array {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Array {
            name,
            homes,
            pages,
            nodes,
            agreed,
            is_segment,
            states,
            copies,
            twins,
            guarded,
            delivery,
            update_class,
            readers,
            remote_subscribers,
            subscription,
            reported_subscription,
            statistics: _,
            noticed,
            streams,
            moving,
        } = self;
        (name, homes, pages, nodes, agreed, states, twins, guarded).hash(state);
        is_segment.hash(state);
        (*update_class as u8).hash(state);
        (delivery, readers, remote_subscribers, subscription, reported_subscription).hash(state);
        (noticed, streams, moving, copies).hash(state);
    }
}

impl Array {
    /// Creates the array. An unsound declaration (see [`Declaration::problem`]) gives an array
    /// without pages.
    pub fn new(declaration: Declaration, me: Rank, nodes: u32) -> Array {
        let pages = if declaration.problem(nodes).is_none() { declaration.pages() } else { 0 };
        let mut states = vec![PageState::Invalid; usize::try_from(pages).unwrap_or(0)];
        for run in declaration.homes.runs(me, pages, nodes) {
            if let Some(states) = states.get_mut(run.start as usize..run.end as usize) {
                states.fill(PageState::HomeUntouched);
            }
        }
        Array {
            name: declaration.name,
            homes: declaration.homes,
            pages,
            nodes,
            agreed: false,
            is_segment: false,
            states,
            copies: Copies::new(nodes > 2 && me > 0),
            twins: BTreeMap::new(),
            guarded: false,
            delivery: None,
            update_class: Class::Unordered,
            readers: BTreeMap::new(),
            remote_subscribers: BTreeMap::new(),
            subscription: 0,
            reported_subscription: BTreeMap::new(),
            statistics: ArrayStatistics::default(),
            noticed: BTreeMap::new(),
            streams: Streams::default(),
            moving: MovingHomes::default(),
        }
    }

    /// Forgets all pages, because all nodes map the same memory (COH-16.2).
    pub fn make_segment(&mut self) {
        self.is_segment = true;
        self.pages = 0;
        self.states = Vec::new();
    }

    /// Returns the state of a page. A page outside the array is invalid.
    pub fn state(&self, page: u64) -> PageState {
        usize::try_from(page)
            .ok()
            .and_then(|page| self.states.get(page))
            .copied()
            .unwrap_or(PageState::Invalid)
    }

    /// Returns the first page of a range that is mapped here and homed elsewhere, or was requested.
    pub fn first_held(&self, pages: &Range<u64>) -> Option<u64> {
        let start = usize::try_from(pages.start).ok()?;
        let end = usize::try_from(pages.end).ok()?.min(self.states.len());
        let is_held = |state: &PageState| {
            matches!(state, PageState::Read | PageState::Write | PageState::Fetching)
        };
        let place = self.states.get(start..end)?.iter().position(is_held)?;
        Some(pages.start + place as u64)
    }

    pub fn set(&mut self, page: u64, state: PageState) {
        if let Some(slot) = usize::try_from(page).ok().and_then(|page| self.states.get_mut(page)) {
            if slot.is_copy() != state.is_copy() {
                self.copies.change(page);
            }
            *slot = state;
        }
    }

    /// Returns the pages that became copies and that this node has not told.
    pub fn untold_copies(&self) -> NumberSet {
        self.copies.untold(|page| self.state(page).is_copy())
    }

    /// Returns the pages that this node has told and that have ceased to be copies.
    pub fn lost_copies(&self) -> NumberSet {
        self.copies.lost(|page| self.state(page).is_copy())
    }

    /// Returns how pages are mapped that may be accessed so. Pages of guarded arrays need no
    /// protection (COH-10.13).
    pub fn mapping(&self, access: Access) -> Access {
        if self.guarded { Access::Write } else { access }
    }

    /// Returns the present home of a page (COH-2.2, COH-11).
    pub fn home(&self, page: u64) -> Rank {
        let moved = self.moving.home(page);
        moved.unwrap_or_else(|| self.homes.home(page, self.pages, self.nodes))
    }

    /// Returns `true` if this is a range of pages of this array and not empty.
    pub fn contains(&self, first: u64, count: u64) -> bool {
        count > 0 && first.checked_add(count).is_some_and(|end| end <= self.pages)
    }

    /// Returns the error of pages that lie outside the array.
    #[cold]
    pub fn out_of_range(&self, doing: String, pages: &Range<u64>) -> CoherenceError {
        let (first, end) = (pages.start, pages.end);
        CoherenceError::OutOfRange {
            doing,
            array: self.name.clone(),
            first,
            end,
            pages: self.pages,
        }
    }

    /// Returns the longest row of pages around `page` in the same state, inside `window`.
    pub fn row(&self, page: u64, window: Range<u64>) -> Range<u64> {
        let state = self.state(page);
        let mut first = page;
        while first > window.start && self.state(first - 1) == state {
            first -= 1;
        }
        let mut end = page + 1;
        while end < window.end.min(self.pages) && self.state(end) == state {
            end += 1;
        }
        first..end
    }

    /// Returns the nodes that get what is written to a page, as far as this node knows.
    pub fn subscribers(&self, page: u64) -> &[Rank] {
        let here = self.readers.get(&page).map(|readers| &readers.subscribers);
        here.or_else(|| self.remote_subscribers.get(&page)).map_or(&[], Vec::as_slice)
    }

    /// Returns `true` if all these pages are invalid.
    pub fn is_invalid(&self, range: &Range<u64>) -> bool {
        range.clone().all(|page| self.state(page) == PageState::Invalid)
    }
}
