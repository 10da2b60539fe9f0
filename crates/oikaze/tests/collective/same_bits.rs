//! Reductions of floating-point numbers, whose results have the same bits in all ways of exchange.

use crate::everywhere::LIMIT;
use crate::ways::ExchangeWay;
use oikaze::prelude::*;
use oikaze_protocol::fnv::fnv1a;

const NODES: u32 = 4;
/// Lengths in bytes: one element, a slot of the arena, a few pieces, and more pieces than a rank
/// has buffers.
const LENS: [usize; 4] = [8, 4 << 10, 100 << 10, 1 << 20];

fn digest(values: &[f64]) -> u64 {
    fnv1a(values.iter().flat_map(|value| value.to_bits().to_le_bytes()))
}

/// Returns values whose sum depends on the order of the ranks.
fn rounded(rank: u32, len: usize) -> Vec<f64> {
    (0..len).map(|at| 1.0 / (at as f64 + 3.0 * f64::from(rank) + 1.7)).collect()
}

/// Returns values whose sums are exact.
fn exact(rank: u32, len: usize) -> Vec<f64> {
    (0..len).map(|at| f64::from(rank + 1) * at as f64).collect()
}

/// Returns the digests of sums in the order of a tree, and of sums in any order.
fn digests(job: &Job, len: usize) -> oikaze::Result<[Vec<u64>; 2]> {
    let (mine, any) = (rounded(job.rank(), len), exact(job.rank(), len));
    let mut in_place = mine.clone();
    job.all_reduce_into(&mut in_place, Sum)?;
    let begun = job.start().all_reduce(&mine, Sum).wait()?;
    let blocks: Vec<f64> = any.iter().copied().cycle().take(len * NODES as usize).collect();
    let of_any = [
        job.reduce(NODES - 1, &any, Sum)?,
        job.scan(&any, Sum)?,
        job.exclusive_scan(&any, Sum)?,
        job.reduce_scatter(&blocks, Sum)?,
    ];
    Ok([vec![digest(&in_place), digest(&begun)], of_any.iter().map(|sums| digest(sums)).collect()])
}

/// COLL-2.2, COLL-7.3: all_reduce combines in one order in memory, in recursive doubling and in
/// Rabenseifner's algorithm. The hierarchy of several machines has another order.
#[test]
fn sums_of_floats_have_the_same_bits_in_memory_and_by_parcels() {
    for bytes in LENS {
        let len = bytes / size_of::<f64>();
        let of_ways = ExchangeWay::ALL.map(|way| {
            let settings = Job::builder().time_limit(LIMIT);
            way.run(NODES, &settings, |job| {
                let by = job.team().algorithm("all_reduce", bytes);
                let is_tree = ["recursive doubling", "Rabenseifner"].contains(&by);
                assert!(is_tree || way == ExchangeWay::TwoMachines, "{way:?}: {by}");
                Ok(digests(job, len)?)
            })
        });
        let [[of_tree, _], ..] = &of_ways[0][..] else { panic!("there are no nodes") };
        for (way, of_ranks) in ExchangeWay::ALL.iter().zip(&of_ways) {
            for (rank, [in_order, in_any]) in of_ranks.iter().enumerate() {
                let what = format!("{way:?}, {bytes} bytes, rank {rank}");
                assert!(in_order.iter().all(|sum| *sum == of_ranks[0][0][0]), "{what}");
                assert!(in_order == of_tree || *way == ExchangeWay::TwoMachines, "{what}");
                assert_eq!(*in_any, of_ways[0][rank][1], "{what}");
            }
        }
        // The values tell the order of the tree from the order of ranks.
        let mut in_rank_order = rounded(0, len);
        for rank in 1..NODES {
            let more = rounded(rank, len);
            in_rank_order.iter_mut().zip(more).for_each(|(sum, value)| *sum += value);
        }
        assert!(len == 1 || digest(&in_rank_order) != of_tree[0]);
    }
}
