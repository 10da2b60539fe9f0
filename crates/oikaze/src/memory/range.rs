//! Ranges of offsets, in integers of any type.

use crate::error::{Error, Result};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of offsets in a region: of any integers, and open or closed at each end.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let page = job.register(Region::zeroed(4096)?)?;
/// let (block, len): (u64, usize) = (1024, 512);
/// assert_eq!(page.slice(block..2 * block)?.len(), 1024); // as offsets of peers' regions
/// assert_eq!(page.slice(len..)?.len(), 3584); // as lengths of memory
/// assert_eq!(page.slice(0..=7)?.len(), 8);
/// assert_eq!(page.slice(..)?.len(), 4096);
/// assert!(page.slice(-8..8).is_err());
/// # Ok(())
/// # }
/// ```
pub trait OffsetRange: private::Bounds {}

impl<R: private::Bounds> OffsetRange for R {}

mod private {
    /// An integer that an offset can be given in.
    pub trait Offset: Copy {
        fn widened(self) -> i128;
    }

    /// The bounds of a range.
    pub trait Bounds {
        /// Returns the first offset, and the one behind the last. `None`: the range is open.
        fn bounds(self) -> (i128, Option<i128>);
    }
}

use private::{Bounds, Offset};

macro_rules! offsets {
    ($($integer:ty),*) => {
        $(impl Offset for $integer {
            fn widened(self) -> i128 {
                i128::try_from(self).unwrap_or(i128::MAX)
            }
        })*
    };
}
offsets!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);

impl<T: Offset> Bounds for Range<T> {
    fn bounds(self) -> (i128, Option<i128>) {
        (self.start.widened(), Some(self.end.widened()))
    }
}

impl<T: Offset> Bounds for RangeInclusive<T> {
    fn bounds(self) -> (i128, Option<i128>) {
        (self.start().widened(), Some(self.end().widened().saturating_add(1)))
    }
}

impl<T: Offset> Bounds for RangeFrom<T> {
    fn bounds(self) -> (i128, Option<i128>) {
        (self.start.widened(), None)
    }
}

impl<T: Offset> Bounds for RangeTo<T> {
    fn bounds(self) -> (i128, Option<i128>) {
        (0, Some(self.end.widened()))
    }
}

impl<T: Offset> Bounds for RangeToInclusive<T> {
    fn bounds(self) -> (i128, Option<i128>) {
        (0, Some(self.end.widened().saturating_add(1)))
    }
}

impl Bounds for RangeFull {
    fn bounds(self) -> (i128, Option<i128>) {
        (0, None)
    }
}

/// Returns a range as offsets, which may lie outside of `len`. An open end is `len`.
///
/// # Errors
/// The range ends before it starts, or an offset is negative.
pub(crate) fn resolve(
    range: impl OffsetRange,
    len: u64,
    what: impl FnOnce() -> String,
) -> Result<Range<u64>> {
    let (start, end) = range.bounds();
    let end = end.unwrap_or(len.into());
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(start..end),
        _ => {
            let why = format!(
                "the range {start}..{end} is none; begin at 0 or more, and end where it begins or later"
            );
            Err(Error::invalid(what(), why))
        }
    }
}
