//! `read_many` and `prefetch`: several ranges at once, and ranges ahead of their use (COH-3.3,
//! COH-3.10).
#![forbid(unsafe_code)]

use crate::processes::run_two_nodes;
use crate::support::{cluster_in_both_ways, cluster_of_pages};
use oikaze::Job;
use oikaze::shared::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze_launch::Settings;
use std::ops::Range;
use std::time::Duration;

/// Number of elements of a page.
const PAGE: usize = 512;
const PATIENCE: Duration = Duration::from_secs(60);
/// Variable that tells a process of this test that it is a node, and what it does without.
const ROLE: &str = "OIKAZE_TEST_ROLE";

/// Declares an array whose every page has its number and `round` in its first element.
fn numbered(job: &Job, pages: usize, homes: Homes) -> SharedArray<u64> {
    let array = job.array_with_homes::<u64>("numbered", pages * PAGE, homes).unwrap();
    number_pages(job, &array, 0);
    array
}

/// Writes the number of each page and `round` into its first element, at its home.
fn number_pages(job: &Job, array: &SharedArray<u64>, round: u64) {
    for first in (0..array.len()).step_by(PAGE) {
        if array.home_of(first) == Some(job.rank()) {
            array.write(first..first + 1).unwrap()[0] = value(first, round);
        }
    }
    job.barrier().unwrap();
}

fn value(first: usize, round: u64) -> u64 {
    (first / PAGE) as u64 + 1_000_000 * round
}

fn check(guard: &[u64], elements: &Range<usize>, round: u64) {
    assert_eq!(guard.len(), elements.len());
    for (element, found) in elements.clone().zip(guard) {
        let expected = if element % PAGE == 0 { value(element, round) } else { 0 };
        assert_eq!(*found, expected, "element {element}");
    }
}

/// Ranges in any order, some of them overlapping, empty, or inside a page.
fn ranges() -> Vec<Range<usize>> {
    vec![
        70 * PAGE..75 * PAGE,
        3 * PAGE + 7..3 * PAGE + 9,
        9..9,
        10 * PAGE..40 * PAGE,
        12 * PAGE..13 * PAGE + 1,
        99 * PAGE..100 * PAGE,
    ]
}

/// Reads many ranges in several rounds, between which every page changes.
fn reads_many(job: &Job) {
    let array = numbered(job, 100, Homes::Cyclic { pages: 3 });
    for round in 1..4 {
        number_pages(job, &array, round);
        if round == 2 {
            array.prefetch_many(&ranges()).unwrap();
        }
        let guards = array.read_many(&ranges()).unwrap();
        assert_eq!(guards.len(), 6);
        for (guard, elements) in guards.iter().zip(ranges()) {
            check(guard, &elements, round);
        }
        drop(guards);
        job.barrier().unwrap();
    }
    let pages = job.statistics().pages_fetched;
    assert!(array.read_many(&[]).unwrap().is_empty());
    array.read_many(&ranges()).unwrap();
    assert_eq!(job.statistics().pages_fetched, pages, "valid pages are not fetched");
}

/// Prefetches more than may be on its way at a time. Nothing but the prefetch fetches a page.
fn prefetches(job: &Job) {
    const PAGES: usize = 3000;
    let array = numbered(job, PAGES, Homes::Block);
    let before = job.statistics();
    array.prefetch(0..array.len()).unwrap();
    // The pages arrive while this node waits in the barrier.
    while job.statistics().pages_fetched - before.pages_fetched < elsewhere(job, &array) as u64 {
        std::thread::yield_now();
    }
    check(&array.read_lazily(0..array.len()).unwrap(), &(0..array.len()), 0);
    let after = job.statistics();
    assert_eq!(after.read_faults, before.read_faults, "no load has trapped");
    job.barrier().unwrap();
    // A prefetch of the same pages at once, and guards that wait for them.
    number_pages(job, &array, 1);
    array.prefetch(0..array.len()).unwrap();
    for first in (0..array.len()).step_by(array.len() / 10).rev() {
        let elements = first..(first + array.len() / 10).min(array.len());
        check(&array.read(elements.clone()).unwrap(), &elements, 1);
    }
    let fetched = job.statistics().pages_fetched - after.pages_fetched;
    assert_eq!(fetched, elsewhere(job, &array) as u64, "each page was fetched once");
    job.barrier().unwrap();
}

/// Returns the number of pages whose home is another node.
fn elsewhere(job: &Job, array: &SharedArray<u64>) -> usize {
    let homes = (0..array.len()).step_by(PAGE).map(|first| array.home_of(first));
    homes.filter(|home| *home != Some(job.rank())).count()
}

/// COH-3.3
#[test]
fn read_many_shows_what_reads_of_each_range_show() {
    for size in [1, 2, 3] {
        cluster_in_both_ways(size, &Settings::default(), |job| reads_many(&job));
    }
}

/// COH-3.10
#[test]
fn prefetch_brings_all_pages_without_a_fault() {
    for size in [1, 3] {
        cluster_of_pages(size, &Settings::default(), |job| prefetches(&job));
    }
}

/// Guards of `read_many` follow the rules of guards: no guard is left after an error.
#[test]
fn read_many_with_a_wrong_range_leaves_no_guard() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = numbered(&job, 8, Homes::Block);
        let text =
            |ranges: &[Range<usize>]| array.read_many(ranges).map(drop).unwrap_err().to_string();
        let outside = text(&[0..1, 0..array.len() + 1]);
        assert!(outside.contains("the array has 4096 elements"), "{outside}");
        let error =
            array.prefetch_many(&[0..1, Range { start: 7, end: 3 }]).unwrap_err().to_string();
        assert!(error.contains("elements 7..3 of array \"numbered\""), "{error}");
        let written = array.write_merged(5 * PAGE..5 * PAGE + 1).unwrap();
        let overlaps = text(&[0..1, 5 * PAGE..5 * PAGE + 3]);
        assert!(overlaps.contains("prefetch.rs:"), "{overlaps}");
        drop(written);
        job.barrier().unwrap(); // would be refused if a guard were left
        let (line, guards) = (line!(), array.read_many(&[0..1, 2..3]).unwrap());
        let refused = job.barrier().unwrap_err().to_string();
        assert!(refused.contains(&format!("prefetch.rs:{line}")), "{refused}");
        drop(guards);
        job.barrier().unwrap();
    });
}

/// Node of the jobs below. Does nothing if this process is not a node.
#[test]
fn plays_its_role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let job = oikaze::join().unwrap();
    reads_many(&job);
    job.leave().unwrap();
}

/// COH-3.3, COH-3.10: in memory of all nodes, and with each tracker of pages, through rings and
/// over the network.
#[test]
fn processes_read_many_ranges_with_each_tracker() {
    let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
    for without in ["", "segment", "segment,uffd", "segment,uffd-full", "shm", "shm,uffd"] {
        run_two_nodes(
            "prefetch::plays_its_role",
            &settings,
            &[(ROLE, "node"), ("OIKAZE_WITHOUT", without)],
        );
    }
}
