//! Assignment of an array's pages to homes (COH-2.2).

use crate::Rank;
use crate::limits::PAGE;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Assignment of pages to homes. The home keeps the always valid copy of its page (COH-2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum Homes {
    /// One run of pages per node in rank order, of lengths as equal as possible.
    #[default]
    Block,
    /// Runs of `pages` pages for each node in turn.
    Cyclic {
        /// Number of consecutive pages on one node, at least 1.
        pages: u64,
    },
    /// One rank per page.
    Explicit(Vec<Rank>),
    /// The owner of an index along one axis of the array. The first byte of a page says which
    /// index decides.
    Axis(AxisHomes),
}

/// Homes by an index along one axis of an array in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct AxisHomes {
    /// Number of the axis. The outermost axis is 0.
    pub axis: u8,
    /// Number of bytes from an index of the axis to the next one.
    pub stride: u64,
    /// Number of indices.
    pub extent: u64,
    /// Owners of the indices.
    pub spread: Spread,
}

/// Assignment of the indices of an axis to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum Spread {
    /// One run of indices per node in rank order, of lengths as equal as possible.
    Block,
    /// Runs of `indices` indices for each node in turn.
    Cyclic {
        /// Number of consecutive indices on one node, at least 1.
        indices: u64,
    },
    /// One rank per index.
    Explicit(Vec<Rank>),
}

/// Returns the part that holds `index`, if `count` numbers are divided into `nodes` runs of lengths
/// as equal as possible.
fn block_of(index: u64, count: u64, nodes: u32) -> Rank {
    let last = nodes.saturating_sub(1);
    let rank = u128::from(index) * u128::from(nodes) / u128::from(count.max(1));
    Rank::try_from(rank).unwrap_or(last).min(last)
}

impl Spread {
    /// Returns the owner of an index of `extent`.
    #[must_use]
    pub fn owner(&self, index: u64, extent: u64, nodes: u32) -> Rank {
        match self {
            Spread::Block => block_of(index, extent, nodes),
            Spread::Cyclic { indices } => {
                (index / (*indices).max(1) % u64::from(nodes.max(1))) as Rank
            }
            Spread::Explicit(ranks) => listed(ranks, index, nodes),
        }
    }

    /// Returns the end of the run of indices with one owner that holds `index`. It lies behind
    /// `index`.
    fn run_end(&self, index: u64, extent: u64, nodes: u32) -> u64 {
        let end = match self {
            Spread::Block => Homes::block(block_of(index, extent, nodes), extent, nodes).end,
            Spread::Cyclic { indices } => {
                let turn = (*indices).max(1);
                (index / turn).saturating_add(1).saturating_mul(turn)
            }
            Spread::Explicit(ranks) => {
                let owner = listed(ranks, index, nodes);
                let differs = |next: &u64| listed(ranks, *next, nodes) != owner;
                (index.saturating_add(1)..extent).find(differs).unwrap_or(extent)
            }
        };
        end.min(extent).max(index.saturating_add(1))
    }

    /// Returns the indices of `rank`, in runs.
    pub fn runs(
        &self,
        rank: Rank,
        extent: u64,
        nodes: u32,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            while next < extent {
                let start = next;
                next = self.run_end(start, extent, nodes);
                if self.owner(start, extent, nodes) == rank {
                    return Some(start..next);
                }
            }
            None
        })
    }
}

fn listed(ranks: &[Rank], index: u64, nodes: u32) -> Rank {
    let rank = usize::try_from(index).ok().and_then(|index| ranks.get(index));
    rank.copied().unwrap_or(0).min(nodes.saturating_sub(1))
}

impl AxisHomes {
    fn home(&self, page: u64, nodes: u32) -> Rank {
        let index = page.saturating_mul(PAGE as u64) / self.stride.max(1) % self.extent.max(1);
        self.spread.owner(index, self.extent, nodes)
    }

    /// Returns the first page behind `page` whose first byte has another run of indices.
    fn next_run(&self, page: u64, nodes: u32) -> u64 {
        let (stride, extent) = (self.stride.max(1), self.extent.max(1));
        let along = page.saturating_mul(PAGE as u64) / stride;
        let (turn, index) = (along / extent, along % extent);
        let end = self.spread.run_end(index, extent, nodes);
        let byte = turn.saturating_mul(extent).saturating_add(end).saturating_mul(stride);
        byte.div_ceil(PAGE as u64).max(page.saturating_add(1))
    }

    fn problem(&self, nodes: u32) -> Option<String> {
        match &self.spread {
            Spread::Cyclic { indices: 0 } => {
                Some(String::from("a cyclic distribution needs at least 1 index a turn"))
            }
            Spread::Explicit(ranks) if ranks.len() as u64 != self.extent => Some(format!(
                "it names {} owners for the {} indices of axis {}",
                ranks.len(),
                self.extent,
                self.axis
            )),
            Spread::Explicit(ranks) => {
                let bad = ranks.iter().position(|rank| *rank >= nodes)?;
                Some(format!(
                    "the owner of index {bad} of axis {} is not one of the {nodes} nodes",
                    self.axis
                ))
            }
            _ => None,
        }
    }
}

impl Homes {
    /// Returns the home of `page` in an array of `pages` pages on `nodes` nodes (COH-2.2).
    #[must_use]
    pub fn home(&self, page: u64, pages: u64, nodes: u32) -> Rank {
        match self {
            Homes::Block => block_of(page, pages, nodes),
            Homes::Cyclic { pages: run } => {
                (page / (*run).max(1) % u64::from(nodes.max(1))) as Rank
            }
            Homes::Explicit(ranks) => listed(ranks, page, nodes),
            Homes::Axis(axis) => axis.home(page, nodes),
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
        let is_home = move |page: u64| self.home(page, pages, nodes) == rank;
        // A scan of all pages would be slow where runs are long, because arrays may be large.
        let run_end = move |page: u64| match self {
            Homes::Axis(axis) => axis.next_run(page, nodes).min(pages),
            _ => page + 1,
        };
        let mut block = Some(Homes::block(rank, pages, nodes));
        let mut next = 0;
        core::iter::from_fn(move || {
            if matches!(self, Homes::Block) {
                return block.take().filter(|block| !block.is_empty());
            }
            while next < pages && !is_home(next) {
                next = run_end(next);
            }
            let first = next;
            while next < pages && is_home(next) {
                next = run_end(next);
            }
            (first < next).then_some(first..next)
        })
    }

    /// Returns why these homes do not fit an array of `pages` pages on `nodes` nodes, or `None`.
    pub(crate) fn problem(&self, pages: u64, nodes: u32) -> Option<String> {
        match self {
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
            Homes::Axis(axis) => axis.problem(nodes),
            _ => None,
        }
    }
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

    /// COH-2.2: along an axis, the index of a page's first byte decides.
    #[test]
    fn homes_along_an_axis_follow_the_first_byte_of_each_page() {
        let spreads = |extent: u64, nodes: u32| {
            let list = (0..extent).map(|index| (index / 2 % u64::from(nodes)) as Rank).collect();
            [Spread::Block, Spread::Cyclic { indices: 3 }, Spread::Explicit(list)]
        };
        for (outer, extent, stride) in
            [(1, 10, 4096u64), (1, 7, 1000), (3, 5, 6000), (2, 9, 8), (1, 100, 12288), (40, 3, 100)]
        {
            let pages = (outer * extent * stride).div_ceil(PAGE as u64);
            for nodes in [1u32, 2, 3, 8] {
                for spread in spreads(extent, nodes) {
                    let owner = |index| spread.owner(index, extent, nodes);
                    for rank in 0..nodes {
                        let mine: Vec<u64> = spread.runs(rank, extent, nodes).flatten().collect();
                        let expected: Vec<u64> =
                            (0..extent).filter(|i| owner(*i) == rank).collect();
                        assert_eq!(mine, expected, "{spread:?}, node {rank} of {nodes}");
                    }
                    let axis = AxisHomes { axis: 0, stride, extent, spread: spread.clone() };
                    let homes = Homes::Axis(axis);
                    for page in 0..pages {
                        let index = page * PAGE as u64 / stride % extent;
                        assert_eq!(homes.home(page, pages, nodes), owner(index));
                    }
                    for rank in 0..nodes {
                        let mine: Vec<u64> = homes.runs(rank, pages, nodes).flatten().collect();
                        let expected: Vec<u64> =
                            (0..pages).filter(|p| homes.home(*p, pages, nodes) == rank).collect();
                        assert_eq!(mine, expected, "{homes:?}, node {rank} of {nodes}");
                    }
                }
            }
        }
    }
}
