//! What a user can do wrong, and what each says then: what was tried, why it failed, what to do; at once, never a hang.

mod support;

use oikaze::job::{Checksum, Secret, Settings};
use oikaze::{Class, Error, Homes, Job, Operation, ReduceOp, Region, Result, Rights};
use std::time::{Duration, Instant};
use support::{cluster, cluster_once, meet};

/// A wait that is meant to succeed, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A wait that is meant to fail.
const SHORT: Option<Duration> = Some(Duration::from_millis(200));

/// The failure of something that must fail, in words; all of these must be among them.
#[track_caller]
fn failure<T>(outcome: Result<T>, words: &[&str]) -> String {
    let text = outcome.err().expect("it must fail").to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    println!("{text}");
    text
}

/// Every node of a job of two runs `program`, and must fail with these words.
#[track_caller]
fn all_fail(words: &[&str], program: impl Fn(&Job) -> Result<()> + Sync) {
    for outcome in cluster(2, &Settings::default(), |job| program(&job)) {
        failure(outcome, words);
    }
}

/// Waits for what must fail, on both sides of a job of two: `words` say why.
fn remote(words: &[&str], rights: Rights, operation: impl Fn(&Job, &oikaze::RemoteRegion) -> Operation<u64> + Sync) {
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), rights).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        failure(operation(&job, &there).wait_for(PATIENCE), words);
        job.barrier().unwrap();
    });
}

#[test]
fn arrays_that_differ_between_nodes() {
    let differ = |job: &Job, a: &str, b: &str| if job.rank() == 0 { a.to_owned() } else { b.to_owned() };
    let advice = "all nodes must declare the same arrays in the same order";
    all_fail(&["node 0 declared the name \"a\", node 1 declared the name \"b\"", advice], |job| {
        job.array::<u64>(&differ(job, "a", "b"), 10).map(drop)
    });
    all_fail(&["array \"x\"", "node 0 declared 800 bytes, node 1 declared 808 bytes", advice], |job| {
        job.array::<u64>("x", 100 + job.rank() as usize).map(drop)
    });
    all_fail(&["array \"x\"", "elements of type", advice], |job| match job.rank() {
        0 => job.array::<u64>("x", 100).map(drop),
        _ => job.array::<f64>("x", 100).map(drop),
    });
    all_fail(&["array \"x\"", "homes in blocks", "cyclic homes of 2 pages", advice], |job| {
        let homes = [Homes::Block, Homes::Cyclic { pages: 2 }][job.rank() as usize].clone();
        job.array_with_homes::<u64>("x", 10_000, homes).map(drop)
    });
    // One node declares, the other does not.
    all_fail(&["node 1 called barrier while node 0 called declare array \"x\"", "same collectives"], |job| match job.rank() {
        0 => job.array::<u64>("x", 100).map(drop),
        _ => job.barrier(),
    });
}

#[test]
fn arrays_that_cannot_be() {
    all_fail(&["array \"x\"", "0 bytes", "allowed are 1 to"], |job| job.array::<u64>("x", 0).map(drop));
    all_fail(&["array \"x\"", "allowed are 1 to"], |job| job.array::<u64>("x", usize::MAX).map(drop));
    all_fail(&["array \"x\"", "10000000000000 bytes", "allowed are 1 to"], |job| {
        job.array::<u8>("x", 10_000_000_000_000).map(drop)
    });
    all_fail(&["its name has 0 bytes"], |job| job.array::<u8>("", 1).map(drop));
    all_fail(&["at least 1 page"], |job| job.array_with_homes::<u8>("x", 1, Homes::Cyclic { pages: 0 }).map(drop));
    all_fail(&["names 1 homes for its 3 pages"], |job| job.array_with_homes::<u8>("x", 9000, Homes::Explicit(vec![0])).map(drop));
    all_fail(&["not one of the 2 nodes"], |job| job.array_with_homes::<u8>("x", 1, Homes::Explicit(vec![2])).map(drop));
    all_fail(&["an array of that name exists already"], |job| {
        let _first = job.array::<u8>("x", 1).unwrap();
        job.array::<u8>("x", 1).map(drop)
    });
}

/// More than any machine has, less than the format allows: refused before anything is taken.
#[test]
fn an_array_larger_than_memory_fails_on_all_nodes_and_the_job_goes_on() {
    all_fail(&["array \"x\"", "bytes are available", "a smaller array"], |job| job.array::<u8>("x", 1 << 40).map(drop));
    cluster(2, &Settings::default(), |job| {
        failure(job.array::<u8>("x", 1 << 40).map(drop), &["bytes are available"]);
        let array = job.array::<u64>("y", 1000).unwrap();
        array.write(array.home_range(job.rank())).unwrap().fill(7);
        job.barrier().unwrap();
        assert!(array.read(0..1000).unwrap().iter().all(|&value| value == 7));
        job.barrier().unwrap();
    });
}

#[test]
fn elements_outside_an_array() {
    cluster(1, &Settings::default(), |job| {
        let array = job.array::<u32>("x", 10).unwrap();
        failure(array.read(5..11).map(drop), &["elements 5..11 of array \"x\"", "the array has 10 elements"]);
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 7..3;
        failure(array.write(reversed).map(drop), &["elements 7..3 of array \"x\""]);
        failure(array.write_lazily(0..usize::MAX).map(drop), &["\"x\"", "10"]);
        assert!(array.read(10..10).unwrap().is_empty());
        let _held = array.write(0..4).unwrap();
        failure(array.read(3..5).map(drop), &["\"x\""]);
    });
}

#[test]
fn regions_that_nobody_published() {
    cluster(2, &Settings::default(), |mut job| {
        let other = 1 - job.rank();
        // Long enough for an answer on any machine, as the name is asked for until the limit.
        job.set_time_limit(Some(Duration::from_secs(2)));
        let peer = job.peer(other).unwrap();
        job.set_time_limit(None);
        failure(peer.region("inbox").map(drop), &["region \"inbox\" of node", "nothing at all", "waited for 2 s"]);
        job.barrier().unwrap();
        let _a = job.publish("results", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let _b = job.publish("tasks", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        failure(peer.region("inbox").map(drop), &["\"results\", \"tasks\"", "mend the name"]);
        failure(job.publish("tasks", Region::zeroed(8).unwrap(), Rights::ALL).map(drop), &["\"tasks\"", "withdraw it first"]);
        failure(peer.region("").map(drop), &["cannot be a name"]);
        failure(peer.region(&"n".repeat(49)).map(drop), &["1 to 48 bytes"]);
        failure(job.publish("", Region::zeroed(8).unwrap(), Rights::ALL).map(drop), &["cannot be a name"]);
        failure(job.peer(2).map(drop), &["node 2", "numbered from 0 to 1"]);
        job.barrier().unwrap();
    });
}

/// A name that never comes is waited for, but not for ever, also where no time limit is set.
#[test]
fn an_unknown_region_ends_without_a_time_limit() {
    cluster_once(1, &Settings::default(), |job| {
        let begun = Instant::now();
        failure(job.peer(0).unwrap().region("inbox").map(drop), &["waited for 10 s"]);
        assert!(begun.elapsed() < PATIENCE);
    });
}

#[test]
fn offsets_outside_a_region() {
    for offset in [4096, 1 << 40, u64::MAX - 7] {
        let words = [&format!("at offset {offset} of region \"inbox\" on node "), "See the region's length"];
        remote(&words, Rights::ALL, |_, there| there.fetch_add(offset, 1));
    }
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let local = job.register(Region::zeroed(100_000).unwrap()).unwrap();
        for (offset, len) in [(4095, 2), (0, 4097), (0, 100_000), (u64::MAX, 1), (u64::MAX - 4096, 8192), (5000, 0)] {
            let place = format!("of {len} bytes at offset {offset} of region \"inbox\"");
            let words = [place.as_str(), "outside", "RemoteRegion::len"];
            failure(there.put(offset, local.slice(0..len).unwrap()).wait_for(PATIENCE), &words);
            failure(there.get(offset, local.slice(0..len).unwrap()).wait_for(PATIENCE), &words);
        }
        let end = there.signal(4096, 1);
        failure(there.put_signal(0, local.slice(0..8).unwrap(), &end).wait_for(PATIENCE), &["outside"]);
        failure(there.put_copy(0, &[0; 4097]).map(drop), &["put_copy takes up to 4096 bytes"]);
        failure(local.slice(99_999..100_001).map(drop), &["the region has 100000 bytes"]);
        // Nothing at all, anywhere inside, is no mistake.
        for offset in [0, 4096] {
            there.put(offset, local.slice(0..0).unwrap()).wait_for(PATIENCE).unwrap();
            there.get(offset, local.slice(7..7).unwrap()).wait_for(PATIENCE).unwrap();
            there.put_copy(offset, &[]).unwrap().wait_for(PATIENCE).unwrap();
        }
        there.peer().send(Class::Ordered, 1, &[]).wait_for(PATIENCE).unwrap();
        assert!(job.receive(None, Some(PATIENCE)).unwrap().body.is_empty());
        job.barrier().unwrap();
    });
}

#[test]
fn rights_that_were_not_granted() {
    cluster(2, &Settings::default(), |job| {
        let local = job.register(Region::zeroed(8).unwrap()).unwrap();
        let mut held = Vec::new();
        for (name, rights) in [("r", Rights::READ), ("w", Rights::WRITE), ("a", Rights::ATOMIC)] {
            held.push(job.publish(name, Region::zeroed(8).unwrap(), rights).unwrap());
        }
        let region = |name| job.peer(1 - job.rank()).unwrap().region(name).unwrap();
        let words = ["Its owner decides, when it publishes the region"];
        for name in ["w", "a"] {
            failure(region(name).get(0, local.all()).wait_for(PATIENCE), &words);
        }
        for name in ["r", "a"] {
            failure(region(name).put(0, local.all()).wait_for(PATIENCE), &words);
        }
        for name in ["r", "w"] {
            failure(region(name).fetch_add(0, 1).wait_for(PATIENCE), &words);
        }
        job.barrier().unwrap();
    });
}

#[test]
fn words_that_are_not_aligned() {
    remote(&["fetch-add", "Use an offset that is a multiple of 8"], Rights::ALL, |_, there| there.fetch_add(12, 1));
    remote(&["compare-and-swap", "multiple of 8"], Rights::ALL, |_, there| there.compare_swap(1, 0, 1));
}

/// The key of a region goes with it: who kept it is told to ask again.
#[test]
fn a_region_that_was_withdrawn() {
    cluster(2, &Settings::default(), |job| {
        let inbox = job.publish("inbox", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        there.fetch_add(0, 1).wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        drop(inbox);
        job.barrier().unwrap();
        failure(there.fetch_add(0, 1).wait_for(PATIENCE), &["fetch-add", "\"inbox\"", "Ask the peer for the region again"]);
        job.barrier().unwrap();
    });
}

#[test]
fn memory_that_cannot_be_had() {
    failure(Region::zeroed(0).map_err(Error::from), &["0 bytes makes no sense"]);
    failure(Region::shared(1 << 45).map_err(Error::from), &["available"]);
    failure(Region::shared(usize::MAX).map_err(Error::from), &["1 byte to 2^47 bytes"]);
    failure(Region::zeroed(usize::MAX).map_err(Error::from), &["1 byte to 2^47 bytes"]);
}

#[test]
fn collectives_that_differ() {
    all_fail(&["node 1 called reduce (Sum of 1 f64) while node 0 called barrier"], |job| match job.rank() {
        0 => job.barrier(),
        _ => job.reduce(1.0, ReduceOp::Sum).map(drop),
    });
    all_fail(&["reduce (Max of 1 u64)", "reduce (Min of 1 u64)"], |job| {
        job.reduce(1u64, [ReduceOp::Max, ReduceOp::Min][job.rank() as usize]).map(drop)
    });
    all_fail(&["reduce (Sum of 1 f64)", "reduce (Sum of 2 f64)"], |job| {
        job.reduce_all(&vec![1.0; 1 + job.rank() as usize], ReduceOp::Sum).map(drop)
    });
    all_fail(&["the limit is"], |job| job.reduce_all(&vec![1.0; 1_000_000], ReduceOp::Sum).map(drop));
    // One leaves too early: in good order, but the other still needs it.
    let outcomes = cluster(2, &Settings::default(), |job| if job.rank() == 0 { job.barrier() } else { job.leave() });
    for outcome in outcomes {
        failure(outcome, &["node 1 called leave while node 0 called barrier"]);
    }
}

/// A node that does not come: the time limit ends the wait of the others.
#[test]
fn a_barrier_that_one_node_does_not_come_to() {
    let outcomes = cluster(3, &Settings::default(), |mut job| {
        job.set_time_limit(SHORT);
        let outcome = if job.rank() == 1 { Ok(()) } else { job.barrier() };
        job.set_time_limit(None);
        if job.rank() == 1 {
            // Until the others have had enough.
            for _ in 0..2 {
                job.receive(None, Some(PATIENCE)).unwrap();
            }
        } else {
            job.peer(1).unwrap().send(Class::Ordered, 0, &[]).wait_for(PATIENCE).unwrap();
        }
        (outcome, job.leave())
    });
    for (rank, (outcome, left)) in outcomes.into_iter().enumerate() {
        if rank != 1 {
            let who = ["to which node 1 has not come", "node 0 tells"][usize::from(rank > 0)];
            failure(outcome, &["barrier", who, "not done after", "OIKAZE_TIMEOUT"]);
        }
        // What they call afterwards does not fit together, and is not waited for in vain.
        left.unwrap_err();
    }
}

/// The launcher knows how a node ended; the others repeat it.
#[test]
fn the_launchers_reason_is_told() {
    let secret = Secret::random().unwrap();
    let settings = Settings { failure_time: Some(Duration::from_millis(500)), ..Settings::default() };
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
                // A node that panics says goodbye without leaving.
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
                // The other one ends, too, and is not taken for the cause.
                job.receive(Some(1), Some(PATIENCE)).unwrap_err();
                failure(job.barrier(), &["barrier: node 2 is dead", told]);
            }
        },
    );
}

#[test]
fn a_secret_of_another_job() {
    let begun = Instant::now();
    let outcomes = meet(2, |_| (2, Settings::default(), Secret::random().unwrap()), |_, job| job.map(drop));
    assert!(begun.elapsed() < PATIENCE);
    // Who is first ends the job for both.
    for outcome in outcomes {
        failure(outcome, &["cannot be reached over UDP", "another job's secret", "What to do"]);
    }
}

/// The same way goes what else two nodes must have in common: wire version, page size, byte order, architecture.
#[test]
fn nodes_that_do_not_fit_together() {
    let secret = Secret::random().unwrap();
    // Node 0 was started as one of two, the others as of three.
    let of = |rank: u32| (if rank == 0 { 2 } else { 3 }, Settings::default(), secret.clone());
    let mut outcomes = meet(3, of, |_, job| job.map(drop)).into_iter();
    let words = ["cannot be in one job", "nodes here", "start all nodes as one job"];
    failure(outcomes.next().unwrap(), &words);
    failure(outcomes.next().unwrap(), &words);
    // It had no quarrel with anybody, and is told.
    failure(outcomes.next().unwrap(), &["the job was ended"]);
}

/// WIND-1.5: what one end leaves to the network cards, the other would find damaged for ever.
#[test]
fn checksums_that_differ_between_nodes() {
    let secret = Secret::random().unwrap();
    let of = |rank: u32| {
        let checksum = [Checksum::Full, Checksum::Header].get(rank as usize).copied();
        (2, Settings { checksum, ..Settings::default() }, secret.clone())
    };
    for outcome in meet(2, of, |_, job| job.map(drop)) {
        // The second to see it may be told by the first that the job was ended.
        let text = failure(outcome, &["set OIKAZE_CHECKSUM alike on all nodes"]);
        assert!(
            text.contains("checksums of kind 0 here, 1 at the peer") || text.contains("checksums of kind 1 here, 0 at"),
            "{text}"
        );
    }
}

#[test]
fn arrays_that_cannot_be_accumulated() {
    use oikaze::Combine;
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::ATOMIC).unwrap();
        let _closed = job.publish("closed", Region::zeroed(4096).unwrap(), Rights::WRITE).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let (there, closed) = (peer.region("inbox").unwrap(), peer.region("closed").unwrap());
        let source = job.register(Region::zeroed(4096).unwrap()).unwrap();
        let slice = |len: usize| source.slice(0..len).unwrap();
        let long = vec![0_u64; 513];
        failure(there.accumulate::<u64>(0, Combine::Sum, slice(12)).map(drop), &["accumulate of 12 bytes", "whole number"]);
        failure(there.accumulate_copy(0, Combine::Sum, &long).map(drop), &["4104 bytes", "up to 4096 bytes", "scope"]);
        let sum = |offset, len| there.accumulate::<u64>(offset, Combine::Sum, slice(len)).unwrap().wait_for(PATIENCE);
        for len in [8, 2048] {
            failure(sum(4, len), &["accumulate", "at offset 4 of region \"inbox\"", "aligned"]);
            failure(sum(4096, len), &["outside the region", "RemoteRegion::len"]);
            failure(sum(u64::MAX - 7, len), &["outside the region"]);
            let refused = closed.accumulate::<f32>(0, Combine::Max, slice(len)).unwrap();
            failure(refused.wait_for(PATIENCE), &["does not grant this right", "Its owner decides"]);
        }
        sum(4096, 0).unwrap();
        job.barrier().unwrap();
    });
}

#[test]
fn what_can_go_wrong_with_a_fifo() {
    cluster(2, &Settings::default(), |mut job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let fifo = job.fifo("work", 2, 16).unwrap();
        let _region = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::WRITE | Rights::ATOMIC).unwrap();
        let _all = job.publish("all", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        failure(job.fifo("work", 2, 16).map(drop), &["\"work\"", "withdraw it first"]);
        failure(job.fifo("none", 2, 0).map(drop), &["FIFO \"none\" of 2 slots of 0 bytes", "1 to 1048576 bytes"]);
        failure(job.fifo("many", 1 << 25, 8).map(drop), &["16777216 slots"]);
        failure(peer.fifo("inbox").map(drop), &["FIFO \"inbox\" of node", "Job::fifo"]);
        failure(peer.fifo("all").unwrap().try_push(b"x"), &["push of 1 bytes", "there is no FIFO"]);
        failure(fifo.pop(&mut Vec::new(), SHORT), &["waiting for an element of FIFO \"work\"", "not done after 0.2"]);
        job.barrier().unwrap();
        let there = peer.fifo("work").unwrap();
        failure(there.try_push(&[0; 17]), &["push of 17 bytes", "longer than the FIFO's slots"]);
        failure(peer.region("work").unwrap().put_copy(0, &[1; 8]).unwrap().wait_for(PATIENCE), &["does not grant this right"]);
        there.try_push(b"one").unwrap();
        there.push(b"two", SHORT).unwrap();
        let full = there.try_push(b"three").err().unwrap();
        assert!(full.is_full());
        failure(Err::<(), _>(full), &["the FIFO is full", "take elements out faster"]);
        let full = there.push(b"three", SHORT).err().unwrap();
        assert!(full.is_full() && full.to_string().contains("waited for 0.2"), "{full}");
        job.barrier().unwrap();
        let mut element = Vec::new();
        while fifo.try_pop(&mut element).unwrap() {}
        assert_eq!(element, b"onetwo");
        drop(fifo);
        job.barrier().unwrap();
        failure(there.try_push(b"late"), &["no region has this key"]);
        job.set_time_limit(None);
        job.barrier().unwrap();
    });
}
