//! Waits that the program interrupts (MEM-19.4).

use oikaze::ffi::interruptible;
use oikaze::memory::{Region, Rights};
use oikaze::testing::cluster;
use oikaze::{Error, Job};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, mpsc};

/// Runs `work`, which waits for something that never comes, with an interruption at the third
/// question. Returns its error, and the number of questions.
fn interrupted<T>(work: impl FnOnce() -> oikaze::Result<T>) -> (Option<Error>, u32) {
    let asked = Rc::new(Cell::new(0));
    let counter = Rc::clone(&asked);
    let check = move || {
        counter.set(counter.get() + 1);
        counter.get() >= 3
    };
    (interruptible(Rc::new(check), work).err(), asked.get())
}

fn ends_each_wait(job: &Job) {
    let region = job.register(Region::zeroed(8).unwrap()).unwrap();
    let fifo = job.fifo("empty", 2, 8).unwrap();
    let mut element = Vec::new();
    let ended = [
        interrupted(|| job.receive(None)),
        interrupted(|| region.wait_until(0, |word| word > 0)),
        interrupted(|| fifo.pop(&mut element)),
        interrupted(|| job.completion_queue().wait(1, &mut Vec::new())),
    ];
    for (error, asked) in ended {
        assert!(error.is_some_and(|error| error.is_timeout()));
        assert_eq!(asked, 3, "no wait goes on after its interruption");
    }
}

/// MEM-19.4.
#[test]
fn interrupted_wait_ends_as_by_its_time_limit() {
    cluster(1, |job| {
        ends_each_wait(job);
        Ok(())
    });
}

/// MEM-19.4: a push that waits for room is several waits.
#[test]
fn interrupted_push_ends() {
    cluster(1, |job| {
        let _fifo = job.fifo("full", 1, 16).unwrap();
        let there = job.peer(0).unwrap().fifo("full").unwrap();
        while there.try_push(b"one of many").is_ok() {}
        let (error, asked) = interrupted(|| there.push(b"second"));
        assert!(error.is_some_and(|error| error.is_full() || error.is_timeout()));
        assert!(asked >= 3);
        Ok(())
    });
}

/// MEM-19.4: work that does not wait is never asked, and the check is gone afterwards.
#[test]
fn check_concerns_waits_of_its_call_alone() {
    cluster(1, |job| {
        let word = job.publish("word", Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(0).unwrap().region("word").unwrap();
        let asked = Rc::new(Cell::new(false));
        let noted = Rc::clone(&asked);
        let check = move || {
            noted.set(true);
            true
        };
        let before = interruptible(Rc::new(check), || there.fetch_add(0, 1).wait()).unwrap();
        assert_eq!((before, word.load_u64(0).unwrap()), (0, 1));
        let limit = std::time::Duration::from_millis(120);
        assert!(job.receive_for(None, limit).unwrap_err().is_timeout());
        assert!(!asked.get());
        Ok(())
    });
}

/// MEM-19.4, END-1.2: the node has not left after the interruption, and the next call leaves.
#[test]
fn interrupted_leave_is_repeated_and_completes() {
    let (sender, interruptions) = mpsc::channel();
    let ends = [Mutex::new((Some(sender), None)), Mutex::new((None, Some(interruptions)))];
    cluster(2, |job| {
        // A rank that fails drops its end, and the other one goes on.
        let (sender, interruptions) =
            std::mem::take(&mut *ends[job.rank() as usize].lock().unwrap());
        if let Some(sender) = sender {
            for _ in 0..2 {
                let (error, asked) = interrupted(|| job.leave_shared());
                assert!(error.is_some_and(|error| error.is_timeout()));
                assert_eq!((asked, job.has_left()), (3, false));
            }
            sender.send(())?;
        }
        if let Some(interruptions) = interruptions {
            interruptions.recv()?;
        }
        job.leave_shared()?;
        assert!(job.has_left());
        Ok(job.leave_shared()?)
    });
}
