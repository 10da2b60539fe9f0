//! Distribution of an array's elements over the nodes.

use crate::shared::block::array_block::ArrayBlock;
use crate::shared::shape::Extents;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{AxisHomes, Homes, Spread};

/// Distribution of an array over the nodes: which node is home to which elements.
///
/// Homes are kept for each page of 4 KiB. Along an axis, the first byte of a page decides which
/// index, and so which node, the page belongs to. A page with elements of two nodes is home to one
/// of them, and the other one writes it as any page of another node.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::shared::builder::Distribution;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let columns = job
///     .array_builder::<f64>("columns", [16, 1024])
///     .distribution(Distribution::Block { axis: 1 })
///     .build()?;
/// let mine = columns.home_block(job.rank());
/// assert_eq!(mine.range(0), 0..16); // all rows of some columns
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Homes by pages, whatever elements the pages hold.
    Pages(Homes),
    /// One block of indices along the axis for each node, of lengths as equal as possible.
    Block {
        /// Number of the axis; 0 is the outermost one.
        axis: usize,
    },
    /// Blocks of `indices` indices along the axis for each node in turn.
    Cyclic {
        /// Number of the axis; 0 is the outermost one.
        axis: usize,
        /// Number of consecutive indices of one node, at least 1.
        indices: usize,
    },
    /// One rank for each index along the axis.
    Explicit {
        /// Number of the axis; 0 is the outermost one.
        axis: usize,
        /// Ranks of the owners, as many as there are indices.
        owners: Vec<Rank>,
    },
}

impl From<Homes> for Distribution {
    fn from(homes: Homes) -> Self {
        Distribution::Pages(homes)
    }
}

impl Distribution {
    /// Returns the distribution of an array of this shape for which the program chose none.
    pub(crate) fn of(extents: &Extents) -> Self {
        match extents.dimensions() {
            1 => Distribution::Pages(Homes::Block),
            _ => Distribution::Block { axis: 0 },
        }
    }

    /// Returns the axis along which blocks are cut.
    pub(crate) fn axis(&self) -> usize {
        match self {
            Distribution::Pages(_) => 0,
            Distribution::Block { axis }
            | Distribution::Cyclic { axis, .. }
            | Distribution::Explicit { axis, .. } => *axis,
        }
    }

    fn spread(&self) -> Option<Spread> {
        Some(match self {
            Distribution::Pages(_) => return None,
            Distribution::Block { .. } => Spread::Block,
            Distribution::Cyclic { indices, .. } => Spread::Cyclic { indices: *indices as u64 },
            Distribution::Explicit { owners, .. } => Spread::Explicit(owners.clone()),
        })
    }

    /// Returns the homes of the pages of an array of this shape, with elements of `size` bytes. The
    /// error says why there are none.
    pub(crate) fn homes(&self, extents: &Extents, size: usize) -> Result<Homes, String> {
        let axis = self.axis();
        let spread = match (self, self.spread()) {
            (Distribution::Pages(homes), _) => return Ok(homes.clone()),
            (_, Some(spread)) => spread,
            (_, None) => return Ok(Homes::Block),
        };
        if axis >= extents.dimensions() {
            return Err(format!(
                "it is distributed along axis {axis}, and has {} axes: the first one is axis 0",
                extents.dimensions()
            ));
        }
        let stride = extents.stride(axis).saturating_mul(size).max(1) as u64;
        let extent = extents.extent(axis) as u64;
        Ok(Homes::Axis(AxisHomes { axis: axis as u8, stride, extent, spread }))
    }

    /// Returns the blocks of one node. The blocks of all nodes hold each element once.
    pub(crate) fn blocks(
        &self,
        rank: Rank,
        extents: &Extents,
        size: usize,
        nodes: u32,
    ) -> Vec<ArrayBlock> {
        let whole = ArrayBlock::whole(*extents, self.axis());
        let extent = extents.extent(self.axis()) as u64;
        let spread = match (self, self.spread()) {
            (Distribution::Pages(homes), _) => {
                // Pages hold whole indices of the outermost axis only by accident, so an index
                // belongs to the home of the page with its first byte.
                let pages = (extents.len() as u64).saturating_mul(size as u64);
                let pages = pages.div_ceil(oikaze_protocol::limits::PAGE as u64);
                let stride = (extents.stride(0).saturating_mul(size).max(1)) as u64;
                let first = |page: u64| {
                    let byte = page.saturating_mul(oikaze_protocol::limits::PAGE as u64);
                    byte.div_ceil(stride).min(extent) as usize
                };
                let runs = homes.runs(rank, pages, nodes);
                let ranges = runs.map(|run| first(run.start)..first(run.end));
                let ranges = ranges.filter(|range| !range.is_empty());
                return ranges.map(|range| whole.with_range(0, range)).collect();
            }
            (_, Some(spread)) => spread,
            (_, None) => Spread::Block,
        };
        let runs = spread.runs(rank, extent, nodes);
        runs.map(|run| whole.with_range(self.axis(), run.start as usize..run.end as usize))
            .collect()
    }
}
