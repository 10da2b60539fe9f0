//! Guards and synchronisation. The contents of a guard do not change, and calls that would have to
//! change them are refused (COH-3.9, COH-6.10, COH-7.7, COH-8.8).
#![forbid(unsafe_code)]

use crate::support::{cluster_in_both_ways, cluster_of_pages, cluster_once};
use oikaze::collective::operator::Sum;
use oikaze::{Job, Result};
use oikaze_launch::Settings;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// Number of elements of a page.
const PAGE: usize = 512;

/// Loads an element twice from a shared reference, and calls `between` in the meantime.
#[inline(never)]
fn twice(elements: &[u64], between: impl FnOnce()) -> (u64, u64) {
    let first = elements[0];
    between();
    (first, *black_box(&elements[0]))
}

fn text<T>(result: Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Sends `tag` to all other nodes. This orders the nodes without making memory visible.
fn tell(job: &Job, tag: u64) {
    for rank in (0..job.size()).filter(|rank| *rank != job.rank()) {
        job.peer(rank).unwrap().send(oikaze::message::Class::Ordered, tag, b"").wait().unwrap();
    }
}

fn heard(job: &Job, rank: u32, tag: u64) {
    assert_eq!(job.receive(Some(rank)).unwrap().tag(), tag);
}

/// COH-6.10: the error names the guard that is in the way and the remedy. The node may then try
/// again.
#[test]
fn collective_with_a_guard_alive_is_refused_and_names_the_guard() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 4 * PAGE).unwrap();
        let line = line!() + 1;
        let guard = array.read(3..5).unwrap();
        let refused = [
            text(job.barrier()),
            text(job.barrier_reduce(1_u64, Sum)),
            text(job.array::<u64>("b", 1)),
        ];
        for (what, text) in
            ["barrier: ", "barrier_reduce: ", "declare array \"b\": "].into_iter().zip(refused)
        {
            assert!(text.starts_with(what) && text.contains("reads bytes 24..40"), "{text}");
            assert!(text.contains(&format!("guards.rs:{line}:")), "{text}");
            assert!(text.contains("End that guard first (drop(guard) in Rust"), "{text}");
        }
        // A guard of another thread counts, too.
        drop(guard);
        std::thread::scope(|threads| {
            let (taken, is_taken) = mpsc::channel();
            let (over, is_over) = mpsc::channel::<()>();
            let array = &array;
            threads.spawn(move || {
                let _guard = array.write_lazily(job_part(array)).unwrap();
                taken.send(()).unwrap();
                let _ = is_over.recv();
            });
            is_taken.recv().unwrap();
            assert!(text(job.barrier()).contains("a guard that writes bytes"));
            drop(over);
        });
        job.barrier().unwrap();
        assert_eq!(job.barrier_reduce(1_u64, Sum).unwrap(), 2);
        job.array::<u64>("b", 1).unwrap();
    });
}

fn job_part(array: &oikaze::shared::SharedArray<u64>) -> std::ops::Range<usize> {
    let start = array.home_range(0).start;
    start..start + 1
}

/// COH-6.10: a forgotten guard is alive for ever.
#[test]
fn barrier_after_a_forgotten_guard_is_refused() {
    cluster_in_both_ways(1, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 4).unwrap();
        std::mem::forget(array.write(0..1).unwrap());
        assert!(text(job.barrier()).contains("writes bytes 0..8"));
        assert!(text(job.leave()).starts_with("leave: a guard that writes bytes 0..8"));
    });
}

/// COH-7.7: a lock refuses only the guards of its own thread.
#[test]
fn lock_with_a_guard_of_the_same_thread_is_refused() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 4).unwrap();
        let lock = job.lock(7).unwrap();
        // The other node takes its guard while this one is alive.
        let mine = job.rank() as usize;
        let guard = array.write(mine..mine + 1).unwrap();
        let refused = text(job.lock(8));
        let bytes = format!("lock 8: a guard that writes bytes {}..{}", 8 * mine, 8 * mine + 8);
        assert!(refused.starts_with(&bytes), "{refused}");
        assert!(refused.contains("in this thread"), "{refused}");
        std::thread::scope(|threads| {
            threads.spawn(|| job.lock(8 + u64::from(job.rank())).unwrap().release().unwrap()).join()
        })
        .unwrap();
        // A release is not an acquire.
        lock.release().unwrap();
        drop(guard);
        job.lock(8).unwrap().release().unwrap();
        job.barrier().unwrap();
    });
}

/// COH-7.8: other threads wait for the lock. The thread may take it again once it is given back.
#[test]
fn lock_that_the_same_thread_took_is_refused() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let number = u64::from(job.rank());
        let lock = job.lock(number).unwrap();
        for refused in [job.lock(number), job.lock_for(number, Duration::from_secs(60))] {
            let refused = text(refused);
            assert!(
                refused.starts_with(&format!("lock {number}: this thread took the lock"))
                    && refused.contains("give it back first"),
                "{refused}"
            );
        }
        std::thread::scope(|threads| {
            let other = threads.spawn(|| job.lock(number).unwrap().release().unwrap());
            lock.release().unwrap();
            other.join().unwrap();
        });
        job.lock(number).unwrap().release().unwrap();
        job.barrier().unwrap();
    });
}

/// COH-3.9, at the page's home: another node's diff waits for the guard, no node waits for the
/// diff, and a third node sees the new bytes.
#[test]
fn reference_to_a_home_page_stays_while_another_node_writes_it() {
    cluster_of_pages(3, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 3 * PAGE).unwrap();
        assert_eq!(array.home_of(0), Some(0));
        job.barrier().unwrap();
        match job.rank() {
            0 => {
                let guard = array.read(0..1).unwrap();
                tell(&job, 1);
                let between = || {
                    heard(&job, 1, 2);
                    heard(&job, 2, 3);
                };
                assert_eq!(twice(&guard, between), (0, 0));
                drop(guard);
                assert_eq!(array.read(0..2).unwrap()[..], [42, 43]);
            }
            1 => {
                heard(&job, 0, 1);
                let lock = job.lock(1).unwrap();
                array.write(0..2).unwrap().copy_from_slice(&[42, 43]);
                lock.release().unwrap();
                tell(&job, 2);
                heard(&job, 2, 3);
            }
            _ => {
                heard(&job, 0, 1);
                heard(&job, 1, 2);
                let lock = job.lock(1).unwrap();
                assert_eq!(array.read(0..2).unwrap()[..], [42, 43]);
                lock.release().unwrap();
                tell(&job, 3);
            }
        }
        job.barrier().unwrap();
        assert_eq!(array.read(0..2).unwrap()[..], [42, 43]);
    });
}

/// COH-3.9, away from the page's home: another thread's lock invalidates the page, which is fetched
/// again under the guard.
#[test]
fn reference_to_a_fetched_page_stays_while_another_thread_acquires() {
    cluster_of_pages(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        let there = array.home_range(1).start;
        job.barrier().unwrap();
        if job.rank() == 1 {
            heard(&job, 0, 1);
            let lock = job.lock(1).unwrap();
            array.write(there..there + 2).unwrap().copy_from_slice(&[42, 43]);
            lock.release().unwrap();
            tell(&job, 2);
        } else {
            let guard = array.read(there..there + 1).unwrap();
            tell(&job, 1);
            let between = || {
                heard(&job, 1, 2);
                let acquire = || {
                    let lock = job.lock(1).unwrap();
                    // The page has node 1's bytes, except in the range of the guard.
                    assert_eq!(array.read(there + 1..there + 2).unwrap()[0], 43);
                    lock.release().unwrap();
                };
                std::thread::scope(|threads| threads.spawn(acquire).join()).unwrap();
            };
            assert_eq!(twice(&guard, between), (0, 0));
            drop(guard);
            assert_eq!(array.read(there..there + 2).unwrap()[..], [42, 43]);
        }
        job.barrier().unwrap();
        assert_eq!(array.read(there..there + 2).unwrap()[..], [42, 43]);
    });
}

/// COH-3.9: stores of a write guard are kept although another thread's lock invalidates the page in
/// between.
#[test]
fn stores_of_a_write_guard_survive_an_acquire_of_another_thread() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        let there = array.home_range(1).start;
        job.barrier().unwrap();
        if job.rank() == 1 {
            heard(&job, 0, 1);
            let lock = job.lock(1).unwrap();
            array.write(there + 1..there + 2).unwrap()[0] = 43;
            lock.release().unwrap();
            tell(&job, 2);
        } else {
            let mut guard = array.write(there..there + 1).unwrap();
            guard[0] = 1;
            tell(&job, 1);
            heard(&job, 1, 2);
            std::thread::scope(|threads| {
                let acquire = || {
                    let lock = job.lock(1).unwrap();
                    assert_eq!(array.read(there + 1..there + 2).unwrap()[0], 43);
                    lock.release().unwrap();
                };
                threads.spawn(acquire).join()
            })
            .unwrap();
            assert_eq!(guard[0], 1);
            guard[0] += 1;
        }
        job.barrier().unwrap();
        assert_eq!(array.read(there..there + 2).unwrap()[..], [2, 43]);
    });
}

/// COH-6.10: leaving ends in any case, and reports that a guard was alive. The guard shows its
/// bytes ever after.
#[test]
fn leave_with_a_guard_alive_ends_and_says_so() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let rank = job.rank();
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        array.write(array.home_range(rank)).unwrap().fill(u64::from(rank) + 1);
        job.barrier().unwrap();
        let guard = array.read(0..2 * PAGE).unwrap();
        let left = text(job.leave());
        assert!(left.starts_with("leave: a guard that reads bytes 0..8192"), "{left}");
        assert_eq!((guard[0], guard[2 * PAGE - 1]), (1, 2));
    });
}

/// COH-8.8: a lazily read page of a dead home is an error when the guard is released and when the
/// next one is taken.
#[test]
fn guard_over_a_page_of_a_dead_home_says_which_page_and_home() {
    cluster_of_pages(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        job.barrier().unwrap();
        if job.rank() == 1 {
            let ended = catch_unwind(AssertUnwindSafe(move || {
                let _job = job;
                resume_unwind(Box::new("on purpose"))
            }));
            assert!(ended.is_err());
            return;
        }
        let there = array.home_range(1).start;
        let guard = array.read_lazily(there..there + 1).unwrap();
        assert_eq!(job.receive(Some(1)).map(drop).unwrap_err().lost_peer(), Some(1));
        assert_eq!(black_box(&guard)[0], 0, "the last bytes that were here");
        let errors = [
            guard.release(),
            array.read(there..there + 1).map(drop),
            array.write(there..there + 1).map(drop),
            array.read_lazily(0..there + 1).map(drop),
            array.write_lazily(there..there + 1).map(drop),
        ];
        for error in errors.map(Result::unwrap_err) {
            let text = error.to_string();
            assert!(text.contains("page 1 of array \"a\"") && text.contains("node 1"), "{text}");
            assert_eq!(error.lost_peer(), Some(1));
        }
        // Pages of this node can still be accessed.
        array.read(0..there).unwrap().release().unwrap();
        array.write(0..there).unwrap().release().unwrap();
        assert!(text(job.barrier()).contains("page 1 of array \"a\""));
    });
}

/// COH-16.2: memory that all nodes map loses no page with its home.
#[test]
fn bytes_of_a_dead_home_stay_if_all_nodes_map_them() {
    cluster_once(2, &Settings::default(), |job| {
        let array = job.array::<u64>("a", 2 * PAGE).unwrap();
        assert_eq!(array.why_not_shared(), None);
        array.write(array.home_range(job.rank())).unwrap().fill(7);
        job.barrier().unwrap();
        if job.rank() == 1 {
            let ended = catch_unwind(AssertUnwindSafe(move || {
                let _job = job;
                resume_unwind(Box::new("on purpose"))
            }));
            assert!(ended.is_err());
            return;
        }
        assert_eq!(job.receive(Some(1)).map(drop).unwrap_err().lost_peer(), Some(1));
        assert!(array.read(..).unwrap().iter().all(|element| *element == 7));
        array.write(array.home_range(1)).unwrap().fill(8);
        assert_eq!(array.read_lazily(0..2 * PAGE).unwrap()[2 * PAGE - 1], 8);
        assert_eq!(job.barrier().unwrap_err().lost_peer(), Some(1));
    });
}

/// MEM-1.14: bytes read from a region are copies, which a later write through a clone does not
/// change. (An example in `rules.rs` that must not compile shows that a program gets no reference
/// to them.)
#[test]
fn bytes_read_from_a_region_stay_while_a_clone_writes_it() {
    let region = oikaze::memory::Region::zeroed(64).unwrap();
    let mut copy = [0; 8];
    region.read(0, &mut copy).unwrap();
    region.clone().write(0, &[1; 8]).unwrap();
    assert_eq!(copy, [0; 8]);
    region.read(0, &mut copy).unwrap();
    assert_eq!(copy, [1; 8]);
}
