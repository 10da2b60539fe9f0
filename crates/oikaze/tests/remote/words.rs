//! Words of remote memory over loopback UDP.

use crate::support::cluster;
use oikaze::collective::operator::{Max, Sum};
use oikaze::memory::remote::RefusalReason;
use oikaze::memory::{Region, Rights};
use oikaze_launch::Settings;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn faulty() -> Settings {
    Settings {
        fault: Some("loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=21".to_owned()),
        ..Settings::default()
    }
}

#[test]
fn every_change_of_a_word_by_a_peer_and_by_its_owner() {
    cluster(2, &Settings::default(), |job| {
        let mine = job.publish("words", Region::zeroed(4096).unwrap(), Rights::ATOMIC).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("words").unwrap();
        let word = there.word::<i32>(4);
        let old =
            |operation: oikaze::completion::Operation<i32>| operation.wait_for(PATIENCE).unwrap();
        assert_eq!(old(word.swap(-7)), 0);
        assert_eq!(old(word.fetch_add(2)), -7);
        assert_eq!(old(word.fetch_min(3)), -5);
        assert_eq!(old(word.fetch_max(12)), -5);
        assert_eq!(old(word.fetch_and(10)), 12);
        assert_eq!(old(word.fetch_or(3)), 8);
        assert_eq!(old(word.fetch_xor(1)), 11);
        assert_eq!(old(word.compare_exchange(10, 1)), 10);
        assert_eq!(old(word.compare_exchange(10, 2)), 1);
        word.add(-5).wait_for(PATIENCE).unwrap();
        assert_eq!(old(word.load()), -4);
        let wide = there.word::<u64>(8);
        // Each operation ends before the next begins, and nothing else orders them.
        let done =
            |operation: oikaze::completion::Operation<()>| operation.wait_for(PATIENCE).unwrap();
        done(wide.store(12));
        done(wide.or(3));
        done(wide.and(13));
        done(wide.xor(1));
        assert_eq!(wide.load().wait_for(PATIENCE).unwrap(), 12);
        done(wide.max(99));
        done(wide.min(98));
        done(wide.add(u64::MAX));
        assert_eq!(wide.load().wait_for(PATIENCE).unwrap(), 97);
        job.barrier().unwrap();
        assert_eq!(mine.word::<i32>(4).load().unwrap(), -4);
        assert_eq!(mine.word::<u32>(0).load().unwrap(), 0, "the other half");
        job.barrier().unwrap();
    });
}

/// MEM-5.3, WIND-4.6: two nodes that both refuse many requests at once report all refusals to each
/// other. Refused requests have no effect, and all others take place once.
#[test]
fn many_are_refused_both_ways_at_once() {
    const EACH: u64 = 10_000;
    cluster(2, &Settings::default(), |job| {
        let words = job.publish("words", Region::zeroed(4096).unwrap(), Rights::ATOMIC).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("words").unwrap();
        job.barrier().unwrap();
        let begun = Instant::now();
        let beyond = |at: u64| at % 10 == 3;
        let all: Vec<_> =
            (0..EACH).map(|at| there.fetch_add(if beyond(at) { 4096 } else { 0 }, 1)).collect();
        let mut seen = Vec::new();
        for (at, operation) in (0..).zip(all) {
            match operation.wait_for(PATIENCE) {
                Ok(old) if !beyond(at) => seen.push(old),
                Err(error) if beyond(at) => {
                    assert_eq!(error.refusal(), Some(RefusalReason::OutOfBounds))
                }
                other => panic!("{at}: {other:?}"),
            }
        }
        println!("node {}: {EACH} ended in {:?}", job.rank(), begun.elapsed());
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..EACH - EACH / 10), "each value before was there once");
        job.barrier().unwrap();
        assert_eq!(words.word::<u64>(0).load().unwrap(), EACH - EACH / 10);
        job.barrier().unwrap();
    });
}

/// MEM-7.1: many operations are in flight at once, to the node itself, too. Each node's requests
/// and its answers together stay below the limit of messages in flight to a peer, beyond which
/// messages fail.
#[test]
fn many_are_under_way_at_once() {
    const MANY: u64 = 30_000;
    const { assert!(2 * MANY <= oikaze_protocol::limits::MESSAGES_OF_PROGRAM_MAX as u64) };
    for nodes in [1, 2] {
        cluster(nodes, &Settings::default(), |job| {
            let words =
                job.publish("words", Region::zeroed(4096).unwrap(), Rights::ATOMIC).unwrap();
            let there = job.peer(nodes - 1 - job.rank()).unwrap().region("words").unwrap();
            // Requests behind a fence wait, and are sent at once.
            let all: Vec<_> = job.batch(|| {
                let first = there.fetch_add(0, 1);
                job.fence();
                std::iter::once(first).chain((1..MANY).map(|_| there.fetch_add(0, 1))).collect()
            });
            let mut seen: Vec<_> =
                all.into_iter().map(|one| one.wait_for(PATIENCE).unwrap()).collect();
            assert_eq!(seen[0], 0, "the fence's other side");
            // Requests behind the fence are not ordered among themselves (MEM-7.3), because a
            // retransmission arrives late.
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..MANY), "each value before was there once");
            job.barrier().unwrap();
            assert_eq!(words.word::<u64>(0).load().unwrap(), MANY);
            job.barrier().unwrap();
        });
    }
}

/// A wait for a word that has changed at every poll ends at its limit.
#[test]
fn a_word_that_never_rests_is_waited_for_no_longer_than_asked() {
    const SHORT: Duration = Duration::from_millis(1);
    // The limit is that of the call or, if the call has none, that of the job.
    for of_the_call in [true, false] {
        let time_limit = Some(SHORT).filter(|_| !of_the_call);
        cluster(1, &Settings { time_limit, ..Settings::default() }, |job| {
            let word = job.register(Region::zeroed(8).unwrap()).unwrap();
            let begun = Instant::now();
            let change = |before: u64| {
                assert!(begun.elapsed() < PATIENCE, "it is waited for without end");
                word.store_u64(0, before + 1).unwrap();
                false
            };
            let late = if of_the_call {
                word.wait_until_for(0, SHORT, change)
            } else {
                word.wait_until(0, change)
            };
            let late = late.unwrap_err();
            assert!(late.is_timeout(), "{late}");
        });
    }
}

/// MEM-5.2, MEM-5.4: on a bad network each operation takes place once, fetching or not, narrow or
/// wide.
#[test]
fn sums_are_conserved_over_a_faulty_network() {
    cluster(3, &faulty(), |job| {
        let words = job.publish("words", Region::zeroed(64).unwrap(), Rights::ATOMIC).unwrap();
        let there = job.peer(0).unwrap().region("words").unwrap();
        const EACH: u32 = 300;
        let mut seen = Vec::new();
        for round in 0..EACH {
            let quiet = there.word::<u64>(8).add(1 << 32);
            seen.push(there.word::<u32>(4).fetch_add(3).wait_for(PATIENCE).unwrap());
            there.word::<u32>(16).or(1 << (round % 32)).wait_for(PATIENCE).unwrap();
            quiet.wait_for(PATIENCE).unwrap();
        }
        assert!(seen.is_sorted_by(|a, b| a < b) && seen.iter().all(|old| old % 3 == 0));
        job.barrier().unwrap();
        if job.rank() == 0 {
            assert_eq!(words.word::<u32>(4).load().unwrap(), 3 * 3 * EACH);
            assert_eq!(words.word::<u64>(8).load().unwrap(), u64::from(3 * EACH) << 32);
            assert_eq!(words.word::<u32>(16).load().unwrap(), u32::MAX);
        }
        job.barrier().unwrap();
    });
}

/// MEM-12: several nodes accumulate arrays of many datagrams at once over a bad network. Every sum
/// is exact.
#[test]
fn arrays_accumulate_over_a_faulty_network() {
    const LEN: usize = 30_001;
    cluster(3, &faulty(), |job| {
        let mine =
            job.publish("sums", Region::zeroed(LEN * 8 + 8).unwrap(), Rights::ATOMIC).unwrap();
        let there = job.peer(0).unwrap().region("sums").unwrap();
        let numbers: Vec<f64> =
            (0..LEN).map(|index| index as f64 + f64::from(job.rank())).collect();
        let source = job.register(Region::zeroed(LEN * 8).unwrap()).unwrap();
        source
            .write(0, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>())
            .unwrap();
        let counted = there.accumulate::<f64>(8, Sum, source.all()).unwrap();
        job.scope(|scope| scope.accumulate(&there, 8, Sum, &numbers)?.wait_for(PATIENCE)).unwrap();
        counted.wait_for(PATIENCE).unwrap();
        there
            .accumulate_copy(0, Max, &[job.rank() as i32, -1])
            .unwrap()
            .wait_for(PATIENCE)
            .unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            assert_eq!(mine.word::<i32>(0).load().unwrap(), 2);
            assert_eq!(mine.word::<i32>(4).load().unwrap(), 0);
            for index in 0..LEN {
                let sum = f64::from_bits(mine.load_u64(8 + 8 * index as u64).unwrap());
                assert_eq!(sum, 2.0 * (3.0 * index as f64 + 3.0), "{index}");
            }
        }
        job.barrier().unwrap();
    });
}

/// MEM-13: two producers push into a FIFO that is often full, over a faulty network. Each element
/// comes out once, in its producer's order.
#[test]
fn elements_pass_a_fifo_once_and_in_order() {
    const EACH: u32 = 1500;
    cluster(3, &faulty(), |job| {
        if job.rank() != 0 {
            let fifo = job.peer(0).unwrap().fifo("work").unwrap();
            for number in 0..EACH {
                let element = [job.rank(), number]
                    .map(u32::to_ne_bytes)
                    .concat()
                    .repeat(1 + number as usize % 400);
                fifo.push_for(&element, PATIENCE).unwrap();
            }
            return job.barrier().unwrap();
        }
        let fifo = job.fifo("work", 5, 3200).unwrap();
        assert_eq!((fifo.slots(), fifo.longest()), (8, 3200));
        let (mut next, mut element) = ([0; 3], Vec::new());
        for _ in 0..2 * EACH {
            element.clear();
            fifo.pop_for(&mut element, PATIENCE).unwrap();
            let words: Vec<u32> =
                element.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
            let [from, number] = words[..2] else { panic!("{words:?}") };
            assert_eq!(number, next[from as usize], "from node {from}");
            next[from as usize] += 1;
            assert_eq!(words, [from, number].repeat(1 + number as usize % 400));
        }
        assert_eq!(next, [0, EACH, EACH]);
        assert!(!fifo.try_pop(&mut element).unwrap());
        job.barrier().unwrap();
    });
}

/// Several consumers take elements from batches of many producers. No element is lost, and each
/// refused element is known.
#[test]
fn several_threads_take_out_what_batches_push() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const EACH: u64 = 4000;
    cluster(3, &Settings::default(), |job| {
        if job.rank() != 0 {
            let fifo = job.peer(0).unwrap().fifo("work").unwrap();
            let mut left: Vec<u64> =
                (0..EACH).map(|number| u64::from(job.rank()) << 32 | number).collect();
            while !left.is_empty() {
                let pushed: Vec<_> = job
                    .batch(|| left.iter().map(|number| fifo.post(&number.to_ne_bytes())).collect());
                let full = |push: &oikaze::completion::Operation<()>| match push.wait_for(PATIENCE)
                {
                    Ok(()) => false,
                    Err(error) => error.is_full() || panic!("{error}"),
                };
                let mut pushed = pushed.iter();
                left.retain(|_| pushed.next().is_some_and(full));
            }
            return job.barrier().unwrap();
        }
        let fifo = job.fifo("work", 1024, 8).unwrap();
        let (count, sum) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut element = Vec::new();
                    // The ticket is drawn first, so that no thread waits for an element that never
                    // comes.
                    while count.fetch_add(1, Ordering::Relaxed) < 2 * EACH {
                        element.clear();
                        fifo.pop_for(&mut element, PATIENCE).unwrap();
                        sum.fetch_add(
                            u64::from_ne_bytes(element.as_slice().try_into().unwrap()),
                            Ordering::Relaxed,
                        );
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), (3 << 32) * EACH + EACH * (EACH - 1));
        assert!(!fifo.try_pop(&mut Vec::new()).unwrap());
        job.barrier().unwrap();
    });
}
