//! Waits that the program interrupts (MEM-19.4).

use oikaze::ffi::interruptible;
use oikaze::memory::{Region, Rights};
use oikaze::testing::{cluster, cluster_with};
use oikaze::{Error, Job};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

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
        let limit = Duration::from_millis(120);
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

/// Declares an array on node 0, and calls `meanwhile` while the declaration waits for node 1. Node
/// 1 declares the array afterwards. Returns the outcome of the declaration on this node.
fn declared_meanwhile(
    job: &Job,
    ends: &[Mutex<Option<ChannelEnd>>; 2],
    meanwhile: impl FnOnce() + 'static,
) -> oikaze::Result<()> {
    let declare = || job.array::<u8>("first", 8).map(drop);
    match ends[job.rank() as usize].lock().unwrap().take().unwrap() {
        ChannelEnd::Tells(sender) => {
            let meanwhile = Cell::new(Some((meanwhile, sender)));
            let check = move || {
                if let Some((meanwhile, sender)) = meanwhile.take() {
                    meanwhile();
                    // Node 1 may have failed.
                    let _ = sender.send(());
                }
                false
            };
            interruptible(Rc::new(check), declare)
        }
        ChannelEnd::Hears(receiver) => {
            receiver.recv().unwrap();
            declare()
        }
    }
}

enum ChannelEnd {
    Tells(mpsc::Sender<()>),
    Hears(mpsc::Receiver<()>),
}

/// Returns the ends of a channel from node 0 to node 1.
fn ends() -> [Mutex<Option<ChannelEnd>>; 2] {
    let (sender, receiver) = mpsc::channel();
    [ChannelEnd::Tells(sender), ChannelEnd::Hears(receiver)].map(|end| Mutex::new(Some(end)))
}

/// MEM-19.4: a thread that waits for another one's declaration can be interrupted, and has called
/// nothing.
#[test]
fn interrupted_wait_to_declare_is_no_call() {
    let ends = ends();
    cluster(2, |job| {
        std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let second = move |job: &Job| {
                begun.recv().unwrap();
                end.send(interrupted(|| job.array::<u8>("second", 8))).unwrap();
            };
            if job.rank() == 0 {
                scope.spawn(move || second(job));
            }
            declared_meanwhile(job, &ends, move || {
                begin.send(()).unwrap();
                let (error, asked) = ended.recv().unwrap();
                let error = error.unwrap();
                assert!(error.is_timeout(), "{error}");
                let text = error.to_string();
                assert!(text.contains("\"second\""), "{text}");
                assert!(text.contains("after declare array \"first\""), "{text}");
                assert!(text.contains("another thread of this node"), "{text}");
                assert_eq!(asked, 3);
            })
        })?;
        job.array::<u8>("second", 8)?;
        job.barrier()?;
        Ok(())
    });
}

/// The job's time limit holds for that wait, too.
#[test]
fn wait_to_declare_ends_with_the_time_limit() {
    let ends = ends();
    let limit = Duration::from_millis(200);
    cluster_with(2, Job::builder().time_limit(limit), |job| {
        let first = std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let second = move |job: &Job| {
                begun.recv().unwrap();
                end.send(job.array::<u8>("second", 8).err()).unwrap();
            };
            if job.rank() == 0 {
                scope.spawn(move || second(job));
            }
            declared_meanwhile(job, &ends, move || {
                begin.send(()).unwrap();
                let error = ended.recv().unwrap().unwrap();
                assert!(error.is_timeout(), "{error}");
                assert!(error.to_string().contains("after declare array \"first\""), "{error}");
            })
        });
        // The limit of the first declaration has passed meanwhile, too. It ends well all the same
        // if node 1 is quick.
        drop(first);
        Ok(())
    });
}

/// A handler of a signal that declares in a thread's own declaration would wait for itself.
#[test]
fn declaration_inside_a_declaration_of_its_thread_is_an_error() {
    let ends = ends();
    cluster(2, |job| {
        let (refuse, refused) = mpsc::channel();
        let mut kept = job.array::<u8>("kept", 8)?;
        declared_meanwhile(job, &ends, move || refuse.send(kept.resize(9).err()).unwrap())?;
        if job.rank() == 0 {
            let error = refused.recv()?.unwrap().to_string();
            assert!(error.starts_with("resize array \"kept\""), "{error}");
            assert!(error.contains("its own call, declare array \"first\""), "{error}");
        }
        job.array::<u8>("second", 8)?;
        job.barrier()?;
        Ok(())
    });
}
