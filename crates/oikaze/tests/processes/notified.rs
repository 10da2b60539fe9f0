//! A stencil on real processes whose nodes push their borders and notify each other, without a
//! barrier in its steps (COH-15.6 to 15.8).

use crate::nodes::{PART, run_nodes};
use oikaze::prelude::*;
use oikaze::shared::builder::Homes;
use oikaze_launch::Settings;
use std::time::Duration;

/// Time limit of each wait of a node.
const LIMIT: Duration = Duration::from_secs(30);
const NODES: u32 = 4;
/// Number of elements of a page.
const PAGE: usize = 512;
/// Cells of each node, in pages.
const CELLS: usize = 3 * PAGE;
const STEPS: usize = 100;

/// Plays the part of a node that the test starts. Not a test by itself.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let job = oikaze::join().unwrap();
    assert_eq!(part, "stencil");
    assert_eq!(stencil(&job).unwrap(), 0, "node {} has fetched borders", job.rank());
    job.leave().unwrap();
}

/// Value of a cell at the start.
fn first(cell: usize) -> u64 {
    (cell * cell % 1009) as u64
}

/// Value of a cell after a step, from the cells beside it and itself.
fn next(left: u64, middle: u64, right: u64) -> u64 {
    left.wrapping_mul(3).wrapping_add(middle).wrapping_add(right.wrapping_mul(7))
}

/// Computes all steps on one node.
fn serial() -> Vec<u64> {
    let count = NODES as usize * CELLS;
    let mut cells: Vec<u64> = (0..count).map(first).collect();
    for _ in 0..STEPS {
        let at = |cell: usize| cells[cell % count];
        cells = (0..count).map(|i| next(at(i + count - 1), at(i), at(i + 1))).collect();
    }
    cells
}

/// Computes a ring of cells, a block on each node, in two arrays in turn. The first and the last
/// page of a block are its borders. Returns the number of fetches.
fn stencil(job: &Job) -> oikaze::Result<u64> {
    let (me, size) = (job.rank() as usize, job.size() as usize);
    let count = size * CELLS;
    let arrays = ["even", "odd"]
        .map(|name| job.array_builder::<u64>(name, count).homes(Homes::Block).build());
    let [even, odd] = arrays;
    let arrays = [even?, odd?];
    let sides = [(me + size - 1) % size, (me + 1) % size];
    let borders = [sides[0] * CELLS + CELLS - PAGE, sides[1] * CELLS];
    let fill = |array: &SharedArray<u64>, cells: &[u64]| -> oikaze::Result<()> {
        let mine = me * CELLS;
        for (from, to, reader) in [
            (0, PAGE, Some(sides[0])),
            (PAGE, CELLS - PAGE, None),
            (CELLS - PAGE, CELLS, Some(sides[1])),
        ] {
            let mut guard = array.write(mine + from..mine + to)?;
            guard.copy_from_slice(&cells[from..to]);
            if let Some(reader) = reader {
                guard.push_to(&[reader as u32])?;
            }
        }
        Ok(())
    };
    let mut cells: Vec<u64> = (me * CELLS..(me + 1) * CELLS).map(first).collect();
    for array in &arrays {
        fill(array, &cells)?;
    }
    job.barrier()?;
    for step in 0..STEPS {
        let (now, then) = (&arrays[step % 2], &arrays[(step + 1) % 2]);
        let left = now.read(borders[0] + PAGE - 1..borders[0] + PAGE)?[0];
        let right = now.read(borders[1]..borders[1] + 1)?[0];
        let at = |i: usize| match i {
            0 => left,
            i if i <= CELLS => cells[i - 1],
            _ => right,
        };
        cells = (1..=CELLS).map(|i| next(at(i - 1), at(i), at(i + 1))).collect();
        fill(then, &cells)?;
        for side in sides {
            job.notify(side as u32)?;
        }
        for side in sides {
            job.wait_notify(side as u32)?;
        }
    }
    let fetches = arrays.iter().map(|array| array.statistics().fetches).sum();
    assert_eq!(cells, serial()[me * CELLS..(me + 1) * CELLS], "node {me}");
    job.barrier()?;
    Ok(fetches)
}

/// COH-15.8: no step fetches a page, over the network and in shared memory, with each tracker, and
/// if datagrams are lost, repeated and overtaken.
#[test]
fn nodes_that_notify_each_other_fetch_no_borders() {
    let faults = "loss=0.05,reorder=0.1,duplicate=0.05,seed=7";
    for (without, fault) in [("segment", ""), ("segment,uffd", ""), ("shm", ""), ("shm", faults)] {
        let settings = Settings {
            time_limit: Some(LIMIT),
            fault: (!fault.is_empty()).then(|| fault.to_owned()),
            ..Settings::default()
        };
        run_nodes(NODES, ("notified::plays_its_part", "stencil"), &settings, |_| {
            vec![("OIKAZE_WITHOUT", without.to_owned())]
        });
    }
}
