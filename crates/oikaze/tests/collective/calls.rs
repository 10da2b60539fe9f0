//! Nodes that have made different calls, and are brought in step again (COLL-3.7).

use oikaze::ffi::{CallCounts, ErrorClass, interruptible};
use oikaze::prelude::*;
use oikaze::testing::cluster;
use std::rc::Rc;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const NODES: u32 = 3;
const LIMIT: Duration = Duration::from_secs(60);

/// Makes calls that other nodes do not make, without waiting for them.
fn make_calls_of_one(job: &Job) {
    let no_time = Duration::ZERO;
    match job.rank() {
        0 => {
            assert!(job.barrier_for(no_time).unwrap_err().is_timeout());
            assert!(job.barrier_for(no_time).unwrap_err().is_timeout());
            // The root of a broadcast has done its part before the others have called it.
            job.broadcast(0, &[1]).unwrap();
        }
        1 => {
            let pending = job.start().all_reduce(&[1], Sum);
            // The all_reduce has failed already if the parcel of the broadcast is there.
            let why = pending.wait_for(no_time).unwrap_err();
            let is_expected = [ErrorClass::Timeout, ErrorClass::Mismatch].contains(&why.class());
            assert!(is_expected, "{why}");
            let made = interruptible(Rc::new(|| true), || job.array::<u64>("lost", 10));
            assert!(made.unwrap_err().is_timeout());
        }
        _ => {}
    }
}

/// COLL-3.7.
#[test]
fn nodes_that_caught_up_make_calls_together_again() {
    let (most, all) = (Mutex::new(CallCounts::new()), Barrier::new(NODES as usize));
    cluster(NODES, |job| {
        let part = job.split(Some(0), 0).unwrap().unwrap();
        if job.rank() == 2 {
            let why = part.start().all_gather(&[1]).wait_for(Duration::ZERO).unwrap_err();
            assert!(why.is_timeout(), "{why}");
        }
        // One node declares an array while another one is at a barrier, which fails for both.
        make_calls_of_one(job);
        all.wait();
        for (counter, count) in job.call_counts() {
            let mut most = most.lock().unwrap();
            let known = most.entry(counter).or_default();
            *known = count.max(*known);
        }
        all.wait();
        let counts = most.lock().unwrap().clone();
        job.catch_up(&counts, "another node has failed", LIMIT).unwrap();
        all.wait();
        assert_eq!(job.call_counts(), counts);
        job.barrier().unwrap();
        let array = job.array::<u64>("after", 10).unwrap();
        array.fill(7).unwrap();
        assert_eq!(array.read(0..10).unwrap().iter().sum::<u64>(), 70);
        for team in [part, job.split(Some(1), 0).unwrap().unwrap()] {
            assert_eq!(team.all_gather(&[job.rank()]).unwrap(), [0, 1, 2]);
        }
        assert_eq!(job.broadcast(2, &[job.rank()]).unwrap(), [2]);
        job.barrier()?;
        Ok(())
    });
}
