//! Rectangular blocks of a shared array.

use crate::shared::shape::Extents;
use oikaze_protocol::coherence::AXES_MAX;
use std::fmt;
use std::ops::Range;

/// Rectangular part of an array: a range of indices along each axis.
///
/// [`SharedArray::home_block`] and [`SharedArray::block`] make blocks. The other methods cut new
/// ones. A block knows the shape of its array and the axis along which the array is distributed.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let field = job.array::<f32>("field", [8, 100])?;
/// let block = field.block([2..6, 0..100])?;
/// assert_eq!(block.grow(1).range(0), 1..7);
/// assert_eq!(block.grow(50), field.whole()); // no further than the array
/// let parts = [block.first(1), block.last(1), block.inner(1)].map(|part| part.range(0));
/// assert_eq!(parts, [2..3, 5..6, 3..5]); // each row of the block once
/// # Ok(())
/// # }
/// ```
///
/// [`SharedArray::home_block`]: crate::shared::SharedArray::home_block
/// [`SharedArray::block`]: crate::shared::SharedArray::block
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ArrayBlock {
    /// Axes behind the last one have the range 0..1.
    starts: [usize; AXES_MAX],
    ends: [usize; AXES_MAX],
    extents: Extents,
    /// Axis along which the array is distributed.
    axis: usize,
}

impl ArrayBlock {
    /// Makes the block of a whole array.
    pub(crate) fn whole(extents: Extents, axis: usize) -> Self {
        let mut ends = [1; AXES_MAX];
        (0..AXES_MAX).zip(&mut ends).for_each(|(axis, end)| *end = extents.extent(axis));
        Self { starts: [0; AXES_MAX], ends, extents, axis }
    }

    /// Returns the same block with another range along one axis, cut to the array.
    pub(crate) fn with_range(mut self, axis: usize, range: Range<usize>) -> Self {
        let extent = self.extents.extent(axis);
        if let (Some(start), Some(end)) = (self.starts.get_mut(axis), self.ends.get_mut(axis)) {
            *end = range.end.min(extent);
            *start = range.start.min(*end);
        }
        self
    }

    /// Returns the number of axes.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.extents.dimensions()
    }

    /// Returns the shape of the array that the block is a part of.
    #[must_use]
    pub fn array_extents(&self) -> Extents {
        self.extents
    }

    /// Returns the indices along one axis. Behind the last axis it is 0..1.
    #[must_use]
    pub fn range(&self, axis: usize) -> Range<usize> {
        let at = |ends: &[usize; AXES_MAX], other| ends.get(axis).copied().unwrap_or(other);
        at(&self.starts, 0)..at(&self.ends, 1)
    }

    /// Returns the number of indices along one axis.
    #[must_use]
    pub fn extent(&self, axis: usize) -> usize {
        self.range(axis).len()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        (0..AXES_MAX).map(|axis| self.extent(axis)).product()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the block holds the element. The index has an entry for each axis.
    #[must_use]
    pub fn contains<const N: usize>(&self, index: [usize; N]) -> bool {
        self.position(&index).is_some()
    }

    /// Returns the block with `n` more indices on both sides of each axis, as far as the array has
    /// them. It is the block with its halo.
    #[must_use]
    pub fn grow(&self, n: usize) -> Self {
        (0..self.dimensions()).fold(*self, |block, axis| block.grow_along(axis, n))
    }

    /// Returns the block with `n` more indices on both sides of one axis, as far as the array has
    /// them.
    #[must_use]
    pub fn grow_along(&self, axis: usize, n: usize) -> Self {
        let Range { start, end } = self.range(axis);
        self.with_range(axis, start.saturating_sub(n)..end.saturating_add(n))
    }

    /// Returns the first `n` indices along the axis of the distribution.
    #[must_use]
    pub fn first(&self, n: usize) -> Self {
        let Range { start, end } = self.range(self.axis);
        self.with_range(self.axis, start..start.saturating_add(n).min(end))
    }

    /// Returns the last `n` indices along the axis of the distribution, without those of
    /// [`first`](Self::first) of the same `n`.
    #[must_use]
    pub fn last(&self, n: usize) -> Self {
        let end = self.range(self.axis).end;
        self.with_range(self.axis, self.inner(n).range(self.axis).end..end)
    }

    /// Returns the block without [`first`](Self::first) and [`last`](Self::last) of the same `n`.
    /// The three parts hold each element of the block once.
    #[must_use]
    pub fn inner(&self, n: usize) -> Self {
        let Range { start, end } = self.range(self.axis);
        let from = start.saturating_add(n).min(end);
        self.with_range(self.axis, from..end.saturating_sub(n).max(from))
    }

    /// Returns the elements of [`grow`](Self::grow) that are not in the block, as blocks that share
    /// no element. They are the halo of the block.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let field = job.array::<u8>("field", [10, 10])?;
    /// let halo = field.block([4..6, 0..10])?.border(1);
    /// assert_eq!(halo.iter().map(|block| block.range(0)).collect::<Vec<_>>(), [3..4, 6..7]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn border(&self, n: usize) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut inside = *self;
        for axis in 0..self.dimensions() {
            let grown = inside.grow_along(axis, n);
            let (inner, outer) = (inside.range(axis), grown.range(axis));
            parts.push(grown.with_range(axis, outer.start..inner.start));
            parts.push(grown.with_range(axis, inner.end..outer.end));
            inside = grown;
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Returns the elements that both blocks hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        (0..AXES_MAX).fold(*self, |block, axis| {
            let (one, other) = (self.range(axis), other.range(axis));
            block.with_range(axis, one.start.max(other.start)..one.end.min(other.end))
        })
    }

    /// Returns the place of an element among those of the block in row-major order.
    pub(crate) fn position(&self, index: &[usize]) -> Option<usize> {
        if index.len() != self.dimensions() {
            return None;
        }
        let mut position = 0;
        for (axis, index) in index.iter().enumerate() {
            let range = self.range(axis);
            if !range.contains(index) {
                return None;
            }
            position = position * range.len() + (index - range.start);
        }
        Some(position)
    }

    /// Returns the axis up to which the ranges of the inner axes are whole. The elements of one
    /// index before this axis lie side by side.
    fn joined_axis(&self) -> usize {
        let is_whole = |axis: &usize| self.extent(*axis) == self.extents.extent(*axis);
        (1..AXES_MAX).rev().take_while(is_whole).last().map_or(AXES_MAX - 1, |axis| axis - 1)
    }

    /// Returns the rows of the array's elements, in row-major order, that lie side by side. All
    /// rows have one length. It is empty if the block is.
    pub(crate) fn rows(&self) -> Vec<Range<usize>> {
        if self.is_empty() {
            return Vec::new();
        }
        let joined = self.joined_axis();
        let len: usize = (joined..AXES_MAX).map(|axis| self.extent(axis)).product();
        let mut starts = vec![0];
        for axis in 0..=joined {
            let (range, stride) = (self.range(axis), self.extents.stride(axis));
            let range = if axis == joined { range.start..range.start + 1 } else { range };
            let along = |start: usize| range.clone().map(move |index| start + index * stride);
            starts = starts.into_iter().flat_map(along).collect();
        }
        starts.into_iter().map(|start| start..start + len).collect()
    }
}

impl fmt::Debug for ArrayBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.dimensions()).map(|axis| self.range(axis))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shape;
    use proptest::prelude::*;

    fn all(block: &ArrayBlock) -> Vec<Vec<usize>> {
        let mut indices = vec![Vec::new()];
        for axis in 0..block.dimensions() {
            indices = indices
                .into_iter()
                .flat_map(|index: Vec<usize>| {
                    block.range(axis).map(move |next| index.iter().copied().chain([next]).collect())
                })
                .collect();
        }
        indices
    }

    fn extents() -> impl Strategy<Value = Extents> {
        let each = || 0..6usize;
        prop_oneof![
            each().prop_map(|a| a.extents()),
            [each(), each()].prop_map(|e| e.extents()),
            [each(), each(), each()].prop_map(|e| e.extents()),
            [each(), each(), each(), each()].prop_map(|e| e.extents()),
        ]
    }

    proptest! {
        #[test]
        fn rows_hold_each_element_of_the_block_in_order(
            extents in extents(), cuts in proptest::array::uniform8(0..7usize)
        ) {
            let mut block = ArrayBlock::whole(extents, 0);
            for axis in 0..extents.dimensions() {
                let (a, b) = (cuts[2 * axis], cuts[2 * axis + 1]);
                block = block.with_range(axis, a.min(b)..a.max(b));
            }
            let rows = block.rows();
            let expected: Vec<usize> =
                all(&block).iter().map(|index| extents.position(index).unwrap()).collect();
            prop_assert_eq!(rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
            prop_assert!(rows.windows(2).all(|pair| pair[0].len() == pair[1].len()));
            for (place, index) in all(&block).iter().enumerate() {
                prop_assert_eq!(block.position(index), Some(place));
            }
        }

        #[test]
        fn first_last_and_inner_hold_each_element_once(
            extents in extents(), cut in 0..6usize, end in 0..6usize, n in 0..8usize, axis in 0..4usize
        ) {
            let axis = axis % extents.dimensions();
            let block = ArrayBlock::whole(extents, axis).with_range(axis, cut.min(end)..cut.max(end));
            let parts = [block.first(n), block.last(n), block.inner(n)];
            let mut found: Vec<_> = parts.iter().flat_map(all).collect();
            found.sort();
            prop_assert_eq!(found, all(&block));
        }
    }

    #[test]
    fn border_and_block_are_the_grown_block() {
        let whole = ArrayBlock::whole([6, 7, 8].extents(), 1);
        let block = whole.with_range(0, 2..4).with_range(1, 0..3).with_range(2, 5..8);
        for n in 0..4 {
            let mut found: Vec<_> = block.border(n).iter().flat_map(all).collect();
            found.extend(all(&block));
            found.sort();
            assert_eq!(found, all(&block.grow(n)));
        }
    }

    #[test]
    fn slabs_are_one_row() {
        let whole = ArrayBlock::whole([10, 20, 30].extents(), 0);
        let one = |block: ArrayBlock| match &*block.rows() {
            [row] => row.clone(),
            rows => panic!("{rows:?}"),
        };
        assert_eq!(one(whole), 0..6000);
        assert_eq!(one(whole.with_range(0, 2..4)), 1200..2400);
        assert_eq!(whole.with_range(1, 5..6).rows().len(), 10);
        assert_eq!(whole.with_range(2, 5..6).rows().len(), 200);
        assert_eq!(one(ArrayBlock::whole(7.extents(), 0).with_range(0, 2..5)), 2..5);
    }
}
