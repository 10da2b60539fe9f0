//! Receive credit: all of it comes back after messages are read, whichever call waits for them.

use crate::support::cluster;
use oikaze::message::Class;
use oikaze_launch::Settings;
use oikaze_protocol::limits::CREDIT;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// WIND-6.4, MEM-16.6: the messages read are shorter than the amount at which a reader returns
/// credit, and the next message needs nearly all credit.
#[test]
fn a_message_as_long_as_all_credit_goes_when_what_came_before_is_read() {
    const SHORT: usize = 100_000;
    const LONG: usize = CREDIT as usize - (1 << 20);
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        for round in 0..3 {
            if job.rank() == 0 {
                (0..19).for_each(|_| {
                    peer.send(Class::Ordered, round, &[1; SHORT]).wait_for(PATIENCE).unwrap()
                });
                assert_eq!(job.receive_for(Some(1), PATIENCE).unwrap().bytes(), b"all is read");
                peer.send(Class::Ordered, round, &vec![2; LONG]).wait_for(PATIENCE).unwrap();
            } else {
                (0..19).for_each(|_| {
                    assert_eq!(job.receive_for(None, PATIENCE).unwrap().bytes().len(), SHORT)
                });
                peer.send(Class::Ordered, round, b"all is read").wait_for(PATIENCE).unwrap();
                assert_eq!(job.receive_for(None, PATIENCE).unwrap().bytes().len(), LONG);
            }
        }
        job.barrier().unwrap();
    });
}

/// WIND-6.4: a batch waits for a message that needs nearly all credit, while an earlier message of
/// the batch holds less than half of it.
#[test]
fn a_batch_does_not_hold_back_what_it_waits_for() {
    const FIRST: usize = CREDIT as usize / 2 - (1 << 20);
    const LAST: usize = CREDIT as usize - (1 << 20);
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        if job.rank() == 0 {
            let sent =
                [FIRST, LAST].map(|len| peer.send(Class::Ordered, len as u64, &vec![1; len]));
            sent.iter().for_each(|message| message.wait_for(PATIENCE).unwrap());
        } else {
            let lens: Vec<usize> = job
                .receive_batch_for(2, PATIENCE)
                .iter()
                .map(|arrived| arrived.bytes().len())
                .collect();
            assert_eq!(lens, [FIRST, LAST]);
        }
        job.barrier().unwrap();
    });
}

/// WIND-6.4: two threads each wait for a batch. Both get a full one, because messages that one of
/// them has taken return credit to the sender.
#[test]
fn each_of_two_threads_that_wait_for_a_batch_gets_one() {
    const EACH: usize = 64;
    const LEN: usize = 1 << 20;
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        if job.rank() == 0 {
            job.receive_for(Some(1), PATIENCE).unwrap();
            let sent: Vec<_> =
                (0..2 * EACH as u64).map(|tag| peer.send(Class::Ordered, tag, &[1; LEN])).collect();
            sent.iter().for_each(|message| message.wait_for(PATIENCE).unwrap());
        } else {
            let batches = std::thread::scope(|scope| {
                let waiting =
                    [(); 2].map(|()| scope.spawn(|| job.receive_batch_for(EACH, PATIENCE).len()));
                peer.send(Class::Ordered, 0, b"go on").wait_for(PATIENCE).unwrap();
                waiting.map(|thread| thread.join().unwrap())
            });
            assert_eq!(batches, [EACH; 2]);
        }
        job.barrier().unwrap();
    });
}
