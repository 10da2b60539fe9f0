//! Binomial trees: broadcast, scatter, gather and reduce in `log2(size)` rounds.
//!
//! The tree is over *distances* from the root: place `root + v` (modulo the size) has distance `v`.
//! The parent of distance `v` is `v` without its lowest set bit. The subtree of `v` has the
//! distances from `v` to `v + 2^k`, where `k` is the position of that bit.

use super::plan::{Arrival, Group, Order, Part, PlanBuilder, log2_ceil};
use alloc::vec::Vec;

/// Place of this rank in a binomial tree.
struct Tree {
    size: usize,
    root: usize,
    distance: usize,
    /// Number of rounds of the whole tree.
    rounds: usize,
    /// Position of the lowest set bit of the distance; for the root, the number of rounds.
    level: usize,
}

impl Tree {
    fn new(group: &Group<'_>, root: usize) -> Tree {
        let (size, rounds) = (group.size, log2_ceil(group.size));
        let distance = (group.me + size - root) % size;
        let level = if distance == 0 { rounds } else { distance.trailing_zeros() as usize };
        Tree { size, root, distance, rounds, level }
    }

    fn place(&self, distance: usize) -> usize {
        (distance + self.root) % self.size
    }

    /// Returns the place of the parent, or `None` for the root.
    fn parent(&self) -> Option<usize> {
        (self.distance > 0).then(|| self.place(self.distance & (self.distance - 1)))
    }

    /// Returns the children as level and distance, the nearest first.
    fn children(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + use<> {
        let (distance, size) = (self.distance, self.size);
        (0..self.level)
            .map(move |level| (level, distance + (1 << level)))
            .filter(move |(_, child)| *child < size)
    }

    /// Returns the distance after the last of the subtree of a child at this level.
    fn end(&self, level: usize, distance: usize) -> usize {
        (distance + (1 << level)).min(self.size)
    }
}

/// Sends a part of the root to all.
pub(super) fn broadcast(out: &mut PlanBuilder, group: &Group<'_>, root: usize, part: Part) {
    let tree = Tree::new(group, root);
    let round = |level: usize| tree.rounds - 1 - level;
    if let Some(parent) = tree.parent() {
        out.receive(group, round(tree.level), parent, part, Arrival::Replace);
    }
    for (level, child) in tree.children().rev() {
        out.send(group, round(level), tree.place(child), part);
    }
}

/// Combines a part of all at the root, in place. If the operator does not commute, the operands are
/// taken in the order of places. The part of other places is changed too.
pub(super) fn reduce(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    root: usize,
    part: Part,
    commutes: bool,
) {
    // The order of places is kept only from place 0 on.
    let top = if commutes { root } else { 0 };
    let tree = Tree::new(group, top);
    for (level, child) in tree.children() {
        let how = Arrival::Combine(Order::NewLast);
        out.receive(group, level, tree.place(child), part, how);
    }
    if let Some(parent) = tree.parent() {
        out.send(group, tree.level, parent, part);
    }
    if top != root {
        if group.me == top {
            out.send(group, tree.rounds, root, part);
        } else if group.me == root {
            out.receive(group, tree.rounds, top, part, Arrival::Replace);
        }
    }
}

/// First elements of the blocks of all distances, in the order of distances, and their end.
fn bounds(size: usize, root: usize, len: &dyn Fn(usize) -> usize) -> Vec<usize> {
    let mut at = 0;
    let mut bounds = Vec::with_capacity(size + 1);
    for distance in 0..size {
        bounds.push(at);
        at += len((distance + root) % size);
    }
    bounds.push(at);
    bounds
}

fn between(bounds: &[usize], from: usize, to: usize) -> Part {
    let at = |distance: usize| bounds.get(distance).copied().unwrap_or(0);
    Part::new(at(from), at(to) - at(from))
}

/// Returns the place of a part in a buffer that has the blocks of a subtree alone.
fn within(buffer: Part, subtree: Part, part: Part) -> Part {
    Part::new(buffer.start + part.start - subtree.start, part.len)
}

/// Gathers blocks at the root. Returns input and output; the output is empty elsewhere.
pub(super) fn gather(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    root: usize,
    len: &dyn Fn(usize) -> usize,
) -> (Part, Part) {
    let tree = Tree::new(group, root);
    let bounds = bounds(group.size, root, len);
    let subtree = between(&bounds, tree.distance, tree.end(tree.level, tree.distance));
    let here = out.reserve(subtree.len);
    let local = |from, to| within(here, subtree, between(&bounds, from, to));
    for (level, child) in tree.children() {
        let part = local(child, tree.end(level, child));
        out.receive(group, level, tree.place(child), part, Arrival::Replace);
    }
    let input = local(tree.distance, tree.distance + 1);
    match tree.parent() {
        Some(parent) => {
            out.send(group, tree.level, parent, here);
            (input, Part::new(0, 0))
        }
        None if root == 0 => (input, here),
        None => {
            // From the order of distances to the order of places.
            let output = out.reserve(here.len);
            let first = local(0, group.size - root);
            let rest = local(group.size - root, group.size);
            out.copy(tree.rounds, first, output.start + rest.len);
            out.copy(tree.rounds, rest, output.start);
            (input, output)
        }
    }
}

/// Distributes blocks of the root. Returns input and output; the input is empty elsewhere.
pub(super) fn scatter(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    root: usize,
    len: &dyn Fn(usize) -> usize,
) -> (Part, Part) {
    let tree = Tree::new(group, root);
    let bounds = bounds(group.size, root, len);
    let subtree = between(&bounds, tree.distance, tree.end(tree.level, tree.distance));
    let (mut input, mut here) = (Part::new(0, 0), out.reserve(subtree.len));
    if tree.distance == 0 {
        input = here;
        if root != 0 {
            // From the order of places to the order of distances.
            here = out.reserve(subtree.len);
            let rest = between(&bounds, group.size - root, group.size).len;
            out.copy(0, input.slice(rest, input.len), here.start);
            out.copy(0, input.slice(0, rest), here.start + input.len - rest);
        }
    }
    let local = |from, to| within(here, subtree, between(&bounds, from, to));
    let round = |level: usize| tree.rounds - 1 - level;
    if let Some(parent) = tree.parent() {
        out.receive(group, round(tree.level), parent, here, Arrival::Replace);
    }
    for (level, child) in tree.children().rev() {
        out.send(group, round(level), tree.place(child), local(child, tree.end(level, child)));
    }
    (input, local(tree.distance, tree.distance + 1))
}

/// Distributes the blocks of a part of the root, in place: afterwards each place has its own block
/// of the part. `at` returns the first element of a place's block in the part.
pub(super) fn scatter_in_place(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    root: usize,
    part: Part,
    at: &dyn Fn(usize) -> usize,
) {
    let tree = Tree::new(group, root);
    let size = group.size;
    // A range of distances is one or two ranges of places.
    let pieces = |from: usize, to: usize| {
        let (first, last) = (from + root, to + root);
        let wrap = |place: usize| place.saturating_sub(size);
        let low = (first.min(size), last.min(size));
        let high = (wrap(first), wrap(last));
        [low, high].map(|(from, to)| part.slice(at(from), at(to)))
    };
    let round = |level: usize| 2 * (tree.rounds - 1 - level);
    if let Some(parent) = tree.parent() {
        let end = tree.end(tree.level, tree.distance);
        for (n, piece) in pieces(tree.distance, end).into_iter().enumerate() {
            out.receive(group, round(tree.level) + n, parent, piece, Arrival::Replace);
        }
    }
    for (level, child) in tree.children().rev() {
        for (n, piece) in pieces(child, tree.end(level, child)).into_iter().enumerate() {
            out.send(group, round(level) + n, tree.place(child), piece);
        }
    }
}
