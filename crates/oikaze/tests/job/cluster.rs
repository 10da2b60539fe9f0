//! Whole nodes over loopback UDP, with real sockets, real threads and real page faults.

use crate::support::{cluster, cluster_in_both_ways};
use oikaze::collective::operator::Sum;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_launch::{Seal, Settings};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn faulty(text: &str) -> Settings {
    Settings { fault: Some(text.to_owned()), ..Settings::default() }
}

fn remote_memory(settings: &Settings) {
    cluster(3, settings, |job| {
        let rank = u64::from(job.rank());
        let inbox = job.publish("inbox", Region::zeroed(1 << 20).unwrap(), Rights::ALL).unwrap();
        let source = job.register(Region::zeroed(1 << 20).unwrap()).unwrap();
        source.fill(0, 1 << 20, job.rank() as u8 + 1).unwrap();
        let next = job.peer((job.rank() + 1) % 3).unwrap().region("inbox").unwrap();

        next.put_copy(0, &rank.to_le_bytes()).unwrap().wait_for(PATIENCE).unwrap();
        next.put_signal(4096, source.slice(0..500_000).unwrap(), &next.signal(8, 1))
            .wait_for(PATIENCE)
            .unwrap();
        inbox.wait_until_for(8, PATIENCE, |count| count == 1).unwrap();
        let previous = (job.rank() + 2) % 3;
        assert_eq!(inbox.load_u64(0).unwrap(), u64::from(previous));
        let mut seen = vec![0; 500_000];
        inbox.read(4096, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == previous as u8 + 1));

        let back = job.register(Region::zeroed(500_000).unwrap()).unwrap();
        next.get(4096, back.all()).wait_for(PATIENCE).unwrap();
        back.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == job.rank() as u8 + 1));

        let counter = job.peer(0).unwrap().region("inbox").unwrap();
        for _ in 0..50 {
            counter.fetch_add(64, 1).wait_for(PATIENCE).unwrap();
        }
        job.barrier().unwrap();
    });
}

#[test]
fn remote_memory_over_loopback() {
    remote_memory(&Settings::default());
}

/// WIRE-5.5: lost, doubled and reordered datagrams do no harm with this checksum either.
#[test]
fn remote_memory_with_checksums_of_headers_only() {
    let faulty = faulty("loss=0.05,duplicate=0.05,reorder=0.05,seed=5");
    remote_memory(&Settings { seal: Some(Seal::Header), ..faulty });
}

#[test]
fn remote_memory_over_a_faulty_network() {
    remote_memory(&faulty("loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=3"));
}

#[test]
fn borrowed_memory_in_a_scope() {
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(100_000).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let out: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let mut back = vec![0; 100_000];
        job.scope(|scope| scope.put(&there, 0, &out)?.wait_for(PATIENCE)).unwrap();
        job.scope(|scope| scope.get(&there, 0, &mut back)?.wait_for(PATIENCE)).unwrap();
        assert_eq!(out, back);
        job.barrier().unwrap(); // until then the other node may still read here
    });
}

#[test]
fn messages_of_all_classes() {
    cluster(2, &faulty("loss=0.05,reorder=0.1,seed=5"), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let sent: Vec<_> = (0..300u64)
            .map(|tag| {
                let class = [Class::Ordered, Class::Unordered, Class::Sync][tag as usize % 3];
                let len = [8, 500, 20_000][tag as usize / 3 % 3];
                if tag / 9 % 2 == 0 {
                    return peer.send(class, tag, &vec![tag as u8; len]);
                }
                let region = job.register(Region::zeroed(20_000).unwrap()).unwrap();
                region.fill(0, 20_000, tag as u8).unwrap();
                peer.send_from(class, tag, region.slice(0..len).unwrap())
            })
            .collect();
        let mut ordered = Vec::new();
        let mut all = Vec::new();
        for _ in 0..300 {
            let arrived = job.receive_for(Some(peer.rank()), PATIENCE).unwrap();
            assert!(arrived.bytes().iter().all(|&byte| byte == arrived.tag() as u8));
            if arrived.class() != Class::Unordered {
                ordered.push(arrived.tag());
                assert!(all.len() as u64 >= arrived.tag(), "overtook what was posted before it");
            }
            all.push(arrived.tag());
        }
        assert!(ordered.is_sorted());
        all.sort_unstable();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
        for operation in sent {
            operation.wait_for(PATIENCE).unwrap();
        }
    });
}

fn shared_arrays(nodes: u32, settings: &Settings) {
    cluster_in_both_ways(nodes, settings, |job| {
        let len = 40_000;
        let array = job.array::<u64>("numbers", len).unwrap();
        let lazy = job.array::<u32>("lazy", len).unwrap();
        for round in 1..5u64 {
            // Every node writes every `nodes`-th element, so all pages have many writers.
            for i in (job.rank() as usize..len).step_by(nodes as usize) {
                array.write(i..i + 1).unwrap()[0] = round * i as u64;
                if i % 97 == 0 {
                    lazy.write_lazily(i..i + 1).unwrap()[0] = round as u32 + i as u32;
                }
            }
            job.barrier().unwrap();
            let all = array.read(0..len).unwrap();
            assert!(
                all.iter().enumerate().all(|(i, &value)| value == round * i as u64),
                "round {round}"
            );
            drop(all);
            let all = lazy.read_lazily(0..len).unwrap();
            assert!(
                all.iter()
                    .enumerate()
                    .step_by(97)
                    .all(|(i, &value)| value == round as u32 + i as u32)
            );
            drop(all);
            job.barrier().unwrap();
        }
        let total = job.barrier_reduce(f64::from(job.rank()), Sum).unwrap();
        assert_eq!(total, f64::from(nodes * (nodes - 1) / 2));
    });
}

#[test]
fn shared_arrays_with_many_writers_a_page() {
    shared_arrays(3, &Settings::default());
}

#[test]
fn shared_arrays_over_a_faulty_network() {
    shared_arrays(2, &faulty("loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=11"));
}

#[test]
fn locks_protect_counters() {
    cluster_in_both_ways(3, &Settings::default(), |job| {
        let counters = job.array::<u64>("counters", 10).unwrap();
        for turn in 0..60u64 {
            let guard = job.lock(turn % 3).unwrap();
            counters.write(turn as usize % 3..turn as usize % 3 + 1).unwrap()[0] += 1;
            guard.release().unwrap();
        }
        job.barrier().unwrap();
        assert_eq!(&counters.read(0..3).unwrap()[..], [60, 60, 60]);
    });
}

#[test]
fn several_threads_of_a_node_fault_and_wait() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u32>("threads", 64 * 1024).unwrap();
        let quarter = array.len() / 4;
        let mine = job.rank() as usize * 2;
        std::thread::scope(|scope| {
            for thread in mine..mine + 2 {
                let array = &array;
                scope.spawn(move || {
                    // In reverse order, so that the other node is the home.
                    let range = (3 - thread) * quarter..(4 - thread) * quarter;
                    for i in range {
                        array.write_lazily(i..i + 1).unwrap()[0] = i as u32;
                    }
                });
            }
        });
        job.barrier().unwrap();
        assert!(
            array
                .read(0..array.len())
                .unwrap()
                .iter()
                .enumerate()
                .all(|(i, &value)| value == i as u32)
        );
    });
}

#[test]
fn a_condition_may_touch_pages_that_are_elsewhere() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("bounds", 4096).unwrap();
        let home = array.home_range(job.rank());
        array.write(home.clone()).unwrap().fill(u64::from(job.rank()) + 1);
        let inbox = job.publish("inbox", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        let other = array.home_range(1 - job.rank());
        let peer = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let told = peer.fetch_add(0, 1);
        inbox
            .wait_until_for(0, PATIENCE, |count| {
                count >= array.read_lazily(other.clone()).unwrap()[0].min(1)
            })
            .unwrap();
        told.wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
    });
}

#[test]
fn memory_of_shared_arrays_is_not_lent() {
    cluster_in_both_ways(1, &Settings::default(), |job| {
        let array = job.array::<u8>("bytes", 5000).unwrap();
        let _inbox = job.publish("inbox", Region::zeroed(5000).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(0).unwrap().region("inbox").unwrap();
        let guard = array.read(0..5000).unwrap();
        let refused =
            job.scope(|scope| scope.put(&there, 0, &guard)?.wait()).unwrap_err().to_string();
        assert!(refused.contains("shared array \"bytes\""), "{refused}");
        let copy = guard.to_vec();
        job.scope(|scope| scope.put(&there, 0, &copy)?.wait()).unwrap();
    });
}

#[test]
fn nothing_waits_for_ever_after_the_job() {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        let array = job.array::<u64>("late", 4096).unwrap();
        let other = array.home_range(1 - job.rank());
        let peer = job.peer(1 - job.rank()).unwrap();
        let held = job.lock(u64::from(job.rank())).unwrap();
        job.leave().unwrap();
        let late = array.read(other.clone()).map(drop).map_err(|error| error.to_string());
        match array.why_not_shared() {
            Some(_) => assert!(late.as_ref().unwrap_err().contains("left the job"), "{late:?}"),
            None => assert_eq!(late, Ok(()), "this node maps all bytes"),
        }
        assert_eq!(array.read_lazily(other.clone()).unwrap()[0], 0, "the last bytes here");
        array.write_lazily(other).unwrap()[7] = 1;
        assert!(held.release().is_err() && peer.send(Class::Ordered, 0, b"hello?").wait().is_err());
    });
}

#[test]
fn a_panic_in_a_scope_leaves_nothing_behind() {
    cluster(2, &Settings::default(), |job| {
        let inbox = job.publish("inbox", Region::zeroed(1 << 20).unwrap(), Rights::ALL).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        let bytes = vec![1; 1 << 20];
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            job.scope::<()>(|scope| {
                let _begun = scope.put(&there, 0, &bytes)?;
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert!(caught.is_err());
        // The panic does not hold up later messages of the same order.
        peer.send(Class::Sync, 1, b"after").wait_for(PATIENCE).unwrap();
        assert_eq!(job.receive_for(Some(peer.rank()), PATIENCE).unwrap().tag(), 1);
        job.barrier().unwrap();
        drop(inbox);
    });
}

#[test]
fn a_descriptor_tells_of_messages_and_outcomes() {
    use rustix::event::{PollFd, PollFlags, poll};
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let descriptor = job.descriptor();
        let until = |done: &dyn Fn() -> bool| {
            let limit = PATIENCE.try_into().unwrap();
            while !done() {
                let ready =
                    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&limit))
                        .unwrap();
                assert_eq!(ready, 1, "nothing came within {PATIENCE:?}");
                job.clear_descriptor();
            }
        };
        let sent = peer.send(Class::Sync, 7, b"look at your descriptor");
        until(&|| sent.is_done());
        sent.wait_for(PATIENCE).unwrap();
        let arrived = std::cell::Cell::new(None);
        until(&|| {
            arrived.set(job.try_receive(None).map(|message| message.tag()));
            arrived.get().is_some()
        });
        assert_eq!(arrived.get(), Some(7));
        job.barrier().unwrap();
    });
}
