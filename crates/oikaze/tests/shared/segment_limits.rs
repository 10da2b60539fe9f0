//! Correct programs at the limits of arrays whose memory all nodes of a machine map (COH-16): many
//! guards, many ranges, and blocks side by side. Arrays of pages have the same outcomes.
#![forbid(unsafe_code)]

use crate::support::both_ways::cluster as cluster_in_both_ways;
use oikaze::prelude::*;
use oikaze::testing::cluster;

/// Number of guards of one node that may be alive over one segment.
const GUARDS_MAX: usize = 16_384;

/// Returns the numbers below `len` in another order. `step` has no divisor in common with `len`.
fn in_another_order(len: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..len).map(move |at| at * step % len)
}

/// COH-16.6: the other node takes and ends guards of its own meanwhile.
#[test]
fn many_guards_of_a_node_are_alive_at_once_and_end_in_another_order() {
    const GUARDS: usize = 10_000;
    const ROUNDS: usize = 1_000;
    cluster_in_both_ways(2, |job| {
        let array = job.array::<u32>("a", 2 * GUARDS)?;
        if job.rank() == 0 {
            let mut guards = Vec::new();
            for at in in_another_order(GUARDS, 7_919) {
                guards.push(Some(array.write(2 * at..2 * at + 1)?));
            }
            job.all_reduce(0_u32, Sum)?;
            for at in in_another_order(GUARDS, 2_741) {
                let mut guard = guards[at].take().unwrap();
                guard[0] += 1;
                guard.release()?;
            }
        } else {
            // Some rounds see how the number of guards grows, some see all of them.
            let mut round = |at: usize| -> oikaze::Result<()> {
                array.write(2 * at + 1..2 * at + 2)?[0] += 1;
                Ok(())
            };
            (0..ROUNDS).try_for_each(&mut round)?;
            job.all_reduce(0_u32, Sum)?;
            (ROUNDS..2 * ROUNDS).try_for_each(&mut round)?;
        }
        job.barrier()?;
        let all = array.read(..)?;
        for (at, pair) in all.chunks_exact(2).enumerate() {
            assert_eq!(pair, [1, u32::from(at < 2 * ROUNDS)], "pair {at}");
        }
        all.release()?;
        job.barrier()?;
        Ok(())
    });
}

/// COH-16.3, COH-10.14: so many ranges are not compared, and no byte is lost.
#[test]
fn nodes_own_many_interleaved_ranges_between_two_barriers() {
    const RANGES: usize = 5_000;
    cluster_in_both_ways(2, |job| {
        let (me, size) = (job.rank() as usize, job.size() as usize);
        let array = job.array::<u16>("a", 3 * size * RANGES)?;
        for round in 1..3 {
            for at in in_another_order(RANGES, 1_471) {
                // An element that nobody owns is between all ranges.
                let start = 3 * (size * at + me);
                array.write(start..start + 2)?.fill(round * 10 + me as u16);
            }
            job.barrier()?;
            let all = array.read(..)?;
            for (at, range) in all.chunks_exact(3).enumerate() {
                let value = round * 10 + (at % size) as u16;
                assert_eq!(range, [value, value, 0], "range {at} in round {round}");
            }
            all.release()?;
            job.barrier()?;
        }
        // As many as are compared: the nodes own one byte after another.
        if me == 0 {
            array.write(..)?.fill(7);
        }
        job.barrier()?;
        assert_eq!(array.get(1..4)?, [7; 3]);
        Ok(())
    });
}

/// COH-16.6: a guard covers its block, and not the bytes between the rows of the block.
#[test]
fn column_blocks_of_all_nodes_are_alive_side_by_side() {
    const ROWS: usize = 96;
    cluster_in_both_ways(4, |job| {
        let (me, size) = (job.rank() as usize, job.size() as usize);
        let grid = job.array::<u32>("grid", [ROWS, 5 * size])?;
        let mine = |extra: usize| [0..ROWS, 5 * me..5 * me + 4 + extra];
        for round in 1..4 {
            let mut block = grid.write(mine(0))?;
            // All nodes have their block now, and keep it until the next call.
            job.all_reduce(0_u32, Sum)?;
            block.fill(round * 10 + me as u32);
            let beside = grid.read([0..ROWS, 5 * me + 4..5 * me + 5])?;
            assert!(beside.iter().all(|value| *value == 0));
            beside.release()?;
            job.all_reduce(0_u32, Sum)?;
            block.release()?;
            job.barrier()?;
            let all = grid.read(..)?;
            for (at, value) in all.iter().enumerate() {
                let (node, column) = (at % (5 * size) / 5, at % 5);
                let expected = if column == 4 { 0 } else { round * 10 + node as u32 };
                assert_eq!(*value, expected, "element {at} in round {round}");
            }
            all.release()?;
            job.barrier()?;
        }
        Ok(())
    });
}

/// COH-16.7: all nodes merge into one range, and read others meanwhile.
#[test]
fn nodes_merge_into_one_range_beside_guards_that_read_others() {
    const LEN: usize = 20_000;
    const READ: usize = 64;
    cluster_in_both_ways(4, |job| {
        let (me, size) = (job.rank() as usize, job.size() as usize);
        let array = job.array::<u32>("a", LEN + size * READ)?;
        for round in 1..4 {
            let mut merged = array.write_merged(0..LEN)?;
            let read: Vec<_> = (0..size)
                .map(|node| array.read(LEN + node * READ..LEN + (node + 1) * READ))
                .collect::<oikaze::Result<_>>()?;
            job.all_reduce(0_u32, Sum)?;
            merged.iter_mut().skip(me).step_by(size).for_each(|value| *value = round);
            merged.release()?;
            job.all_reduce(0_u32, Sum)?;
            assert!(read.iter().all(|guard| guard.iter().all(|value| *value == 0)));
            drop(read);
            job.barrier()?;
            assert!(array.read(0..LEN)?.iter().all(|value| *value == round));
            job.barrier()?;
        }
        Ok(())
    });
}

/// COH-16.6: the error says what is missing. All guards stay as they are, and there is room again
/// as soon as one of them has ended.
#[test]
fn one_guard_more_than_a_node_has_room_for_is_refused() {
    cluster(2, |job| {
        let array = job.array::<u32>("a", 2 * GUARDS_MAX)?;
        let mut guards = Vec::new();
        if job.rank() == 0 {
            // It shows a copy, and is stored when there is no room for more.
            let mut merged = array.write_merged(GUARDS_MAX + 2..GUARDS_MAX + 200)?;
            let refused = loop {
                match array.write(guards.len()..guards.len() + 1) {
                    Ok(guard) => guards.push(guard),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(refused.contains("no room for one more"), "{refused}");
            assert!(refused.contains("array \"a\""), "{refused}");
            assert!(guards.len() <= GUARDS_MAX && guards.len() > GUARDS_MAX - 100);
            merged.iter_mut().step_by(2).for_each(|value| *value = 3);
            merged.release()?;
            guards.swap_remove(100).release()?;
            guards.push(array.write(100..101)?);
            guards.iter_mut().for_each(|guard| guard[0] = 5);
        }
        job.all_reduce(0_u32, Sum)?;
        if job.rank() == 1 {
            for at in [0, 100, GUARDS_MAX - 100] {
                assert!(array.read(at..at + 1).is_err(), "guard {at} counts");
            }
            array.write(GUARDS_MAX + 1..GUARDS_MAX + 2)?[0] = 1;
        }
        job.all_reduce(0_u32, Sum)?;
        let count = job.broadcast(0, &[guards.len()])?[0];
        drop(guards);
        job.barrier()?;
        assert!(array.read(0..count)?.iter().all(|value| *value == 5));
        let merged = array.read(GUARDS_MAX + 1..GUARDS_MAX + 200)?;
        assert_eq!(merged[0], 1);
        assert!(merged[1..].iter().zip([3, 0].iter().cycle()).all(|(is, was)| is == was));
        merged.release()?;
        job.barrier()?;
        Ok(())
    });
}
