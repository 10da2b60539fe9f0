//! Barriers and collectives of nodes of one machine (COH-6.14 to COH-6.16, COLL-7).

use crate::collective::operator::commuting;
use crate::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator, interruptible};
use crate::job::{Feature, JobBuilder};
use crate::prelude::*;
use crate::testing::{cluster_of, cluster_with};
use std::rc::Rc;
use std::time::Duration;

fn settings() -> JobBuilder {
    Job::builder().time_limit(Duration::from_secs(60))
}

fn passed(job: &Job) -> u64 {
    job.node.coherence.order.barriers_without_engine()
}

/// COH-6.14, COH-16.3: a barrier needs the engines only if a node has an array of pages, or has
/// dropped one.
#[test]
fn barrier_without_arrays_of_pages_ends_without_the_engine() {
    for (nodes, has_segments) in [(2, true), (3, true), (3, false), (9, false)] {
        let of_pages = settings().without([Feature::Segment]);
        let settings = if has_segments { settings() } else { of_pages };
        cluster_with(nodes, settings, |job| {
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
            let count = 20 + u64::from(has_segments);
            assert_eq!(passed(job), count);
            drop(array);
            // Frees the array.
            job.barrier()?;
            assert_eq!(passed(job), count);
            job.barrier()?;
            assert_eq!(passed(job), count + 1);
            Ok(())
        });
    }
}

/// COH-6.14: without the feature on all nodes or on one, and on several machines, the engines do
/// all.
#[test]
fn barrier_of_nodes_without_common_memory_goes_through_the_engines() {
    let with = (None, settings());
    let [arena, shm] =
        [Feature::Arena, Feature::Shm].map(|feature| (None, settings().without([feature])));
    let apart = (Some(1), settings());
    for nodes in [[&arena; 3], [&shm; 3], [&with, &with, &arena], [&with, &with, &apart]] {
        cluster_of(&nodes.map(Clone::clone), |job| {
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

/// COH-6.16, COH-6.9: a node that has left comes to no barrier any more, and the nodes that wait or
/// sleep in one fail.
#[test]
fn barrier_fails_on_all_nodes_when_one_has_left() {
    cluster_with(3, settings(), |job| {
        job.barrier()?;
        if job.rank() == 2 {
            return Ok(());
        }
        for _ in 0..2 {
            let error = job.barrier().unwrap_err().to_string();
            // The notice of leaving (COH-6.7) or the call of leave (COH-6.9) comes first.
            let says_why = ["leaving", "called leave"];
            assert!(says_why.iter().any(|why| error.contains(why)), "{error}");
        }
        assert_eq!(passed(job), 1);
        Ok(())
    });
}

/// COLL-7.3: values in slots and values in parcels give the same results, and all_reduce the same
/// bits, for all kinds and numbers of ranks. Bytes that fit a slot exactly go there, and one
/// element more does not.
#[test]
fn values_in_slots_have_the_bits_of_parcels() {
    fn results(job: &Job, len: usize) -> crate::Result<Vec<Vec<f32>>> {
        let (me, size) = (job.rank(), job.size());
        let values: Vec<f32> =
            (0..len).map(|at| 1.0 / (at as f32 + 3.0 * me as f32 + 1.7)).collect();
        let even: Vec<f32> = values.iter().copied().cycle().take(len * size as usize).collect();
        let root = size - 1;
        Ok(vec![
            job.broadcast(root, &values)?,
            job.gather(root, &values)?,
            job.all_gather(&values)?,
            job.scatter(root, &even)?,
            job.reduce(root, &values, Max)?,
            job.start().all_reduce(&values, Sum).wait()?,
            job.reduce_scatter(&even, Max)?,
            job.scan(&values, Max)?,
            job.exclusive_scan(&values, Max)?,
            job.all_to_all(&even)?,
            job.all_gather_uneven(&values)?.concat(),
        ])
    }
    for nodes in [1, 2, 3, 4, 5, 9] {
        for len in [0, 1, 5, 128, 1024 / nodes as usize, 1024, 1025] {
            let with = cluster_with(nodes, settings(), |job| Ok(bits(&results(job, len)?)));
            let without = cluster_with(nodes, settings().without([Feature::Arena]), |job| {
                Ok(bits(&results(job, len)?))
            });
            assert_eq!(with, without, "{nodes} nodes, {len} elements");
        }
    }
}

fn bits(results: &[Vec<f32>]) -> Vec<Vec<u32>> {
    results.iter().map(|result| result.iter().map(|value| value.to_bits()).collect()).collect()
}

/// COLL-7.1, COLL-7.2: ranks that only give run ahead of a rank that only reads, and no value is
/// lost or mixed up. Collectives by parcels are in the same order.
#[test]
fn slots_are_used_again_only_when_all_have_read() {
    cluster_with(3, settings(), |job| {
        let me = job.rank();
        for round in 0..300_u32 {
            let root = round / 50 % 3;
            assert_eq!(job.broadcast(root, &[round, root])?, [round, root]);
            let all = job.gather((round + 1) % 3, &[round * 3 + me])?;
            if me == (round + 1) % 3 {
                assert_eq!(all, [round * 3, round * 3 + 1, round * 3 + 2]);
            }
            if round % 20 == 0 {
                assert_eq!(job.broadcast(root, &vec![round; 5000])?, vec![round; 5000]);
            }
        }
        Ok(())
    });
}

/// COLL-7.1: collectives that are begun and not waited for go on in their order.
#[test]
fn collectives_in_slots_go_on_without_a_wait() {
    cluster_with(2, settings(), |job| {
        let begun: Vec<_> =
            (0..50_u64).map(|number| job.start().all_reduce(&[number], Sum)).collect();
        for (number, sum) in (0..50_u64).zip(begun) {
            assert_eq!(sum.wait()?, [2 * number]);
        }
        Ok(())
    });
}

/// COLL-7.4: calls that differ fail on all ranks, also where no rank reads another one's values.
#[test]
fn calls_in_slots_that_differ_fail_on_all_ranks() {
    let others: [fn(&Job) -> crate::Result<()>; 4] = [
        |job| job.all_reduce(1_u64, Max).map(drop),
        |job| job.start().all_reduce(&[1_u64, 2], Sum).wait().map(drop),
        |job| job.start().all_reduce(&vec![1_u64; 5000], Sum).wait().map(drop),
        |job| job.all_gather(&[1_i64]).map(drop),
    ];
    for other in others {
        cluster_with(3, settings(), |job| {
            for wrong in 0..3 {
                let called = match job.rank() == wrong {
                    true => other(job),
                    false => job.all_reduce(1_u64, Sum).map(drop),
                };
                // A rank whose part is done learns of it in its next call.
                let next = job.all_reduce(1_u64, Sum).map(drop);
                assert!(called.and(next).unwrap_err().is_mismatch());
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// COLL-7.4: the same of roots. Each root only gives.
#[test]
fn roots_that_differ_fail_on_all_ranks() {
    cluster_with(2, settings(), |job| {
        let me = job.rank();
        let called = job.broadcast(me, &[me]).map(drop);
        let next = job.all_reduce(1_u64, Sum).map(drop);
        assert!(called.and(next).unwrap_err().is_mismatch());
        Ok(())
    });
}

/// COLL-7.5: a rank whose arguments do not fit passes over the collective, and all ranks fail.
/// Later collectives find their slots.
#[test]
fn collectives_that_one_rank_refuses_are_passed_over() {
    cluster_with(3, settings(), |job| {
        for number in 0..7_u64 {
            let wrong = job.rank() == (number % 3) as u32;
            let values = vec![number; if wrong { 2 } else { 3 }];
            assert!(job.all_to_all(&values).unwrap_err().is_mismatch());
        }
        assert_eq!(job.all_reduce(2_u64, Sum)?, 6);
        Ok(())
    });
}

/// COLL-3.5, COLL-7.4: each mistake is an error on each rank, also if a rank finds an earlier one
/// once more in the slots.
#[test]
fn each_mistake_in_slots_fails_on_all_ranks() {
    cluster_with(2, settings(), |job| {
        for round in 0..8 {
            let called = match job.rank() {
                0 => job.reduce(1, &[1_u32], Sum).map(drop),
                _ => job.reduce(1, &[1_i32], Sum).map(drop),
            };
            let next = job.all_gather_uneven(&[round]).map(drop);
            assert!(called.and(next).is_err_and(|error| error.is_mismatch()), "round {round}");
            assert_eq!(job.all_reduce(1_u64, Sum)?, 2);
        }
        Ok(())
    });
}

/// COLL-7.3, COLL-7.6, COLL-7.7: long values in pieces give the results that parcels give, also if
/// a collective has more pieces than a rank has buffers. The algorithms for these numbers of ranks
/// give the same bits.
#[test]
fn long_values_in_pieces_have_the_bits_of_parcels() {
    fn results(job: &Job, len: usize) -> crate::Result<Vec<Vec<f32>>> {
        let (me, size) = (job.rank(), job.size());
        let values: Vec<f32> = (0..len).map(|at| 1.0 / (at as f32 + me as f32 + 1.7)).collect();
        let even: Vec<f32> = values.iter().copied().cycle().take(len * size as usize).collect();
        let (mut same, mut all) = (values.clone(), vec![0.0; len * size as usize]);
        job.broadcast_into(1, &mut same)?;
        job.all_gather_into(&values, &mut all)?;
        let mut sum = values.clone();
        job.all_reduce_into(&mut sum, Sum)?;
        let begun = [job.start().all_reduce(&values, Sum), job.start().scan(&values, Max)];
        let [started, scanned] = begun.map(|begun| begun.wait());
        Ok(vec![
            same,
            all,
            sum,
            started?,
            scanned?,
            job.broadcast(0, &values)?,
            job.gather(1, &values)?,
            job.scatter(1, &even)?,
            job.reduce(1, &values, Max)?,
            job.reduce_scatter(&even, Max)?,
            job.scan(&values, Max)?,
            job.exclusive_scan(&values, Max)?,
            job.all_to_all(&even)?,
        ])
    }
    for nodes in [2, 4] {
        for len in [1025, 20_000, 150_001] {
            let with = cluster_with(nodes, settings(), |job| Ok(bits(&results(job, len)?)));
            let without = cluster_with(nodes, settings().without([Feature::Arena]), |job| {
                Ok(bits(&results(job, len)?))
            });
            assert!(with == without, "{nodes} nodes, {len} elements");
        }
    }
}

/// COLL-7.8: a caller that is interrupted leaves a collective that goes on without it.
#[test]
fn long_values_go_on_without_an_interrupted_caller() {
    const LEN: usize = 300_000;
    for interrupted in 0..3 {
        cluster_with(3, settings(), |job| {
            let mut values = vec![u64::from(job.rank()) + 1; LEN];
            if job.rank() == interrupted {
                let ended =
                    interruptible(Rc::new(|| true), || job.all_reduce_into(&mut values, Sum));
                assert!(ended.is_err());
                // The caller's memory is its own again.
                values.fill(0);
                for other in 1..3 {
                    let peer = job.peer((interrupted + other) % 3)?;
                    peer.send(Class::Ordered, 0, b"late").wait()?;
                }
            } else {
                job.receive(None)?;
                job.all_reduce_into(&mut values, Sum)?;
                assert!(values.iter().all(|value| *value == 6));
            }
            assert_eq!(job.all_reduce(1_u64, Sum)?, 3);
            Ok(())
        });
    }
}

/// COLL-3.2: an operator that panics fails the collective, for short and for long values.
#[test]
fn operator_that_panics_fails_collectives_in_memory() {
    for len in [1, 100_000] {
        cluster_with(2, settings(), |job| {
            let operator = commuting(|_: u64, _| panic!("planted"));
            let mut values = vec![1_u64; len];
            let error = job.all_reduce_into(&mut values, operator).unwrap_err().to_string();
            assert!(error.contains("the operator panicked on rank"), "{error}");
            assert_eq!(job.all_reduce(1_u64, Sum)?, 2);
            Ok(())
        });
    }
}

/// A result that has no room is an error of its rank alone.
#[test]
fn result_without_room_is_an_error_of_one_rank() {
    cluster_with(2, settings(), |job| {
        let bytes = Untyped::of(job, ElementKind::U8);
        for len in [8, 100_000] {
            let (given, mut result) = (vec![1; len], vec![9; len + usize::from(job.rank() == 1)]);
            let sum = Some(UntypedOperator::Sum);
            let ended = bytes.even_into(CollectiveKind::Scan, 0, Some(&given), &mut result, sum);
            assert_eq!(ended.is_err(), job.rank() == 1);
            assert!(result.iter().all(|byte| *byte == if job.rank() == 1 { 9 } else { 1 }));
            assert_eq!(job.all_reduce(1_u64, Sum)?, 2);
        }
        Ok(())
    });
}

/// COLL-3.9, COLL-7.8: a rank that leaves out a collective of long values, because it has called a
/// barrier in its place, stops no later collective.
#[test]
fn long_values_go_on_after_a_barrier_in_their_place() {
    cluster_with(2, settings(), |job| {
        for barrier in 0..2 {
            let mut values = vec![1_u64; 200_000];
            let called = match job.rank() == barrier {
                true => job.barrier(),
                false => job.all_reduce_into(&mut values, Sum),
            };
            assert!(called.unwrap_err().is_mismatch());
            let mut values = vec![1_u64; 200_000];
            job.all_reduce_into(&mut values, Sum)?;
            assert!(values.iter().all(|value| *value == 2));
        }
        Ok(())
    });
}

/// The root of a broadcast leaves a result apart from its values as it is.
#[test]
fn root_of_a_broadcast_leaves_its_result_alone() {
    cluster_with(2, settings(), |job| {
        let bytes = Untyped::of(job, ElementKind::U8);
        for len in [8, 100_000] {
            let given = (job.rank() == 0).then(|| vec![1; len]);
            let mut result = vec![9; if job.rank() == 0 { 3 } else { len }];
            let kind = CollectiveKind::Broadcast;
            bytes.even_into(kind, 0, given.as_deref(), &mut result, None)?;
            assert!(result.iter().all(|byte| *byte == if job.rank() == 0 { 9 } else { 1 }));
        }
        Ok(())
    });
}
