//! Arrays of several dimensions, and guards over blocks of them.

use super::failure;
use crate::both_ways::cluster;
use oikaze::message::Class;
use oikaze::shared::block::{ArrayBlock, BlockReadGuard, BlockWriteGuard};
use oikaze::shared::builder::{Distribution, Homes};

const SHAPE: [usize; 3] = [13, 10, 37];

/// Computes the new value of each element of the block that is not on the border of the array.
fn relax(old: &BlockReadGuard<'_, f64>, new: &mut BlockWriteGuard<'_, f64>) {
    let block = new.block();
    let inside = |axis: usize| {
        let range = block.range(axis);
        range.start.max(1)..range.end.min(SHAPE[axis] - 1)
    };
    for i in inside(0) {
        for j in inside(1) {
            for k in inside(2) {
                let sum = old[[i - 1, j, k]]
                    + old[[i + 1, j, k]]
                    + old[[i, j - 1, k]]
                    + old[[i, j + 1, k]]
                    + old.row([i, j])[k - 1 - old.block().range(2).start]
                    + old[[i, j, k + 1]];
                new[[i, j, k]] = sum / 6.0;
            }
        }
    }
}

fn start([i, j, k]: [usize; 3]) -> f64 {
    ((i * 31 + j * 17 + k * 7) % 101) as f64
}

/// Runs the same steps on one plain vector.
fn expected(steps: usize) -> Vec<f64> {
    let [planes, rows, columns] = SHAPE;
    let at = |i: usize, j: usize, k: usize| (i * rows + j) * columns + k;
    let mut old: Vec<f64> = (0..planes * rows * columns)
        .map(|n| start([n / columns / rows, n / columns % rows, n % columns]))
        .collect();
    let mut new = old.clone();
    for _ in 0..steps {
        for i in 1..planes - 1 {
            for j in 1..rows - 1 {
                for k in 1..columns - 1 {
                    let sum = old[at(i - 1, j, k)]
                        + old[at(i + 1, j, k)]
                        + old[at(i, j - 1, k)]
                        + old[at(i, j + 1, k)]
                        + old[at(i, j, k - 1)]
                        + old[at(i, j, k + 1)];
                    new[at(i, j, k)] = sum / 6.0;
                }
            }
        }
        std::mem::swap(&mut old, &mut new);
    }
    old
}

/// The program of the design page, along each axis: slabs along the first axis, and blocks with
/// rows apart along the others.
#[test]
fn stencil_along_any_axis_equals_the_sequential_one() {
    const STEPS: usize = 4;
    let expected = expected(STEPS);
    for (nodes, axis) in [(1, 0), (2, 0), (3, 1), (2, 2)] {
        cluster(nodes, |job| {
            let make = |name| {
                let builder = job.array_builder::<f64>(name, SHAPE);
                builder.distribution(Distribution::Block { axis }).build()
            };
            let (mut old, mut new) = (make("p0")?, make("p1")?);
            let mine = new.home_block(job.rank());
            for array in [&old, &new] {
                let mut guard = array.write(mine)?;
                for i in mine.range(0) {
                    for j in mine.range(1) {
                        for k in mine.range(2) {
                            guard[[i, j, k]] = start([i, j, k]);
                        }
                    }
                }
            }
            job.barrier()?;
            for _ in 0..STEPS {
                {
                    let halo = old.read(mine.grow(1))?;
                    for part in [mine.first(1), mine.last(1), mine.inner(1)] {
                        relax(&halo, &mut new.write(part)?);
                    }
                }
                job.barrier()?;
                std::mem::swap(&mut old, &mut new);
            }
            let all = old.read(old.whole())?;
            assert_eq!(all.to_vec(), expected, "{nodes} nodes, axis {axis}");
            assert_eq!(all.as_slice().unwrap(), expected);
            drop(all);
            Ok(job.barrier()?)
        });
    }
}

/// Home blocks hold each element once, whatever the distribution.
#[test]
fn home_blocks_partition_every_array() {
    for nodes in 1..=4 {
        cluster(nodes, |job| {
            let owners = |extent: usize| (0..extent).map(|i| (i / 2) as u32 % nodes).collect();
            for (number, shape) in
                [[6, 5, 700], [1, 9, 3], [2, 1, 5000], [0, 4, 4]].iter().enumerate()
            {
                let distributions = [
                    Distribution::Block { axis: 0 },
                    Distribution::Block { axis: 2 },
                    Distribution::Cyclic { axis: 1, indices: 2 },
                    Distribution::Explicit { axis: 0, owners: owners(shape[0]) },
                    Distribution::Pages(Homes::Block),
                    Distribution::Pages(Homes::Cyclic { pages: 2 }),
                ];
                for (kind, distribution) in distributions.into_iter().enumerate() {
                    let array = job
                        .array_builder::<u16>(&format!("a{number} {kind}"), *shape)
                        .distribution(distribution)
                        .build()?;
                    let mut times = vec![0; array.len()];
                    for block in (0..nodes).flat_map(|rank| array.home_blocks(rank)) {
                        for (i, j) in
                            block.range(0).flat_map(|i| block.range(1).map(move |j| (i, j)))
                        {
                            for k in block.range(2) {
                                times[(i * shape[1] + j) * shape[2] + k] += 1;
                            }
                        }
                    }
                    assert!(
                        times.iter().all(|times| *times == 1),
                        "{array:?}",
                        array = array.name()
                    );
                    assert_eq!(array.home_block(0).dimensions(), 3);
                }
            }
            Ok(())
        });
    }
}

/// Two nodes write alternating columns of the same rows. A guard owns no byte between its rows
/// (COH-10.14).
#[test]
fn blocks_of_two_nodes_may_share_rows_but_no_element() {
    cluster(2, |job| {
        let grid = job.array::<u32>("grid", [40, 64])?;
        for step in 0..3 {
            for stripe in 0..8 {
                if stripe % 2 == (job.rank() as usize + step) % 2 {
                    let mut guard = grid.write([0..40, stripe * 8..stripe * 8 + 8])?;
                    guard.iter_mut().for_each(|cell| *cell = (step * 100 + stripe) as u32);
                }
            }
            job.barrier()?;
            let all = grid.read(grid.whole())?;
            for i in 0..40 {
                for j in 0..64 {
                    assert_eq!(all[[i, j]], (step * 100 + j / 8) as u32, "step {step}, {i}, {j}");
                }
            }
            drop(all);
            job.barrier()?;
        }
        // Both nodes write column 20 of row 7, one after the other, so that no guard is in the way
        // (COH-16.6).
        let rows = [7..8, 7..20][job.rank() as usize].clone();
        if job.rank() == 1 {
            job.receive(Some(0))?;
        }
        grid.write([rows, 20..21])?.fill(1);
        if job.rank() == 0 {
            job.peer(1)?.send(Class::Ordered, 0, &[]).wait()?;
        }
        failure(job.barrier(), &["nodes 0 and 1", "array \"grid\"", "overlap"]);
        Ok(job.barrier()?)
    });
}

/// Changes under a merging guard over a block go home, and those of the other node stay.
#[test]
fn merged_blocks_keep_what_others_write() {
    cluster(2, |job| {
        let grid = job.array::<u64>("grid", [32, 100])?;
        let mut guard = grid.write_merged([1..31, 10..90])?;
        for i in 1..31 {
            guard.row_mut([i])[10 + job.rank() as usize] = i as u64;
        }
        drop(guard);
        job.barrier()?;
        let all = grid.read(grid.whole())?;
        assert!((1..31).all(|i| all[[i, 20]] == i as u64 && all[[i, 21]] == i as u64));
        assert_eq!(all.iter().filter(|cell| **cell != 0).count(), 60);
        drop(all);
        Ok(job.barrier()?)
    });
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn blocks_outside_the_array_are_refused() {
    cluster(1, |job| {
        let grid = job.array::<u8>("grid", [10, 20])?;
        let line = job.array::<u8>("line", 10)?;
        let shape = "the array has the shape [10, 20]";
        failure(grid.block([0..11, 0..20]), &["block [0..11, 0..20]", "\"grid\"", shape]);
        failure(grid.read([0..10, 5..21]), &[shape]);
        failure(grid.write([0..10]), &[shape]);
        failure(grid.read([0..1, 0..1, 0..1]), &[shape]);
        failure(grid.read(line.whole()), &["shape [10]", "[10, 20]"]);
        failure(grid.prefetch([0..10, 0..21]), &[shape]);
        assert_eq!(grid.home_of([10, 0]), None);
        assert_eq!(grid.home_of([9]), None);
        assert_eq!(grid.home_of([9, 19]), Some(0));
        let guard = grid.read([2..4, 3..5])?;
        assert_eq!((guard.get([2, 5]), guard.get([1, 3]), guard.get([2])), (None, None, None));
        assert_eq!(guard.get([3, 4]), Some(&0));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard[[4, 3]]));
        let why = panicked.unwrap_err();
        let text = why.downcast_ref::<String>().unwrap();
        assert!(text.contains("[4, 3] lies outside the guard's block [2..4, 3..5]"), "{text}");
        // Blocks that overlap in rows, but share no element, do not conflict.
        let mut other = grid.write([0..10, 5..6])?;
        failure(grid.write([3..4, 4..5]), &["grid"]);
        failure(other.copy_from_slice(&[1; 9]), &["9 elements", "10 elements"]);
        other.copy_from_slice(&[1; 10])?;
        assert_eq!(other[[9, 5]], 1);
        let empty: ArrayBlock = grid.block([3..3, 0..20])?;
        assert!(grid.write(empty)?.as_mut_slice().unwrap().is_empty());
        Ok(())
    });
}

#[test]
fn arrays_without_elements_work_as_others_do() {
    cluster(2, |job| {
        let empty = job.array::<u64>("empty", 0)?;
        let flat = job.array::<u64>("flat", [5, 0, 7])?;
        assert!(empty.is_empty() && flat.is_empty());
        assert_eq!((empty.home_of(0), empty.home_range(1)), (None, 0..0));
        assert!(empty.read(0..0)?.is_empty() && flat.read(flat.home_block(1))?.to_vec().is_empty());
        failure(empty.read(0..1), &["the array has 0 elements"]);
        empty.write(0..0)?.fill(1);
        flat.fill(3)?;
        job.barrier()?;
        flat.free()?;
        Ok(empty.free()?)
    });
}

/// A guard without elements needs no page, wherever it lies.
#[test]
fn guards_without_elements_fetch_nothing() {
    cluster(2, |job| {
        let line = job.array_with_homes::<u64>("line", 1000, Homes::Explicit(vec![0, 0]))?;
        let grid = job.array::<u16>("grid", [10, 300])?;
        line.fill(7)?;
        grid.fill(7)?;
        let fetched = || line.statistics().fetched_pages + grid.statistics().fetched_pages;
        let before = fetched();
        for at in [0, 5, 512, 600, 1000] {
            assert!(line.write(at..at)?.is_empty());
            assert!(line.write_merged(at..at)?.is_empty());
            assert!(line.read(at..at)?.is_empty());
            line.prefetch(at..at)?;
            line.subscribe(at..at)?;
            line.unsubscribe(at..at)?;
        }
        for block in [[5..5, 0..300], [0..10, 7..7], [10..10, 300..300]] {
            assert!(grid.read(block.clone())?.to_vec().is_empty());
            grid.write(block.clone())?.fill(1);
            grid.write_merged(block)?.fill(1);
        }
        assert_eq!(fetched(), before);
        assert!(line.write_lazily(5..5)?.is_empty());
        job.barrier()?;
        assert!(grid.read(grid.whole())?.iter().all(|value| *value == 7));
        Ok(job.barrier()?)
    });
}

/// Each mistake is an error on all nodes, and the job goes on.
#[test]
fn arrays_of_different_shapes_fail_on_all_nodes() {
    cluster(2, |job| {
        let me = job.rank() as usize;
        let words = ["array \"x\"", "node 0 declared", "node 1 declared"];
        let fails = |outcome, said: [&str; 2]| failure(outcome, &[&words[..], &said].concat());
        let shapes = [[10, 20, 30], [10, 20, 31]];
        fails(
            job.array::<u8>("x", shapes[me]).map(drop),
            ["the shape [10, 20, 30]", "the shape [10, 20, 31]"],
        );
        // The same number of bytes.
        let shapes = [[10, 20], [20, 10]];
        fails(job.array::<u8>("x", shapes[me]).map(drop), ["[10, 20]", "[20, 10]"]);
        let axis = me;
        let distributed = |distribution| {
            job.array_builder::<u8>("x", [9, 9]).distribution(distribution).build().map(drop)
        };
        fails(distributed(Distribution::Block { axis }), ["along axis 0", "along axis 1"]);
        failure(distributed(Distribution::Block { axis: 2 }), &["along axis 2", "2 axes"]);
        failure(
            distributed(Distribution::Explicit { axis: 0, owners: vec![0; 8] }),
            &["names 8 owners for the 9 indices of axis 0"],
        );
        failure(
            distributed(Distribution::Explicit { axis: 0, owners: vec![2; 9] }),
            &["the owner of index 0 of axis 0 is not one of the 2 nodes"],
        );
        failure(distributed(Distribution::Cyclic { axis: 0, indices: 0 }), &["at least 1 index"]);
        // One node alone is wrong.
        let axis = 5 * me;
        let text = failure(distributed(Distribution::Block { axis }), &["along axis 5"]);
        assert!(me == 1 || text.contains("node 1"), "{text}");
        let array = job.array::<u8>("x", [10, 20])?;
        Ok(array.free()?)
    });
}
