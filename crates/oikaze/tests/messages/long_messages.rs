//! Messages longer than the receiver's credit, up to the limit and one byte beyond.

use crate::support::{cluster, cluster_once};
use oikaze::memory::Region;
use oikaze::message::{Class, MESSAGE_MAX};
use oikaze_launch::Settings;
use oikaze_protocol::limits::CREDIT;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// WIND-6.7, MEM-16.6: over the network and rings, with short messages before and behind, in both
/// directions at once.
#[test]
fn messages_around_and_beyond_all_credit_arrive_in_order() {
    let lens = [8, CREDIT as usize - 128, CREDIT as usize - 127, 3, 3 * CREDIT as usize, 0];
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let from = job.register(Region::zeroed(3 * CREDIT as usize).unwrap()).unwrap();
        from.store_u64(0, 0x1234).unwrap();
        let send =
            |len: usize| peer.send_from(Class::Ordered, len as u64, from.slice(0..len).unwrap());
        let sent: Vec<_> = lens.iter().map(|len| send(*len)).collect();
        for len in lens {
            let arrived = job.receive_for(None, PATIENCE).unwrap();
            assert_eq!((arrived.tag(), arrived.bytes().len()), (len as u64, len));
            assert!(len < 8 || arrived.bytes()[..8] == 0x1234u64.to_ne_bytes());
        }
        sent.iter().for_each(|message| message.wait_for(PATIENCE).unwrap());
        job.barrier().unwrap();
    });
}

/// WIND-6.7: a long message that is not read holds back only messages that cost credit.
#[test]
fn unread_long_message_holds_back_no_put_and_no_barrier() {
    cluster(2, &Settings::default(), |job| {
        let inbox =
            job.publish("inbox", Region::zeroed(64).unwrap(), oikaze::memory::Rights::ALL).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        let long = peer.send(Class::Unordered, 1, &vec![1; CREDIT as usize + 1]);
        let behind = peer.send(Class::Unordered, 2, b"behind");
        there.put_copy(0, &[7; 8]).unwrap().wait_for(PATIENCE).unwrap();
        long.wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
        assert_eq!(inbox.load_u64(0).unwrap(), u64::from_ne_bytes([7; 8]));
        assert!(!behind.is_done());
        job.barrier().unwrap();
        assert_eq!(job.receive_batch_for(2, PATIENCE).len(), 2);
        behind.wait_for(PATIENCE).unwrap();
        job.barrier().unwrap();
    });
}

/// MEM-8.4: a receiver that takes nothing delays the sender no longer than a copy, and the memory
/// of the message may change as soon as the call has returned.
#[test]
fn memory_of_a_sent_message_may_change_at_once() {
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let mut bytes = vec![0; CREDIT as usize + 1];
        let sent: Vec<_> = (1..5)
            .map(|tag| {
                bytes.fill(tag as u8);
                // The first message takes all credit until it is read.
                let sent = peer.send(Class::Ordered, tag, &bytes);
                bytes.fill(0);
                bytes.truncate(1 << 20);
                sent
            })
            .collect();
        // Nobody has read a message, and the calls have returned.
        job.barrier().unwrap();
        for tag in 1..5 {
            let arrived = job.receive_for(Some(1 - job.rank()), PATIENCE).unwrap();
            assert_eq!(arrived.tag(), tag);
            assert!(arrived.bytes().iter().all(|byte| *byte == tag as u8), "{tag}");
        }
        sent.iter().for_each(|message| message.wait_for(PATIENCE).unwrap());
        job.barrier().unwrap();
    });
}

/// WIND-6.7: a cancelled message returns its credit.
#[test]
fn cancelled_long_message_lets_the_next_one_go() {
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        if job.rank() == 0 {
            let first = peer.send(Class::Ordered, 1, b"unread");
            let long = peer.send(Class::Ordered, 2, &vec![1; CREDIT as usize]);
            first.wait_for(PATIENCE).unwrap();
            long.cancel().unwrap_err();
            let next = peer.send(Class::Ordered, 3, &vec![2; CREDIT as usize + 1]);
            job.barrier().unwrap();
            next.wait_for(PATIENCE).unwrap();
        } else {
            job.barrier().unwrap();
            let tags = [(); 2].map(|()| job.receive_for(None, PATIENCE).unwrap().tag());
            assert_eq!(tags, [1, 3]);
        }
        job.barrier().unwrap();
    });
}

/// WIND-6.7: the message fails before its first byte is sent, and the error names the limit. (The
/// memory is never touched.)
#[test]
fn message_longer_than_the_limit_is_refused_with_the_limit() {
    cluster(2, &Settings::default(), |job| {
        if job.rank() == 0 {
            let long = job.register(Region::zeroed(MESSAGE_MAX as usize + 1).unwrap()).unwrap();
            for to in 0..2 {
                let peer = job.peer(to).unwrap();
                let error = peer
                    .send_from(Class::Ordered, 1, long.all())
                    .wait_for(PATIENCE)
                    .unwrap_err()
                    .to_string();
                assert!(error.contains("1073741825 bytes"), "{error}");
                assert!(error.contains("(1073741824)"), "{error}");
            }
        }
        job.barrier().unwrap();
        assert!(job.try_receive(None).is_none());
    });
}

/// MEM-15.6: the queue to a peer that does not read is bounded, and the error says so. There is
/// room again when a message has ended. Messages that are not copied do not count.
#[test]
fn queue_to_peer_that_does_not_read_is_bounded() {
    const EACH: usize = 48 << 20;
    const FIT: usize = oikaze_protocol::limits::QUEUED_MAX as usize / EACH;
    cluster_once(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        if job.rank() == 0 {
            let bytes = vec![1; EACH];
            // The first message has been sent, and is not read.
            let unread = peer.send(Class::Ordered, 0, b"unread");
            unread.wait_for(PATIENCE).unwrap();
            let queued: Vec<_> = (0..FIT).map(|_| peer.send(Class::Ordered, 1, &bytes)).collect();
            let error = peer.send(Class::Ordered, 1, &bytes).wait_for(PATIENCE).unwrap_err();
            assert!(error.is_queue_full(), "{error}");
            assert!(error.to_string().contains("too much is queued to node 1"), "{error}");
            let from = job.register(Region::zeroed(8).unwrap()).unwrap();
            let uncopied = peer.send_from(Class::Ordered, 2, from.all());
            queued.iter().for_each(|message| drop(message.cancel()));
            let again = peer.send(Class::Ordered, 3, &bytes[..1 << 20]);
            job.barrier().unwrap();
            uncopied.wait_for(PATIENCE).unwrap();
            again.wait_for(PATIENCE).unwrap();
        } else {
            job.barrier().unwrap();
            let tags = [(); 3].map(|()| job.receive_for(None, PATIENCE).unwrap().tag());
            assert_eq!(tags, [0, 2, 3]);
        }
        job.barrier().unwrap();
    });
}
