//! Rings: each place sends to the next one only. All links are busy in all rounds, so rings suit
//! long vectors.

use super::plan::{Arrival, Group, Order, Part, PlanBuilder};

/// Gathers blocks in place: before, each place has its own block. `block` returns the part of a
/// place.
pub(super) fn all_gather(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    first_round: usize,
    block: &dyn Fn(usize) -> Part,
) {
    let Group { size, me, .. } = *group;
    for round in 0..size.saturating_sub(1) {
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        let (sent, received) = ((me + size - round) % size, (previous + size - round) % size);
        out.send(group, first_round + round, next, block(sent));
        out.receive(group, first_round + round, previous, block(received), Arrival::Replace);
    }
}

/// Combines blocks in place: afterwards each place has its own block of all. The operator commutes.
pub(super) fn reduce_scatter(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    block: &dyn Fn(usize) -> Part,
) {
    let Group { size, me, .. } = *group;
    for round in 0..size.saturating_sub(1) {
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        let sent = (me + 2 * size - 1 - round) % size;
        let received = (me + 2 * size - 2 - round) % size;
        let how = Arrival::Combine(Order::NewLast);
        out.send(group, round, next, block(sent));
        out.receive(group, round, previous, block(received), how);
    }
}
