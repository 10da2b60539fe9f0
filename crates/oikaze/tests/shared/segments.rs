//! Arrays whose memory all nodes of a machine map (COH-16).
#![forbid(unsafe_code)]

use oikaze::ffi::ElementKind;
use oikaze::job::Feature;
use oikaze::prelude::*;
use oikaze::shared::SharedArray;
use oikaze::testing::{cluster, cluster_on, cluster_with};
use std::error::Error;

/// Number of bytes of a page.
const PAGE: usize = 4096;

type Outcome = std::result::Result<(), Box<dyn Error>>;

fn text<T>(result: oikaze::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Lets one node after the other do something, in rank order. Nothing is synchronised.
fn in_turn(job: &Job, mut part: impl FnMut() -> Outcome) -> Outcome {
    for rank in 0..job.size() {
        if rank == job.rank() {
            part()?;
        }
        job.all_reduce(0u32, Sum)?;
    }
    Ok(())
}

/// Takes a guard on node 0, tries something on the others, and ends the guard.
fn beside<G>(
    job: &Job,
    take: impl FnOnce() -> oikaze::Result<G>,
    others: impl FnOnce() -> Outcome,
) -> Outcome {
    let guard = if job.rank() == 0 { Some(take()?) } else { None };
    job.all_reduce(0u32, Sum)?;
    if job.rank() != 0 {
        others()?;
    }
    job.all_reduce(0u32, Sum)?;
    drop(guard);
    job.all_reduce(0u32, Sum)?;
    Ok(())
}

/// COH-16.1, COH-16.2: all nodes go one way, and say why if it is the old one.
#[test]
fn nodes_of_one_machine_map_one_memory() {
    cluster(3, |job| {
        let array = job.array::<u64>("a", 10_000)?;
        assert_eq!(array.why_not_shared(), None);
        let mine = array.home_range(job.rank());
        array.write(mine)?.fill(u64::from(job.rank()) + 1);
        job.barrier()?;
        for rank in 0..3 {
            let guard = array.read(array.home_range(rank))?;
            assert!(guard.iter().all(|value| *value == u64::from(rank) + 1));
        }
        job.barrier()?;
        assert_eq!(array.statistics().fetches, 0);
        Ok(())
    });
    let without = Job::builder().without([Feature::Segment]);
    cluster_with(2, without, |job| {
        let why = job.array::<u8>("a", 10)?.why_not_shared().unwrap().to_owned();
        assert_eq!(why, "OIKAZE_WITHOUT=segment");
        Ok(())
    });
    cluster_on(&[0, 0, 1], Job::builder(), |job| {
        let array = job.array::<u8>("a", 10)?;
        assert!(array.why_not_shared().unwrap().contains("one machine"));
        Ok(())
    });
}

/// COH-16.6: guards conflict by their exact bytes, and the error names node and line.
#[test]
fn conflicting_guards_of_two_nodes_are_refused() {
    cluster(2, |job| {
        let grid = job.array::<u32>("grid", [8, 16])?;
        beside(
            job,
            || grid.write([0..8, 0..4]),
            || {
                let refused = text(grid.read([7..8, 3..5]));
                assert!(refused.contains("a guard of node 0 that writes"), "{refused}");
                assert!(
                    refused.contains("taken at") && refused.contains("segments.rs:"),
                    "{refused}"
                );
                assert!(refused.contains("array \"grid\""), "{refused}");
                text(grid.write(..));
                text(grid.fetch_add([7, 3], 1));
                text(grid.get(0..1));
                // Between the rows of the block.
                grid.write([0..8, 4..16])?.fill(1);
                grid.read(4..16)?;
                grid.fetch_add([7, 4], 1)?;
                Ok(())
            },
        )?;
        beside(
            job,
            || grid.read([0..8, 0..4]),
            || {
                text(grid.write(3..4));
                text(grid.fetch_add([0, 0], 1));
                assert_eq!(grid.get(0..4)?, [0; 4]);
                grid.read(..)?;
                Ok(())
            },
        )?;
        // Afterwards, nothing is in the way.
        in_turn(job, || {
            grid.write(..)?.fill(7);
            Ok(())
        })?;
        Ok(())
    });
}

/// Interleaved parts of two nodes, taken again and again, are never refused.
#[test]
fn guards_that_do_not_meet_are_never_refused() {
    cluster(4, |job| {
        let (size, me) = (job.size() as usize, job.rank() as usize);
        let grid = job.array::<u32>("grid", [64, 64])?;
        let columns = job.array::<u16>("columns", [6, 5, 8])?;
        for round in 0..200 {
            let mut held = Vec::new();
            for row in (me..64).step_by(size) {
                held.push(grid.write([row..row + 1, 0..64])?);
            }
            held.iter_mut().for_each(|guard| guard.fill(round));
            let mut block = columns.write([1..6, 0..5, 2 * me..2 * me + 2])?;
            block.fill(round as u16);
            columns.read(0..4 * 5)?;
        }
        job.barrier()?;
        assert!(grid.read(..)?.iter().all(|value| *value == 199));
        assert!(columns.read([1..6, 0..5, 0..8])?.iter().all(|value| *value == 199));
        Ok(())
    });
}

/// COH-16.7: nodes merge into one range at the same time, beside nodes that read other elements.
#[test]
fn merging_guards_store_what_has_changed_and_nothing_else() {
    cluster(3, |job| {
        let array = job.array::<u32>("a", 3 * PAGE)?;
        let me = job.rank() as usize;
        for round in 1..20 {
            let mut all = array.write_merged(..)?;
            all.iter_mut().skip(me).step_by(3).for_each(|value| *value += 1);
            job.all_reduce(0u32, Sum)?;
            // The copy is this node's alone.
            assert_eq!((all[me], all[(me + 1) % 3]), (round, round - 1));
            job.all_reduce(0u32, Sum)?;
            all.release()?;
            job.barrier()?;
            assert!(array.read(..)?.iter().all(|value| *value == round));
            job.barrier()?;
        }
        beside(
            job,
            || array.read(1..2),
            || {
                let mut all = array.write_merged(..)?;
                (all[0], all[2]) = (100 + me as u32, 100 + me as u32);
                Ok(all.release()?)
            },
        )?;
        job.barrier()?;
        assert!(array.read(0..3)?.iter().zip([100, 0, 100]).all(|(is, least)| *is >= least));
        Ok(())
    });
}

/// COH-16.7: what is merged under a guard of another node is a race. It is not stored.
#[test]
fn merging_under_a_guard_of_another_node_is_an_error() {
    cluster(2, |job| {
        let array = job.array::<u64>("a", 100)?;
        beside(
            job,
            || array.read(10..20),
            || {
                let mut all = array.write_merged(..)?;
                (all[9], all[15]) = (1, 2);
                let race = text(all.release());
                assert!(race.contains("a guard of node 0 that reads bytes 80..160"), "{race}");
                Ok(())
            },
        )?;
        job.barrier()?;
        assert_eq!(array.get(9..16)?, [1, 0, 0, 0, 0, 0, 0]);
        // A guard that is dropped reports nothing, so the next collective fails on all nodes.
        beside(
            job,
            || array.read(10..20),
            || {
                array.write_merged(..)?[15] = 2;
                Ok(())
            },
        )?;
        let race = text(job.barrier());
        assert!(race.contains("merging bytes") && race.contains("node 0"), "{race}");
        job.barrier()?;
        assert_eq!(array.get(15..16)?, [0]);
        Ok(())
    });
}

/// COH-10.14: guards of two nodes that owned one byte one after the other.
#[test]
fn barrier_after_two_nodes_owned_one_byte_fails_on_all() {
    cluster(3, |job| {
        let array = job.array::<u64>("a", 1000)?;
        in_turn(job, || {
            let start = 10 * job.rank() as usize;
            array.write(start..start + if job.rank() == 1 { 11 } else { 10 })?;
            Ok(())
        })?;
        let failed = job.barrier().unwrap_err();
        assert!(failed.is_mismatch());
        let failed = failed.to_string();
        assert!(
            failed.contains("nodes 1 and 2 both wrote bytes 160..168 of array \"a\""),
            "{failed}"
        );
        job.barrier()?;
        // A lock orders them, and so does a barrier of a team.
        for _ in 0..3 {
            let held = job.lock(3)?;
            array.write(..)?[0] += 1;
            held.release()?;
        }
        job.barrier()?;
        in_turn(job, || {
            if job.rank() < 2 {
                array.write(5..6)?[0] = 1;
            }
            Ok(())
        })?;
        assert!(job.barrier().unwrap_err().is_mismatch());
        array.write(100 * job.rank() as usize..100 * job.rank() as usize + 100)?;
        job.barrier()?;
        Ok(())
    });
}

/// COH-16.9.
#[test]
fn operations_on_elements_are_single_steps() {
    const EACH: u64 = 2000;
    cluster(4, |job| {
        let array = job.array::<u64>("a", 2 * PAGE)?;
        for _ in 0..EACH {
            array.fetch_add(511, 1)?;
            array.accumulate(510, Sum, &[1, 1, 1])?;
        }
        job.barrier()?;
        assert_eq!(array.get(509..514)?, [0, 4 * EACH, 8 * EACH, 4 * EACH, 0]);
        let winners = u64::from(array.compare_exchange(0, 0, u64::from(job.rank()) + 1)? == 0);
        assert_eq!(job.all_reduce(winners, Sum)?, 1);
        // An operation over many pages, against others in the opposite order of pages.
        let value = u64::from(job.rank()) + 1;
        for _ in 0..50 {
            array.put(1, &vec![value; PAGE - 1])?;
            let all = array.get(1..PAGE)?;
            assert!(all.iter().all(|element| *element == all[0]), "a mixture of two");
        }
        Ok(())
    });
}

/// A guard of this node is in the way of an operation of its own, as that of another node is.
#[test]
fn operation_under_a_guard_of_its_own_node_is_refused() {
    cluster(2, |job| {
        let array = job.array::<u64>("a", 10)?;
        let guard = array.read(..)?;
        let refused = text(array.fetch_add(3, 1));
        assert!(refused.contains("alive in this process"), "{refused}");
        assert_eq!(array.get(3..4)?, [0]);
        guard.release()?;
        job.barrier()?;
        array.fetch_add(3, 1)?;
        job.barrier()?;
        assert_eq!(array.get(3..4)?, [2]);
        Ok(())
    });
}

/// COH-16.11, COH-14.
#[test]
fn arrays_are_replaced_and_freed() {
    cluster(3, |job| {
        for round in 0..10usize {
            let mut array: SharedArray<u32> = job.array("a", [6, 1000])?;
            array.fill(round as u32)?;
            array.resize([9, 500])?;
            assert_eq!(array.why_not_shared(), None);
            let all = array.read(array.whole())?;
            assert_eq!((all[[5, 499]], all[[6, 0]]), (round as u32, 0));
            drop(all);
            if round % 2 == 0 {
                array.free()?;
            } else {
                drop(array);
                job.barrier()?;
            }
        }
        Ok(())
    });
}

/// Returns the sum of a field of this process's `smaps`, in KiB, over the mappings of an array.
fn mapped(name: &str, field: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_array, mut sum) = (false, 0);
    for line in maps.lines() {
        // Each mapping begins with its addresses, and its fields have names with a colon.
        if line.split(' ').next().is_some_and(|word| !word.ends_with(':')) {
            is_array = line.contains(&format!("memfd:oikaze:{name} "));
        }
        if let Some(value) = line.strip_prefix(field).filter(|_| is_array) {
            sum += value.trim().split(' ').next().unwrap().parse::<usize>().unwrap();
        }
    }
    sum
}

/// COH-16.4, COH-16.5: memory is found by the declaration, once for all nodes.
#[test]
fn nodes_that_read_one_array_have_it_once() {
    const BYTES: usize = 24 << 20;
    cluster(4, |job| {
        let array = job.array::<u8>("once", BYTES)?;
        assert!(array.read(..)?.iter().all(|byte| *byte == 0));
        job.barrier()?;
        if job.rank() == 0 {
            let whole = BYTES >> 10;
            let shown = mapped("once", "Pss:");
            assert!((whole * 9 / 10..whole * 11 / 10).contains(&shown), "{shown} KiB");
        }
        job.barrier()?;
        Ok(())
    });
}

/// COH-2.1: the nodes count arrays alike, whatever fails.
#[test]
fn declarations_that_fail_leave_the_nodes_in_step() {
    cluster(2, |job| {
        for _ in 0..3 {
            let other = job.array::<u32>("a", 10 + job.rank() as usize).map(drop).unwrap_err();
            assert!(other.is_mismatch() && other.to_string().contains("the shape"), "{other}");
            let kinds = match job.rank() {
                0 => {
                    job.untyped_array("a", &[10], ElementKind::F32.into()).build_untyped().map(drop)
                }
                _ => job.untyped_array("a", &[], ElementKind::F32.into()).build_untyped().map(drop),
            };
            assert!(kinds.is_err());
            text(job.array::<u8>("", 10));
            let array = job.array::<u32>("a", 10)?;
            assert_eq!(array.why_not_shared(), None);
            array.fill(1)?;
            array.free()?;
        }
        Ok(())
    });
}

/// COH-16.3: an array of pages makes the engines end barriers, and both are synchronised.
#[test]
fn one_node_without_segments_makes_all_keep_pages() {
    let nodes = [
        (None, Job::builder()),
        (None, Job::builder().without([Feature::Segment])),
        (None, Job::builder()),
    ];
    oikaze::internal::cluster_of(&nodes, |job| {
        let array = job.array::<u32>("a", 100)?;
        let why = array.why_not_shared().unwrap();
        assert!(why.contains("node 1") || why.contains("OIKAZE_WITHOUT"), "{why}");
        array.fetch_add(3, 1)?;
        job.barrier()?;
        assert_eq!(array.read(3..4)?[0], 3);
        Ok(())
    });
}
