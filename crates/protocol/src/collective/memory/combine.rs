//! Combination of the values of all ranks, in one tree for all.

use crate::Rank;
use core::ops::Range;

/// Bytes that are combined at a time: they stay in the first cache.
const COMBINED_AT_ONCE: usize = 4096;

/// Access to values that are combined.
pub struct CombineSteps<'a> {
    /// Copies a range of the values of a rank.
    pub read: ReadOperand<'a>,
    /// Combines the second values into the first. The first are of lower ranks.
    pub combine: &'a dyn Fn(&mut [u8], &[u8]),
}

/// Function that copies a range of the values of a rank.
pub type ReadOperand<'a> = &'a dyn Fn(Rank, Range<usize>, &mut [u8]);

/// Returns the number of places in the tree that combines this many ranks: a power of two.
fn size_of_tree(ranks: usize) -> usize {
    1 << ranks.checked_ilog2().unwrap_or(0)
}

/// Returns the number of places that two ranks have together: the first ones.
fn pairs_of(ranks: usize) -> usize {
    ranks.saturating_sub(size_of_tree(ranks))
}

/// Returns the bytes of elements of `size` bytes that are combined at a time: whole elements.
fn part_len(size: usize) -> usize {
    let size = size.max(1);
    (COMBINED_AT_ONCE / size).max(1) * size
}

/// Returns the bytes of memory that [`combine`] needs beyond the result, for operands of `all`
/// bytes.
pub(super) fn scratch_len(ranks: usize, size: usize, all: usize) -> usize {
    let levels = ranks.checked_ilog2().unwrap_or(0) as usize + 1;
    levels * part_len(size).min(all)
}

/// Combines operands of the first ranks in the tree of recursive doubling (COLL-7.3).
pub(super) fn combine(
    (ranks, size): (usize, usize),
    range: Range<usize>,
    into: &mut [u8],
    scratch: &mut [u8],
    steps: &CombineSteps<'_>,
) {
    let mut from = range.start;
    for into in into.chunks_mut(part_len(size)) {
        let tree = CombineTree { pairs: pairs_of(ranks), range: from..from + into.len() };
        tree.combine(0..size_of_tree(ranks), into, scratch, steps);
        from += into.len();
    }
}

struct CombineTree {
    pairs: usize,
    /// Range of the values.
    range: Range<usize>,
}

impl CombineTree {
    fn combine(
        &self,
        places: Range<usize>,
        into: &mut [u8],
        scratch: &mut [u8],
        steps: &CombineSteps<'_>,
    ) {
        let read = |rank: usize, into: &mut [u8]| {
            if let Ok(rank) = Rank::try_from(rank) {
                (steps.read)(rank, self.range.clone(), into);
            }
        };
        let half = places.len() / 2;
        if half == 0 && places.start >= self.pairs {
            return read(places.start + self.pairs, into);
        }
        let Some((high, rest)) = scratch.split_at_mut_checked(into.len()) else { return };
        if half == 0 {
            read(2 * places.start, into);
            read(2 * places.start + 1, high);
        } else {
            let middle = places.start + half;
            self.combine(places.start..middle, into, rest, steps);
            self.combine(middle..places.end, high, rest, steps);
        }
        (steps.combine)(into, high);
    }
}
