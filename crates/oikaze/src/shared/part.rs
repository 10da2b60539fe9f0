//! Parts of a shared array that guards can cover.

use super::block::guard::{BlockReadGuard, BlockWriteGuard};
use crate::error::Result;
use crate::shared::array::SharedArray;
use crate::shared::block::array_block::ArrayBlock;
use crate::shared::element::Element;
use crate::shared::guard::{ReadGuard, WriteGuard};
use oikaze_protocol::coherence::Ownership;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// Part of an array that a guard covers: a range of elements in row-major order, such as `3..7` or
/// `..`, an [`ArrayBlock`], or a range for each axis.
///
/// A guard of a range is a slice. A guard of a block is indexed by `[[i, j]]`, with the indices of
/// the array, and gives rows as slices.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let grid = job.array::<f64>("grid", [100, 200])?;
/// if job.rank() == 0 {
///     let mut corner = grid.write([0..10, 190..200])?;
///     corner[[3, 195]] = 1.5;
///     corner.row_mut([4]).fill(2.0);
/// }
/// job.barrier()?;
/// assert_eq!(grid.read(3 * 200..4 * 200)?[195], 1.5);
/// assert_eq!(grid.read(grid.whole())?[[4, 199]], 2.0);
/// # Ok(())
/// # }
/// ```
pub trait Part: sealed::Sealed {
    /// Guard of such a part to read.
    type Reading<'a, T: Element>;
    /// Guard of such a part to write.
    type Writing<'a, T: Element>;

    #[doc(hidden)]
    fn read_from<T: Element>(self, array: &SharedArray<T>) -> Result<Self::Reading<'_, T>>;

    #[doc(hidden)]
    fn write_to<T: Element>(
        self,
        array: &SharedArray<T>,
        ownership: Ownership,
    ) -> Result<Self::Writing<'_, T>>;

    #[doc(hidden)]
    fn rows_of<T: Element>(self, array: &SharedArray<T>) -> Result<Vec<Range<usize>>>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ArrayBlock {}
    impl<const N: usize> Sealed for [std::ops::Range<usize>; N] {}
}

/// Returns the elements that a range of any form names in an array of `len` elements.
fn elements(range: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    start..end
}

macro_rules! range_part {
    ($($range:ty),*) => {
        $(
            impl sealed::Sealed for $range {}

            impl Part for $range {
                type Reading<'a, T: Element> = ReadGuard<'a, T>;
                type Writing<'a, T: Element> = WriteGuard<'a, T>;

                #[track_caller]
                fn read_from<T: Element>(self, array: &SharedArray<T>) -> Result<ReadGuard<'_, T>> {
                    array.core.read_range(elements(&self, array.len()))
                }

                #[track_caller]
                fn write_to<T: Element>(
                    self,
                    array: &SharedArray<T>,
                    ownership: Ownership,
                ) -> Result<WriteGuard<'_, T>> {
                    array.core.write_range(elements(&self, array.len()), ownership)
                }

                fn rows_of<T: Element>(self, array: &SharedArray<T>) -> Result<Vec<Range<usize>>> {
                    Ok(vec![elements(&self, array.len())])
                }
            }
        )*
    };
}
range_part!(
    Range<usize>,
    RangeFrom<usize>,
    RangeTo<usize>,
    RangeInclusive<usize>,
    RangeToInclusive<usize>,
    RangeFull
);

impl Part for ArrayBlock {
    type Reading<'a, T: Element> = BlockReadGuard<'a, T>;
    type Writing<'a, T: Element> = BlockWriteGuard<'a, T>;

    #[track_caller]
    fn read_from<T: Element>(self, array: &SharedArray<T>) -> Result<BlockReadGuard<'_, T>> {
        array.core.read_block(self)
    }

    #[track_caller]
    fn write_to<T: Element>(
        self,
        array: &SharedArray<T>,
        ownership: Ownership,
    ) -> Result<BlockWriteGuard<'_, T>> {
        array.core.write_block(self, ownership)
    }

    fn rows_of<T: Element>(self, array: &SharedArray<T>) -> Result<Vec<Range<usize>>> {
        array.core.check_block(&self)?;
        Ok(self.rows())
    }
}

impl<const N: usize> Part for [Range<usize>; N] {
    type Reading<'a, T: Element> = BlockReadGuard<'a, T>;
    type Writing<'a, T: Element> = BlockWriteGuard<'a, T>;

    #[track_caller]
    fn read_from<T: Element>(self, array: &SharedArray<T>) -> Result<BlockReadGuard<'_, T>> {
        array.core.read_block(array.block(self)?)
    }

    #[track_caller]
    fn write_to<T: Element>(
        self,
        array: &SharedArray<T>,
        ownership: Ownership,
    ) -> Result<BlockWriteGuard<'_, T>> {
        array.core.write_block(array.block(self)?, ownership)
    }

    fn rows_of<T: Element>(self, array: &SharedArray<T>) -> Result<Vec<Range<usize>>> {
        Ok(array.block(self)?.rows())
    }
}
