//! Pages that are exchanged between a job's regions while peers access them.

use crate::support::{cluster, cluster_once};
use oikaze::Job;
use oikaze::memory::{PageSize, Region, Rights, page_size};
use oikaze_launch::Settings;
use oikaze_os::memory::placement::PlacementError;
use std::sync::atomic::{AtomicBool, Ordering};

fn pattern(len: usize, which: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 10) as u8 ^ which).collect()
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// MEM-17.1: a peer that put bytes into one region finds them in the other region after an
/// exchange, and can put again.
#[test]
fn peers_reach_what_has_changed_place() {
    let pages = 1200;
    cluster(2, &Settings::default(), |job| {
        let len = pages * page_size();
        for (name, make) in [
            ("small", (|len| Region::private_of(len, PageSize::Small)) as fn(usize) -> _),
            ("huge", |len| Region::private_of(len, PageSize::Huge)),
            ("shared", Region::shared),
        ] {
            let one = job.publish(&format!("{name} one"), make(len).unwrap(), Rights::ALL).unwrap();
            let other =
                job.publish(&format!("{name} other"), make(len).unwrap(), Rights::ALL).unwrap();
            let there = |which: &str| {
                job.peer(1 - job.rank()).unwrap().region(&format!("{name} {which}")).unwrap()
            };
            let source = job.register(Region::zeroed(len).unwrap()).unwrap();
            source.write(0, &pattern(len, 5)).unwrap();
            there("one").put(0, source.all()).wait().unwrap();
            job.barrier().unwrap();
            let placed = job.exchange(&one, 0, &other, 0, pages as u64).unwrap();
            assert_eq!(placed.moved + placed.copied, len as u64);
            job.barrier().unwrap();
            let back = job.register(Region::zeroed(len).unwrap()).unwrap();
            there("other").get(0, back.all()).wait().unwrap();
            assert!(bytes(&back) == pattern(len, 5), "{name}");
            assert!(bytes(&one).iter().all(|byte| *byte == 0), "{name}");
            // Moves a part that is not a whole number of huge pages back.
            job.barrier().unwrap();
            let (from, count) = (3 * page_size(), 700);
            job.move_pages(&other, from as u64, &one, from as u64, count).unwrap();
            let moved = from..from + count as usize * page_size();
            assert!(bytes(&one)[moved.clone()] == pattern(len, 5)[moved.clone()]);
            job.barrier().unwrap();
            there("one").put_copy(from as u64, b"after").unwrap().wait().unwrap();
            job.barrier().unwrap();
            assert_eq!(bytes(&one)[from..from + 5], *b"after");
            job.barrier().unwrap();
        }
    });
}

/// MEM-17.2: errors for a user's mistakes.
#[test]
fn mistakes_are_told() {
    cluster(1, &Settings::default(), |job| {
        let [one, other] = [1, 2].map(|which| {
            let region = job.register(Region::zeroed(4 * page_size()).unwrap()).unwrap();
            region.fill(0, 4 * page_size() as u64, which).unwrap();
            region
        });
        let page = page_size() as u64;
        let failure = |outcome: oikaze::Result<_>| match outcome {
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let expect = |outcome, expected: PlacementError| {
            assert_eq!(failure(outcome), expected.to_string());
        };
        expect(job.exchange(&one, 1, &other, 0, 1), PlacementError::Misaligned { offset: 1, page });
        let outside = failure(job.exchange(&one, 2 * page, &other, 0, 3));
        assert!(outside.contains("outside"), "{outside}");
        let overlap = failure(job.move_pages(&one, 0, &one, page, 2));
        assert!(overlap.contains("in common"), "{overlap}");
        let text = failure(job.move_pages(&one, 0, &other, 8, 2));
        assert!(text.contains("only whole pages change place"), "{text}");
        assert!(bytes(&one).iter().all(|byte| *byte == 1));
        assert!(bytes(&other).iter().all(|byte| *byte == 2));
    });
}

/// Bytes of a region: two huge pages and a bit, so that ranges begin and end within runs of small
/// pages.
const LEN: usize = 5 << 20;

/// MEM-20.1: two nodes exchange pages of any memory, over the network and on one machine.
#[test]
fn two_nodes_exchange_pages() {
    cluster(2, &Settings::default(), exchange_with_the_other_node);
}

fn exchange_with_the_other_node(job: oikaze::Job) {
    let page = page_size();
    let peer = job.peer(1 - job.rank()).unwrap();
    let local_peers = peer.report().unwrap().gauges.rings == 1;
    for (name, make, swaps) in [
        ("shared", Region::shared as fn(usize) -> _, true),
        ("small", |len| Region::shared_of(len, PageSize::Small), false),
        ("private", Region::private, false),
    ] {
        let here = job.publish(name, make(LEN).unwrap(), Rights::ALL).unwrap();
        let mut contents = [0, 1].map(|which| pattern(LEN, which));
        here.write(0, &contents[job.rank() as usize]).unwrap();
        let there = peer.region(name).unwrap();
        for (turn, (from, to, pages)) in
            [(0, 0, LEN / page), (0, 0, 1024), (3, 3, 1200), (1, 2, 700), (512, 0, 512), (0, 0, 1)]
                .into_iter()
                .enumerate()
        {
            job.barrier().unwrap();
            let asks = turn % 2 == job.rank() as usize;
            if asks {
                let placed = there
                    .exchange((to * page) as u64, &here, (from * page) as u64, pages as u64)
                    .unwrap();
                assert_eq!(placed.moved + placed.copied, (pages * page) as u64);
                let unit = here
                    .exchange_unit()
                    .filter(|_| swaps && local_peers)
                    .map_or(usize::MAX, |unit| unit as usize);
                let moved = whole_units(to * page, from * page, pages * page, unit);
                assert_eq!(placed.moved, moved, "{name} {from} {to} {pages}");
            }
            let (asker, other) = (turn % 2, 1 - turn % 2);
            let kept = contents[asker][from * page..(from + pages) * page].to_vec();
            let came = contents[other][to * page..][..kept.len()].to_vec();
            contents[asker][from * page..(from + pages) * page].copy_from_slice(&came);
            contents[other][to * page..(to + pages) * page].copy_from_slice(&kept);
            job.barrier().unwrap();
            assert!(bytes(&here) == contents[job.rank() as usize], "{name} {from} {to} {pages}");
        }
        job.barrier().unwrap();
    }
}

fn whole_units(to: usize, from: usize, len: usize, unit: usize) -> u64 {
    if unit == usize::MAX || !to.abs_diff(from).is_multiple_of(unit) {
        return 0;
    }
    let first = from.next_multiple_of(unit) - from;
    (len.saturating_sub(first) / unit * unit) as u64
}

/// MEM-20.4: a third node that has mapped both regions reaches their current pages. So does a node
/// that looks them up later.
#[test]
fn others_reach_what_has_changed_place_between_two_nodes() {
    cluster(3, &Settings::default(), |job| {
        let mine = job.publish("mine", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
        mine.fill(0, LEN as u64, job.rank() as u8 + 1).unwrap();
        let there = [0, 1].map(|rank| {
            (rank != job.rank()).then(|| job.peer(rank).unwrap().region("mine").unwrap())
        });
        job.barrier().unwrap();
        for round in 0..4_u8 {
            if job.rank() == u32::from(round) % 2 {
                let other = there[1 - job.rank() as usize].as_ref().unwrap();
                other.exchange(0, &mine, 0, (LEN / page_size()) as u64).unwrap();
            }
            job.barrier().unwrap();
            if job.rank() == 2 {
                let back = job.register(Region::zeroed(LEN).unwrap()).unwrap();
                for (rank, there) in (0..).zip(there.iter().flatten()) {
                    let again = job.peer(rank).unwrap().region("mine").unwrap();
                    for there in [there, &again] {
                        there.get(0, back.all()).wait().unwrap();
                        let expected = 1 + (rank as u8 + round + 1) % 2;
                        assert!(
                            bytes(&back).iter().all(|byte| *byte == expected),
                            "{round} {rank}"
                        );
                    }
                    again.put(LEN as u64 / 2, back.slice(0..4096).unwrap()).wait().unwrap();
                    there.put_copy(0, &[bytes(&back)[0]; 64]).unwrap().wait().unwrap();
                }
            }
            job.barrier().unwrap();
        }
    });
}

/// Many exchanges of separate ranges go both ways at once. Each takes place once.
#[test]
fn exchanges_that_meet_are_each_done_once() {
    cluster(2, &Settings::default(), |job| {
        let unit = 2 << 20;
        let mine = job.publish("mine", Region::shared(4 * unit).unwrap(), Rights::ALL).unwrap();
        mine.fill(0, 4 * unit as u64, 1 + job.rank() as u8).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("mine").unwrap();
        job.barrier().unwrap();
        for _ in 0..25 {
            // Node 0 exchanges the first two units, and node 1 the others.
            let at = u64::from(job.rank()) * 2 * unit as u64;
            there.exchange(at, &mine, at, 2 * (unit / page_size()) as u64).unwrap();
        }
        job.barrier().unwrap();
        assert!(bytes(&mine).iter().all(|byte| *byte == 2 - job.rank() as u8));
        job.barrier().unwrap();
    });
}

/// MEM-20.2.
#[test]
fn mistakes_between_two_nodes_are_told_and_change_nothing() {
    cluster(2, &Settings::default(), |job| {
        let mine = job.publish("mine", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
        let _read = job.publish("read", Region::shared(LEN).unwrap(), Rights::READ).unwrap();
        mine.fill(0, LEN as u64, 1 + job.rank() as u8).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let (there, read) = (peer.region("mine").unwrap(), peer.region("read").unwrap());
        let (page, pages) = (page_size() as u64, (LEN / page_size()) as u64);
        job.barrier().unwrap();
        let said = |outcome: oikaze::Result<_>| outcome.unwrap_err().to_string();
        assert!(said(there.exchange(1, &mine, 0, 1)).contains("only whole pages"));
        assert!(said(there.exchange(0, &mine, 1, 1)).contains("only whole pages"));
        assert!(said(there.exchange(page, &mine, 0, pages)).contains("outside the region"));
        assert!(said(there.exchange(u64::MAX - page + 1, &mine, 0, 2)).contains("outside"));
        assert!(said(there.exchange(0, &mine, page, pages)).contains("outside"));
        assert!(said(read.exchange(0, &mine, 0, pages)).contains("does not grant"));
        let own = job.peer(job.rank()).unwrap().region("mine").unwrap();
        assert!(said(own.exchange(0, &mine, page, 2)).contains("in common"));
        let again = job.register((*mine).clone()).unwrap();
        assert!(
            said(own.exchange(0, &again, page, 2)).contains("in common"),
            "the same memory, under another key"
        );
        drop(again);
        assert!(bytes(&mine).iter().all(|byte| *byte == 1 + job.rank() as u8));
        job.barrier().unwrap();
        // The owner's own rights decide about requests from the network or the ring, too.
        drop(mine);
        job.barrier().unwrap();
    });
}

/// The memory outlives its region's registration after its pages were exchanged, at either end.
#[test]
fn exchanged_pages_outlive_the_registrations() {
    cluster(2, &Settings::default(), |job| {
        for round in 0..5 {
            // Each round uses a name of its own, because the last name may be withdrawn when the
            // peer looks it up.
            let name = format!("mine {round}");
            let mine = job.publish(&name, Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
            mine.fill(0, LEN as u64, 1 + job.rank() as u8).unwrap();
            let there = job.peer(1 - job.rank()).unwrap().region(&name).unwrap();
            job.barrier().unwrap();
            if job.rank() == 0 {
                there.exchange(0, &mine, 0, (LEN / page_size()) as u64).unwrap();
            }
            job.barrier().unwrap();
            let kept = mine.deregister().unwrap();
            job.barrier().unwrap();
            if job.rank() == 0 {
                kept.fill(0, LEN as u64, 9).unwrap();
            }
            job.barrier().unwrap();
            let expected = if job.rank() == 0 { 9 } else { 1 };
            assert!(bytes(&kept).iter().all(|byte| *byte == expected));
            job.barrier().unwrap();
        }
    });
}

/// MEM-20.5: an exchange does not change memory after it was deregistered in the middle of the
/// exchange.
#[test]
fn what_is_had_back_meanwhile_does_not_change_any_more() {
    const CANARY: u8 = 0xC4;
    cluster(2, &Settings::default(), |job| {
        let _given = job.publish("given", filled(2), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("given").unwrap();
        job.barrier().unwrap();
        for _ in 0..if job.rank() == 0 { 8 } else { 0 } {
            let here = job.register(Region::private(8 << 20).unwrap()).unwrap();
            let taken = here.clone();
            let kept = std::thread::scope(|threads| {
                let asking =
                    threads.spawn(|| there.exchange(0, &here, 0, ((8 << 20) / page_size()) as u64));
                // Waits until the exchange has begun.
                while taken.load_u64(0) == Ok(0) && !asking.is_finished() {
                    std::hint::spin_loop();
                }
                let kept = taken.deregister().unwrap();
                kept.fill(0, 8 << 20, CANARY).unwrap();
                // The exchange may have been at its end.
                let _ = asking.join().unwrap();
                kept
            });
            assert!(bytes(&kept).iter().all(|byte| *byte == CANARY));
            there.put(0, job.register(filled(2)).unwrap().all()).wait().unwrap();
        }
        job.barrier().unwrap();
    });
}

/// MEM-20.5: the same holds if pages of the memory are exchanged under another region id, until the
/// answer comes.
#[test]
fn nor_does_what_changes_place_under_another_number() {
    cluster(2, &Settings::default(), |job| {
        let region = Region::shared(LEN).unwrap();
        let (ended, other) = (
            job.publish("ended", region.clone(), Rights::ALL).unwrap(),
            job.register(region.clone()).unwrap(),
        );
        // A lock of the pages stands for an exchange that waits for its answer.
        let exchange = other.lock_pages().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                ended.deregister().unwrap();
                assert!(is_over.load(Ordering::SeqCst), "pages were changing place");
            });
            // Waits until deregistration has begun. Without the lock it would end within a round
            // trip.
            let myself = job.peer(job.rank()).unwrap();
            while myself.region("ended").is_ok() {}
            (0..3).for_each(|_| job.barrier().unwrap());
            is_over.store(true, Ordering::SeqCst);
            drop(exchange);
        });
        other.deregister().unwrap();
        job.barrier().unwrap();
    });
}

/// MEM-17.7: the same holds within one node, where the pages themselves are exchanged. No exchange
/// begins with a region that is no longer registered.
#[test]
fn what_is_had_back_changes_place_no_more() {
    const CANARY: u8 = 0xC4;
    cluster(1, &Settings::default(), |job| {
        let pages = ((8 << 20) / page_size()) as u64;
        let places = [Job::exchange, |job: &Job, one: &_, at, other: &_, there, pages| {
            job.move_pages(other, there, one, at, pages)
        }];
        for (round, place) in (0..24).zip(places.into_iter().cycle()) {
            // Each round fills the regions anew, because an odd number of exchanges swaps their
            // contents.
            let (one, other) = (job.register(filled(1)).unwrap(), job.register(filled(2)).unwrap());
            let taken = one.clone();
            let kept = std::thread::scope(|threads| {
                // Repeats the exchange many times more often than needed until the memory is
                // deregistered.
                let ended = threads.spawn(|| {
                    (0..10_000).find_map(|_| place(&job, &one, 0, &other, 0, pages).err())
                });
                // Waits until the exchange has begun.
                while taken.load_u64(0) == Ok(0x0101_0101_0101_0101) && !ended.is_finished() {
                    std::hint::spin_loop();
                }
                let kept = taken.deregister().unwrap();
                kept.fill(0, 8 << 20, CANARY).unwrap();
                let why = ended.join().unwrap().expect("it is refused in the end");
                assert!(why.to_string().contains("not registered"), "{why}");
                kept
            });
            assert!(bytes(&kept).iter().all(|byte| *byte == CANARY), "round {round}");
        }
    });
}

fn filled(byte: u8) -> Region {
    let region = Region::private(8 << 20).unwrap();
    region.fill(0, 8 << 20, byte).unwrap();
    region
}

/// MEM-20.3: with remapping switched off, all bytes are copied, between local peers too.
#[test]
fn what_is_switched_off_is_copied() {
    const SWITCH: &str = "OIKAZE_WITHOUT";
    if std::env::var(SWITCH).is_ok_and(|words| words.contains("remap")) {
        return cluster_once(2, &Settings::default(), exchange_with_the_other_node).clear();
    }
    for words in ["remap", "huge,uffd,remap"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child
            .args(["--exact", "exchange::what_is_switched_off_is_copied", "--nocapture"])
            .env(SWITCH, words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
