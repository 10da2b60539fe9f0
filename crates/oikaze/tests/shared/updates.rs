//! Updates that travel to readers with the barrier: owned and merged guards, pushes and
//! subscriptions (COH-10).
#![forbid(unsafe_code)]

use crate::processes::run_two_nodes;
use crate::support::{cluster_in_both_ways, cluster_of_pages};
use oikaze::Job;
use oikaze::shared::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze_launch::Settings;
use std::time::Duration;

/// Number of elements of a page.
const PAGE: usize = 512;
const PATIENCE: Duration = Duration::from_secs(60);
/// Variable that tells a process of this test that it is a node, and whether it keeps pages for
/// itself.
const ROLE: &str = "OIKAZE_TEST_ROLE";

fn text<T>(result: oikaze::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Pushes a page and a half from node 0 to node 1. The whole page needs no fetch there.
fn pushes(job: &Job) {
    let array = job.array::<u64>("pushed", 4 * PAGE).unwrap();
    for round in 1..5 {
        if job.rank() == 0 {
            let mut guard = array.write(0..PAGE + PAGE / 2).unwrap();
            guard.fill(round);
            guard.push_to(&[1]).unwrap();
        }
        job.barrier().unwrap();
        if job.rank() == 1 {
            let before = array.statistics();
            assert!(array.read(0..PAGE).unwrap().iter().all(|element| *element == round));
            assert_eq!(array.statistics().fetched_pages, before.fetched_pages, "round {round}");
            assert!(before.updates_received >= round);
        }
        assert_eq!(array.read(0..2 * PAGE).unwrap()[PAGE + PAGE / 2 - 1], round);
        job.barrier().unwrap();
    }
    let s = array.statistics();
    if job.rank() < 2 {
        // The first round brought half of the page, which could not be kept.
        assert_eq!(s.fetched_pages, u64::from(job.rank()), "{s:?}");
    }
    assert_eq!(s.updates_sent > 0, job.rank() == 0, "{s:?}");
}

/// Each node reads what the next one writes, on pages with any home. Each page is fetched once, and
/// the subscription brings what follows.
fn subscribes(job: &Job) {
    const ROUNDS: u64 = 30;
    let (rank, size) = (job.rank() as usize, job.size() as usize);
    let array = job.array_with_homes::<u64>("s", 6 * PAGE, Homes::Cyclic { pages: 1 }).unwrap();
    let part = |rank: usize| 6 * PAGE / size * rank..6 * PAGE / size * (rank + 1);
    let next = part((rank + 1) % size);
    array.subscribe(next.clone()).unwrap();
    array.write(part(rank)).unwrap().fill(0);
    job.barrier().unwrap();
    for round in 1..ROUNDS {
        assert!(array.read(next.clone()).unwrap().iter().all(|element| *element == round - 1));
        job.barrier().unwrap();
        for element in array.write(part(rank)).unwrap().iter_mut() {
            *element += 1;
        }
        job.barrier().unwrap();
    }
    let s = array.statistics();
    // A page is fetched to be read, and again after the first diff, before which its writer does
    // not know the reader. A page is also fetched to be written elsewhere.
    assert!(s.fetched_pages <= 3 * 6, "{s:?}");
    if size > 1 {
        assert!(s.updates_received >= ROUNDS - 3 && s.updates_sent >= ROUNDS - 3, "{s:?}");
        assert_eq!(s.updates_wasted, 0, "{s:?}");
    }
    array.unsubscribe(next).unwrap();
    let outside = text(array.subscribe(0..6 * PAGE + 1));
    assert!(outside.contains("the array has 3072 elements"), "{outside}");
    job.barrier().unwrap();
}

/// All nodes write their own elements of one page, under guards over the whole page.
fn merges(job: &Job) {
    let size = job.size() as usize;
    let array = job.array::<u64>("merged", PAGE).unwrap();
    for round in 1..8 {
        let mut guard = array.write_merged(0..PAGE).unwrap();
        for element in guard.iter_mut().skip(job.rank() as usize).step_by(size) {
            *element += u64::from(job.rank()) + 1;
        }
        drop(guard);
        job.barrier().unwrap();
        let all = array.read(0..PAGE).unwrap();
        for (element, found) in all.iter().enumerate() {
            assert_eq!(*found, round * (element % size + 1) as u64, "element {element}");
        }
        drop(all);
        job.barrier().unwrap();
    }
}

/// Adds 1 to each element of this node's part.
fn add_one(array: &SharedArray<u64>, part: std::ops::Range<usize>, is_lazy: bool) {
    let guard = if is_lazy { array.write_lazily(part) } else { array.write(part) };
    guard.unwrap().iter_mut().for_each(|element| *element += 1);
}

/// One node after the other goes over to plain stores, and back to guards, while all read all.
fn changes_to_plain_stores(job: &Job) {
    let (rank, size) = (job.rank() as usize, job.size() as usize);
    let array = job.array::<u64>("switched", 3 * PAGE).unwrap();
    // Parts begin and end inside of pages.
    let part = 3 * PAGE / size * rank..3 * PAGE / size * (rank + 1);
    for round in 1..16u64 {
        let is_lazy = round as usize % 4 == 2 + rank % 2;
        add_one(&array, part.clone(), is_lazy);
        job.barrier().unwrap();
        let all = array.read(0..3 * PAGE / size * size).unwrap();
        assert!(all.iter().all(|element| *element == round), "node {rank}, round {round}");
        drop(all);
        job.barrier().unwrap();
    }
}

/// COH-10.15
#[test]
fn pushed_pages_are_read_without_a_fetch() {
    for size in [2, 3] {
        cluster_of_pages(size, &Settings::default(), |job| pushes(&job));
    }
}

/// COH-10.18
#[test]
fn subscribed_elements_come_with_the_barrier() {
    for size in [1, 2, 3] {
        cluster_of_pages(size, &Settings::default(), |job| subscribes(&job));
    }
}

/// COH-1.2, COH-10.14
#[test]
fn merging_guards_of_all_nodes_write_one_page() {
    for size in [1, 2, 4] {
        cluster_in_both_ways(size, &Settings::default(), |job| merges(&job));
    }
}

/// COH-10.13
#[test]
fn program_may_change_to_plain_stores_in_between() {
    for size in [1, 2, 3] {
        cluster_in_both_ways(size, &Settings::default(), |job| changes_to_plain_stores(&job));
    }
}

/// A push names nodes of the job, and a guard that knows what it writes.
#[test]
fn push_to_an_unknown_rank_or_of_an_unknown_write_is_an_error() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        let part = array.home_range(job.rank());
        let mut guard = array.write(part.clone()).unwrap();
        let unknown = text(guard.push_to(&[0, 2]));
        assert!(unknown.contains("push elements of array \"a\" to [0, 2]"), "{unknown}");
        assert!(unknown.contains("there is no node 2: the job has 2 nodes"), "{unknown}");
        guard.push_to(&[job.rank()]).unwrap(); // to itself: nothing to send
        drop(guard);
        for is_lazy in [false, true] {
            let elements = part.clone();
            let guard =
                if is_lazy { array.write_lazily(elements) } else { array.write_merged(elements) };
            let refused = text(guard.unwrap().push_to(&[0]));
            assert!(refused.contains("does not know what it writes"), "{refused}");
        }
        job.barrier().unwrap();
        assert_eq!(array.statistics().updates_sent, 0);
    });
}

/// COH-10.12, COH-3.9: an update is sent when its guard ends, and comes under a guard of the
/// reader. The reader's guard shows the old bytes until it ends.
#[test]
fn update_waits_for_the_end_of_a_guard_over_its_bytes() {
    cluster_of_pages(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 16 * PAGE).unwrap();
        let elements = array.home_range(0);
        array.read(elements.clone()).unwrap();
        array.subscribe(elements.clone()).unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            // The reader holds its guard now.
            assert_eq!(job.receive(Some(1)).unwrap().tag(), 1);
            array.write(elements.clone()).unwrap().fill(7);
            assert_eq!(job.receive(Some(1)).unwrap().tag(), 2);
        } else {
            let send = |tag| {
                let peer = job.peer(0).unwrap();
                peer.send(oikaze::message::Class::Ordered, tag, b"").wait().unwrap();
            };
            let guard = array.read(elements.clone()).unwrap();
            send(1);
            while array.statistics().updates_received == 0 {
                std::thread::yield_now();
            }
            assert!(guard.iter().all(|element| *element == 0));
            drop(guard);
            send(2);
        }
        job.barrier().unwrap();
        assert!(array.read(elements).unwrap().iter().all(|element| *element == 7));
        assert!(array.statistics().fetched_pages <= 8);
    });
}

/// Roles of nodes that keep pages for themselves, and of nodes that all map the same memory.
const OF_PAGES: &str = "of pages";
const OF_ONE_MEMORY: &str = "of one memory";

/// Node of the jobs below. Does nothing if this process is not a node.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let job = oikaze::join().unwrap();
    if role == OF_PAGES {
        pushes(&job);
        subscribes(&job);
    }
    merges(&job);
    changes_to_plain_stores(&job);
    job.leave().unwrap();
}

/// COH-10.1, COH-10.5: in memory of all nodes, and with each tracker of pages, through rings and
/// over the network.
#[test]
fn processes_update_each_other_with_each_tracker() {
    let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
    for without in ["", "segment", "segment,uffd", "segment,uffd-full", "shm", "shm,uffd"] {
        let role = if without.is_empty() { OF_ONE_MEMORY } else { OF_PAGES };
        run_two_nodes(
            "updates::plays_its_role",
            &settings,
            &[(ROLE, role), ("OIKAZE_WITHOUT", without)],
        );
    }
}
