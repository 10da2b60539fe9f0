//! The end of arrays (COH-14).

use super::failure;
use crate::both_ways::{cluster, cluster_of_pages};
use oikaze::Job;
use std::sync::Mutex;

/// Number of arrays that are made and dropped. The whole number runs with `make soak`.
fn many() -> usize {
    std::env::var("OIKAZE_ARRAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// The tests of this file count mappings and descriptors of the process, so one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Number of the process's mappings whose line holds `name`.
fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(name)).count()
}

/// Number of the process's open descriptors that lead to a file whose name holds `name`.
fn descriptors(name: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    names.filter(|file| file.to_string_lossy().contains(name)).count()
}

/// Waits until nothing of the array is left in the process. All nodes have freed it, and the last
/// messages may still be on their way to be acknowledged.
fn until_gone(job: &Job, name: &str) {
    let begun = std::time::Instant::now();
    let left = || (mappings(name) + descriptors(name)) as u64;
    while job.barrier_reduce(left(), oikaze::collective::operator::Max).unwrap() > 0 {
        assert!(begun.elapsed().as_secs() < 20, "array {name} is still there");
    }
}

/// COH-14.1, COH-14.3: a barrier frees what all nodes have dropped, and nothing else.
#[test]
fn array_is_freed_when_all_nodes_have_dropped_it() {
    let _alone = alone();
    cluster(3, |job| {
        let kept = job.array::<u64>("kept of free", 5000)?;
        let gone = job.array::<u64>("gone of free", 5000)?;
        kept.write(kept.home_range(job.rank()))?.fill(7);
        gone.write(gone.home_range(job.rank()))?.fill(8);
        job.barrier()?;
        assert_eq!(gone.read(0..5000)?[2500], 8);
        if job.rank() != 1 {
            drop(gone);
            job.barrier()?;
            job.barrier()?;
        } else {
            // Two nodes have dropped it, and this one still reads it, also at its home.
            job.barrier()?;
            assert!(gone.read(0..5000)?.iter().all(|value| *value == 8));
            drop(gone);
            job.barrier()?;
        }
        until_gone(job, "gone of free");
        assert!(kept.read(0..5000)?.iter().all(|value| *value == 7));
        // The name is free, and so is a name whose array all nodes drop before the declaration.
        let again = job.array::<f32>("gone of free", [10, 10])?;
        assert!(again.read(again.whole())?.iter().all(|value| *value == 0.0));
        drop(again);
        let again = job.array::<u8>("gone of free", 9)?;
        assert_eq!(again.read(0..9)?[..], [0; 9]);
        failure(job.array::<u8>("kept of free", 9), &["exists already"]);
        Ok(job.barrier()?)
    });
}

#[test]
fn free_waits_for_pages_that_are_on_their_way() {
    let _alone = alone();
    cluster_of_pages(2, |job| {
        for step in 0..20 {
            let array = job.array::<u64>("fetched of free", 100 * 512)?;
            array.write(array.home_range(job.rank()))?.fill(step);
            job.barrier()?;
            array.prefetch(array.home_range(1 - job.rank()))?;
            array.subscribe(array.home_range(1 - job.rank()))?;
            array.free()?;
        }
        until_gone(job, "fetched of free");
        Ok(())
    });
}

/// Arrays that are written, read, subscribed and pushed, dropped in another order on each node.
#[test]
fn many_arrays_leave_nothing_behind() {
    let _alone = alone();
    cluster(2, |job| {
        let me = job.rank();
        for _ in 0..many() / 4 {
            let mut arrays = Vec::new();
            for number in 0..4 {
                arrays.push(job.array::<u32>(&format!("many {number}"), [3, 2000])?);
            }
            for array in &arrays {
                let mut guard = array.write(array.home_block(me))?;
                guard.fill(me + 1);
                guard.push_to(&[1 - me])?;
            }
            job.barrier()?;
            for array in &arrays {
                assert_eq!(array.read(array.whole())?[[0, 0]], 1);
                array.prefetch(array.whole())?;
            }
            if me == 1 {
                arrays.reverse();
            }
            drop(arrays);
            job.barrier()?;
        }
        job.barrier()?;
        until_gone(job, "oikaze:many ");
        Ok(())
    });
}

#[test]
fn free_of_different_arrays_names_both_nodes() {
    let _alone = alone();
    cluster(2, |job| {
        let (one, two) = (job.array::<u8>("one", 10)?, job.array::<u8>("two", 10)?);
        let outcome = if job.rank() == 0 { one.free() } else { two.free() };
        failure(outcome, &["node 1 called free array \"two\"", "node 0 called free array \"one\""]);
        let one = job.array::<u8>("three", 10)?;
        let guard = one.read(0..10)?;
        let other = job.array::<u8>("four", 10);
        failure(other, &["guard"]);
        drop(guard);
        Ok(job.barrier()?)
    });
}
