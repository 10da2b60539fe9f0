//! Barriers of nodes of one machine (COH-6.14 to COH-6.16).

use crate::job::{Feature, JobBuilder};
use crate::prelude::*;
use crate::testing::cluster_with;
use std::time::Duration;

fn settings() -> JobBuilder {
    Job::builder().time_limit(Duration::from_secs(60))
}

fn passed(job: &Job) -> u64 {
    job.node.coherence.order.barriers_without_engine()
}

/// COH-6.14: a barrier without arrays needs no engine. A barrier with arrays does.
#[test]
fn barrier_without_arrays_ends_without_the_engine() {
    for nodes in [2, 3, 9] {
        cluster_with(nodes, settings(), |job| {
            let before = job.statistics().barriers;
            for number in 1..=20 {
                job.barrier()?;
                assert_eq!(passed(job), number);
            }
            assert_eq!(job.statistics().barriers, before + 20);
            let array = job.array::<u32>("numbers", 10_000)?;
            let mine = job.rank() as usize;
            array.write(mine..mine + 1)?.fill(job.rank());
            job.barrier()?;
            assert_eq!(passed(job), 20);
            drop(array);
            // Frees the array.
            job.barrier()?;
            assert_eq!(passed(job), 20);
            job.barrier()?;
            assert_eq!(passed(job), 21);
            Ok(())
        });
    }
}

/// COH-6.14: without the feature, the engines do all.
#[test]
fn barrier_without_the_feature_goes_through_the_engines() {
    for feature in [Feature::Arena, Feature::Shm] {
        cluster_with(2, settings().without([feature]), |job| {
            job.barrier()?;
            assert_eq!(passed(job), 0);
            Ok(())
        });
    }
}

/// COH-6.14, COH-6.2: calls that differ fail on all nodes, and the next barrier is one again.
#[test]
fn barrier_against_another_call_fails_on_all_nodes() {
    let calls: [fn(&Job) -> crate::Result<()>; 3] = [
        |job| job.barrier_reduce(1_u64, Sum).map(drop),
        |job| job.all_reduce(1, Sum).map(drop),
        |job| job.array::<u64>("mine", 100).map(drop),
    ];
    for other in 0..3 {
        cluster_with(3, settings(), |job| {
            for call in calls {
                let called = if job.rank() == other { call(job) } else { job.barrier() };
                assert!(called.unwrap_err().is_mismatch());
                job.barrier()?;
            }
            assert!(passed(job) >= 2);
            Ok(())
        });
    }
}

/// COH-6.15: a node that no longer waits has come all the same, in the order of its calls.
#[test]
fn barrier_after_its_limit_still_counts() {
    cluster_with(2, settings(), |job| {
        if job.rank() == 0 {
            for _ in 0..3 {
                // The second one waits for the first (COLL-3.11).
                assert!(job.barrier_for(Duration::ZERO).is_err_and(|error| error.is_timeout()));
            }
            job.peer(1)?.send(Class::Ordered, 0, b"come").wait()?;
        } else {
            job.receive(None)?;
            job.barrier()?;
        }
        // Rank 0 comes to it as the next call, because the barrier before goes on without a thread.
        assert_eq!(job.barrier_reduce(1_u64, Sum)?, 2);
        job.barrier()?;
        Ok(())
    });
}

/// COH-6.15: the same where the other node has something to tell.
#[test]
fn barrier_after_its_limit_takes_part_in_the_collective_of_the_engines() {
    cluster_with(2, settings(), |job| {
        if job.rank() == 0 {
            assert!(job.barrier_for(Duration::ZERO).unwrap_err().is_timeout());
            job.peer(1)?.send(Class::Ordered, 0, b"come").wait()?;
            // It repeats the one before (COLL-3.11).
            assert!(job.barrier().unwrap_err().is_mismatch());
        } else {
            job.receive(None)?;
            assert!(job.barrier_reduce(1_u64, Sum).unwrap_err().is_mismatch());
        }
        job.barrier()?;
        assert_eq!(job.barrier_reduce(1_u64, Sum)?, 2);
        Ok(())
    });
}

/// COH-6.16: a node that has left comes to no barrier any more, and the nodes that wait or sleep in
/// one fail.
#[test]
fn barrier_fails_on_all_nodes_when_one_has_left() {
    cluster_with(3, settings(), |job| {
        job.barrier()?;
        if job.rank() == 2 {
            return Ok(());
        }
        for _ in 0..2 {
            let error = job.barrier().unwrap_err().to_string();
            assert!(error.contains("leaving"), "{error}");
        }
        assert_eq!(passed(job), 1);
        Ok(())
    });
}
