//! Messages that their receiver does not read, until the queue to it is full (MEM-8.2).

use crate::support::{cluster_once, over_the_network};
use oikaze::Job;
use oikaze::completion::Operation;
use oikaze::message::Class;
use oikaze_launch::Settings;

/// Sends messages until one is refused because the queue is full. Returns the number of accepted
/// messages.
fn fill(job: &Job, peer: u32) -> u64 {
    let to = job.peer(peer).unwrap();
    let mut operations = Vec::new();
    loop {
        let message = to.send(Class::Ordered, operations.len() as u64, &[7; 1000]);
        match message.try_take() {
            Some(Err(error)) if error.is_queue_full() => break,
            Some(Err(error)) => panic!("{error}"),
            _ => operations.push(message),
        }
    }
    // While another thread has the engine, a message is refused only after `send` has returned, but
    // before the next one.
    let is_taken = |message: &Operation<()>| match message.try_take() {
        Some(Err(error)) if error.is_queue_full() => false,
        Some(Err(error)) => panic!("{error}"),
        _ => true,
    };
    operations.iter().filter(|message| is_taken(message)).count() as u64
}

/// MEM-8.2: collectives, locks and answers do not wait for a program that reads nothing.
fn full(sender: u32, settings: &Settings) {
    cluster_once(2, settings, |job| {
        let receiver = 1 - sender;
        let region = oikaze::memory::Region::zeroed(64).unwrap();
        let _published = job.publish("words", region, oikaze::memory::Rights::ALL).unwrap();
        let taken = if job.rank() == sender { fill(&job, receiver) } else { 0 };
        job.barrier().unwrap();
        let taken = job.barrier_reduce(taken, oikaze::collective::operator::Max).unwrap();
        drop(job.lock(3).unwrap());
        if job.rank() == receiver {
            // The sender answers, although its queue to this node is full.
            let words = job.peer(sender).unwrap().region("words").unwrap();
            assert_eq!(words.fetch_add(0, 1).wait().unwrap(), 0);
            let mut next = 0;
            for _ in 0..taken {
                let message = job.receive(Some(sender)).unwrap();
                assert!(message.tag() >= next && message.bytes().len() == 1000);
                next = message.tag() + 1;
            }
        }
        job.barrier().unwrap();
    });
}

#[test]
fn full_queue_over_rings_stops_no_collective() {
    full(0, &Settings::default());
    full(1, &Settings::default());
}

#[test]
fn full_queue_over_the_network_stops_no_collective() {
    full(0, &over_the_network(&Settings::default()));
    full(1, &over_the_network(&Settings::default()));
}
