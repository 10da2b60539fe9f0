//! Notifications between two nodes (COH-15.4), over UDP and through shared memory.

use crate::everywhere::everywhere;
use crate::ways::ExchangeWay::{OneWithout, Rings, TwoMachines};
use oikaze::prelude::*;
use std::time::Duration;

/// Each node adds one to all elements when it is its turn. The elements are homed everywhere.
#[test]
fn work_goes_round_a_ring() {
    everywhere(4, Rings, |job| {
        let values = job.array::<u64>("values", 4096)?;
        let (me, size) = (job.rank(), job.size());
        let rounds = 20;
        for round in 0..rounds {
            if me > 0 || round > 0 {
                job.wait_notify((me + size - 1) % size)?;
            }
            let expected = round * u64::from(size) + u64::from(me);
            let mut mine = values.write(..)?;
            assert!(mine.iter().all(|value| *value == expected), "round {round}");
            mine.iter_mut().for_each(|value| *value += 1);
            drop(mine);
            job.notify((me + 1) % size)?;
        }
        if me == 0 {
            job.wait_notify(size - 1)?;
        }
        job.barrier()?;
        assert!(values.read(..)?.iter().all(|value| *value == rounds * u64::from(size)));
        Ok(())
    });
}

/// COH-15.4: a node passes on what it knew of. Node 2 sees what node 0 wrote, by way of node 1.
#[test]
fn knowledge_is_passed_on() {
    everywhere(3, OneWithout, |job| {
        let word = job.array::<u32>("word", 1)?;
        for round in 1..=30 {
            match job.rank() {
                0 => {
                    word.write(..)?[0] = round;
                    job.notify(1)?;
                    job.wait_notify(2)?;
                }
                1 => {
                    job.wait_notify(0)?;
                    job.notify(2)?;
                }
                _ => {
                    job.wait_notify(1)?;
                    assert_eq!(word.read(..)?[0], round);
                    job.notify(0)?;
                }
            }
        }
        Ok(job.barrier()?)
    });
}

/// Notifications wait for their receiver, across barriers, and each ends one wait.
#[test]
fn each_notification_ends_one_wait() {
    everywhere(2, TwoMachines, |job| {
        let word = job.array::<u32>("word", 1)?;
        for _ in 0..100 {
            if job.rank() == 0 {
                job.notify(1)?;
            }
        }
        job.barrier()?;
        if job.rank() == 0 {
            word.write(..)?[0] = 7;
            job.notify(1)?;
        } else {
            for _ in 0..101 {
                job.wait_notify(0)?;
            }
            assert_eq!(word.read(..)?[0], 7);
            let error = job.wait_notify_for(0, Duration::from_millis(1)).unwrap_err();
            assert!(error.is_timeout(), "{error}");
            assert!(error.to_string().contains("notification of node 0"), "{error}");
        }
        job.barrier()?;
        // The wait that ran into its limit loses nothing.
        match job.rank() {
            0 => job.notify(1)?,
            _ => job.wait_notify(0)?,
        }
        Ok(job.barrier()?)
    });
}

#[test]
fn mistakes_are_refused_with_a_cause() {
    everywhere(2, Rings, |job| {
        let (me, other) = (job.rank(), 1 - job.rank());
        for error in [job.notify(2).unwrap_err(), job.wait_notify(2).unwrap_err()] {
            assert!(error.to_string().contains("ranks are 0 to 1"), "{error}");
        }
        for error in [job.notify(me).unwrap_err(), job.wait_notify(me).unwrap_err()] {
            assert!(error.to_string().contains("name another node"), "{error}");
        }
        let words = job.array::<u32>("words", 2)?;
        let guard = words.write(me as usize..me as usize + 1)?;
        for error in [job.notify(other).unwrap_err(), job.wait_notify(other).unwrap_err()] {
            assert!(error.to_string().contains("guard"), "{error}");
        }
        drop(guard);
        Ok(job.barrier()?)
    });
}

/// A wait for a node that leaves ends with an error.
#[test]
fn a_wait_for_a_node_that_leaves_fails() {
    everywhere(2, OneWithout, |job| {
        if job.rank() == 1 {
            let error = job.wait_notify(0).unwrap_err();
            let wanted = "wait for a notification of node 0: node 0 is leaving the job";
            assert!(error.to_string().starts_with(wanted), "{error}");
        }
        Ok(())
    });
}

/// Two threads wait. The one without a limit gets the notification that comes after the other one's
/// limit.
#[test]
fn no_notification_is_lost_between_two_threads() {
    everywhere(2, TwoMachines, |job| {
        for _ in 0..20 {
            if job.rank() == 1 {
                std::thread::scope(|scope| {
                    let patient = scope.spawn(|| job.wait_notify(0));
                    let limit = Duration::from_millis(1);
                    let hasty = job.wait_notify_for(0, limit);
                    // The sender notifies twice from here on, and one of them may have come.
                    job.all_gather(&[0_u8])?;
                    match hasty {
                        Ok(()) => {}
                        Err(error) if error.is_timeout() => job.wait_notify(0)?,
                        Err(error) => return Err(error),
                    }
                    patient.join().expect("it does not panic")
                })?;
            } else {
                job.all_gather(&[0_u8])?;
                job.notify(1)?;
                job.notify(1)?;
            }
            job.barrier()?;
        }
        Ok(())
    });
}

/// Notifications that cross: each node sends its own before it waits for those of the others.
#[test]
fn notifications_that_cross_bring_what_both_wrote() {
    everywhere(3, OneWithout, |job| {
        let words = job.array::<u32>("words", 3)?;
        let me = job.rank();
        let others: Vec<u32> = (0..3).filter(|rank| *rank != me).collect();
        for round in 1..=100 {
            words.write(me as usize..me as usize + 1)?[0] = round;
            for other in &others {
                job.notify(*other)?;
            }
            for other in &others {
                job.wait_notify(*other)?;
                assert!(words.read(*other as usize..*other as usize + 1)?[0] >= round);
            }
            // Nobody writes before all have read.
            job.all_gather(&[me])?;
        }
        Ok(job.barrier()?)
    });
}

/// COH-15.11: a sender is far ahead of the receiver, and nothing is lost.
#[test]
fn many_notifications_wait_for_their_receiver() {
    everywhere(2, TwoMachines, |job| {
        let word = job.array::<u32>("word", 1)?;
        let count = 3000;
        for n in 1..=count {
            if job.rank() == 0 {
                word.write(..)?[0] = n;
                job.notify(1)?;
            }
        }
        if job.rank() == 1 {
            for _ in 0..count {
                job.wait_notify(0)?;
            }
            assert_eq!(word.read(..)?[0], count);
        }
        Ok(job.barrier()?)
    });
}

/// A node leaves with notifications for which it has not waited.
#[test]
fn notifications_that_nobody_waits_for_keep_nobody_from_leaving() {
    everywhere(2, Rings, |job| {
        if job.rank() == 0 {
            for _ in 0..50 {
                job.notify(1)?;
            }
        } else {
            job.wait_notify(0)?;
        }
        Ok(job.barrier()?)
    });
}

/// COH-15.4: a sender that notifies a node that leaves gets an error.
#[test]
fn notifications_of_a_node_that_leaves_end_with_an_error() {
    everywhere(2, OneWithout, |job| {
        if job.rank() == 0 {
            let error = (0..100_000).find_map(|_| job.notify(1).err());
            let error = error.ok_or("a node that leaves takes 100,000 notifications")?;
            let said = error.to_string();
            assert!(said.contains("notification of node 1: node 1 is leaving the job"), "{said}");
        }
        Ok(())
    });
}
