//! Cost of a wait in a task, beside a blocking wait: additions at the peer, one at a time.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use clap::{Args, ValueEnum};
use oikaze::Job;
use oikaze::completion::Operation;
use rustix::event::{PollFd, PollFlags, poll};

use super::pair::{PATIENCE, Pair, median_us};
use super::{failed, tell};
use crate::error::{Error, Tried};

/// Way in which a program waits for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// A blocking call.
    Block,
    /// A future, in an executor that parks its thread.
    Future,
    /// An event loop that sleeps on the job's descriptor.
    Descriptor,
}

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of operations.
    #[arg(long)]
    turns: u32,
    /// Way to wait.
    #[arg(long, value_enum)]
    way: Way,
}

/// Prints `latency`, the median time of an addition at the peer in µs.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, 8)?;
    if job.rank() == 0 {
        let mut times = Vec::new();
        for turn in 0..settings.turns + settings.turns / 10 {
            let begun = Instant::now();
            let operation = pair.there.fetch_add(0, 1);
            let before = wait(job, operation, settings.way)?;
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if before != u64::from(turn) {
                return Err(Error::new("an addition was lost"));
            }
        }
        let counted = times.split_off(settings.turns as usize / 10);
        tell(&[("latency", median_us(&counted))]);
    }
    job.barrier().map_err(failed)
}

fn wait(job: &Job, operation: Operation<u64>, way: Way) -> Result<u64, Error> {
    match way {
        Way::Block => operation.wait_for(PATIENCE).map_err(failed),
        Way::Future => block_on(operation.into_future()).map_err(failed),
        Way::Descriptor => loop {
            if let Some(before) = operation.try_take() {
                return before.map_err(failed);
            }
            if !job.progress() {
                sleep_on(job.descriptor())?;
                job.clear_descriptor();
            }
        },
    }
}

fn sleep_on(descriptor: BorrowedFd<'_>) -> Result<(), Error> {
    let limit = PATIENCE.try_into().map_err(failed)?;
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&limit)).tried("polling the job's descriptor")?;
    if ready == 1 { Ok(()) } else { Err(Error::new("nothing came")) }
}

/// Unparks a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end in this thread, which sleeps meanwhile.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}
