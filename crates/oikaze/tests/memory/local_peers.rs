//! Nodes of one machine: they share memory by default, and use the network where they may not.

use crate::support::{cluster_of_pages, cluster_once, over_the_network};
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_launch::Settings;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// MEM-16.8.
#[test]
fn nodes_of_one_machine_share_memory_unless_the_network_is_to_be_tried() {
    let alone = Settings::default();
    for (settings, shared) in [(over_the_network(&alone), false), (alone, true)] {
        cluster_once(3, &settings, |job| {
            for rank in (0..3).filter(|rank| *rank != job.rank()) {
                let peer = job.peer(rank).unwrap();
                peer.send(Class::Sync, 1, b"hello").wait_for(PATIENCE).unwrap();
                let report = peer.report().unwrap();
                assert_eq!(report.gauges.rings, u64::from(shared));
                assert!(report.counters.messages_posted > 0);
            }
            (0..2).for_each(|_| {
                assert_eq!(job.receive_for(None, PATIENCE).unwrap().bytes(), b"hello")
            });
            job.barrier().unwrap();
        });
    }
}

/// MEM-18.1, MEM-18.2, MEM-18.4: the caller runs every operation on a mapped region itself, without
/// a message. A thread that sleeps on a word there is woken.
#[test]
fn a_shared_region_is_reached_without_its_owner() {
    cluster_once(2, &Settings::default(), |job| {
        let inbox = job.publish("inbox", Region::shared(1 << 20).unwrap(), Rights::ALL).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        job.barrier().unwrap();
        let posted = || peer.report().unwrap().counters.messages_posted;
        if job.rank() == 0 {
            let before = posted();
            let source = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
            source.fill(0, 1 << 20, 7).unwrap();
            let mut sums = 0;
            for len in [0, 1, 8, 4096, 100_000, 900_000] {
                there.put(4096, source.slice(0..len).unwrap()).wait().unwrap();
                there.put_copy(64, &[len as u8; 100]).unwrap().wait().unwrap();
                let back = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
                there.get(4096, back.slice(0..len).unwrap()).wait().unwrap();
                let mut seen = vec![0; len];
                back.read(0, &mut seen).unwrap();
                assert!(seen.iter().all(|&byte| byte == 7), "{len}");
                assert_eq!(there.fetch_add(16, 3).wait().unwrap(), sums);
                sums += 3;
            }
            assert_eq!(there.word::<u32>(24).fetch_or(5).wait().unwrap(), 0);
            assert_eq!(there.compare_exchange(24, 5, 9).wait().unwrap(), 5);
            let mut small = [0; 100];
            job.scope(|scope| scope.get(&there, 64, &mut small)?.wait()).unwrap();
            assert_eq!(small, [900_000u32 as u8; 100]);
            there.put_value(200, [1_u64, 2]).unwrap().wait().unwrap();
            assert_eq!(there.get_value::<[u64; 2]>(200).unwrap(), [1, 2]);
            assert_eq!(there.elements::<u64>().get(25..27).unwrap(), [1, 2]);
            assert_eq!(there.get_copy(4096, 900_000).unwrap(), vec![7; 900_000]);
            job.scope(|scope| scope.put(&there, 200, &[9; 16])?.wait()).unwrap();
            let list = [(300, source.slice(0..8).unwrap()), (200, source.slice(..8).unwrap())];
            there.put_list(&list).wait().unwrap();
            there.get_list(&list).wait().unwrap();
            assert_eq!(there.get_value::<u64>(208).unwrap(), 0x0909_0909_0909_0909);
            there
                .put_signal(8192, source.slice(0..1000).unwrap(), &there.signal(0, 1))
                .wait()
                .unwrap();
            assert_eq!(posted(), before, "no message went");
            // The other node sleeps by now, or will find the word already changed. Time decides
            // which, and the result is the same.
            inbox.wait_until_for(0, PATIENCE, |word| word == 1).unwrap();
        } else {
            inbox.wait_until_for(0, PATIENCE, |word| word == 1).unwrap();
            assert_eq!((inbox.load_u64(16).unwrap(), inbox.load_u64(24).unwrap()), (18, 9));
            let answer = job.register(Region::zeroed(8).unwrap()).unwrap();
            there.put_signal(8, answer.all(), &there.signal(0, 1)).wait().unwrap();
        }
        job.barrier().unwrap();
    });
}

/// MEM-18.1, MEM-18.2: rights of reading, writing and atomic operations on all pages are used
/// without a message, and no other rights are. A region that cannot be mapped says why.
#[test]
fn region_is_mapped_with_the_rights_it_grants_or_says_why_not() {
    let (read, write, atomic) = (Rights::READ, Rights::WRITE, Rights::ATOMIC);
    let mapped = [
        read,
        write,
        atomic,
        read | write,
        read | atomic,
        write | atomic,
        read | write | atomic,
        Rights::ALL,
        read | Rights::PUSH,
    ];
    cluster_once(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let into = job.register(Region::zeroed(8).unwrap()).unwrap();
        let posted = || peer.report().unwrap().counters.messages_posted;
        for (n, rights) in mapped.into_iter().enumerate() {
            let name = n.to_string();
            let own = job.publish(&name, Region::shared(4096).unwrap(), rights).unwrap();
            job.barrier().unwrap();
            let there = peer.region(&name).unwrap();
            assert!(there.is_mapped() && there.why_not_mapped().is_none(), "{rights}");
            // The peer's lookup has been answered, too. An answer is a message of this node.
            job.barrier().unwrap();
            let before = posted();
            let outcomes = [
                (read, there.get(0, into.all()).is_done()),
                (write, there.put_copy(8, &[1; 8]).unwrap().is_done()),
                (atomic, there.word::<u64>(16).add(1).is_done()),
            ];
            assert!(
                outcomes
                    .iter()
                    .filter(|(right, _)| rights.contains(*right))
                    .all(|(_, is_done)| *is_done)
            );
            if outcomes.iter().all(|(right, _)| rights.contains(*right)) {
                assert_eq!(posted(), before);
            }
            let refused =
                outcomes.iter().filter(|(right, _)| !rights.contains(*right)).count() as u64;
            let unseen =
                job.flush().err().map_or(0, |error| error.unreported().expect("unreported"));
            assert_eq!(unseen, refused, "{rights}");
            job.barrier().unwrap();
            assert_eq!(own.load_u64(16).unwrap(), u64::from(rights.contains(atomic)));
            assert_eq!(own.load_u64(8).unwrap() != 0, rights.contains(write));
        }
        let _private = job.publish("private", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
        let _push = job.publish("push", Region::shared(4096).unwrap(), Rights::PUSH).unwrap();
        job.barrier().unwrap();
        for (name, remedy) in [("private", "Region::shared"), ("push", "read, write or atomic")] {
            let there = peer.region(name).unwrap();
            assert!(!there.is_mapped());
            assert!(there.why_not_mapped().unwrap().contains(remedy));
        }
        let own = job.peer(job.rank()).unwrap().region("private").unwrap();
        assert!(own.why_not_mapped().unwrap().contains("this node itself"));
        job.barrier().unwrap();
    });
}

/// MEM-18.2: operations that ended in the call which began them are reported like all others, and
/// wake threads that sleep for them.
#[test]
fn queues_and_counters_are_told_of_what_was_done_at_once() {
    const EACH: u64 = 50;
    cluster_once(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::shared(4096).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let (queue, counter) = (job.completion_queue(), job.counter());
        std::thread::scope(|threads| {
            let counted = threads.spawn(|| counter.wait_for(EACH, PATIENCE).unwrap());
            let told = threads.spawn(|| {
                let mut told = Vec::new();
                queue.wait_for(EACH as usize, PATIENCE, &mut told).unwrap();
                told
            });
            for n in 0..EACH {
                let put = there.put_copy(64, b"counted").unwrap();
                assert!(put.is_done());
                put.count_in(&counter).unwrap();
                assert!(put.report_to(&queue, n).is_err(), "it tells one of them only");
                there.fetch_add(0, 3).report_to(&queue, n).unwrap();
            }
            assert_eq!(counted.join().unwrap().succeeded, EACH);
            let told = told.join().unwrap();
            let told: Vec<(u64, u64)> =
                told.into_iter().map(|one| (one.context, one.outcome.unwrap())).collect();
            assert_eq!(told, (0..EACH).map(|n| (n, 3 * n)).collect::<Vec<_>>());
        });
        job.barrier().unwrap();
    });
}

/// MEM-18.1, MEM-18.2: the owner judges accesses that the mapping does not allow, and gives the
/// reason.
#[test]
fn what_is_wrong_is_said_by_the_owner() {
    cluster_once(2, &Settings::default(), |job| {
        let _all = job.publish("all", Region::shared(8192).unwrap(), Rights::ALL).unwrap();
        let _read = job.publish("read", Region::shared(8192).unwrap(), Rights::READ).unwrap();
        let paged = job.publish("paged", Region::shared(8192).unwrap(), Rights::ALL).unwrap();
        paged.protect(0..4096, Rights::READ).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let region = |name: &str| peer.region(name).unwrap();
        let (all, read, paged) = (region("all"), region("read"), region("paged"));
        let here = job.register(Region::zeroed(8192).unwrap()).unwrap();
        let said = |result: oikaze::Result<()>| result.unwrap_err().to_string();
        assert!(said(all.put(8000, here.all()).wait()).contains("outside the region"));
        assert!(said(all.put(u64::MAX, here.all()).wait()).contains("outside the region"));
        assert!(said(all.fetch_add(4, 1).wait().map(drop)).contains("aligned"));
        assert!(said(read.put(0, here.all()).wait()).contains("does not grant"));
        assert!(said(read.fetch_add(0, 1).wait().map(drop)).contains("does not grant"));
        read.get(0, here.all()).wait().unwrap();
        assert!(said(paged.put(0, here.slice(0..8).unwrap()).wait()).contains("does not grant"));
        paged.put(4096, here.slice(0..8).unwrap()).wait().unwrap();
        job.barrier().unwrap();
    });
}

/// MEM-18.3, MEM-18.5: after a region's end, or the end of its rights, local peers touch none of
/// it, whatever they do meanwhile.
#[test]
fn nothing_is_touched_after_the_end() {
    const ROUNDS: u64 = 50;
    cluster_once(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let turn = job.publish("turn", Region::shared(8).unwrap(), Rights::ALL).unwrap();
        if job.rank() == 0 {
            let there = peer.region("turn").unwrap();
            for round in 1..=ROUNDS {
                let local =
                    job.publish("target", Region::shared(65_536).unwrap(), Rights::ALL).unwrap();
                there.fetch_add(0, 1).wait().unwrap();
                // The local peer has mapped the region and puts without end.
                local.wait_until_for(0, PATIENCE, |word| word != 0).unwrap();
                if round % 2 == 0 {
                    local.set_rights(Rights::READ).unwrap();
                    check(&local);
                }
                let kept = local.deregister().unwrap();
                check(&kept);
            }
            there.fetch_add(0, 1 << 32).wait().unwrap();
        } else {
            let source = job.register(Region::zeroed(65_536).unwrap()).unwrap();
            let mut number = 1u64;
            for round in 1.. {
                let word = turn.wait_until_for(0, PATIENCE, |word| word >= round).unwrap();
                if word >> 32 != 0 {
                    break;
                }
                let target = peer.region("target").unwrap();
                let ended = loop {
                    number += 1;
                    source.fill(0, 65_536, number as u8 | 1).unwrap();
                    // A value is read with the same rights and the same errors as an operation.
                    if let Err(why) = target.put(0, source.all()).wait() {
                        let read = target.get_value::<u64>(8);
                        assert!(round % 2 == 0 || read.is_err(), "round {round}: {read:?}");
                        break why.to_string();
                    }
                    let _ = target.get_value::<u64>(8);
                };
                assert!(
                    ended.contains("no region has this key") || ended.contains("does not grant"),
                    "{ended}"
                );
            }
        }
        job.barrier().unwrap();
    });
}

/// Writes a canary and checks that it stays.
fn check(region: &Region) {
    region.fill(0, 65_536, 0).unwrap();
    for _ in 0..20 {
        let mut seen = vec![1; 65_536];
        region.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0), "written after the end");
        std::thread::yield_now();
    }
}

/// MEM-18.2: a put that needs no engine waits for the operations before a fence.
#[test]
fn a_fence_holds_back_mapped_puts_too() {
    cluster_once(2, &Settings::default(), |job| {
        let words = job.publish("words", Region::shared(16).unwrap(), Rights::ALL).unwrap();
        let bulk = job.publish("bulk", Region::zeroed(4 << 20).unwrap(), Rights::ALL).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let (there, far) = (peer.region("words").unwrap(), peer.region("bulk").unwrap());
        let source = job.register(Region::zeroed(4 << 20).unwrap()).unwrap();
        for round in 1..20u8 {
            source.fill(0, 4 << 20, round).unwrap();
            let put = far.put(0, source.all());
            peer.fence();
            let flag = there.put_copy(0, &u64::from(round).to_ne_bytes()).unwrap();
            words.wait_until_for(0, PATIENCE, |word| word == u64::from(round)).unwrap();
            let mut last = [0];
            bulk.read((4 << 20) - 1, &mut last).unwrap();
            assert_eq!(last, [round], "the flag came before the data");
            put.wait().unwrap();
            flag.wait().unwrap();
            if round % 5 == 0 {
                job.flush().unwrap();
            }
            job.barrier().unwrap();
        }
    });
}

/// MEM-18.2: a fence holds back no operation after all operations before it have ended.
#[test]
fn a_fence_that_is_over_holds_back_no_mapped_put() {
    cluster_once(2, &Settings::default(), |job| {
        let _words = job.publish("words", Region::shared(16).unwrap(), Rights::ALL).unwrap();
        let _bulk = job.publish("bulk", Region::private(1 << 20).unwrap(), Rights::ALL).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let (there, far) = (peer.region("words").unwrap(), peer.region("bulk").unwrap());
        let source = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
        let posted = || peer.report().unwrap().counters.messages_posted;
        let ends: [&dyn Fn(); 2] = [&|| peer.flush().unwrap(), &|| job.flush().unwrap()];
        job.barrier().unwrap();
        // The nodes take turns, because answers to the other node's requests are messages, too.
        for rank in 0..2 {
            for round in (0..20).filter(|_| rank == job.rank()) {
                let put = far.put(0, source.all());
                peer.fence();
                let behind = there.fetch_add(0, 1);
                ends[round % 2]();
                let before = posted();
                there.fetch_add(0, 1).wait().unwrap();
                assert_eq!(posted(), before, "{round}: no message went");
                put.wait().unwrap();
                behind.wait().unwrap();
            }
            job.barrier().unwrap();
        }
    });
}

/// MEM-16.5, MEM-18.5: the same holds where the kernel makes no fences for other threads. Sleeping
/// threads are woken.
#[test]
fn nothing_is_touched_after_the_end_without_membarrier() {
    // The kernel's mechanisms are probed once in a process.
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "local_peers::nothing_is_touched_after_the_end",
        "local_peers::a_shared_region_is_reached_without_its_owner",
    ]);
    again.arg("local_peers::messages_come_in_their_order_however_they_are_asked_for");
    let output = again.env("OIKAZE_WITHOUT", "membarrier").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 passed"));
}

/// A variable with an empty value changes nothing.
#[test]
fn empty_recording_variables_keep_local_peers() {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "local_peers::a_shared_region_is_reached_without_its_owner"]);
    let output = again.env("OIKAZE_PCAP", "").env("OIKAZE_TRACE", "").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// MEM-16.9: messages arrive once and in order, however they are asked for. They are short ones,
/// and others that do not go by the fast path.
#[test]
fn messages_come_in_their_order_however_they_are_asked_for() {
    const MESSAGES: u64 = 6000;
    let len = |tag: u64| [8, 0, 40, 3000, 47, 48, 20_000][tag as usize % 7];
    cluster_once(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        if job.rank() == 0 {
            let send = |tag| peer.send(Class::Ordered, tag, &vec![tag as u8; len(tag)]);
            let sent: Vec<_> = (0..MESSAGES / 64)
                .flat_map(|n| job.batch(|| (64 * n..64 * (n + 1)).map(send).collect::<Vec<_>>()))
                .collect();
            sent.into_iter().for_each(|sent| sent.wait_for(PATIENCE).unwrap());
        } else {
            let mut seen = 0;
            let mut read = |arrived: oikaze::message::Message| {
                assert_eq!((arrived.from(), arrived.tag()), (0, seen));
                assert!(arrived.bytes().len() == len(seen));
                assert!(arrived.bytes().iter().all(|&byte| byte == seen as u8));
                seen += 1;
                seen
            };
            let all = MESSAGES / 64 * 64;
            while read(job.receive_for(None, PATIENCE).unwrap()) < all - 100 {
                std::iter::from_fn(|| job.try_receive(Some(0)))
                    .take(5)
                    .for_each(|arrived| _ = read(arrived));
                job.receive_batch_for(30, PATIENCE)
                    .into_iter()
                    .for_each(|arrived| _ = read(arrived));
            }
            while read(job.receive_for(Some(0), PATIENCE).unwrap()) < all {}
        }
        job.barrier().unwrap();
    });
}

/// Sends elements of an array that are not on this node yet. No thread may enter the turn with
/// memory that is still to be faulted in.
#[test]
fn messages_are_sent_of_elements_that_are_fetched_when_they_are_touched() {
    const PAGES: usize = 300;
    const ELEMENTS: usize = 512;
    cluster_of_pages(2, &Settings::default(), |job| {
        let array = job.array::<u64>("far", 2 * PAGES * ELEMENTS).unwrap();
        let home = array.home_range(1);
        let expected = |page: usize| [page as u64 + 1; 4];
        if job.rank() == 1 {
            let mut all = array.write(home.clone()).unwrap();
            (0..PAGES)
                .for_each(|page| all[page * ELEMENTS..][..4].copy_from_slice(&expected(page)));
        }
        job.barrier().unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        for page in 0..PAGES {
            if job.rank() == 0 {
                let at = home.start + page * ELEMENTS;
                let elements = array.read_lazily(at..at + 4).unwrap();
                let bytes: &[u8] = bytemuck::cast_slice(&elements);
                peer.send(Class::Ordered, page as u64, bytes).wait_for(PATIENCE).unwrap();
            } else {
                let arrived = job.receive_for(Some(0), PATIENCE).unwrap();
                assert_eq!(
                    arrived.bytes()[..],
                    *bytemuck::bytes_of(&expected(page)),
                    "page {page}"
                );
            }
        }
        job.barrier().unwrap();
    });
}
