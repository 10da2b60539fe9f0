//! Posted receives, on every path of a message (MEM-26).

use crate::block_on::block_on;
use crate::support::{cluster, cluster_once, over_the_network};
use oikaze::completion::Operation;
use oikaze::memory::{LocalRegion, Region};
use oikaze::message::{Class, Received};
use oikaze::{Job, Rank};
use oikaze_launch::Settings;
use oikaze_protocol::random::Random;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const ANY: u64 = 0;
const EXACT: u64 = u64::MAX;
/// Length of many fragments, which exceeds a ring.
const LEN: usize = 100 * 4096;

/// Runs `program` with every path from node 0 to the last node.
fn each_way(program: impl Fn(&Job, Rank) + Sync) {
    cluster_once(1, &Settings::default(), |job| program(&job, 0));
    cluster(2, &Settings::default(), |job| program(&job, 1));
}

fn memory(job: &Job, len: usize) -> LocalRegion {
    let memory = job.register(Region::zeroed(len).unwrap()).unwrap();
    memory.fill(0, len as u64, 0xee).unwrap();
    memory
}

fn bytes_of(memory: &LocalRegion, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

fn got(receive: &Operation<Received>) -> (Rank, u64, u64) {
    let Received { from, tag, len } = receive.wait_for(PATIENCE).unwrap();
    (from, tag, len)
}

/// MEM-26.1 to MEM-26.3: receives that were posted first get the messages that match, the mailbox
/// the others, and bytes behind a message stay.
#[test]
fn messages_go_to_the_receives_that_match() {
    each_way(|job, to| {
        let spots: Vec<LocalRegion> = (0..4).map(|_| memory(job, LEN)).collect();
        let is_receiver = job.rank() == to;
        let receives: Vec<_> = if is_receiver {
            let post =
                |spot: usize, from, tag, mask| job.post_receive(from, tag, mask, spots[spot].all());
            vec![
                post(0, Some(0), 5, EXACT),
                post(1, None, 0x0700, 0xff00),
                post(2, None, 0, ANY),
                post(3, Some(0), 5, EXACT),
            ]
        } else {
            Vec::new()
        };
        job.barrier().unwrap();
        if job.rank() == 0 {
            let peer = job.peer(to).unwrap();
            let long = vec![9; LEN];
            let sent = [(0x07aa, &long[..]), (1, b"any"), (5, b"first"), (2, b"mail"), (5, b"")]
                .map(|(tag, bytes)| peer.send(Class::Ordered, tag, bytes));
            if is_receiver {
                sent.iter().for_each(|sent| sent.wait_for(PATIENCE).unwrap());
            }
            drop(sent);
        }
        if is_receiver {
            let ended: Vec<_> = receives.iter().map(got).collect();
            assert_eq!(ended, [(0, 5, 5), (0, 0x07aa, LEN as u64), (0, 1, 3), (0, 5, 0)]);
            assert_eq!(bytes_of(&spots[0], 6), b"first\xee");
            assert_eq!(bytes_of(&spots[1], LEN), vec![9; LEN]);
            assert_eq!(bytes_of(&spots[2], 4), b"any\xee");
            assert_eq!(bytes_of(&spots[3], 1), b"\xee");
            let mail = job.receive_for(None, PATIENCE).unwrap();
            assert_eq!((mail.tag(), mail.bytes()), (2, &b"mail"[..]));
            assert!(job.try_receive(None).is_none());
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.2: a receive gets the oldest message that waits and matches, and the others stay in
/// their order.
#[test]
fn messages_that_wait_are_taken_by_later_receives() {
    each_way(|job, to| {
        if job.rank() == 0 {
            let peer = job.peer(to).unwrap();
            for tag in 0..6 {
                drop(peer.send(Class::Ordered, tag, &[tag as u8; 100]));
            }
            peer.send(Class::Sync, 6, b"all").wait_for(PATIENCE).unwrap();
        }
        if job.rank() == to {
            let (page, even) = (memory(job, 100), memory(job, 100));
            let odd = job.post_receive(None, 1, 1, page.all());
            let four = job.post_receive(Some(0), 4, 4, even.all());
            assert_eq!((got(&odd), got(&four)), ((0, 1, 100), (0, 4, 100)));
            assert_eq!((bytes_of(&page, 1), bytes_of(&even, 1)), (vec![1], vec![4]));
            let tags = (0..5).map(|_| job.receive_for(None, PATIENCE).unwrap().tag());
            assert!(tags.eq([0, 2, 3, 5, 6]));
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.4: a message that is too long ends the receive with its length, and is kept for the next
/// receive, or for the mailbox.
#[test]
fn a_message_that_is_too_long_is_kept() {
    each_way(|job, to| {
        for len in [65, LEN] {
            let (small, large) = (memory(job, 64), memory(job, LEN));
            let first = job.post_receive(None, 0, ANY, small.all());
            let second = job.post_receive(None, 0, ANY, large.all());
            let third = job.post_receive(None, 0, ANY, small.all());
            job.barrier().unwrap();
            if job.rank() == 0 {
                let peer = job.peer(to).unwrap();
                drop(peer.send(Class::Ordered, 1, &vec![1; len]));
                drop(peer.send(Class::Ordered, 2, &vec![2; len]));
            }
            if job.rank() == to {
                let too_long = |receive: &Operation<Received>| {
                    let error = receive.wait_for(PATIENCE).unwrap_err();
                    assert!(error.to_string().contains("receive of up to 64 bytes"), "{error}");
                    error.kept_message().map(|message| message.len)
                };
                assert_eq!(too_long(&first), Some(len as u64));
                assert_eq!(got(&second), (0, 1, len as u64));
                assert_eq!(too_long(&third), Some(len as u64));
                assert_eq!(bytes_of(&small, 64), [0xee; 64]);
                // It waits by now, and a receive that is posted too small changes nothing.
                let fourth = job.post_receive(None, 0, ANY, small.all());
                assert_eq!(too_long(&fourth), Some(len as u64));
                assert_eq!(job.receive_for(None, PATIENCE).unwrap().bytes(), vec![2; len]);
            } else {
                [first, second, third].iter().for_each(|one| drop(one.cancel().unwrap_err()));
            }
            job.barrier().unwrap();
        }
    });
}

/// MEM-26.5: a cancelled receive takes no message, and deregistered memory gets none.
#[test]
fn cancelled_receives_take_nothing() {
    each_way(|job, to| {
        let (page, gone) = (memory(job, 64), memory(job, 64));
        let cancelled = job.post_receive(None, 0, ANY, page.all());
        let lost = job.post_receive(None, 0, ANY, gone.all());
        let kept = job.post_receive(None, 0, ANY, page.slice(32..64).unwrap());
        assert!(cancelled.try_take().is_none());
        assert!(cancelled.cancel().unwrap_err().to_string().contains("cancelled"));
        let memory = gone.deregister().unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            drop(job.peer(to).unwrap().send(Class::Ordered, 3, b"here"));
        }
        if job.rank() == to {
            assert_eq!(got(&kept), (0, 3, 4));
            let error = lost.wait_for(PATIENCE).unwrap_err();
            assert!(error.kept_message().is_none(), "{error}");
            assert_eq!(bytes_of(&page, 32), vec![0xee; 32]);
            assert_eq!(&bytes_of(&page, 64)[32..36], &b"here"[..]);
            let mut untouched = [0; 64];
            memory.read(0, &mut untouched).unwrap();
            assert_eq!(untouched, [0xee; 64]);
            assert_eq!(kept.cancel().unwrap().len, 4, "it is complete already");
        } else {
            [lost, kept].iter().for_each(|one| drop(one.cancel().unwrap_err()));
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.2: whatever the interleaving of posts and arrivals, each sender's messages meet the
/// receives in their order, and none is lost. Messages go by the fast path, too.
#[test]
fn every_message_is_received_once_and_in_its_order() {
    const COUNT: u64 = 600;
    for settings in [over_the_network(&Settings::default()), Settings::default()] {
        cluster_once(3, &settings, |job| {
            if job.rank() > 0 {
                let peer = job.peer(0).unwrap();
                let mut random = Random::new(u64::from(job.rank()));
                for n in 0..COUNT {
                    let len = [8, 8, 100, 3000, 70_000][random.below(5)];
                    let mut bytes = vec![job.rank() as u8; len];
                    bytes[..8].copy_from_slice(&n.to_le_bytes());
                    drop(peer.send(Class::Ordered, n % 4, &bytes));
                }
                peer.flush_for(PATIENCE).unwrap();
                job.barrier().unwrap();
                return;
            }
            let spots: Vec<LocalRegion> = (0..8).map(|_| memory(&job, 70_000)).collect();
            let mut random = Random::new(9);
            // The next number of each sender and tag, because each pattern takes whole tags.
            let mut next = [[0, 1, 2, 3]; 2];
            let mut count = 0;
            let mut note = |from: Rank, tag: u64, bytes: &[u8]| {
                let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                let expected = &mut next[from as usize - 1][tag as usize];
                assert_eq!(n, *expected, "sender {from}, tag {tag}");
                assert!(bytes[8..].iter().all(|byte| *byte == from as u8));
                *expected += 4;
            };
            while count < 2 * COUNT {
                // Each round posts receives for one tag, and reads some messages otherwise. So a
                // sender's messages of one tag are received in the order of these calls.
                let tag = random.below(4) as u64;
                let receives: Vec<_> = spots
                    .iter()
                    .map(|spot| {
                        let from = [None, Some(1), Some(2)][random.below(3)];
                        job.post_receive(from, tag, EXACT, spot.all())
                    })
                    .collect();
                let wait = Duration::from_micros(random.below(300) as u64);
                let mut mail = Vec::new();
                while let Ok(message) = job.receive_for(None, wait) {
                    mail.push(message);
                }
                for (receive, spot) in receives.iter().zip(&spots) {
                    if let Ok(Received { from, tag, len }) = receive.cancel() {
                        note(from, tag, &bytes_of(spot, len as usize));
                        count += 1;
                    }
                }
                for message in mail {
                    note(message.from(), message.tag(), message.bytes());
                    count += 1;
                }
            }
            job.barrier().unwrap();
        });
    }
}

/// MEM-26.6: a receive of a node that leaves ends with an error, and one of any node goes on.
#[test]
fn a_receive_of_a_node_that_has_left_fails() {
    for settings in [over_the_network(&Settings::default()), Settings::default()] {
        cluster_once(3, &settings, |job| {
            let pages: Vec<LocalRegion> = (0..3).map(|_| memory(&job, 64)).collect();
            match job.rank() {
                0 => {
                    let last = job.post_receive(Some(1), 0, ANY, pages[0].all());
                    let none = job.post_receive(Some(1), 0, ANY, pages[1].all());
                    let any = job.post_receive(None, 0, ANY, pages[2].all());
                    job.barrier().unwrap();
                    assert_eq!(got(&last), (1, 1, 4));
                    let error = none.wait_for(PATIENCE).unwrap_err();
                    assert!(!error.is_timeout(), "{error}");
                    let late = job.post_receive(Some(1), 0, ANY, pages[1].all());
                    assert!(!late.wait_for(PATIENCE).unwrap_err().is_timeout());
                    assert!(any.try_take().is_none());
                    let peer = job.peer(2).unwrap();
                    peer.send(Class::Ordered, 0, b"go").wait_for(PATIENCE).unwrap();
                    assert_eq!(got(&any), (2, 2, 6));
                }
                1 => {
                    job.barrier().unwrap();
                    drop(job.peer(0).unwrap().send(Class::Ordered, 1, b"last"));
                }
                _ => {
                    job.barrier().unwrap();
                    job.receive_for(Some(0), PATIENCE).unwrap();
                    drop(job.peer(0).unwrap().send(Class::Ordered, 2, b"answer"));
                }
            }
            job.leave().unwrap();
        });
    }
}

/// MEM-26.3: the end of a receive wakes a task, and is told to queues and counters.
#[test]
fn the_end_of_a_receive_is_told() {
    each_way(|job, to| {
        let pages: Vec<LocalRegion> = (0..3).map(|_| memory(job, 64)).collect();
        if job.rank() == to {
            let (queue, counter) = (job.completion_queue(), job.counter());
            let [one, two, three] =
                [0, 1, 2].map(|n| job.post_receive(None, n as u64, EXACT, pages[n].all()));
            one.report_to(&queue, 17).unwrap();
            two.count_in(&counter).unwrap();
            job.barrier().unwrap();
            if to == 0 {
                send_three(job, to);
            }
            let received = block_on(three).unwrap();
            assert_eq!((received.tag, received.len), (2, 3));
            let mut ended = Vec::new();
            queue.wait_for(1, PATIENCE, &mut ended).unwrap();
            assert_eq!((ended[0].context, *ended[0].outcome.as_ref().unwrap()), (17, 1));
            assert_eq!(counter.wait_for(1, PATIENCE).unwrap().succeeded, 1);
        } else {
            job.barrier().unwrap();
            send_three(job, to);
        }
        job.barrier().unwrap();
    });
}

fn send_three(job: &Job, to: Rank) {
    let peer = job.peer(to).unwrap();
    for n in 0..3 {
        drop(peer.send(Class::Ordered, n, &b"123"[..n as usize + 1]));
    }
}

/// MEM-26.3: a scope lends any memory, and returns when the message is there.
#[test]
fn a_scope_lends_memory_for_a_message() {
    each_way(|job, to| {
        let mut bytes = vec![0; LEN];
        job.barrier().unwrap();
        if job.rank() == 0 {
            drop(job.peer(to).unwrap().send(Class::Ordered, 1, &vec![5; LEN]));
        }
        if job.rank() == to {
            job.scope(|scope| scope.post_receive(None, 1, EXACT, &mut bytes).map(drop)).unwrap();
            assert_eq!(bytes, vec![5; LEN]);
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.4, MEM-26.5: a scope reports a receive that failed, or that no message ended in time,
/// unless the caller has learned of it.
#[test]
fn scope_reports_a_receive_that_failed() {
    let limit = Some(Duration::from_secs(2));
    let settings = Settings { time_limit: limit, ..Settings::default() };
    cluster_once(1, &settings, |job| {
        let mut bytes = [0; 64];
        let peer = job.peer(0).unwrap();
        peer.send(Class::Ordered, 1, &[1; 65]).wait().unwrap();
        let error = job.scope(|scope| scope.post_receive(None, 1, EXACT, &mut bytes).map(drop));
        assert_eq!(error.unwrap_err().kept_message().map(|message| message.len), Some(65));
        job.scope(|scope| {
            let receive = scope.post_receive(None, 1, EXACT, &mut bytes)?;
            assert!(receive.wait().unwrap_err().kept_message().is_some());
            Ok(())
        })
        .unwrap();
        let error = job.scope(|scope| scope.post_receive(None, 2, EXACT, &mut bytes).map(drop));
        assert!(error.unwrap_err().to_string().contains("cancelled"));
        assert_eq!(job.receive_for(None, PATIENCE).unwrap().tag(), 1);
        job.flush().unwrap();
    });
}

/// MEM-8.3: a probe describes the message that is received next, and takes nothing.
#[test]
fn probe_describes_the_message_that_is_received_next() {
    each_way(|job, to| {
        job.barrier().unwrap();
        if job.rank() == 0 {
            let peer = job.peer(to).unwrap();
            drop(peer.send(Class::Ordered, 1, b""));
            drop(peer.send(Class::Ordered, u64::MAX, &vec![2; LEN]));
        }
        if job.rank() == to {
            assert_eq!(job.try_probe(Some(to + 1)), None);
            for (tag, len) in [(1, 0), (u64::MAX, LEN as u64)] {
                let next = job.probe_for(None, PATIENCE).unwrap();
                assert_eq!((next.from, next.tag, next.len), (0, tag, len));
                assert_eq!(job.try_probe(None), Some(next));
                assert_eq!(job.probe(Some(0)).unwrap(), next);
                let message = job.receive(Some(0)).unwrap();
                assert_eq!((message.tag(), message.bytes().len() as u64), (tag, len));
            }
            assert_eq!(job.try_probe(None), None);
            let late = job.probe_for(None, Duration::from_millis(5)).unwrap_err();
            assert!(late.is_timeout(), "{late}");
            let nobody = job.probe(Some(9)).unwrap_err().to_string();
            assert!(nobody.contains('9'), "{nobody}");
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.3, WIND-6.4: received messages give their credit back, so that any number of them comes.
#[test]
fn received_messages_give_their_credit_back() {
    each_way(|job, to| {
        const ROUNDS: u64 = 60;
        let page = memory(job, 1 << 20);
        let sent = (job.rank() == 0).then(|| {
            let peer = job.peer(to).unwrap();
            (0..ROUNDS)
                .map(|tag| peer.send_from(Class::Ordered, tag, page.all()))
                .collect::<Vec<_>>()
        });
        if job.rank() == to {
            let into = memory(job, 1 << 20);
            for tag in 0..ROUNDS {
                let receive = job.post_receive(None, 0, ANY, into.all());
                assert_eq!(got(&receive), (0, tag, 1 << 20));
            }
        }
        sent.iter().flatten().for_each(|sent| sent.wait_for(PATIENCE).unwrap());
        job.barrier().unwrap();
    });
}

/// MEM-26.8: a long message goes straight into the memory of a receive that was posted before, if
/// nothing of the same sender came before it that no receive was offered, and the memory has room.
#[test]
fn long_messages_are_placed_as_they_arrive() {
    cluster(2, &Settings::default(), |job| {
        let pages: Vec<LocalRegion> = (0..3).map(|_| memory(&job, LEN)).collect();
        let placed = || job.statistics().placed_messages;
        let is_receiver = job.rank() == 1;
        for class in [Class::Ordered, Class::Unordered, Class::Sync] {
            let earlier = placed();
            let post = |n: usize| job.post_receive(Some(0), n as u64, EXACT, pages[n].all());
            let receives: Vec<_> =
                is_receiver.then(|| [0, 1].map(post)).into_iter().flatten().collect();
            job.barrier().unwrap();
            if !is_receiver {
                let peer = job.peer(1).unwrap();
                for tag in 0..2 {
                    drop(peer.send(class, tag, &vec![tag as u8 + 1; LEN]));
                }
            }
            for (tag, receive) in receives.iter().enumerate() {
                assert_eq!(got(receive), (0, tag as u64, LEN as u64));
                assert_eq!(bytes_of(&pages[tag], LEN), vec![tag as u8 + 1; LEN]);
            }
            if is_receiver {
                assert!(placed() - earlier <= 2, "{}", placed() - earlier);
            }
            job.barrier().unwrap();
        }
        let before = placed();
        // A message that is whole before the next turn offers it to the receives is not placed.
        assert_eq!(before > 0, is_receiver);
        // A message that waits, and one that is too long, are received as ever.
        let small = memory(&job, 64);
        let receive = is_receiver.then(|| job.post_receive(Some(0), 9, EXACT, small.all()));
        job.barrier().unwrap();
        if !is_receiver {
            let peer = job.peer(1).unwrap();
            drop(peer.send(Class::Ordered, 9, &vec![9; LEN]));
            drop(peer.send(Class::Ordered, 8, &vec![8; LEN]));
            peer.send(Class::Sync, 7, b"all").wait_for(PATIENCE).unwrap();
        }
        if let Some(receive) = receive {
            let error = receive.wait_for(PATIENCE).unwrap_err();
            assert_eq!(error.kept_message().unwrap().len, LEN as u64);
            let late = job.post_receive(Some(0), 7, EXACT, small.all());
            assert_eq!(got(&late), (0, 7, 3));
            for tag in [9, 8] {
                assert_eq!(job.receive_for(None, PATIENCE).unwrap().bytes(), vec![tag; LEN]);
            }
            assert_eq!(placed(), before);
        }
        job.barrier().unwrap();
    });
}

/// MEM-26.8, WIND-2.9: a receive whose message is withdrawn in the middle gets the next one.
#[test]
fn a_receive_outlives_a_message_that_is_withdrawn() {
    const LONG: usize = 64 << 20;
    cluster(2, &Settings::default(), |job| {
        let page = memory(&job, LONG);
        for round in 0..6 {
            let receive = (job.rank() == 1).then(|| job.post_receive(None, 0, ANY, page.all()));
            job.barrier().unwrap();
            if let Some(receive) = receive {
                let first = got(&receive);
                if first.1 == 1 {
                    assert_eq!(first.2, LONG as u64);
                    let next = job.receive_for(None, PATIENCE).unwrap();
                    assert_eq!((next.tag(), next.bytes()), (2, &b"next"[..]));
                } else {
                    assert_eq!(first, (0, 2, 4));
                    assert_eq!(bytes_of(&page, 4), b"next");
                }
            } else {
                let peer = job.peer(1).unwrap();
                let long = peer.send_from(Class::Ordered, 1, page.all());
                let _ = long.wait_for(Duration::from_micros(200 * round));
                let _ = long.cancel();
                peer.send(Class::Ordered, 2, b"next").wait_for(PATIENCE).unwrap();
            }
            job.barrier().unwrap();
        }
    });
}

/// MEM-26.7: memory that is deregistered while a message is being placed is not touched any more,
/// and the sender is told.
#[test]
fn deregistered_memory_is_not_touched_any_more() {
    const LONG: usize = 32 << 20;
    cluster(2, &Settings::default(), |job| {
        for round in 0..6 {
            let page = memory(&job, LONG);
            let receive = (job.rank() == 1).then(|| job.post_receive(None, 0, ANY, page.all()));
            job.barrier().unwrap();
            if let Some(receive) = receive {
                let _ = receive.wait_for(Duration::from_micros(300 * round));
                let memory = page.deregister().unwrap();
                memory.fill(0, LONG as u64, 7).unwrap();
                let received = receive.wait_for(PATIENCE);
                job.barrier().unwrap();
                let mut bytes = vec![0; LONG];
                memory.read(0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 7));
                if received.is_err() {
                    // The message waits, unless some of it was in the memory already.
                    let _ = job.receive_for(None, Duration::from_millis(200));
                }
            } else {
                let long = job.peer(1).unwrap().send_from(Class::Ordered, 1, page.all());
                let _ = long.wait_for(PATIENCE);
                job.barrier().unwrap();
            }
            job.barrier().unwrap();
        }
    });
}
