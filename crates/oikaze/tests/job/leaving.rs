//! One thread leaves the job while others wait.

use oikaze::Error;
use oikaze::memory::Region;
use oikaze_launch::{Settings, SingleNode};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// MEM-7.6: a wait for something that no thread does any more ends, whether it began before or
/// after leaving.
#[test]
fn whatever_is_waited_for_the_wait_ends() {
    let job =
        oikaze::internal::join_as(Box::new(SingleNode::new(Settings::default()).unwrap())).unwrap();
    let (fifo, word) =
        (job.fifo("work", 2, 16).unwrap(), job.register(Region::zeroed(8).unwrap()).unwrap());
    let (queue, counter) = (job.completion_queue(), job.counter());
    let waits = [
        std::thread::spawn(move || fifo.pop_for(&mut Vec::new(), PATIENCE)),
        std::thread::spawn(move || word.wait_until_for(0, PATIENCE, |word| word != 0).map(drop)),
        std::thread::spawn(move || queue.wait_for(1, PATIENCE, &mut Vec::new()).map(drop)),
        std::thread::spawn(move || counter.wait_for(1, PATIENCE).map(drop)),
    ];
    drop(job);
    for wait in waits {
        let text = wait
            .join()
            .unwrap()
            .err()
            .map(|error: Error| error.to_string())
            .expect("nothing comes");
        assert!(text.contains("waiting") && text.contains("this node has left the job"), "{text}");
    }
}

/// Operations in flight end when the job is left, and the queue reports all of them.
#[test]
fn operations_under_way_are_told_before_the_wait_ends() {
    let job =
        oikaze::internal::join_as(Box::new(SingleNode::new(Settings::default()).unwrap())).unwrap();
    let queue = job.completion_queue();
    let me = job.peer(0).unwrap();
    // No call reads these messages, so some wait for credit.
    for number in 0..64 {
        me.send(oikaze::message::Class::Ordered, number, &vec![0; 1 << 20])
            .report_to(&queue, number)
            .unwrap();
    }
    let wait = std::thread::spawn(move || {
        let mut told = Vec::new();
        queue.wait_for(64, PATIENCE, &mut told).map(|_| told)
    });
    drop(job);
    let told = wait.join().unwrap().unwrap();
    assert!(told.len() == 64 && told.iter().any(|one| one.outcome.is_ok()));
    assert!(told.iter().any(|one| one.outcome.is_err()));
}
