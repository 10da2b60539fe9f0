//! Puts with notice, on every path of a put (MEM-25).

use crate::block_on::block_on;
use crate::support::{cluster_once, over_the_network};
use oikaze::Job;
use oikaze::memory::remote::RefusalReason;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_launch::{Seal, Settings};
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// Length of many fragments, which exceeds a ring.
const LEN: usize = 100 * 4096;

/// Runs `program` with every path from node 0 to the last node.
fn each_way(program: impl Fn(&Job, bool) + Sync) {
    let network = over_the_network(&Settings::default());
    let plain = Settings { seal: Some(Seal::Crc), ..network.clone() };
    let ways = [
        (1, Settings::default(), false),
        (2, network, false),
        (2, plain, false),
        (2, Settings::default(), false),
        (2, Settings::default(), true),
    ];
    for (nodes, settings, shared) in ways {
        cluster_once(nodes, &settings, |job| program(&job, shared));
    }
}

fn region(shared: bool, len: usize) -> Region {
    if shared { Region::shared(len).unwrap() } else { Region::zeroed(len).unwrap() }
}

/// MEM-25.1, MEM-25.2, MEM-25.3: each entry comes once, when all its bytes are in place.
#[test]
fn an_entry_shows_that_the_bytes_are_there() {
    each_way(|job, shared| {
        let lens = [0, 1, 8, 100, 5000, 70_000, LEN / 2];
        let (me, last) = (job.rank(), job.size() - 1);
        let mine = job.publish("mine", region(shared, LEN), Rights::WRITE).unwrap();
        let other = job.publish("other", region(shared, 64), Rights::WRITE).unwrap();
        let there = job.peer(last).unwrap();
        let (to_mine, to_other) = (there.region("mine").unwrap(), there.region("other").unwrap());
        let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        job.barrier().unwrap();
        if me == 0 {
            let mut at = 0;
            let mut begun = Vec::new();
            for (tag, len) in lens.iter().enumerate() {
                source.fill(at as u64, *len as u64, tag as u8 + 1).unwrap();
                let slice = source.slice(at..at + len).unwrap();
                begun.push(to_mine.put_notify(at as u64, slice, u64::MAX - tag as u64));
                at += len;
            }
            begun.push(to_other.put_notify_copy(8, b"a note", 77).unwrap());
            begun.iter().for_each(|put| put.wait_for(PATIENCE).unwrap());
        }
        if me == last {
            let note = other.arrivals().next_for(PATIENCE).unwrap();
            assert_eq!((note.from(), note.offset(), note.len(), note.tag()), (0, 8, 6, 77));
            assert!(note.is_in(&other) && !note.is_in(&mine));
            let mut seen = BTreeSet::new();
            for _ in lens {
                let entry = job.arrivals().next_for(PATIENCE).unwrap();
                let tag = (u64::MAX - entry.tag()) as usize;
                assert!(entry.is_in(&mine) && seen.insert(tag));
                let before: usize = lens[..tag].iter().sum();
                assert_eq!((entry.offset(), entry.len()), (before as u64, lens[tag] as u64));
                let mut bytes = vec![0; lens[tag]];
                mine.read(entry.offset(), &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == tag as u8 + 1), "put {tag}");
            }
            assert!(job.arrivals().is_empty() && job.arrivals().try_next().is_none());
            let late = mine.arrivals().next_for(Duration::from_millis(5)).unwrap_err();
            assert!(late.is_timeout(), "{late}");
        }
        job.barrier().unwrap();
    });
}

/// MEM-25.5, MEM-15.1: a fence orders entries, and messages behind them.
#[test]
fn a_fence_orders_entries_and_messages() {
    each_way(|job, shared| {
        const COUNT: u64 = 20;
        let (me, last) = (job.rank(), job.size() - 1);
        let _mine = job.publish("mine", region(shared, LEN), Rights::WRITE).unwrap();
        let there = job.peer(last).unwrap();
        let memory = there.region("mine").unwrap();
        let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        job.barrier().unwrap();
        if me == 0 {
            for tag in 0..COUNT {
                let len = if tag % 2 == 0 { LEN } else { 8 };
                drop(memory.put_notify(0, source.slice(0..len).unwrap(), tag));
                there.fence();
            }
            drop(there.send(Class::Unordered, 0, b"all"));
        }
        if me == last {
            job.receive_for(Some(0), PATIENCE).unwrap();
            let tags = (0..COUNT).map(|_| job.arrivals().try_next().unwrap().tag());
            assert!(tags.eq(0..COUNT));
        }
        job.barrier().unwrap();
    });
}

/// MEM-25.5, MEM-15.1: a posted receive of a long message ends no earlier than the entry of a put
/// before the message appears, whichever thread runs the turn.
#[test]
fn posted_receive_ends_behind_the_entry_of_an_earlier_put() {
    each_way(|job, shared| {
        const COUNT: u64 = 50;
        let (me, last) = (job.rank(), job.size() - 1);
        let _mine = job.publish("mine", region(shared, 64), Rights::WRITE).unwrap();
        let posted = job.register(region(shared, LEN)).unwrap();
        let there = job.peer(last).unwrap();
        let memory = there.region("mine").unwrap();
        let body = vec![7; LEN];
        job.barrier().unwrap();
        for tag in 0..COUNT {
            let receive = (me == last).then(|| job.post_receive(Some(0), 0, 0, posted.all()));
            job.barrier().unwrap();
            if me == 0 {
                drop(memory.put_notify_copy(0, b"before", tag).unwrap());
                there.fence();
                drop(there.send(Class::Ordered, tag, &body));
            }
            if let Some(receive) = receive {
                receive.wait_for(PATIENCE).unwrap();
                assert_eq!(job.arrivals().try_next().map(|entry| entry.tag()), Some(tag));
            }
        }
        job.barrier().unwrap();
    });
}

/// MEM-25.2: a put that is refused leaves no entry, and the next one does.
#[test]
fn a_refused_put_leaves_no_entry() {
    each_way(|job, shared| {
        let (me, last) = (job.rank(), job.size() - 1);
        let mine = job.publish("mine", region(shared, LEN), Rights::READ).unwrap();
        let memory = job.peer(last).unwrap().region("mine").unwrap();
        let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        job.barrier().unwrap();
        if me == 0 {
            for len in [8, LEN] {
                let put = memory.put_notify(0, source.slice(0..len).unwrap(), 1);
                let refusal = put.wait_for(PATIENCE).unwrap_err().refusal();
                assert_eq!(refusal, Some(RefusalReason::NotPermitted));
            }
        }
        job.barrier().unwrap();
        if me == last {
            assert!(job.arrivals().is_empty());
            mine.set_rights(Rights::WRITE).unwrap();
        }
        job.barrier().unwrap();
        if me == 0 {
            memory.put_notify(0, source.all(), 2).wait_for(PATIENCE).unwrap();
        }
        job.barrier().unwrap();
        if me == last {
            assert_eq!(job.arrivals().try_next().unwrap().tag(), 2);
        }
        job.barrier().unwrap();
    });
}

/// MEM-25.4: a sender has a bounded number of entries in a queue. The others wait for the target's
/// program, and none is lost.
#[test]
fn entries_that_nobody_takes_are_bounded_and_none_is_lost() {
    /// Entries for which there is credit.
    const CREDIT: u64 = 131_072;
    const MORE: u64 = 5000;
    let network = over_the_network(&Settings::default());
    for (nodes, settings) in [(1, Settings::default()), (2, network), (2, Settings::default())] {
        cluster_once(nodes, &settings, |job| {
            let (me, last) = (job.rank(), job.size() - 1);
            let mine = job.publish("mine", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
            let memory = job.peer(last).unwrap().region("mine").unwrap();
            job.barrier().unwrap();
            let take = |count: u64| {
                let entry = |_| job.arrivals().next_for(PATIENCE).unwrap().tag();
                let tags: BTreeSet<u64> = (0..count).map(entry).collect();
                assert!(tags.into_iter().eq(0..count), "each once");
            };
            let put = |tag| memory.put_notify_copy(0, &[], tag).unwrap();
            if me == 0 {
                let mut begun = Vec::new();
                for tag in 0..CREDIT {
                    begun.push(put(tag));
                    if begun.len() == 4096 {
                        begun.drain(..).for_each(|put| put.wait_for(PATIENCE).unwrap());
                    }
                }
                begun.drain(..).for_each(|put| put.wait_for(PATIENCE).unwrap());
                begun.extend((CREDIT..CREDIT + MORE).map(put));
                let late = begun[0].wait_for(Duration::from_millis(20)).unwrap_err();
                assert!(late.is_timeout(), "{late}");
                // Operations that need no credit go on meanwhile.
                memory.fetch_add(0, 1).wait_for(PATIENCE).unwrap();
                if nodes == 1 {
                    assert_eq!(mine.arrivals().len() as u64, CREDIT);
                    take(CREDIT + MORE);
                }
                begun.drain(..).for_each(|put| put.wait_for(PATIENCE).unwrap());
            } else {
                mine.wait_until_for(0, PATIENCE, |word| word == 1).unwrap();
                assert_eq!(job.arrivals().len() as u64, CREDIT);
                take(CREDIT + MORE);
            }
            job.barrier().unwrap();
        });
    }
}

/// MEM-25.6, MEM-7.6: entries stay when their sender has left, and then a wait says so.
#[test]
fn entries_outlive_their_sender() {
    for settings in [over_the_network(&Settings::default()), Settings::default()] {
        cluster_once(2, &settings, |job| {
            let mine = job.publish("mine", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
            let memory = job.peer(1).unwrap().region("mine").unwrap();
            job.barrier().unwrap();
            if job.rank() == 0 {
                for tag in 0..10 {
                    memory.put_notify_copy(0, &[1], tag).unwrap().wait_for(PATIENCE).unwrap();
                }
                job.peer(1).unwrap().send(Class::Ordered, 0, b"all").wait_for(PATIENCE).unwrap();
                job.leave().unwrap();
                return;
            }
            job.receive_for(Some(0), PATIENCE).unwrap();
            let entries = mine.arrivals();
            drop(mine.deregister());
            for tag in 0..10 {
                assert_eq!(entries.next_for(PATIENCE).unwrap().tag(), tag);
            }
            let error = job.arrivals().next_for(PATIENCE).unwrap_err();
            assert!(!error.is_timeout(), "{error}");
        });
    }
}

/// MEM-25.1: a future of an entry needs no runtime, and no thread that waits in a call.
#[test]
fn an_entry_wakes_a_task() {
    each_way(|job, shared| {
        let (me, last) = (job.rank(), job.size() - 1);
        let mine = job.publish("mine", region(shared, 64), Rights::WRITE).unwrap();
        let memory = job.peer(last).unwrap().region("mine").unwrap();
        job.barrier().unwrap();
        std::thread::scope(|scope| {
            if me == last {
                scope.spawn(|| {
                    for tag in 0..50 {
                        let entry = block_on(mine.arrivals().next_async()).unwrap();
                        assert_eq!(entry.tag(), tag);
                    }
                });
            }
            if me == 0 {
                for tag in 0..50 {
                    memory.put_notify_copy(0, b"go", tag).unwrap().wait_for(PATIENCE).unwrap();
                }
            }
        });
        job.barrier().unwrap();
    });
}
