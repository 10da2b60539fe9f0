//! Waits for operations by `.await`, here in the smallest possible executor.

use oikaze::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let _words = job.publish("words", Region::zeroed(4096)?, Rights::ATOMIC)?;
    let there = job.peer((job.rank() + 1) % job.size())?.region("words")?;
    let before = block_on(async {
        let first = there.fetch_add(0, 40); // both are in flight
        let second = there.fetch_add(0, 2);
        Ok::<_, oikaze::Error>(first.await? + second.await?)
    })?;
    // In either order: 0 + 40, or 2 + 0.
    assert!(before == 40 || before == 2);
    println!("node {} has added 42", job.rank());
    job.barrier()
}
