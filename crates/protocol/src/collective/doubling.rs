//! Recursive doubling: in each round, the places of a pair exchange all that they have.

use super::plan::{Arrival, Group, Order, Part, PlanBuilder, log2_ceil};

/// Reduction of a group to a power of two of places, which keeps the order of places.
///
/// The first `2 * extra` places form pairs. The even place of a pair gives its value to the odd one
/// and takes no part until the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    /// Number of places that take part.
    pub size: usize,
    extra: usize,
    /// This rank's place among those that take part.
    pub me: Option<usize>,
}

impl Fold {
    pub fn new(group: &Group<'_>) -> Fold {
        let size = 1 << group.size.checked_ilog2().unwrap_or(0);
        let extra = group.size - size;
        let me = match group.me {
            me if me >= 2 * extra => Some(me - extra),
            me => (me % 2 == 1).then_some(me / 2),
        };
        Fold { size, extra, me }
    }

    /// Returns the place in the group of a place that takes part.
    pub fn place(&self, folded: usize) -> usize {
        if folded < self.extra { 2 * folded + 1 } else { folded + self.extra }
    }

    /// Combines the pairs.
    pub fn enter(&self, out: &mut PlanBuilder, group: &Group<'_>, part: Part) {
        if group.me >= 2 * self.extra {
            return;
        }
        if group.me.is_multiple_of(2) {
            out.send(group, 0, group.me + 1, part);
        } else {
            out.receive(group, 0, group.me - 1, part, Arrival::Combine(Order::NewFirst));
        }
    }

    /// Gives the result to those that took no part.
    pub fn leave(&self, out: &mut PlanBuilder, group: &Group<'_>, round: usize, part: Part) {
        if group.me >= 2 * self.extra {
            return;
        }
        if group.me.is_multiple_of(2) {
            out.receive(group, round, group.me + 1, part, Arrival::Replace);
        } else {
            out.send(group, round, group.me - 1, part);
        }
    }
}

/// Returns the order for a value that comes from this place.
pub(super) fn order_of(from: usize, me: usize) -> Order {
    if from < me { Order::NewFirst } else { Order::NewLast }
}

/// Combines a part of all, in place. Each pair combines the same two operands in the same order, so
/// all have the same bits (COLL-2.2).
pub(super) fn all_reduce(out: &mut PlanBuilder, group: &Group<'_>, part: Part) {
    let fold = Fold::new(group);
    fold.enter(out, group, part);
    let rounds = log2_ceil(fold.size);
    if let Some(me) = fold.me {
        for bit in 0..rounds {
            let partner = me ^ (1 << bit);
            let how = Arrival::Combine(order_of(partner, me));
            out.send(group, 1 + bit, fold.place(partner), part);
            out.receive(group, 1 + bit, fold.place(partner), part, how);
        }
    }
    fold.leave(out, group, 1 + rounds, part);
}

/// Gathers equal blocks of a power of two of places. Returns the output, which begins with the
/// block of place 0.
pub(super) fn all_gather(out: &mut PlanBuilder, group: &Group<'_>, each: usize) -> (Part, Part) {
    let all = out.reserve(group.size * each);
    for bit in 0..log2_ceil(group.size) {
        let partner = group.me ^ (1 << bit);
        let blocks = |place: usize| {
            let first = place >> bit << bit;
            all.slice(first * each, (first + (1 << bit)) * each)
        };
        out.send(group, bit, partner, blocks(group.me));
        out.receive(group, bit, partner, blocks(partner), Arrival::Replace);
    }
    (all.slice(group.me * each, (group.me + 1) * each), all)
}

/// Combines the values of all places up to this one, or up to the one before if `exclusive`. The
/// output of place 0 is empty if `exclusive`.
pub(super) fn scan(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    count: usize,
    exclusive: bool,
) -> (Part, Part) {
    // `partial` has the values of the pairs met so far, and `result` those of lower places.
    let partial = out.reserve(count);
    let result = out.reserve(count);
    let new = out.reserve(count);
    let mut has_result = !exclusive;
    if has_result {
        out.copy(0, partial, result.start);
    }
    for bit in 0..log2_ceil(group.size) {
        let partner = group.me ^ (1 << bit);
        if partner >= group.size {
            continue;
        }
        let order = order_of(partner, group.me);
        out.send(group, bit, partner, partial);
        out.receive(group, bit, partner, new, Arrival::Replace);
        if order == Order::NewFirst {
            if has_result {
                out.combine(bit, new, result.start, order);
            } else {
                out.copy(bit, new, result.start);
                has_result = true;
            }
        }
        out.combine(bit, new, partial.start, order);
    }
    (partial, if has_result { result } else { Part::new(0, 0) })
}
