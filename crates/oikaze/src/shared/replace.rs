//! Operations that replace an array by another one with the same content.

use super::builder::distribution::Distribution;
use super::core::{ArrayCore, Settings};
use super::shape::{Extents, Shape};
use crate::error::{Error, Result};
use crate::shared::array::SharedArray;
use crate::shared::block::array_block::ArrayBlock;
use crate::shared::element::Element;
use oikaze_protocol::coherence::{Ownership, Replacement};
use std::sync::Arc;

impl<T: Element> SharedArray<T> {
    /// Gives the array another shape with as many axes. Elements keep their indices. Elements that
    /// were not there before are zero, and those outside the new shape are gone. Collective, and a
    /// barrier. While the elements are copied, memory for both shapes is needed.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mut table = job.array::<u64>("table", [4, 100])?;
    /// table.fill(7)?;
    /// table.resize([8, 50])?;
    /// let all = table.read(table.whole())?;
    /// assert_eq!((all[[3, 49]], all[[4, 0]]), (7, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The new shape has another number of axes, or does not fit the distribution; nodes disagree;
    /// a node has no memory (all nodes get these errors); a node is lost; a guard of any array of
    /// this node is alive. The array is as before then.
    #[track_caller]
    pub fn resize(&mut self, shape: impl Shape) -> Result<()> {
        self.core = self.core.resized(shape.extents())?;
        Ok(())
    }

    /// Gives the array another distribution over the nodes. All elements stay. Collective, and a
    /// barrier. While the elements are copied, memory for both arrays is needed.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// use oikaze::shared::builder::Distribution;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mut grid = job.array::<f64>("grid", [64, 64])?;
    /// grid.redistribute(Distribution::Block { axis: 1 })?;
    /// assert_eq!(grid.home_block(job.rank()).range(0), 0..64);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The distribution does not fit the shape; nodes disagree; a node has no memory (all nodes get
    /// these errors); a node is lost; a guard of any array of this node is alive. The array is as
    /// before then.
    #[track_caller]
    pub fn redistribute(&mut self, distribution: impl Into<Distribution>) -> Result<()> {
        self.core = self.core.redistributed(distribution.into())?;
        Ok(())
    }

    /// Fetches the `n` elements around the block, and subscribes to them: whoever writes them sends
    /// them to this node with the next barrier. Returns without waiting for the elements.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let field = job.array::<f32>("field", [64, 64])?;
    /// let mine = field.home_block(job.rank());
    /// field.halo(mine, 1)?;
    /// for _ in 0..3 {
    ///     let mut sum = 0.0;
    ///     field.read(mine.grow(1))?.iter().for_each(|value| sum += value); // no page is fetched
    ///     job.barrier()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The block is one of an array of another shape.
    pub fn halo(&self, block: ArrayBlock, n: usize) -> Result<()> {
        self.core.halo(&block, n)
    }
}

impl ArrayCore {
    /// Returns the array that replaces this one and has another shape.
    #[track_caller]
    pub(crate) fn resized(&self, extents: Extents) -> Result<Self> {
        let settings = match extents.dimensions() == self.shape().dimensions() {
            true => Ok(Settings { extents, ..self.settings.clone() }),
            false => Err(Error::invalid(
                format!("resize array \"{}\"", self.name),
                format!(
                    "it has the shape {:?}, and {extents:?} has other axes; give one extent for each axis, or make another array",
                    self.shape()
                ),
            )),
        };
        self.replaced("resize", settings)
    }

    /// Returns the array that replaces this one and has another distribution.
    #[track_caller]
    pub(crate) fn redistributed(&self, distribution: Distribution) -> Result<Self> {
        let settings = Settings { distribution, moving_homes: false, ..self.settings.clone() };
        self.replaced("redistribute", Ok(settings))
    }

    #[track_caller]
    fn replaced(&self, doing: &str, settings: Result<Settings>) -> Result<Self> {
        let (node, tracker) = (Arc::clone(&self.node), Arc::clone(self.memory.tracker()));
        let replaces = Replacement { array: self.memory.array(), call: doing.to_owned() };
        let new = Self::declare(&node, &tracker, &self.name, settings, Some(replaces), self.limit)?;
        self.step(doing, (2, &[]), || Ok((0, self.copy_to(&new)?)))?;
        Ok(new)
    }

    /// Copies the elements that both arrays have, as far as they belong to this node in the other
    /// one.
    fn copy_to(&self, other: &Self) -> Result<()> {
        for block in other.home_blocks(self.node.rank()) {
            let ranges = (0..block.dimensions()).map(|axis| {
                let extent = self.shape().extent(axis);
                (axis, block.range(axis).start.min(extent)..block.range(axis).end.min(extent))
            });
            let cut = |whole: ArrayBlock| {
                ranges.clone().fold(whole, |block, (axis, range)| block.with_range(axis, range))
            };
            let (from, to) = (cut(self.whole()), cut(block));
            if from.is_empty() {
                continue;
            }
            let from = self.read_block::<u8>(from)?;
            let mut to = other.write_block::<u8>(to, Ownership::Owned)?;
            copy_rows(from.slices(), to.slices_mut());
        }
        Ok(())
    }

    /// Does what [`SharedArray::halo`] does.
    pub fn halo(&self, block: &ArrayBlock, n: usize) -> Result<()> {
        self.check_block(block)?;
        let parts = block.border(n);
        let mut rows: Vec<_> = parts.iter().flat_map(ArrayBlock::rows).collect();
        rows.sort_unstable_by_key(|row| row.start);
        self.prefetch(&rows)?;
        parts.iter().try_for_each(|part| self.change_subscription(&part.rows(), true))
    }
}

/// Copies bytes, whose rows may have other lengths in the two blocks.
fn copy_rows(from: &[&[u8]], to: &mut [&mut [u8]]) {
    let mut rows = from.iter();
    let mut left: &[u8] = &[];
    for row in to {
        let mut row = &mut **row;
        while !row.is_empty() {
            if left.is_empty() {
                let Some(next) = rows.next() else { return };
                left = next;
            }
            let len = left.len().min(row.len());
            let (copied, after) = row.split_at_mut(len);
            let (given, rest) = left.split_at(len);
            copied.copy_from_slice(given);
            (row, left) = (after, rest);
        }
    }
}
