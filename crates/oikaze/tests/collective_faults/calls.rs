//! Collectives of every kind, with results that are checked.

use oikaze::Result;
use oikaze::collective::{Pending, Team};
use oikaze::prelude::*;

/// Name of a collective, and a function that begins it with so many elements a rank. The result
/// tells whether the elements are right.
pub type Call = (&'static str, fn(&Team, usize) -> Box<dyn FnOnce() -> Result<bool>>);

/// Waits for a result later, and compares it.
fn later<T: PartialEq + 'static>(
    pending: Pending<T>,
    expected: T,
) -> Box<dyn FnOnce() -> Result<bool>> {
    Box::new(move || Ok(pending.wait()? == expected))
}

fn numbers(from: u32, len: usize) -> Vec<u32> {
    vec![from; len]
}

/// Blocks of all ranks, one after the other.
fn all(team: &Team, len: usize) -> Vec<u32> {
    (0..team.size()).flat_map(|rank| numbers(rank, len)).collect()
}

fn vectors(team: &Team, value: u32, len: usize) -> Vec<Vec<u32>> {
    (0..team.size() as usize).map(|to| numbers(value, len + to)).collect()
}

fn sum(ranks: std::ops::Range<u32>, len: usize) -> Vec<u32> {
    numbers(ranks.sum(), len)
}

/// Root of those that have one: the last rank, which is not a victim.
fn root(team: &Team) -> u32 {
    team.size() - 1
}

fn at_root<T: Default>(team: &Team, value: T) -> T {
    if team.rank() == root(team) { value } else { T::default() }
}

pub const ALL: &[Call] = &[
    ("broadcast", |team, len| {
        let mine = numbers(team.rank(), len);
        later(team.start().broadcast(root(team), &mine), numbers(root(team), len))
    }),
    ("gather", |team, len| {
        let mine = numbers(team.rank(), len);
        later(team.start().gather(root(team), &mine), at_root(team, all(team, len)))
    }),
    ("all_gather", |team, len| {
        later(team.start().all_gather(&numbers(team.rank(), len)), all(team, len))
    }),
    ("scatter", |team, len| {
        later(team.start().scatter(root(team), &all(team, len)), numbers(team.rank(), len))
    }),
    ("reduce", |team, len| {
        let expected = at_root(team, sum(0..team.size(), len));
        later(team.start().reduce(root(team), &numbers(team.rank(), len), Sum), expected)
    }),
    ("all_reduce", |team, len| {
        let expected = sum(0..team.size(), len);
        later(team.start().all_reduce(&numbers(team.rank(), len), Sum), expected)
    }),
    ("reduce_scatter", |team, len| {
        let expected = numbers(team.rank() * team.size(), len);
        later(team.start().reduce_scatter(&all(team, len), Sum), expected)
    }),
    ("scan", |team, len| {
        let expected = sum(0..team.rank() + 1, len);
        later(team.start().scan(&numbers(team.rank(), len), Sum), expected)
    }),
    ("exclusive_scan", |team, len| {
        let me = team.rank();
        let expected = if me == 0 { Vec::new() } else { sum(0..me, len) };
        later(team.start().exclusive_scan(&numbers(me, len), Sum), expected)
    }),
    ("all_to_all", |team, len| {
        let blocks = numbers(team.rank(), len * team.size() as usize);
        later(team.start().all_to_all(&blocks), all(team, len))
    }),
    ("gather_uneven", |team, len| {
        let lens = (0..team.size()).map(|rank| numbers(rank, len + rank as usize));
        let mine = numbers(team.rank(), len + team.rank() as usize);
        later(team.start().gather_uneven(root(team), &mine), at_root(team, lens.collect()))
    }),
    ("all_gather_uneven", |team, len| {
        let lens = (0..team.size()).map(|rank| numbers(rank, len + rank as usize)).collect();
        let mine = numbers(team.rank(), len + team.rank() as usize);
        later(team.start().all_gather_uneven(&mine), lens)
    }),
    ("scatter_uneven", |team, len| {
        let vectors = at_root(team, vectors(team, 7, len));
        let expected = numbers(7, len + team.rank() as usize);
        later(team.start().scatter_uneven(root(team), &vectors), expected)
    }),
    ("all_to_all_uneven", |team, len| {
        let mine = vectors(team, team.rank(), len);
        let len = len + team.rank() as usize;
        let expected = (0..team.size()).map(|from| numbers(from, len)).collect();
        later(team.start().all_to_all_uneven(&mine), expected)
    }),
    ("reduce_scatter_uneven", |team, len| {
        let mine = vectors(team, team.rank(), len);
        let expected = sum(0..team.size(), len + team.rank() as usize);
        later(team.start().reduce_scatter_uneven(&mine, Sum), expected)
    }),
    ("split", |team, _| {
        let team = team.shrink();
        Box::new(move || {
            let team = team?;
            let all = team.split(Some(1), 0)?;
            Ok(all.is_some_and(|all| all.ranks() == team.ranks()))
        })
    }),
];
