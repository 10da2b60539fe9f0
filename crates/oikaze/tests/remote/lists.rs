//! Lists of puts and gets, which end as one, and what their target is told (MEM-27).

use crate::support::{cluster_once, over_the_network};
use oikaze::Job;
use oikaze::memory::remote::{RefusalReason, RemoteRegion};
use oikaze::memory::{LocalRegion, Region, RegionSlice, Rights};
use oikaze::message::Class;
use oikaze_launch::Settings;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK: u64 = 5000;
const COUNT: u64 = 40;
/// Offset of a word behind all blocks.
const WORD: u64 = 8 * BLOCK * COUNT / 8;
const LEN: usize = WORD as usize + 64;

/// Runs `program` on node 0 with a region of the last node, and on that node: to itself, over the
/// network, through a ring, and to mapped memory.
fn each_way(program: impl Fn(&Job, &LocalRegion, &RemoteRegion) + Sync) {
    let ways = [
        (1, Settings::default(), true),
        (2, over_the_network(&Settings::default()), true),
        (2, Settings::default(), false),
        (2, Settings::default(), true),
    ];
    for (nodes, settings, shared) in ways {
        cluster_once(nodes, &settings, |job| {
            let memory = if shared { Region::shared(LEN) } else { Region::zeroed(LEN) };
            let mine = job.publish("mine", memory.unwrap(), Rights::ALL).unwrap();
            let there = job.peer(job.size() - 1).unwrap().region("mine").unwrap();
            job.barrier().unwrap();
            program(&job, &mine, &there);
            job.barrier().unwrap();
        });
    }
}

/// Returns a list of all blocks, in another order there than here, and its source.
fn blocks(job: &Job) -> (Vec<(u64, RegionSlice)>, LocalRegion) {
    let source = job.register(Region::zeroed((BLOCK * COUNT) as usize).unwrap()).unwrap();
    for block in 0..COUNT {
        source.fill(block * BLOCK, BLOCK, block as u8 + 1).unwrap();
    }
    let entry = |block: u64| {
        let at = block * BLOCK;
        (place(block), source.slice(at..at + BLOCK).unwrap())
    };
    ((0..COUNT).map(entry).collect(), source)
}

/// Returns the offset at the peer of a block.
fn place(block: u64) -> u64 {
    (block * 7 + 3) % COUNT * BLOCK
}

fn check_blocks(region: &LocalRegion) {
    for block in 0..COUNT {
        let mut bytes = vec![0; BLOCK as usize];
        region.read(place(block), &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == block as u8 + 1), "block {block}");
    }
}

fn is_zero(region: &LocalRegion) -> bool {
    let mut bytes = vec![1; LEN];
    region.read(0, &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == 0)
}

/// MEM-27.3: the word changes once, and whoever sees it changed reads all entries.
#[test]
fn signal_of_a_list_shows_that_all_entries_are_in_place() {
    each_way(|job, mine, there| {
        let is_target = job.rank() == job.size() - 1;
        if job.rank() == 0 {
            let (list, _source) = blocks(job);
            let put = there.put_list_signal(&list, &there.signal(WORD, 5));
            put.wait_for(PATIENCE).unwrap();
            there.put_list_signal(&[], &there.signal(WORD, 1)).wait_for(PATIENCE).unwrap();
        }
        if is_target {
            mine.wait_until_for(WORD, PATIENCE, |word| word >= 5).unwrap();
            check_blocks(mine);
            mine.wait_until_for(WORD, PATIENCE, |word| word == 6).unwrap();
        }
    });
}

/// MEM-27.3: the signal may be in another region of the same node.
#[test]
fn signal_of_a_list_reaches_another_region() {
    each_way(|job, mine, there| {
        let words = job.publish("words", Region::shared(64).unwrap(), Rights::ATOMIC).unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            let other = there.peer().region("words").unwrap();
            let (list, _source) = blocks(job);
            there.put_list_signal(&list, &other.signal(8, 1)).wait_for(PATIENCE).unwrap();
        }
        if job.rank() == job.size() - 1 {
            words.wait_until_for(8, PATIENCE, |word| word == 1).unwrap();
            check_blocks(mine);
        }
    });
}

/// MEM-27.3: there is one entry, when all of the list is in place.
#[test]
fn notice_of_a_list_shows_that_all_entries_are_in_place() {
    each_way(|job, mine, there| {
        if job.rank() == 0 {
            let (list, _source) = blocks(job);
            there.put_list_notify(&list, 77).wait_for(PATIENCE).unwrap();
            there.put_list_notify(&[], 78).wait_for(PATIENCE).unwrap();
        }
        if job.rank() == job.size() - 1 {
            let arrivals = mine.arrivals();
            let arrival = arrivals.next_for(PATIENCE).unwrap();
            check_blocks(mine);
            let last = (77, place(COUNT - 1), BLOCK, 0);
            assert_eq!((arrival.tag(), arrival.offset(), arrival.len(), arrival.from()), last);
            let empty = arrivals.next_for(PATIENCE).unwrap();
            assert_eq!((empty.tag(), empty.offset(), empty.len()), (78, 0, 0));
        }
    });
}

/// MEM-27.2: a list of which one entry is bad changes nothing, and tells the target nothing.
#[test]
fn list_with_a_bad_entry_changes_nothing() {
    each_way(|job, mine, there| {
        if job.rank() == 0 {
            let (list, source) = blocks(job);
            let signal = there.signal(WORD, 1);
            let with = |offset: u64| {
                let mut bad = list.clone();
                bad.insert(20, (offset, source.slice(0..BLOCK).unwrap()));
                bad
            };
            let reason = |put: oikaze::completion::Operation<()>| {
                put.wait_for(PATIENCE).unwrap_err().refusal()
            };
            for offset in [LEN as u64 - BLOCK + 1, u64::MAX - 3] {
                let bad = with(offset);
                let outside = Some(RefusalReason::OutOfBounds);
                assert_eq!(reason(there.put_list(&bad)), outside);
                assert_eq!(reason(there.put_list_signal(&bad, &signal)), outside);
                assert_eq!(reason(there.put_list_notify(&bad, 1)), outside);
                assert_eq!(reason(there.get_list(&bad)), outside);
            }
            for (at, why) in
                [(WORD + 4, RefusalReason::Misaligned), (LEN as u64, RefusalReason::OutOfBounds)]
            {
                assert_eq!(reason(there.put_list_signal(&list, &there.signal(at, 1))), Some(why));
            }
            let gone = job.register(Region::zeroed(8).unwrap()).unwrap();
            let mut bad = list.clone();
            bad.push((0, gone.all()));
            gone.deregister().unwrap();
            let error = there.put_list_signal(&bad, &signal).wait_for(PATIENCE).unwrap_err();
            assert!(error.to_string().contains("not registered any more"), "{error}");
            check_source(&source);
        }
        job.barrier().unwrap();
        assert!(is_zero(mine));
        assert!(mine.arrivals().is_empty());
    });
}

fn check_source(source: &LocalRegion) {
    let mut byte = [0];
    source.read(0, &mut byte).unwrap();
    assert_eq!(byte, [1], "no get has changed it");
}

/// MEM-27.3: if the owner refuses an entry, the word stays and there is no notice.
#[test]
fn list_with_a_refused_entry_tells_the_target_nothing() {
    each_way(|job, mine, there| {
        if job.rank() == job.size() - 1 {
            mine.protect(4096..8192, Rights::READ).unwrap();
        }
        job.barrier().unwrap();
        if job.rank() == 0 {
            let (list, _source) = blocks(job);
            let refused = Some(RefusalReason::NotPermitted);
            let put = there.put_list_signal(&list, &there.signal(WORD, 1));
            assert_eq!(put.wait_for(PATIENCE).unwrap_err().refusal(), refused);
            let put = there.put_list_notify(&list, 1);
            assert_eq!(put.wait_for(PATIENCE).unwrap_err().refusal(), refused);
        }
        job.barrier().unwrap();
        assert_eq!(mine.load_u64(WORD).unwrap(), 0);
        assert!(mine.arrivals().is_empty());
    });
}

/// MEM-27.4: a flush and a fence concern all of a list from its beginning.
#[test]
fn fences_and_flushes_wait_for_what_tells_of_a_list() {
    each_way(|job, mine, there| {
        if job.rank() == 0 {
            let (list, _source) = blocks(job);
            let _put = there.put_list_notify(&list, 1);
            there.peer().fence();
            there.peer().send(Class::Unordered, 9, b"behind").wait_for(PATIENCE).unwrap();
            let _put = there.put_list_signal(&list, &there.signal(WORD, 1));
            there.peer().flush().unwrap();
            assert_eq!(there.fetch_add(WORD, 0).wait_for(PATIENCE).unwrap(), 1);
        }
        if job.rank() == job.size() - 1 {
            assert_eq!(job.receive_for(Some(0), PATIENCE).unwrap().tag(), 9);
            assert_eq!(mine.arrivals().try_next().map(|arrival| arrival.tag()), Some(1));
        }
    });
}

/// MEM-27.4: a list is cancelled as a whole, and nothing of it begins afterwards.
#[test]
fn cancelled_list_takes_place_as_a_whole_or_tells_nothing() {
    each_way(|job, mine, there| {
        if job.rank() == 0 {
            let (list, _source) = blocks(job);
            // A fence holds the list back, so that it cannot be done before it is cancelled.
            let held = job.batch(|| {
                let _before = there.fetch_add(WORD + 8, 1);
                there.peer().fence();
                there.put_list_signal(&list, &there.signal(WORD, 1))
            });
            let cancelled = held.cancel();
            job.flush().unwrap();
            let word = there.fetch_add(WORD, 0).wait_for(PATIENCE).unwrap();
            assert!(word == 1 || cancelled.is_err(), "{word}: {cancelled:?}");
        }
        job.barrier().unwrap();
        // A list that took place all the same is whole.
        if mine.load_u64(WORD).unwrap() == 1 {
            check_blocks(mine);
        }
    });
}
