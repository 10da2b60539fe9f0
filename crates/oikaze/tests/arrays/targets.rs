//! Arrays as targets of one-sided operations (COH-12).

use super::failure;
use crate::both_ways::cluster;
use oikaze::prelude::*;
use oikaze::shared::builder::Homes;

/// All nodes change the same elements. Reads after the barrier see all changes, on every node, also
/// where a copy was valid before.
#[test]
fn changes_at_home_are_seen_after_the_barrier() {
    for nodes in [1, 3] {
        cluster(nodes, |job| {
            let table = job.array_with_homes::<u64>("table", 4096, Homes::Cyclic { pages: 1 })?;
            let (me, all) = (job.rank() as usize, job.size() as usize);
            let mut expected = vec![0u64; 4096];
            for step in 1..6u64 {
                assert_eq!(table.read(0..4096)?[..], expected, "step {step}");
                job.barrier()?;
                for element in [5, 600, 4095] {
                    let old = table.fetch_add(element, step)? - expected[element];
                    assert!(old.is_multiple_of(step) && old / step < all as u64, "{old}");
                    expected[element] += step * all as u64;
                }
                // Each node has its own part of three pages.
                let start = 1000 + me * 100;
                let values: Vec<u64> = (0..100).map(|i| step * 1000 + i as u64).collect();
                table.put(start, &values)?;
                table.accumulate(1500 + me * 300, Max, &vec![step; 300])?;
                assert_eq!(table.get(start..start + 100)?, values, "its own writes");
                for node in 0..all {
                    expected[1000 + node * 100..][..100].copy_from_slice(&values);
                    expected[1500 + node * 300..][..300].fill(step);
                }
                // Plain writes elsewhere in the same pages, under guards.
                table.write(2900 + me..2901 + me)?.fill(step);
                expected[2900..2900 + all].fill(step);
                job.barrier()?;
                assert_eq!(table.get(0..4096)?, expected);
            }
            Ok(job.barrier()?)
        });
    }
}

#[test]
fn exchanges_have_one_winner_and_every_ticket_is_taken_once() {
    cluster(4, |job| {
        let words = job.array::<u32>("words", [2, 3000])?;
        let old = words.compare_exchange([1, 2999], 0, job.rank() + 1)?;
        let won = u64::from(old == 0);
        assert_eq!(job.barrier_reduce(won, oikaze::collective::operator::Sum)?, 1);
        let taken = (0..50).map(|_| words.fetch_add([0, 7], 1));
        let taken = taken.collect::<oikaze::Result<Vec<u32>>>()?;
        assert!(taken.is_sorted_by(|one, next| one < next));
        let sum = taken.into_iter().map(u64::from).sum::<u64>();
        let sum = job.barrier_reduce(sum, oikaze::collective::operator::Sum)?;
        assert_eq!(sum, (0..200).sum::<u64>(), "each ticket once");
        assert_eq!(words.read(words.whole())?[[0, 7]], 200);
        job.barrier()?;
        // Under a lock, the next holder sees what the one before has put.
        for _ in 0..5 {
            let held = job.lock(3)?;
            let before = words.read(100..101)?[0];
            words.put(100, &[before + 1])?;
            held.release()?;
        }
        job.barrier()?;
        assert_eq!(words.get(100..101)?, [20]);
        Ok(job.barrier()?)
    });
}

#[test]
fn floats_and_signed_numbers_are_combined_as_numbers() {
    cluster(2, |job| {
        let floats = job.array::<f32>("floats", 10)?;
        let signed = job.array::<i64>("signed", 10)?;
        floats.accumulate(3, Sum, &[0.5, -1.0])?;
        signed.accumulate(0, Min, &[-7 - i64::from(job.rank()), 5])?;
        let old = signed.fetch_combine(9, Max, i64::from(job.rank()))?;
        assert!((0..2).contains(&old));
        job.barrier()?;
        assert_eq!(floats.get(3..5)?, [1.0, -2.0]);
        assert_eq!(signed.read(0..10)?[..], [-8, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        failure(floats.put(8, &[0.0; 3]), &["elements 8..11", "\"floats\"", "10 elements"]);
        failure(floats.get(0..11), &["elements 0..11"]);
        failure(signed.fetch_add(10, 1), &["element 10", "\"signed\"", "shape [10]"]);
        failure(signed.fetch_add([0, 0], 1), &["element [0, 0]"]);
        assert!(floats.get(4..4)?.is_empty());
        floats.put(10, &[])?;
        Ok(job.barrier()?)
    });
}

/// COH-12.4: an operation on many pages of several homes.
#[test]
fn long_operations_reach_all_homes() {
    cluster(2, |job| {
        let long = job.array_with_homes::<u64>("long", 300_000, Homes::Cyclic { pages: 3 })?;
        let values: Vec<u64> = (0..300_000).collect();
        if job.rank() == 1 {
            long.put(0, &values)?;
        }
        job.barrier()?;
        long.accumulate(0, Sum, &values)?;
        job.barrier()?;
        let all = long.read(0..300_000)?;
        assert!(all.iter().zip(&values).all(|(found, value)| *found == 3 * value));
        drop(all);
        Ok(long.free()?)
    });
}
