//! `fill`, `resize`, `redistribute` and halos.

use super::failure;
use crate::both_ways::{cluster, cluster_of_pages};
use oikaze::shared::SharedArray;
use oikaze::shared::builder::{Distribution, Homes};

fn number(i: usize, j: usize) -> u64 {
    (i * 1000 + j + 1) as u64
}

fn write_home(array: &SharedArray<u64>, rank: u32) -> oikaze::Result<()> {
    for block in array.home_blocks(rank) {
        let mut guard = array.write(block)?;
        for i in block.range(0) {
            for j in block.range(1) {
                guard[[i, j]] = number(i, j);
            }
        }
    }
    Ok(())
}

#[test]
fn resize_keeps_elements_at_their_indices() {
    for nodes in [1, 3] {
        cluster(nodes, |job| {
            let mut table = job.array::<u64>("table", [20, 90])?;
            write_home(&table, job.rank())?;
            job.barrier()?;
            let mut kept = [20, 90];
            for shape in [[30, 70], [5, 400], [0, 3], [7, 7]] {
                table.resize(shape)?;
                kept = [kept[0].min(shape[0]), kept[1].min(shape[1])];
                let all = table.read(table.whole())?;
                for i in 0..shape[0] {
                    for j in 0..shape[1] {
                        let expected = if i < kept[0] && j < kept[1] { number(i, j) } else { 0 };
                        assert_eq!(all[[i, j]], expected, "{shape:?}, {i}, {j}");
                    }
                }
                drop(all);
                job.barrier()?;
            }
            failure(table.resize(7), &["resize array \"table\"", "[7, 7]", "other axes"]);
            let shape = [[8, 8], [8, 9]][usize::from(job.rank() == nodes - 1 && nodes > 1)];
            if nodes > 1 {
                failure(table.resize(shape), &["the shape [8, 8]", "the shape [8, 9]"]);
            }
            assert_eq!(table.shape().as_slice(), [7, 7], "as before");
            Ok(job.barrier()?)
        });
    }
}

#[test]
fn redistribute_moves_homes_and_keeps_all_elements() {
    cluster(3, |job| {
        let mut grid = job.array::<u64>("grid", [24, 1024])?;
        write_home(&grid, job.rank())?;
        job.barrier()?;
        for distribution in [
            Distribution::Block { axis: 1 },
            Distribution::Cyclic { axis: 0, indices: 2 },
            Distribution::Explicit { axis: 0, owners: (0..24).map(|i| (i % 3) as u32).collect() },
            Homes::Explicit(vec![2; 48]).into(),
        ] {
            grid.redistribute(distribution.clone())?;
            let all = grid.read(grid.whole())?;
            let is_right = |i: usize| (0..1024).all(|j| all[[i, j]] == number(i, j));
            assert!((0..24).all(is_right), "{distribution:?}");
            drop(all);
            job.barrier()?;
        }
        assert_eq!((grid.home_of([0, 0]), grid.home_of([23, 1023])), (Some(2), Some(2)));
        let wrong = Distribution::Block { axis: 2 };
        failure(grid.redistribute(wrong), &["redistribute array \"grid\"", "axis 2"]);
        assert_eq!(grid.home_of([0, 0]), Some(2));
        Ok(grid.fill(0)?)
    });
}

/// A node that is late still reads the old elements, because none is written before all nodes have
/// called.
#[test]
fn fill_waits_for_readers_of_old_elements() {
    cluster(3, |job| {
        let array = job.array::<u64>("array", 4096)?;
        for step in 0..50 {
            // Fetches pages that the last fill made invalid, while faster nodes fill again.
            let found = array.read(0..4096)?.iter().all(|value| *value == step);
            assert!(found, "step {step}");
            array.fill(step + 1)?;
        }
        Ok(())
    });
}

/// With the halo subscribed, a step fetches no page.
#[test]
fn halo_comes_with_the_barrier() {
    cluster_of_pages(2, |job| {
        let grid = job.array::<u64>("grid", [64, 1024])?;
        let mine = grid.home_block(job.rank());
        grid.halo(mine, 1)?;
        drop(grid.read(mine.grow(1))?);
        job.barrier()?;
        let fetched = grid.statistics().fetched_pages;
        assert!(fetched >= 2, "{fetched}");
        for step in 1..6 {
            grid.write(mine)?.fill(step);
            job.barrier()?;
            assert!(grid.read(mine.grow(1))?.iter().all(|value| *value == step));
            job.barrier()?;
        }
        assert_eq!(grid.statistics().fetched_pages, fetched);
        let other = job.array::<u64>("other", [64, 1025])?;
        failure(other.halo(mine, 1), &["[64, 1024]", "[64, 1025]"]);
        Ok(job.barrier()?)
    });
}
