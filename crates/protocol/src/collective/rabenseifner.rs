//! Rabenseifner's algorithm for long vectors (COLL-2.4): reduce-scatter by recursive halving, then
//! all-gather by recursive doubling, or gather at a root.
//!
//! The first round is between adjacent places. So each combination is of two contiguous ranges of
//! places, and operators that do not commute get their operands in order.

use super::doubling::{Fold, order_of};
use super::plan::{Arrival, Group, Part, PlanBuilder, cut, log2_ceil};

/// Blocks that a place has after its rounds down to this bit: first, and number.
fn blocks_of(me: usize, bits: usize, size: usize) -> (usize, usize) {
    let mut blocks = (0, size);
    for bit in 0..bits {
        let half = blocks.1 / 2;
        blocks = (blocks.0 + half * (me >> bit & 1), half);
    }
    blocks
}

fn part_of(part: Part, size: usize, (first, count): (usize, usize)) -> Part {
    part.slice(cut(part.len, size, first), cut(part.len, size, first + count))
}

/// Combines, so that each place that takes part has one block. Rounds 0 to `log2(size)`.
fn halve(out: &mut PlanBuilder, group: &Group<'_>, fold: &Fold, part: Part) {
    fold.enter(out, group, part);
    let Some(me) = fold.me else { return };
    for bit in 0..log2_ceil(fold.size) {
        let partner = me ^ (1 << bit);
        let given = part_of(part, fold.size, blocks_of(partner, bit + 1, fold.size));
        let kept = part_of(part, fold.size, blocks_of(me, bit + 1, fold.size));
        let how = Arrival::Combine(order_of(partner, me));
        out.send(group, 1 + bit, fold.place(partner), given);
        out.receive(group, 1 + bit, fold.place(partner), kept, how);
    }
}

/// Combines a part of all, in place.
pub(super) fn all_reduce(out: &mut PlanBuilder, group: &Group<'_>, part: Part) {
    let fold = Fold::new(group);
    halve(out, group, &fold, part);
    let bits = log2_ceil(fold.size);
    if let Some(me) = fold.me {
        for (n, bit) in (0..bits).rev().enumerate() {
            let partner = me ^ (1 << bit);
            let mine = part_of(part, fold.size, blocks_of(me, bit + 1, fold.size));
            let theirs = part_of(part, fold.size, blocks_of(partner, bit + 1, fold.size));
            out.send(group, 1 + bits + n, fold.place(partner), mine);
            out.receive(group, 1 + bits + n, fold.place(partner), theirs, Arrival::Replace);
        }
    }
    fold.leave(out, group, 1 + 2 * bits, part);
}

/// Combines a part of all at the root, in place. The blocks go to the root directly.
pub(super) fn reduce(out: &mut PlanBuilder, group: &Group<'_>, root: usize, part: Part) {
    let fold = Fold::new(group);
    halve(out, group, &fold, part);
    let bits = log2_ceil(fold.size);
    let block = |folded: usize| part_of(part, fold.size, blocks_of(folded, bits, fold.size));
    if let Some(me) = fold.me.filter(|_| group.me != root) {
        out.send(group, 1 + bits, root, block(me));
    }
    if group.me == root {
        for folded in (0..fold.size).filter(|folded| fold.place(*folded) != root) {
            let from = fold.place(folded);
            out.receive(group, 1 + bits, from, block(folded), Arrival::Replace);
        }
    }
}
