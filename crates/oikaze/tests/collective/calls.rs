//! Nodes that have made different calls, and are brought in step again (COLL-3.7).

use crate::everywhere::everywhere;
use crate::ways::ExchangeWay::{self, OneWithout, Rings, TwoMachines};
use crate::ways::ways;
use oikaze::ffi::{CallCounts, ErrorClass, interruptible};
use oikaze::prelude::*;
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
            let made = interruptible(Rc::new(|| true), || job.barrier_reduce(1_u64, Sum));
            assert!(made.unwrap_err().is_timeout());
            // The root of a broadcast has done its part before the others have called it. By then
            // a parcel may have told it of the all_reduce.
            if let Err(why) = job.broadcast(0, &[1]) {
                assert!(why.is_mismatch(), "{why}");
            }
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
    for way in ways(TwoMachines) {
        catch_up(way);
    }
}

/// Raises the counts to those of this node.
fn note_most(most: &Mutex<CallCounts>, job: &Job) {
    for (counter, count) in job.call_counts() {
        let mut most = most.lock().unwrap();
        let known = most.entry(counter).or_default();
        *known = count.max(*known);
    }
}

fn catch_up(way: ExchangeWay) {
    let (most, all) = (Mutex::new(CallCounts::new()), Barrier::new(NODES as usize));
    way.run(NODES, &Job::builder(), |job| {
        let part = job.split(Some(0), 0).unwrap().unwrap();
        if job.rank() == 2 {
            let why = part.start().all_gather(&[1]).wait_for(Duration::ZERO).unwrap_err();
            assert!(why.is_timeout(), "{why}");
        }
        // One node declares an array while another one is at a barrier, which fails for both.
        make_calls_of_one(job);
        all.wait();
        note_most(&most, job);
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

/// COH-15.4, 15.5: a notification that came and was not waited for ends no wait then. What it told
/// is not lost.
#[test]
fn notification_before_nodes_caught_up_ends_no_wait_after_it() {
    for way in ways(TwoMachines) {
        let (most, all) = (Mutex::new(CallCounts::new()), Barrier::new(2));
        way.run(2, &Job::builder(), |job| {
            let words = job.array::<u64>("words", 1024)?;
            let write = |at: usize, value| words.write(at..at + 1).map(|mut one| one[0] = value);
            if job.rank() == 0 {
                write(0, 1)?;
                job.notify(1)?;
            } else {
                job.wait_notify(0)?;
                assert_eq!(words.read(0..1)?[0], 1);
            }
            all.wait();
            if job.rank() == 0 {
                write(0, 2)?;
                job.notify(1)?;
            }
            all.wait();
            note_most(&most, job);
            all.wait();
            let counts = most.lock().unwrap().clone();
            job.catch_up(&counts, "a function has failed", LIMIT)?;
            all.wait();
            if job.rank() == 0 {
                write(600, 3)?;
                job.notify(1)?;
            } else {
                job.wait_notify(0)?;
                assert_eq!((words.read(0..1)?[0], words.read(600..601)?[0]), (2, 3));
            }
            Ok(job.barrier()?)
        });
    }
}

/// COLL-3.11: a call whose wait has ended early is repeated, and the nodes stay in step.
#[test]
fn calls_repeated_after_a_timeout_or_an_interrupt_are_the_same_calls() {
    let (early, late) = (Barrier::new(NODES as usize), Barrier::new(NODES as usize));
    everywhere(NODES, Rings, |job| {
        let array = job.array::<u64>("array", 10)?;
        if job.rank() == 0 {
            assert!(job.barrier_for(Duration::ZERO).unwrap_err().is_timeout());
            let made = interruptible(Rc::new(|| true), || job.barrier());
            assert!(made.unwrap_err().to_string().contains("barrier 1"));
        }
        early.wait();
        job.barrier()?;
        if job.rank() == 0 {
            let made = interruptible(Rc::new(|| true), || job.barrier_reduce(3_u64, Max));
            assert!(made.unwrap_err().is_timeout());
        }
        late.wait();
        // The rank that was interrupted gets the result of its first call.
        assert_eq!(job.barrier_reduce(u64::from(job.rank() == 0) * 3, Max)?, 3);
        assert_eq!(job.barrier_reduce(u64::from(job.rank()), Sum)?, 3);
        array.free()?;
        Ok(job.barrier()?)
    });
}

/// COLL-3.11: after another collective, also one of a smaller team, a barrier is a new one.
#[test]
fn barrier_after_another_teams_collective_is_a_new_one() {
    let early = Barrier::new(NODES as usize);
    everywhere(NODES, OneWithout, |job| {
        let all = job.split(Some(0), 0)?.expect("a color was given");
        let interrupted = || {
            if job.rank() == 0 {
                assert!(job.barrier_for(Duration::ZERO).unwrap_err().is_timeout());
            }
            early.wait();
            if job.rank() != 0 {
                job.barrier()?;
            }
            all.all_gather(&[job.rank()])
        };
        interrupted()?;
        assert_eq!(job.barrier_reduce(1_u64, Sum)?, u64::from(NODES));
        interrupted()?;
        job.barrier()?;
        assert_eq!(job.all_reduce(1_u64, Sum)?, u64::from(NODES));
        Ok(())
    });
}

/// COLL-3.11: a reduction of other values repeats nothing, and all nodes get an error.
#[test]
fn reduction_of_other_values_after_an_interrupt_fails_on_all_nodes() {
    let all = Barrier::new(NODES as usize);
    everywhere(NODES, TwoMachines, |job| {
        if job.rank() == 0 {
            let made = interruptible(Rc::new(|| true), || job.barrier_reduce(1_u64, Sum));
            assert!(made.unwrap_err().is_timeout());
        }
        all.wait();
        if job.rank() != 0 {
            assert_eq!(job.barrier_reduce(1_u64, Sum)?, 3);
        }
        let text = job.barrier_reduce(2_u64, Sum).unwrap_err().to_string();
        assert!(text.contains("call it again with the same values"), "{text}");
        assert_eq!(job.barrier_reduce(2_u64, Sum)?, 6);
        Ok(())
    });
}
