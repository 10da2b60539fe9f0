//! Tasks that await, and event loops, with each way to wait and each mode of the engine.

use crate::ways::{ExchangeWay, ways};
use oikaze::job::{EngineMode, Feature, WaitMode};
use oikaze::prelude::*;
use oikaze::testing::cluster_with;
use rustix::event::{PollFd, PollFlags, poll};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const WAITS: [&str; 4] = ["spin", "poll:10us", "block", "adaptive"];

/// Unparks a thread, and counts.
struct Unpark {
    thread: Thread,
    times: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn unpark() -> Arc<Unpark> {
    Arc::new(Unpark { thread: std::thread::current(), times: AtomicUsize::new(0) })
}

/// Runs futures to their end in this thread, which sleeps meanwhile.
fn block_on_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let waker = Waker::from(unpark());
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    while futures.iter().any(|(_, output)| output.is_none()) {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                *output = Some(value);
            }
        }
        if futures.iter().any(|(_, output)| output.is_none()) {
            std::thread::park();
        }
    }
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

fn each_wait(program: impl Fn(&Job) -> Result<(), Box<dyn std::error::Error>> + Sync) {
    for (number, words) in WAITS.into_iter().enumerate() {
        for way in ways(ExchangeWay::of_number(number)) {
            for thread in [false, true] {
                let waiting = words.parse().unwrap();
                let mut settings = Job::builder().waiting(waiting).time_limit(PATIENCE);
                if thread {
                    settings = settings.engine(EngineMode::thread());
                }
                way.run(2, &settings, &program);
            }
        }
    }
}

/// Many tasks at a time, whose node sleeps or polls between two polls of them.
#[test]
fn awaited_operations_end() {
    each_wait(|job| {
        let inbox = job.publish("inbox", Region::zeroed(64)?, Rights::ALL)?;
        let there = job.peer(1 - job.rank())?.region("inbox")?;
        for round in 0..20 {
            let added = (0..8).map(|_| there.fetch_add(0, 1).into_future());
            let mut before = block_on_all(added).into_iter().collect::<oikaze::Result<Vec<_>>>()?;
            before.sort_unstable();
            assert_eq!(before, (round * 8..round * 8 + 8).collect::<Vec<u64>>());
        }
        let pending = job.start().all_gather(&[job.rank()]);
        let ranks = block_on_all([pending.into_future()]);
        assert_eq!(ranks.into_iter().collect::<oikaze::Result<Vec<_>>>()?, [[0, 1]]);
        drop(inbox);
        Ok(())
    });
}

/// An event loop that sleeps when it is told to, with messages to and fro.
#[test]
fn event_loop_gets_all_messages() {
    each_wait(|job| {
        let peer = job.peer(1 - job.rank())?;
        let limit = PATIENCE.try_into()?;
        for turn in 0..50 {
            if u64::from(job.rank()) == turn % 2 {
                let _settles_by_itself = peer.send(Class::Ordered, turn, b"your turn");
                continue;
            }
            let message = loop {
                if let Some(message) = job.try_receive(None) {
                    break message;
                }
                if !job.progress() {
                    let mut fds = [PollFd::from_borrowed_fd(job.descriptor(), PollFlags::IN)];
                    assert_eq!(poll(&mut fds, Some(&limit))?, 1, "nothing came within {limit:?}");
                    job.clear_descriptor();
                }
            };
            assert_eq!(message.tag(), turn);
        }
        Ok(())
    });
}

/// A blocking job's task asks to be woken, and a spinning job's task to be polled again, although
/// nothing has happened.
#[test]
fn task_polls_on_as_a_blocking_wait_would() {
    for (words, polls_on) in [("spin", true), ("block", false)] {
        let settings = Job::builder().waiting(words.parse().unwrap()).time_limit(PATIENCE);
        cluster_with(2, settings, |job| {
            if job.rank() == 0 {
                let page = job.register(Region::zeroed(64)?)?;
                let mut receive = pin!(job.post_receive(None, 0, 0, page.all()).into_future());
                let counter = unpark();
                let waker = Waker::from(Arc::clone(&counter));
                let mut context = Context::from_waker(&waker);
                for polls in 1..=100 {
                    assert!(receive.as_mut().poll(&mut context).is_pending());
                    let wakes = counter.times.load(Ordering::SeqCst);
                    assert_eq!(wakes, if polls_on { polls } else { 0 }, "{words}");
                }
                job.barrier()?;
                while receive.as_mut().poll(&mut context).is_pending() {
                    std::thread::park();
                }
            } else {
                job.barrier()?;
                job.peer(0)?.send(Class::Ordered, 0, b"at last").wait()?;
            }
            Ok(())
        });
    }
}

/// A loop that never looks holds nothing up: the helper takes in what arrives for it.
#[test]
fn node_whose_event_loop_computes_still_answers() {
    let settings =
        Job::builder().waiting(WaitMode::Block).without([Feature::Shm]).time_limit(PATIENCE);
    cluster_with(2, settings, |job| {
        let inbox = job.publish("inbox", Region::zeroed(64)?, Rights::ALL)?;
        job.barrier()?;
        if job.rank() == 0 {
            // From here on the loop sleeps, as far as the node knows.
            let _descriptor = job.descriptor();
            job.clear_descriptor();
            while inbox.load_u64(0)? < 100 {
                std::thread::yield_now();
            }
        } else {
            let there = job.peer(0)?.region("inbox")?;
            for _ in 0..100 {
                there.fetch_add(0, 1).wait()?;
            }
        }
        job.barrier()?;
        Ok(())
    });
}
