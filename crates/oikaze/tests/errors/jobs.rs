//! Mistakes with collectives, and nodes that cannot be in one job.

use super::*;
use std::path::Path;

#[test]
fn collectives_that_differ() {
    all_fail(&["node 1 called barrier_reduce (Sum of 1 f64) while node 0 called barrier"], |job| {
        match job.rank() {
            0 => job.barrier(),
            _ => job.barrier_reduce(1.0, Sum).map(drop),
        }
    });
    all_fail(&["reduce (Max of 1 u64)", "reduce (Min of 1 u64)"], |job| {
        job.barrier_reduce(1u64, [Combine::Max, Combine::Min][job.rank() as usize]).map(drop)
    });
    all_fail(&["reduce (Sum of 1 f64)", "reduce (Sum of 2 f64)"], |job| {
        job.barrier_reduce_all(&vec![1.0; 1 + job.rank() as usize], Sum).map(drop)
    });
    all_fail(&["the limit is"], |job| job.barrier_reduce_all(&vec![1.0; 1_000_000], Sum).map(drop));
    // COH-6.8: one node leaves in good order but too early, while the other still needs it.
    let outcomes =
        cluster(
            2,
            &Settings::default(),
            |job| if job.rank() == 0 { job.barrier() } else { job.leave() },
        );
    let [barrier, leave]: [_; 2] = outcomes.try_into().unwrap();
    failure(barrier, &["barrier", "node 1 is leaving the job"]);
    leave.unwrap();
}

/// COH-6.2: an operation that takes several collectives goes by its own name.
#[test]
fn operations_of_arrays_against_a_barrier_are_named_on_all_nodes() {
    type Operation = fn(SharedArray<u64>, &Path) -> Result<()>;
    let operations: [(&str, Operation); 6] = [
        ("fill", |array, _| array.fill(1)),
        ("resize", |mut array, _| array.resize(20)),
        ("redistribute", |mut array, _| {
            array.redistribute(Distribution::Cyclic { axis: 0, indices: 512 })
        }),
        ("free", |array, _| array.free()),
        ("save", |array, path| array.save(path)),
        ("load", |array, path| array.load(path)),
    ];
    let path = std::env::temp_dir().join(format!("oikaze-named-{}.npy", std::process::id()));
    for (name, operation) in operations {
        let outcomes = cluster_in_both_ways(2, &Settings::default(), |job| {
            let array = job.array::<u64>("a", 10).unwrap();
            array.save(&path).unwrap();
            if job.rank() == 0 { operation(array, &path) } else { job.barrier() }
        });
        for outcome in outcomes {
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(&format!("node 0 called {name} array \"a\"")), "{text}");
            assert_eq!(text.matches("same calls in the same order").count(), 1, "{text}");
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// One node does not come, and the time limit ends the wait of the others.
#[test]
fn a_barrier_that_one_node_does_not_come_to() {
    let outcomes = cluster(3, &Settings::default(), |job| {
        if job.rank() == 0 {
            // Node 2 has come to the barrier before this node begins to wait.
            job.receive_for(Some(2), PATIENCE).unwrap();
        }
        let outcome = if job.rank() == 1 { Ok(()) } else { job.barrier_for(SHORT) };
        if job.rank() == 2 {
            job.peer(0).unwrap().send(Class::Ordered, 0, &[]).wait_for(PATIENCE).unwrap();
        }
        if job.rank() == 1 {
            // Waits until both other nodes have reached their time limit. A node that leaves would
            // end the wait of the other one.
            for _ in 0..2 {
                job.receive_for(None, PATIENCE).unwrap();
            }
            for other in [0, 2] {
                job.peer(other).unwrap().send(Class::Ordered, 0, &[]).wait_for(PATIENCE).unwrap();
            }
        } else {
            job.peer(1).unwrap().send(Class::Ordered, 0, &[]).wait_for(PATIENCE).unwrap();
            job.receive_for(Some(1), PATIENCE).unwrap();
        }
        (outcome, job.leave())
    });
    for (rank, (outcome, left)) in outcomes.into_iter().enumerate() {
        if rank != 1 {
            let who = ["node 1 has not come", "only node 0 knows who has not come"]
                [usize::from(rank > 0)];
            failure(outcome, &["barrier", who, "not done after", "OIKAZE_TIMEOUT"]);
        }
        // COH-6.9: nodes leave together, whatever each has called before.
        left.unwrap();
    }
}

/// The launcher knows how a node ended. The other nodes repeat it.
#[test]
fn the_launchers_reason_is_told() {
    let secret = Secret::random().unwrap();
    let settings = Settings { failure_time: Some(Duration::from_secs(2)), ..Settings::default() };
    meet(
        3,
        |_| (3, settings.clone(), secret.clone()),
        |abort, job| {
            let job = job.unwrap();
            let _inbox = job.publish("inbox", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
            let there = job.peer(2).unwrap().region("inbox").unwrap();
            job.barrier().unwrap();
            if job.rank() == 2 {
                abort("node 2 was killed by signal 9 (SIGKILL)");
                // A node that panics closes its connections without leaving the job.
                let panicking = std::panic::AssertUnwindSafe(|| {
                    let _job = job;
                    std::panic::resume_unwind(Box::new(()));
                });
                drop(std::panic::catch_unwind(panicking));
                return;
            }
            let told = "The launcher says: node 2 was killed by signal 9 (SIGKILL)";
            failure(job.barrier(), &["barrier: node 2 is dead", told]);
            failure(there.fetch_add(0, 1).wait_for(PATIENCE), &[told]);
            if job.rank() == 0 {
                // The other node ends too, and is not reported as the cause.
                job.receive_for(Some(1), PATIENCE).unwrap_err();
                failure(job.barrier(), &["barrier: node 2 is dead", told]);
            }
        },
    );
}

#[test]
fn a_secret_of_another_job() {
    let begun = Instant::now();
    let outcomes =
        meet(2, |_| (2, Settings::default(), Secret::random().unwrap()), |_, job| job.map(drop));
    assert!(begun.elapsed() < PATIENCE);
    // The first node to see the difference ends the job for both.
    for outcome in outcomes {
        failure(outcome, &["cannot be reached over UDP", "another job's secret", "What to do"]);
    }
}

/// The same check covers all that two nodes must have in common: wire version, page size, byte
/// order, architecture.
#[test]
fn nodes_that_do_not_fit_together() {
    let secret = Secret::random().unwrap();
    // Node 0 was started as one of two nodes, the others as two of three.
    let of = |rank: u32| (if rank == 0 { 2 } else { 3 }, Settings::default(), secret.clone());
    let mut outcomes = meet(3, of, |_, job| job.map(drop)).into_iter();
    let words = ["cannot be in one job", "nodes here", "start all nodes as one job"];
    failure(outcomes.next().unwrap(), &words);
    failure(outcomes.next().unwrap(), &words);
    // Node 2 fits one of the others, and learns that the job was ended.
    failure(outcomes.next().unwrap(), &["the job was ended"]);
}

/// WIND-1.5, SEAL-1.2: one node would take nothing of what the other sends.
#[test]
fn seals_that_differ_between_nodes() {
    let secret = Secret::random().unwrap();
    let of = |rank: u32| {
        let seal = [Seal::Full, Seal::Header].get(rank as usize).copied();
        (2, Settings { seal, ..Settings::default() }, secret.clone())
    };
    for outcome in meet(2, of, |_, job| job.map(drop)) {
        // The second node to see it may learn from the first that the job was ended.
        let text = failure(outcome, &["set OIKAZE_SEAL alike on all nodes"]);
        assert!(
            text.contains("by full here, by header at the peer")
                || text.contains("by header here, by full at the peer"),
            "{text}"
        );
    }
}
