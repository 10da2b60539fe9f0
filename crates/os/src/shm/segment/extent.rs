//! Exact bytes of an array that a guard covers, and whether two guards meet (COH-16.6).

use crate::shm::planted::{Bug, planted};
use oikaze_protocol::coherence::AXES_MAX;
use std::ops::Range;

/// Shape of an array, and the bytes of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayForm {
    extents: [u64; AXES_MAX],
    axes: usize,
    element: u64,
}

/// Index along each axis, the outermost first.
type Index = [u64; AXES_MAX];

impl ArrayForm {
    /// Returns the form of an array with these numbers of elements along its axes, whose elements
    /// have `element` bytes. Axes beyond the fourth are left out.
    #[must_use]
    pub fn new(extents: &[usize], element: usize) -> ArrayForm {
        let mut form =
            ArrayForm { extents: [1; AXES_MAX], axes: 0, element: element.max(1) as u64 };
        for (slot, extent) in form.extents.iter_mut().zip(extents) {
            *slot = (*extent as u64).max(1);
            form.axes += 1;
        }
        form
    }

    /// Returns the bytes of an element.
    #[must_use]
    pub fn element_len(&self) -> usize {
        self.element as usize
    }

    /// Returns the index of the element that has this byte.
    fn index(&self, byte: u64) -> Index {
        let mut rest = byte / self.element;
        let mut index = [0; AXES_MAX];
        for axis in (0..self.axes).rev() {
            index[axis] = rest % self.extents[axis];
            rest /= self.extents[axis];
        }
        index
    }
}

/// Bytes that a guard covers: a range, or a block of the array's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes from the first one to the last one.
    pub bytes: Range<u64>,
    /// Is `true` if the guard covers the block between the first and the last element, and not all
    /// bytes between them.
    pub is_block: bool,
}

impl Extent {
    /// Returns the indices of the first and of the last element.
    fn corners(&self, form: &ArrayForm) -> (Index, Index) {
        (form.index(self.bytes.start), form.index(self.bytes.end.saturating_sub(1)))
    }

    /// Returns `true` if both cover one byte of an array of this form.
    #[must_use]
    pub fn meets(&self, other: &Extent, form: &ArrayForm) -> bool {
        let (start, end) =
            (self.bytes.start.max(other.bytes.start), self.bytes.end.min(other.bytes.end));
        if start >= end {
            return false;
        }
        if (!self.is_block && !other.is_block) || planted(Bug::CompareHulls) {
            return true;
        }
        let ((first, last), (from, to)) = (self.corners(form), other.corners(form));
        let axes = form.axes;
        match (self.is_block, other.is_block) {
            (true, true) => {
                (0..axes).all(|axis| first[axis] <= to[axis] && from[axis] <= last[axis])
            }
            (true, false) => has_between(&first[..axes], &last[..axes], Some(&from), Some(&to)),
            _ => has_between(&from[..axes], &to[..axes], Some(&first), Some(&last)),
        }
    }
}

/// Returns `true` if a block, from index `first` to index `last` along each axis, has an element
/// that is not before `from` and not behind `to` in row-major order. `None` bounds nothing.
fn has_between(first: &[u64], last: &[u64], from: Option<&[u64]>, to: Option<&[u64]>) -> bool {
    let (Some((&first, firsts)), Some((&last, lasts))) = (first.split_first(), last.split_first())
    else {
        return true;
    };
    let (low, lows) = split(from);
    let (high, highs) = split(to);
    if low.is_some() && low == high {
        let is_inside = low.is_some_and(|low| (first..=last).contains(&low));
        return is_inside && has_between(firsts, lasts, lows, highs);
    }
    // Along this axis, an index strictly between the bounds leaves the other axes free.
    let free_first = low.map_or(first, |low| first.max(low.saturating_add(1)));
    let free_end = high.map_or(last.saturating_add(1), |high| high.min(last.saturating_add(1)));
    let is_at = |bound: Option<u64>| bound.is_some_and(|at| (first..=last).contains(&at));
    free_first < free_end
        || (is_at(low) && has_between(firsts, lasts, lows, None))
        || (is_at(high) && has_between(firsts, lasts, None, highs))
}

fn split(bound: Option<&[u64]>) -> (Option<u64>, Option<&[u64]>) {
    match bound.and_then(<[u64]>::split_first) {
        Some((first, rest)) => (Some(*first), Some(rest)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Returns all elements of an extent, found one by one.
    fn elements(extent: &Extent, extents: &[usize], size: u64) -> BTreeSet<u64> {
        let all = extent.bytes.start / size..extent.bytes.end / size;
        if !extent.is_block || all.is_empty() {
            return all.collect();
        }
        let index = |element: u64| {
            let mut rest = element as usize;
            let mut index: Vec<usize> = extents
                .iter()
                .rev()
                .map(|extent| {
                    let at = rest % extent;
                    rest /= extent;
                    at
                })
                .collect();
            index.reverse();
            index
        };
        let (first, last) = (index(all.start), index(all.end - 1));
        let is_inside = |at: &u64| {
            let index = index(*at);
            (0..index.len()).all(|axis| (first[axis]..=last[axis]).contains(&index[axis]))
        };
        all.filter(is_inside).collect()
    }

    fn extent_in(extents: Vec<usize>, size: u64) -> impl Strategy<Value = Extent> {
        let corner = extents.iter().map(|extent| (0..*extent, 0..*extent)).collect::<Vec<_>>();
        (corner, any::<bool>(), any::<bool>()).prop_map(move |(corners, is_block, is_empty)| {
            let place = |of: &dyn Fn(&(usize, usize)) -> usize| {
                corners.iter().zip(&extents).fold(0, |at, (pair, extent)| at * extent + of(pair))
            };
            let (low, high) = (
                place(&|pair| pair.0.min(pair.1)) as u64,
                place(&|pair| pair.0.max(pair.1)) as u64,
            );
            let end = if is_empty && low == high { low } else { high + 1 };
            Extent { bytes: low * size..end * size, is_block }
        })
    }

    fn pair() -> impl Strategy<Value = (Vec<usize>, u64, Extent, Extent)> {
        (prop::collection::vec(1usize..5, 1..=AXES_MAX), 1u64..9).prop_flat_map(
            |(extents, size)| {
                let (one, other) =
                    (extent_in(extents.clone(), size), extent_in(extents.clone(), size));
                (Just(extents), Just(size), one, other)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn extents_meet_if_they_have_an_element_in_common(
            (extents, size, one, other) in pair()
        ) {
            let form = ArrayForm::new(&extents, size as usize);
            let others = elements(&other, &extents, size);
            let common = !elements(&one, &extents, size).is_disjoint(&others);
            prop_assert_eq!(one.meets(&other, &form), common);
            prop_assert_eq!(other.meets(&one, &form), common);
        }
    }
}
