//! Ends of operations: in queues and counters, in lists, and of messages in batches.

use crate::support::cluster;
use oikaze::completion::{Completed, Operation};
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze::{Error, Job, Result};
use oikaze_launch::Settings;
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// Runs two nodes, each with a region of `len` bytes that the other node finds.
fn pair(len: usize, program: impl Fn(&Job, &RemoteRegion) + Sync) {
    pair_with(len, &Settings::default(), program);
}

fn pair_with(len: usize, settings: &Settings, program: impl Fn(&Job, &RemoteRegion) + Sync) {
    cluster(2, settings, |job| {
        let _inbox = job.publish("inbox", Region::zeroed(len).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        program(&job, &there);
        job.barrier().unwrap();
    });
}

fn faulty() -> Settings {
    Settings {
        fault: Some("loss=0.03,duplicate=0.03,reorder=0.05,seed=4".to_owned()),
        ..Settings::default()
    }
}

#[track_caller]
fn fails<T>(outcome: Result<T>, words: &[&str]) {
    let text = outcome.err().map(|error: Error| error.to_string()).expect("it must fail");
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
}

/// The queue reports each operation once, with its number and its own outcome, whether it was
/// attached before or after its end.
#[test]
fn a_queue_tells_each_operation_once() {
    pair_with(4096, &faulty(), |job, there| {
        let queue = job.completion_queue();
        let source = job.register(Region::zeroed(4096).unwrap()).unwrap();
        let mut late: Vec<(u64, Operation<u64>)> = Vec::new();
        for n in 0..300u64 {
            match n % 4 {
                0 => there
                    .put(1000, source.slice(0..n as usize).unwrap())
                    .report_to(&queue, n)
                    .unwrap(),
                1 => there.fetch_add(8, 1).report_to(&queue, n).unwrap(),
                // Few operations fail, because refusals travel a few at a time.
                2 => there
                    .put_copy(if n % 64 == 2 { 4090 } else { 3000 }, &[1; 8])
                    .unwrap()
                    .report_to(&queue, n)
                    .unwrap(),
                _ => late.push((n, there.fetch_add(8, 1))),
            }
        }
        for (n, operation) in late {
            if n % 8 == 3 {
                operation.wait().unwrap();
            }
            operation.report_to(&queue, n).unwrap();
        }
        let mut told = Vec::new();
        while told.len() < 300 {
            queue.wait_for(1, PATIENCE, &mut told).unwrap();
        }
        assert!(queue.is_empty());
        let by_context: BTreeMap<u64, Completed> =
            told.into_iter().map(|completed| (completed.context, completed)).collect();
        assert_eq!(by_context.keys().copied().collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
        let mut olds = Vec::new();
        for (n, completed) in by_context {
            match n % 4 {
                2 if n % 64 == 2 => fails(
                    completed.outcome,
                    &[
                        "put of 8 bytes at offset 4090 of region \"inbox\"",
                        "lies outside the region",
                    ],
                ),
                0 | 2 => assert_eq!(completed.outcome.unwrap(), 0),
                _ => olds.push(completed.outcome.unwrap()),
            }
        }
        olds.sort_unstable();
        assert_eq!(olds, (0..150).collect::<Vec<_>>());
    });
}

#[test]
fn a_queue_wakes_when_enough_are_there() {
    pair(4096, |job, there| {
        let queue = job.completion_queue();
        let mut told = Vec::new();
        fails(
            queue.wait_for(1, SHORT, &mut told),
            &["waiting for 1 operations in a completion queue, where 0 are"],
        );
        // One thread waits while another attaches operations that have ended before. No arriving
        // datagram wakes the first thread.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut told = Vec::new();
                queue.wait_for(3, PATIENCE, &mut told).map(|count| (count, told.len()))
            });
            let ended: Vec<_> = (0..3).map(|_| there.fetch_add(0, 1)).collect();
            ended.iter().try_for_each(|add| add.wait().map(drop)).unwrap();
            ended.into_iter().for_each(|add| add.report_to(&queue, 7).unwrap());
            assert_eq!(waiter.join().unwrap().unwrap(), (3, 3));
        });
        assert_eq!(queue.poll(&mut told), 0);
    });
}

/// A reader that waits for two completions gets two, even if another reader takes those for which
/// the first was woken up.
#[test]
fn two_who_read_one_queue_each_have_enough() {
    pair(4096, |job, there| {
        let queue = job.completion_queue();
        std::thread::scope(|scope| {
            let read =
                || (0..200).map(|_| queue.wait_for(2, PATIENCE, &mut Vec::new()).unwrap()).min();
            let readers = [scope.spawn(read), scope.spawn(read)];
            while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                there.fetch_add(0, 1).report_to(&queue, 7).unwrap();
            }
            for reader in readers {
                assert!(reader.join().unwrap() >= Some(2));
            }
        });
    });
}

/// Threads attach operations while turns of others settle them. The counter counts each exactly
/// once.
#[test]
fn a_counter_counts_successes_and_failures_apart() {
    pair(4096, |job, there| {
        let counter = job.counter();
        fails(counter.wait_for(1, SHORT), &["until 1 operations have ended, of which 0 have"]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..2500 {
                        // Few operations fail, because refusals travel a few at a time.
                        let add = there.fetch_add(if n % 500 == 499 { 4096 } else { 0 }, 1);
                        add.count_in(&counter).unwrap();
                    }
                });
            }
            let counts = counter.wait_for(10_000, PATIENCE).unwrap();
            assert_eq!((counts.succeeded, counts.failed), (9980, 20));
        });
        assert_eq!(counter.counts().ended(), 10_000);
        let twice = there.fetch_add(0, 1);
        twice.count_in(&counter).unwrap();
        fails(
            twice.count_in(&job.counter()),
            &["fetch-add of 8 bytes", "told to a counter already"],
        );
        fails(twice.report_to(&job.completion_queue(), 1), &["told to a counter already"]);
        assert_eq!(counter.wait_for(10_001, PATIENCE).unwrap().succeeded, 9981);
    });
}

#[test]
fn a_handle_is_looked_at_and_cancelled() {
    pair(4096, |job, there| {
        let add = there.fetch_add(0, 5);
        let old = loop {
            if let Some(old) = add.try_take() {
                break old;
            }
            job.flush().unwrap();
        };
        assert_eq!(old.unwrap(), 0);
        assert_eq!(add.cancel().unwrap(), 0, "what has ended cannot be cancelled any more");
        // A fence holds the operation back until it is cancelled, or has just let it go.
        let peer = there.peer();
        let held = job.batch(|| {
            let _before = there.fetch_add(8, 1);
            peer.fence();
            there.fetch_add(16, 1)
        });
        let held = held.cancel();
        let word = there.fetch_add(16, 0).wait().unwrap();
        match held {
            Ok(old) => assert_eq!((old, word), (0, 1), "it was faster"),
            Err(error) => {
                assert!(error.to_string().contains("cancelled") && word <= 1, "{word}: {error}")
            }
        }
    });
}

#[test]
fn a_list_ends_as_one() {
    pair_with(200_000, &faulty(), |job, there| {
        let here = job.register(Region::zeroed(200_000).unwrap()).unwrap();
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 249) as u8).collect();
        here.write(0, &bytes).unwrap();
        let ranges = |count: usize| (0..count).map(move |n| (n * 1900, [1, 300, 1800][n % 3]));
        let list: Vec<_> = ranges(100)
            .map(|(at, len)| (at as u64 + 50, here.slice(at..at + len).unwrap()))
            .collect();
        there.put_list(&list).wait_for(Duration::from_secs(30)).unwrap();
        let back = job.register(Region::zeroed(200_000).unwrap()).unwrap();
        let list: Vec<_> = ranges(100)
            .map(|(at, len)| (at as u64 + 50, back.slice(at..at + len).unwrap()))
            .collect();
        let queue = job.completion_queue();
        there.get_list(&list).report_to(&queue, 77).unwrap();
        let mut told = Vec::new();
        assert_eq!(queue.wait_for(1, PATIENCE, &mut told).unwrap(), 1, "once for all");
        assert_eq!((told[0].context, told.remove(0).outcome.unwrap()), (77, 0));
        let mut seen = vec![0; 200_000];
        back.read(0, &mut seen).unwrap();
        for (at, len) in ranges(100) {
            assert_eq!(seen[at..at + len], bytes[at..at + len]);
        }
        assert_eq!(
            seen.iter().filter(|byte| **byte != 0).count(),
            ranges(100)
                .flat_map(|(at, len)| &bytes[at..at + len])
                .filter(|byte| **byte != 0)
                .count()
        );

        there.put_list(&[]).wait().unwrap();
        let bad = [
            (0, here.slice(0..10).unwrap()),
            (199_995, here.slice(0..10).unwrap()),
            (20, here.slice(0..10).unwrap()),
        ];
        fails(
            there.put_list(&bad).wait(),
            &["put of a list of 30 bytes", "lies outside the region"],
        );
        // The list may have taken place in whole or in part. Afterwards nothing of it is in flight.
        let held = job.batch(|| {
            let _before = there.fetch_add(0, 1);
            there.peer().fence();
            there.put_list(&list)
        });
        let _either = held.cancel();
        job.flush().unwrap();
    });
}

#[test]
fn messages_in_batches() {
    pair(4096, |job, there| {
        let peer = there.peer();
        let none = job.receive_batch_for(3, SHORT);
        assert!(none.is_empty());
        job.barrier().unwrap();
        let sent: Vec<_> =
            (0..1000u64).map(|tag| peer.send(Class::Ordered, tag, &tag.to_le_bytes())).collect();
        let batch = job.receive_batch_for(900, PATIENCE);
        assert_eq!(
            batch.iter().map(|arrived| arrived.tag()).collect::<Vec<_>>(),
            (0..900).collect::<Vec<_>>()
        );
        assert_eq!(job.receive_batch_for(100, PATIENCE).len(), 100);
        sent.into_iter().try_for_each(|message| message.wait()).unwrap();
        // The messages exceed a sender's limit of unread bytes, so they are read as they arrive.
        let large = job.register(Region::zeroed(4 << 20).unwrap()).unwrap();
        let sent: Vec<_> =
            (0..12).map(|tag| peer.send_from(Class::Unordered, tag, large.all())).collect();
        let batch = job.receive_batch_for(12, PATIENCE);
        assert!(batch.len() == 12 && batch.iter().all(|arrived| arrived.bytes().len() == 4 << 20));
        sent.into_iter().try_for_each(|message| message.wait()).unwrap();
        // When the time limit passes, the batch has the messages that have arrived.
        job.barrier().unwrap();
        peer.send(Class::Ordered, 1, b"one").wait().unwrap();
        job.barrier().unwrap();
        assert_eq!(job.receive_batch_for(2, SHORT).len(), 1);
    });
}
