//! Parallel program: a sample sort over collectives.

use std::error::Error;
use std::ops::Range;
use std::time::{Duration, Instant};

use oikaze::collective::Collectives;
use oikaze::collective::operator::Xor;
use oikaze::shared::Element;
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress, agree, part};

use crate::keys::{Keys, checksum, hash};
use crate::splitters::{cut, samples, splitters};
use crate::{Options, Outcome};

/// Checks of a node's keys before and after a round. All nodes check the rows of all nodes.
#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Row {
    /// Number of keys after the round.
    count: u64,
    /// Checksum of the keys before the round.
    before: u64,
    /// Checksum of the keys after the round.
    after: u64,
    first: u64,
    last: u64,
    /// 1 if the keys are in order.
    is_sorted: u64,
}

/// Sorts with all nodes of the job.
///
/// # Errors
/// A node is lost or has no memory; keys are in the wrong order, or not those of the input.
pub fn solve(
    job: &Job,
    options: &Options,
    mut progress: Progress,
) -> Result<Outcome, Box<dyn Error>> {
    let keys = options.keys();
    let mine = part(keys.count, job.rank(), job.size());
    let (mut hashes, mut time, mut largest_share) = (Fingerprint::new(), Duration::ZERO, 0);
    for round in 0..options.iterations {
        let made = keys.make(round, mine.clone());
        agree(job, made.as_ref().map(drop).map_err(Clone::clone))?;
        let made = made?;
        let before = checksum(&made);
        job.barrier()?;
        let started = Instant::now();
        let sorted = sort(job, &mine, made)?;
        job.barrier()?;
        time += started.elapsed();
        let rows = job.all_gather(&[row(&sorted, before)])?;
        check(&rows, keys)?;
        let lower = rows.iter().take(job.rank() as usize).map(|row| row.count as usize);
        let hash = job.all_reduce(hash(lower.sum(), &sorted), Xor)?;
        hashes.u64s(&[hash]);
        largest_share = rows.iter().fold(largest_share, |most, row| most.max(row.count as usize));
        progress.step();
    }
    progress.finish();
    let (hash, seconds) = (hashes.value(), time.as_secs_f64());
    Ok(Outcome { hash, largest_share, seconds })
}

/// Sorts the keys of all nodes. Those of this node have the places `mine` in the input. Returns
/// this node's share of the result. The shares are in the order of ranks.
fn sort(job: &Job, mine: &Range<usize>, mut keys: Vec<u64>) -> Result<Vec<u64>> {
    keys.sort_unstable();
    let samples = job.all_gather_uneven(&samples(mine.start, &keys, job.size()))?;
    let splitters = splitters(samples.concat(), job.size());
    let parts = cut(mine.start, &keys, &splitters, job.size());
    drop(keys);
    let runs = job.all_to_all_uneven(&parts)?;
    drop(parts);
    let mut share = runs.concat();
    // The stable sort of the standard library finds the runs, which are in order, and merges them.
    share.sort();
    Ok(share)
}

fn row(sorted: &[u64], before: u64) -> Row {
    let end = |key: Option<&u64>| key.copied().unwrap_or(0);
    Row {
        count: sorted.len() as u64,
        before,
        after: checksum(sorted),
        first: end(sorted.first()),
        last: end(sorted.last()),
        is_sorted: sorted.is_sorted().into(),
    }
}

/// Checks that the keys of all nodes are in order, and those of the input.
fn check(rows: &[Row], keys: Keys) -> Result<(), String> {
    if let Some(rank) = rows.iter().position(|row| row.is_sorted == 0) {
        return Err(format!("wrong result: the keys of node {rank} are not in order"));
    }
    let mut last = None;
    for (rank, row) in rows.iter().enumerate().filter(|(_, row)| row.count > 0) {
        if let Some((before, key)) = last.filter(|(_, key)| *key > row.first) {
            let first = row.first;
            return Err(format!(
                "wrong result: node {before} ends with key {key}, node {rank} begins with {first}"
            ));
        }
        last = Some((rank, row.last));
    }
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).fold(0, u64::wrapping_add);
    let (count, before, after) =
        (sum(|row| row.count), sum(|row| row.before), sum(|row| row.after));
    if (count, after) != (keys.count as u64, before) {
        return Err(format!(
            "wrong result: {count} keys with checksum {after:016x}, expected {} with {before:016x}",
            keys.count
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Distribution;

    #[test]
    fn wrong_results_are_found() {
        let keys = Keys { seed: 0, count: 6, distribution: Distribution::Uniform };
        let inputs = [&[5, 1][..], &[2, 9], &[], &[4, 7]];
        let rows = |outputs: [&[u64]; 4]| {
            let pairs = inputs.iter().zip(outputs);
            pairs.map(|(input, output)| row(output, checksum(input))).collect::<Vec<_>>()
        };
        assert_eq!(check(&rows([&[1, 2], &[], &[4], &[5, 7, 9]]), keys), Ok(()));
        for (outputs, why) in [
            ([&[2, 1][..], &[], &[4], &[5, 7, 9]], "keys of node 0 are not in order"),
            ([&[1, 4], &[], &[2], &[5, 7, 9]], "node 0 ends with key 4, node 2 begins with 2"),
            ([&[1, 2], &[], &[4], &[5, 7]], "5 keys"),
            ([&[1, 2], &[], &[4], &[5, 7, 8]], "checksum"),
            ([&[1, 2], &[2], &[4], &[5, 7, 9]], "7 keys"),
        ] {
            let found = check(&rows(outputs), keys).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
