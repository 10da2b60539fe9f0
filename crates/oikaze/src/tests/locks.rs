//! Locks of jobs in which some arrays are segments and others are pages (COH-16.10).

use crate::job::JobBuilder;
use crate::prelude::*;
use crate::testing::cluster_with;
use std::time::Duration;

fn settings() -> JobBuilder {
    Job::builder().time_limit(Duration::from_secs(60))
}

/// Makes an array of which each node keeps pages, in a job that has made segments before.
fn array_of_pages(job: &Job, name: &str) -> crate::Result<SharedArray<u64>> {
    job.node.coherence.segments.switch_off();
    let array = job.array::<u64>(name, 1)?;
    assert!(array.why_not_shared().is_some());
    Ok(array)
}

#[test]
fn next_holder_sees_what_was_written_to_arrays_of_both_kinds() {
    const TIMES: u64 = 50;
    cluster_with(3, settings(), |job| {
        let segment = job.array::<u64>("segment", 1)?;
        assert_eq!(segment.why_not_shared(), None);
        let pages = array_of_pages(job, "pages")?;
        for _ in 0..TIMES {
            let held = job.lock(5)?;
            let total = segment.read(0..1)?[0];
            assert_eq!(pages.read(0..1)?[0], total);
            for array in [&segment, &pages] {
                array.write(0..1)?[0] = total + 1;
            }
            held.release()?;
        }
        job.barrier()?;
        assert_eq!(pages.read(0..1)?[0], 3 * TIMES);
        job.barrier()?;
        Ok(())
    });
}

/// The manager knows nothing of the lock when it is taken, and the next holder asks it.
#[test]
fn array_of_pages_may_be_declared_while_a_lock_is_held() {
    cluster_with(2, settings(), |job| {
        let held = if job.rank() == 0 { Some(job.lock(5)?) } else { None };
        let pages = array_of_pages(job, "pages")?;
        // The other node has a copy of the page, which is old from then on.
        assert_eq!(pages.read(0..1)?[0], 0);
        job.all_reduce(0u32, Sum)?;
        if let Some(held) = held {
            pages.write(0..1)?[0] = 7;
            held.release()?;
        }
        job.all_reduce(0u32, Sum)?;
        if job.rank() == 1 {
            let held = job.lock(5)?;
            assert_eq!(pages.read(0..1)?[0], 7);
            held.release()?;
        }
        Ok(())
    });
}

#[test]
fn locks_of_segments_need_no_manager() {
    cluster_with(2, settings(), |job| {
        let before = job.statistics().locks;
        for lock in 0..20 {
            job.lock(lock)?.release()?;
        }
        assert_eq!(job.node.coherence.locks.without_manager(), 20);
        assert_eq!(job.statistics().locks, before + 20);
        Ok(())
    });
}
