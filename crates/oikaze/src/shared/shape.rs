//! Shapes of shared arrays: the number of elements along each of one to four axes.

use oikaze_protocol::coherence::AXES_MAX;
use std::fmt;

/// Number of elements along each axis of an array, outermost axis first. The elements lie in
/// row-major order (as in C).
///
/// ```
/// use oikaze::shared::{Extents, Shape};
/// # fn main() {
/// let extents: Extents = [4, 3, 2].extents();
/// assert_eq!((extents.dimensions(), extents.len()), (3, 24));
/// assert_eq!(extents.as_slice(), [4, 3, 2]);
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extents {
    /// Axes behind the last one have one element.
    extents: [usize; AXES_MAX],
    dimensions: usize,
}

impl Extents {
    fn new<const N: usize>(given: [usize; N]) -> Self {
        let mut extents = [1; AXES_MAX];
        extents.iter_mut().zip(given).for_each(|(extent, given)| *extent = given);
        Self { extents, dimensions: N.min(AXES_MAX) }
    }

    /// Returns the extents that are given at run time. The error says why there are none.
    pub(super) fn of_slice(given: &[usize]) -> Result<Self, String> {
        if !(1..=AXES_MAX).contains(&given.len()) {
            return Err(format!(
                "the shape {given:?} has {} axes: give 1 to {AXES_MAX}",
                given.len()
            ));
        }
        let mut extents = [1; AXES_MAX];
        extents.iter_mut().zip(given).for_each(|(extent, given)| *extent = *given);
        Ok(Self { extents, dimensions: given.len() })
    }

    /// Returns the number of axes, 1 to 4.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of elements along each axis.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        self.extents.get(..self.dimensions).unwrap_or_default()
    }

    /// Returns the number of elements along one axis; 1 behind the last axis.
    #[must_use]
    pub fn extent(&self, axis: usize) -> usize {
        self.extents.get(axis).copied().unwrap_or(1)
    }

    /// Returns the number of elements of the whole array. More than `usize::MAX` gives that.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.extents.contains(&0) {
            return 0;
        }
        self.extents.iter().fold(1, |len: usize, extent| len.saturating_mul(*extent))
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements from one index of an axis to the next one.
    #[must_use]
    pub(super) fn stride(&self, axis: usize) -> usize {
        let inner = self.extents.get(axis + 1..).unwrap_or_default();
        inner.iter().fold(1, |len: usize, extent| len.saturating_mul(*extent))
    }

    /// Returns the place of an element in row-major order, if the index has an entry for each axis
    /// and lies in the array.
    pub(super) fn position(&self, index: &[usize]) -> Option<usize> {
        let is_inside = index.iter().zip(self.as_slice()).all(|(index, extent)| index < extent);
        if index.len() != self.dimensions || !is_inside {
            return None;
        }
        Some(index.iter().enumerate().map(|(axis, index)| index * self.stride(axis)).sum())
    }
}

impl fmt::Debug for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Shape of an array: a length, or one to four extents.
///
/// ```
/// use oikaze::shared::Shape;
/// # fn main() {
/// assert_eq!(100.extents().as_slice(), [100]);
/// assert_eq!([10, 20].extents().len(), 200);
/// # }
/// ```
pub trait Shape {
    /// Returns the number of elements along each axis.
    fn extents(&self) -> Extents;
}

impl Shape for usize {
    fn extents(&self) -> Extents {
        Extents::new([*self])
    }
}

impl Shape for Extents {
    fn extents(&self) -> Extents {
        *self
    }
}

macro_rules! shapes {
    ($($dimensions:literal)*) => {
        $(impl Shape for [usize; $dimensions] {
            fn extents(&self) -> Extents {
                Extents::new(*self)
            }
        })*
    };
}
shapes!(1 2 3 4);

/// Index of an element: its place in row-major order, or an index along each axis.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let grid = job.array::<f32>("grid", [64, 64])?;
/// assert_eq!(grid.home_of([63, 63]), grid.home_of(64 * 64 - 1));
/// # Ok(())
/// # }
/// ```
pub trait ElementIndex: Copy + fmt::Debug {
    /// Returns the place of the element in row-major order, if it lies in the array.
    fn position(self, extents: &Extents) -> Option<usize>;
}

impl ElementIndex for usize {
    fn position(self, extents: &Extents) -> Option<usize> {
        (self < extents.len()).then_some(self)
    }
}

impl<const N: usize> ElementIndex for [usize; N] {
    fn position(self, extents: &Extents) -> Option<usize> {
        extents.position(&self)
    }
}
