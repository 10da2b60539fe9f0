//! One shared array on this node: its declaration, the homes of its pages, and the state of each
//! (COH-2, COH-3).

use super::fetch::Streams;
use super::statistics::ArrayStatistics;
use super::update::delivery::Delivery;
use super::update::subscribe::Readers;
use super::{Access, ArrayId, Declaration, Homes};
use crate::Rank;
use crate::limits::{NAME_MAX, PAGE};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of pages of one array.
pub const ARRAY_PAGES_MAX: u64 = 1 << 28;

/// Array number and page number of one page.
pub(super) type PageId = (ArrayId, u64);

/// State of a page on this node (COH-3.1). The first four are of pages whose home is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
#[repr(u8)]
pub(crate) enum PageState {
    /// Not mapped, with old bytes.
    Invalid,
    /// Not mapped, and requested from its home.
    Fetching,
    /// Mapped for loads, as new as this node's knowledge.
    Read,
    /// Mapped for stores. A twin keeps its bytes from before the first store.
    Write,
    /// Home is here, no other node has a copy, never touched, not mapped.
    HomeUntouched,
    /// Home is here, no other node has a copy: mapped for stores and not tracked.
    HomePrivate,
    /// Home is here, other nodes may have copies, not mapped.
    HomeShared,
    /// Home is here, other nodes may have copies: mapped for loads.
    HomeRead,
    /// Home is here, other nodes may have copies, written since the last release.
    HomeWrite,
}

impl PageState {
    pub fn is_home(self) -> bool {
        !matches!(
            self,
            PageState::Invalid | PageState::Fetching | PageState::Read | PageState::Write
        )
    }

    pub fn holds(self, access: Access) -> bool {
        match self {
            PageState::Write | PageState::HomePrivate | PageState::HomeWrite => true,
            PageState::Read | PageState::HomeRead => access == Access::Read,
            _ => false,
        }
    }
}

impl Homes {
    /// Returns the home of `page` in an array of `pages` pages on `nodes` nodes (COH-2.2).
    #[must_use]
    pub fn home(&self, page: u64, pages: u64, nodes: u32) -> Rank {
        let last = nodes.saturating_sub(1);
        match self {
            Homes::Block => {
                let rank = u128::from(page) * u128::from(nodes) / u128::from(pages.max(1));
                Rank::try_from(rank).unwrap_or(last).min(last)
            }
            Homes::Cyclic { pages: run } => {
                (page / (*run).max(1) % u64::from(nodes.max(1))) as Rank
            }
            Homes::Explicit(ranks) => usize::try_from(page)
                .ok()
                .and_then(|page| ranks.get(page))
                .copied()
                .unwrap_or(0)
                .min(last),
        }
    }

    /// Returns the pages homed at `rank` under [`Homes::Block`].
    #[must_use]
    pub fn block(rank: Rank, pages: u64, nodes: u32) -> Range<u64> {
        let nodes = u128::from(nodes.max(1));
        let start = |rank: u128| {
            u64::try_from((rank * u128::from(pages)).div_ceil(nodes)).unwrap_or(pages).min(pages)
        };
        start(u128::from(rank))..start(u128::from(rank) + 1)
    }

    /// Returns the pages homed at `rank`, in runs, of `pages` pages on `nodes` nodes.
    pub fn runs(
        &self,
        rank: Rank,
        pages: u64,
        nodes: u32,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        let is_home = move |page: &u64| self.home(*page, pages, nodes) == rank;
        let mut block = Some(Homes::block(rank, pages, nodes));
        let mut next = 0;
        core::iter::from_fn(move || {
            // A scan of all pages would be slow, because such arrays may be large.
            if matches!(self, Homes::Block) {
                return block.take().filter(|block| !block.is_empty());
            }
            let first = (next..pages).find(is_home)?;
            next = (first..pages).find(|page| !is_home(page)).unwrap_or(pages);
            Some(first..next)
        })
    }
}

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
        if pages == 0 || pages > ARRAY_PAGES_MAX {
            return Some(format!(
                "it has {} bytes, allowed are 1 to {}",
                self.bytes,
                ARRAY_PAGES_MAX * PAGE as u64
            ));
        }
        match &self.homes {
            Homes::Cyclic { pages: 0 } => {
                Some(String::from("cyclic homes need at least 1 page a turn"))
            }
            Homes::Explicit(ranks) if ranks.len() as u64 != pages => {
                Some(format!("it names {} homes for its {pages} pages", ranks.len()))
            }
            Homes::Explicit(ranks) => {
                let bad = ranks.iter().position(|rank| *rank >= nodes)?;
                Some(format!("the home of page {bad} is not one of the {nodes} nodes"))
            }
            _ => None,
        }
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
    states: Vec<PageState>,
    /// Bytes of each dirty page from when it was last clean.
    pub twins: BTreeMap<u64, Box<[u8]>>,
    /// `true` while this node writes the array under guards alone, so that its pages need no
    /// protection (COH-10.13).
    pub guarded: bool,
    /// How transfers end at their receiver; `None` if the runtime chooses.
    pub delivery: Option<Delivery>,
    /// Histories of pages homed here that other nodes have fetched.
    pub readers: BTreeMap<u64, Readers>,
    /// Subscribers of pages homed elsewhere, as their homes told.
    pub remote_subscribers: BTreeMap<u64, Vec<Rank>>,
    /// Grows with each change of the subscribers of pages homed here.
    pub subscription: u64,
    /// Value of `subscription` when each writer was last told.
    pub told_subscription: BTreeMap<Rank, u64>,
    pub statistics: ArrayStatistics,
    /// Pages homed here that nobody has fetched since this node's interval that names them. The
    /// value is the interval's number (COH-3.5).
    pub noticed: BTreeMap<u64, u64>,
    pub streams: Streams,
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
            states,
            twins,
            guarded,
            delivery,
            readers,
            remote_subscribers,
            subscription,
            told_subscription,
            statistics: _,
            noticed,
            streams,
        } = self;
        (name, homes, pages, nodes, agreed, states, twins, guarded).hash(state);
        (delivery, readers, remote_subscribers, subscription, told_subscription).hash(state);
        (noticed, streams).hash(state);
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
            states,
            twins: BTreeMap::new(),
            guarded: false,
            delivery: None,
            readers: BTreeMap::new(),
            remote_subscribers: BTreeMap::new(),
            subscription: 0,
            told_subscription: BTreeMap::new(),
            statistics: ArrayStatistics::default(),
            noticed: BTreeMap::new(),
            streams: Streams::default(),
        }
    }

    /// Removes all pages, because not all nodes have declared the same. No node has pages of it.
    pub fn disown(&mut self) {
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

    pub fn set(&mut self, page: u64, state: PageState) {
        if let Some(slot) = usize::try_from(page).ok().and_then(|page| self.states.get_mut(page)) {
            *slot = state;
        }
    }

    /// Returns how pages are mapped that may be accessed so. Pages of guarded arrays need no
    /// protection (COH-10.13).
    pub fn mapping(&self, access: Access) -> Access {
        if self.guarded { Access::Write } else { access }
    }

    pub fn home(&self, page: u64) -> Rank {
        self.homes.home(page, self.pages, self.nodes)
    }

    /// Returns `true` if this is a range of pages of this array and not empty.
    pub fn contains(&self, first: u64, count: u64) -> bool {
        count > 0 && first.checked_add(count).is_some_and(|end| end <= self.pages)
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
}

/// Joins sorted page numbers into ranges.
pub(super) fn ranges(sorted: impl IntoIterator<Item = PageId>) -> Vec<(ArrayId, Range<u64>)> {
    let mut out: Vec<(ArrayId, Range<u64>)> = Vec::new();
    for (array, page) in sorted {
        match out.last_mut() {
            Some((a, range)) if *a == array && range.end == page => range.end += 1,
            _ => out.push((array, page..page + 1)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn homes(homes: &Homes, pages: u64, nodes: u32) -> Vec<Rank> {
        (0..pages).map(|page| homes.home(page, pages, nodes)).collect()
    }

    /// COH-2.2, to the page.
    #[test]
    fn each_page_has_its_home() {
        assert_eq!(homes(&Homes::Block, 8, 3), [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(homes(&Homes::Block, 2, 4), [0, 2]);
        assert_eq!(homes(&Homes::Cyclic { pages: 1 }, 5, 2), [0, 1, 0, 1, 0]);
        assert_eq!(homes(&Homes::Cyclic { pages: 2 }, 7, 3), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(homes(&Homes::Explicit([2, 0, 1].into()), 3, 3), [2, 0, 1]);
        for (pages, nodes) in [(1u64, 1u32), (8, 3), (100, 7), (3, 8)] {
            let all = homes(&Homes::Block, pages, nodes);
            for rank in 0..nodes {
                let block = Homes::block(rank, pages, nodes);
                assert!(
                    (0..pages).all(|page| (all[page as usize] == rank) == block.contains(&page))
                );
            }
            for homes in [
                Homes::Block,
                Homes::Cyclic { pages: 1 },
                Homes::Cyclic { pages: 3 },
                Homes::Explicit(all),
            ] {
                for rank in 0..nodes {
                    let mine: Vec<u64> = homes.runs(rank, pages, nodes).flatten().collect();
                    let expected: Vec<u64> =
                        (0..pages).filter(|page| homes.home(*page, pages, nodes) == rank).collect();
                    assert_eq!(mine, expected, "{homes:?}, node {rank} of {nodes}");
                    assert!(homes.runs(rank, pages, nodes).all(|run| !run.is_empty()));
                }
            }
        }
    }
}
