//! Bruck's algorithms: all-gather and all-to-all in `log2(size)` rounds for any number of places.

use super::plan::{Arrival, Group, Part, PlanBuilder, log2_ceil};
use alloc::vec::Vec;

/// Gathers blocks, whose lengths `len` returns. Returns input and output.
pub(super) fn all_gather(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    len: &dyn Fn(usize) -> usize,
) -> (Part, Part) {
    let Group { size, me, .. } = *group;
    // First elements of the blocks in the order of distances from this place.
    let mut bounds = Vec::with_capacity(size + 1);
    let mut at = 0;
    for distance in 0..size {
        bounds.push(at);
        at += len((me + distance) % size);
    }
    bounds.push(at);
    let near = out.reserve(at);
    let blocks = |from: usize, to: usize| {
        let at = |distance: usize| bounds.get(distance).copied().unwrap_or(0);
        near.slice(at(from), at(to))
    };
    for bit in 0..log2_ceil(size) {
        let have = 1 << bit;
        let count = have.min(size - have);
        out.send(group, bit, (me + size - have) % size, blocks(0, count));
        let part = blocks(have, have + count);
        out.receive(group, bit, (me + have) % size, part, Arrival::Replace);
    }
    let input = blocks(0, 1);
    if me == 0 {
        return (input, near);
    }
    // From the order of distances to the order of places.
    let all = out.reserve(near.len);
    let (first, rest) = (blocks(0, size - me), blocks(size - me, size));
    out.copy(log2_ceil(size), first, all.start + rest.len);
    out.copy(log2_ceil(size), rest, all.start);
    (input, all)
}

/// Exchanges equal blocks: block `p` of this place goes to place `p`.
pub(super) fn all_to_all(out: &mut PlanBuilder, group: &Group<'_>, each: usize) -> (Part, Part) {
    let Group { size, me, .. } = *group;
    let input = out.reserve(size * each);
    let turned = out.reserve(size * each);
    let moved_max = size.div_ceil(2) * each;
    let (packed, arrived) = (out.reserve(moved_max), out.reserve(moved_max));
    // Block `d` goes to the place at distance `d`.
    out.copy(0, input.slice(me * each, size * each), turned.start);
    out.copy(0, input.slice(0, me * each), turned.start + (size - me) * each);
    for bit in 0..log2_ceil(size) {
        let moved: Vec<usize> = (0..size).filter(|distance| distance >> bit & 1 == 1).collect();
        let block = |distance: usize| turned.slice(distance * each, (distance + 1) * each);
        for (n, &distance) in moved.iter().enumerate() {
            out.copy(bit, block(distance), packed.start + n * each);
        }
        let len = moved.len() * each;
        out.send(group, bit, (me + (1 << bit)) % size, packed.slice(0, len));
        let from = (me + size - (1 << bit)) % size;
        out.receive(group, bit, from, arrived.slice(0, len), Arrival::Replace);
        for (n, &distance) in moved.iter().enumerate() {
            out.copy(bit, arrived.slice(n * each, (n + 1) * each), block(distance).start);
        }
    }
    // The input was copied, so the result may take its place.
    for distance in 0..size {
        let from = (me + size - distance) % size;
        let block = turned.slice(distance * each, (distance + 1) * each);
        out.copy(log2_ceil(size), block, input.start + from * each);
    }
    (input, input)
}
