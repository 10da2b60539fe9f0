//! Locks, with memory that all nodes of a machine map and with pages that each node keeps for
//! itself.

use crate::support::both_ways::{cluster, of_pages};
use oikaze::internal::lock_view;
use oikaze::job::Feature;
use oikaze::prelude::*;
use oikaze::testing::cluster_with;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than a test may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs nodes as [`cluster`] does, and once more without memory for locks.
fn cluster_without_arena_too(
    nodes: u32,
    program: impl Fn(&Job) -> Result<(), Box<dyn Error>> + Sync,
) {
    cluster(nodes, &program);
    let without = [&of_pages()[..], &[Feature::Arena]].concat();
    cluster_with(nodes, Job::builder().without(without), program);
}

/// COH-7.1: threads of one node exclude one another, too. Each sees what the holder before wrote.
#[test]
fn threads_of_all_nodes_add_to_one_element_under_a_lock() {
    const THREADS: u64 = 3;
    const TIMES: u64 = 100;
    cluster(3, |job| {
        let total = job.array::<u64>("total", 1)?;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let held = job.lock_for(5, LIMIT).unwrap();
                        total.write(0..1).unwrap()[0] += 1;
                        held.release().unwrap();
                    }
                });
            }
        });
        job.barrier()?;
        assert_eq!(total.read(0..1)?[0], 3 * THREADS * TIMES);
        job.barrier()?;
        Ok(())
    });
}

/// COH-16.10: the table of the machine has room for few of these numbers.
#[test]
fn nodes_agree_on_more_locks_than_a_table_has_room_for() {
    const LOCKS: u64 = 3000;
    cluster(2, |job| {
        let counts = job.array::<u32>("counts", LOCKS as usize)?;
        let numbers = (0..LOCKS - 1).chain([u64::MAX]);
        for (at, number) in numbers.enumerate() {
            let held = job.lock_for(number, LIMIT)?;
            counts.write(at..at + 1)?[0] += 1;
            held.release()?;
        }
        job.barrier()?;
        assert!(counts.read(..)?.iter().all(|count| *count == 2));
        job.barrier()?;
        Ok(())
    });
}

/// COH-7.5: a request whose time limit has passed keeps nobody from the lock.
#[test]
fn late_request_leaves_the_queue_of_a_lock() {
    cluster(3, |job| {
        let (holder, late, next) = (0, 1, 2);
        let held = if job.rank() == holder { Some(job.lock(8)?) } else { None };
        job.all_reduce(0u32, Sum)?;
        if job.rank() == late {
            let error = job.lock_for(8, Duration::from_millis(50)).map(drop).unwrap_err();
            assert!(error.is_timeout(), "{error}");
            let text = error.to_string();
            assert!(text.contains("lock 8") && text.contains("held by node 0"), "{text}");
        }
        job.all_reduce(0u32, Sum)?;
        drop(held);
        if job.rank() != holder {
            job.lock_for(8, LIMIT)?.release()?;
        }
        job.all_reduce(0u32, Sum)?;
        if job.rank() == next {
            job.lock_for(8, LIMIT)?.release()?;
        }
        job.barrier()?;
        assert!(job.statistics().locks > 0);
        Ok(())
    });
}

/// COH-7.12: a thread that tries a lock does not wait. It leaves no request behind, however often
/// it tries.
#[test]
fn tried_lock_is_taken_or_not_at_once() {
    const LOCK: u64 = 8;
    cluster(3, |job| {
        let total = job.array::<u64>("total", 1)?;
        let held = if job.rank() == 0 { job.try_lock(LOCK)? } else { None };
        assert_eq!(held.is_some(), job.rank() == 0, "nobody has it");
        job.all_reduce(0u32, Sum)?;
        if job.rank() != 0 {
            // More often than a lock of the table has tickets.
            for _ in 0..100 {
                assert!(job.try_lock(LOCK)?.is_none());
            }
            assert!(job.try_lock_for(LOCK, Duration::from_millis(5))?.is_none());
        } else {
            let again = job.try_lock(LOCK).map(drop).unwrap_err();
            assert!(again.to_string().contains("this thread took the lock"), "{again}");
            assert_eq!(
                thread::scope(|s| s.spawn(|| job.try_lock(LOCK).is_ok_and(|l| l.is_none())).join())
                    .ok(),
                Some(true)
            );
        }
        job.all_reduce(0u32, Sum)?;
        drop(held);
        // Each node adds once, and goes on until it has.
        loop {
            match job.try_lock(LOCK)? {
                Some(held) => {
                    total.write(0..1)?[0] += 1;
                    held.release()?;
                    break;
                }
                None => thread::yield_now(),
            }
        }
        job.barrier()?;
        assert_eq!(total.read(0..1)?[0], 3);
        let late = job.try_lock_for(LOCK, LIMIT)?;
        late.map_or(Ok(()), |held| held.release())?;
        job.barrier()?;
        Ok(())
    });
}

/// COH-7.13: a name is one lock for all nodes, and other names are other locks.
#[test]
fn locks_have_names() {
    cluster(2, |job| {
        let held = if job.rank() == 0 { Some(job.lock_named("one")?) } else { None };
        job.all_reduce(0u32, Sum)?;
        if job.rank() == 1 {
            assert!(job.try_lock(job.lock_number("one"))?.is_none());
            let error = job.lock_for(job.lock_number("one"), Duration::ZERO).map(drop).unwrap_err();
            assert!(error.to_string().contains("lock \"one\""), "{error}");
            job.lock_named("two")?.release()?;
        }
        job.all_reduce(0u32, Sum)?;
        drop(held);
        job.lock_named("one")?.release()?;
        job.barrier()?;
        Ok(())
    });
}

/// COH-16.10: more threads wait than a lock of the table has room for.
#[test]
fn many_threads_wait_for_one_lock() {
    cluster(2, |job| {
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let held = if job.rank() == 0 { Some(job.lock(3)?) } else { None };
        job.all_reduce(0u32, Sum)?;
        thread::scope(|scope| {
            if let Some(held) = held {
                scope.spawn(move || {
                    // A request that ends keeps its place for the next thread that asks.
                    assert!(job.lock_for(3, Duration::from_millis(1)).is_err());
                    while lock_view(job, 3).is_some_and(|view| view.waiting < 50) {
                        thread::yield_now();
                    }
                    held.release().unwrap();
                });
            }
            for _ in 0..50 {
                scope.spawn(|| {
                    let held = job.lock_for(3, LIMIT).unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    held.release().unwrap();
                });
            }
        });
        job.barrier()?;
        assert_eq!(most.into_inner(), 1);
        Ok(())
    });
}

/// COH-7.5: threads ask in a loop with time limits. Their requests do not fill the queue.
#[test]
fn requests_that_were_abandoned_are_used_again() {
    const LOCK: u64 = 8;
    const MANAGER: u32 = (LOCK % 3) as u32;
    cluster_without_arena_too(3, |job| {
        let held = if job.rank() == 0 { Some(job.lock(LOCK)?) } else { None };
        job.all_reduce(0u32, Sum)?;
        if job.rank() == 1 {
            // More often than a lock of the table has tickets.
            for _ in 0..50 {
                let soon = Duration::from_micros(100);
                assert!(job.try_lock_for(LOCK, soon)?.is_none());
                assert!(job.try_read_lock_for(LOCK, soon)?.is_none());
            }
        }
        job.all_reduce(0u32, Sum)?;
        // The manager does not know of requests that read whether a thread waits for them.
        if job.rank() == MANAGER {
            let view = lock_view(job, LOCK).expect("this node manages the lock");
            assert!(view.waiting + view.abandoned <= 2, "{view:?}");
        }
        job.all_reduce(0u32, Sum)?;
        drop(held);
        for _ in 0..10 {
            job.lock_for(LOCK, LIMIT)?.release()?;
            job.read_lock_for(LOCK, LIMIT)?.release()?;
        }
        job.all_reduce(0u32, Sum)?;
        Ok(())
    });
}

/// COH-7.14, COH-16.10: a node that reads sees no half of what another node writes.
#[test]
fn nodes_that_read_are_not_beside_one_that_writes() {
    const TIMES: u64 = 60;
    let (readers, writers) = (AtomicU32::new(0), AtomicU32::new(0));
    cluster_without_arena_too(3, |job| {
        let pair = job.array::<u64>("pair", 1024)?;
        let run = |thread: u64| {
            for time in 0..TIMES {
                if (time + thread + u64::from(job.rank())).is_multiple_of(3) {
                    let held = job.lock_for(5, LIMIT).unwrap();
                    assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0, "beside a writer");
                    assert_eq!(readers.load(Ordering::SeqCst), 0, "beside a reader");
                    for at in [0, 1023] {
                        pair.write(at..at + 1).unwrap()[0] += 1;
                    }
                    writers.fetch_sub(1, Ordering::SeqCst);
                    held.release().unwrap();
                } else {
                    let held = job.read_lock_for(5, LIMIT).unwrap();
                    readers.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(writers.load(Ordering::SeqCst), 0, "beside a writer");
                    let both = pair.read(..).unwrap();
                    assert_eq!(both[0], both[1023]);
                    drop(both);
                    readers.fetch_sub(1, Ordering::SeqCst);
                    held.release().unwrap();
                }
            }
        };
        let run = &run;
        thread::scope(|scope| {
            (0..2).for_each(|thread| drop(scope.spawn(move || run(thread))));
        });
        job.barrier()?;
        assert_eq!(pair.read(0..1)?[0], 3 * 2 * TIMES / 3);
        job.barrier()?;
        Ok(())
    });
}

/// COH-7.14: all nodes have a lock for reading at once. One that writes waits for all of them, and
/// those that read later wait behind it.
#[test]
fn nodes_have_a_lock_for_reading_together() {
    const LOCK: u64 = 6;
    cluster_without_arena_too(3, |job| {
        let held = job.read_lock(LOCK)?;
        job.all_reduce(0u32, Sum)?;
        // More often than a lock of the table has tickets.
        let again = || -> oikaze::Result<()> {
            for _ in 0..50 {
                job.read_lock_for(LOCK, LIMIT)?.release()?;
                job.try_read_lock(LOCK)?.map_or(Ok(()), |held| held.release())?;
            }
            assert!(job.try_lock(LOCK)?.is_none());
            // Nobody waits for this request, so others that read do not either (COH-7.15).
            assert!(job.try_lock_for(LOCK, Duration::from_millis(2))?.is_none());
            job.read_lock_for(LOCK, LIMIT)?.release()?;
            Ok(())
        };
        thread::scope(|scope| scope.spawn(again).join()).unwrap()?;
        let mine = job.read_lock(LOCK).map(drop).unwrap_err();
        assert!(mine.to_string().contains("this thread took the lock"), "{mine}");
        job.all_reduce(0u32, Sum)?;
        held.release()?;
        let alone = if job.rank() == 0 { Some(job.lock_for(LOCK, LIMIT)?) } else { None };
        job.all_reduce(0u32, Sum)?;
        if job.rank() != 0 {
            assert!(job.try_read_lock(LOCK)?.is_none());
        }
        job.all_reduce(0u32, Sum)?;
        drop(alone);
        job.read_lock_for(LOCK, LIMIT)?.release()?;
        job.read_lock_named("six")?.release()?;
        job.barrier()?;
        Ok(())
    });
}

/// A node that leaves gives its locks back, also those whose guards live on.
#[test]
fn leaving_gives_locks_back() {
    cluster(2, |job| {
        if job.rank() == 0 {
            std::mem::forget(job.lock(4)?);
            std::mem::forget(job.read_lock(5)?);
        } else {
            job.lock(6)?.release()?;
        }
        job.all_reduce(0u32, Sum)?;
        if job.rank() == 1 {
            job.lock_for(4, LIMIT)?.release()?;
            job.lock_for(5, LIMIT)?.release()?;
        }
        Ok(())
    });
}
