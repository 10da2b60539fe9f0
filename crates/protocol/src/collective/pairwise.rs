//! Pairwise exchange: in each round, each place sends to one other place and receives from one.

use super::plan::{Arrival, Group, Part, PlanBuilder};

/// Exchanges blocks. `sent` and `received` return the lengths of the blocks to and from a place.
pub(super) fn all_to_all(
    out: &mut PlanBuilder,
    group: &Group<'_>,
    sent: &dyn Fn(usize) -> usize,
    received: &dyn Fn(usize) -> usize,
) -> (Part, Part) {
    let Group { size, me, .. } = *group;
    let input = out.reserve((0..size).map(sent).sum());
    let output = out.reserve((0..size).map(received).sum());
    let to = super::request::starts(size, sent);
    let from = super::request::starts(size, received);
    let at = |starts: &[usize], place: usize| starts.get(place).copied().unwrap_or(0);
    let to = |place| input.slice(at(&to, place), at(&to, place + 1));
    let from = |place| output.slice(at(&from, place), at(&from, place + 1));
    if size == 1 {
        out.copy(0, to(me), from(me).start);
    }
    for round in 1..size {
        let (next, previous) = ((me + round) % size, (me + size - round) % size);
        out.send(group, round, next, to(next));
        if round == 1 {
            // The first block is on its way meanwhile.
            out.copy(round, to(me), from(me).start);
        }
        out.receive(group, round, previous, from(previous), Arrival::Replace);
    }
    (input, output)
}
