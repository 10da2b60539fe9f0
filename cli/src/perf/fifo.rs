//! Measures a queue at the last node, into which all other nodes push.

use super::measure::{Bench, PATIENCE, Stream};
use super::stream::{BATCH, IN_FLIGHT};
use oikaze::Result;
use oikaze::completion::Operation;
use oikaze::message::{Fifo, RemoteFifo};
use std::collections::VecDeque;
use std::time::Instant;

const NAME: &str = "perf.elements";
const SLOTS: u64 = 1 << 16;

/// Role of a node in the measurement: producer or consumer.
enum End {
    Takes(Fifo),
    Pushes(RemoteFifo),
}

impl Bench<'_> {
    /// Measures the elements of all producers, from the first push until the last element has been
    /// taken out.
    pub fn elements(&self) -> Result<Stream> {
        let owner = self.job.size() - 1;
        let end = if self.job.rank() == owner {
            End::Takes(self.job.fifo(NAME, SLOTS, self.perf.size as u64)?)
        } else {
            End::Pushes(self.job.peer(owner)?.fifo(NAME)?)
        };
        let count = (self.volume() / self.perf.size).max(1);
        self.pass(&end, (count / 10).max(1))?;
        let begun = Instant::now();
        self.pass(&end, count)?;
        let seconds = begun.elapsed().as_secs_f64();
        let operations = count as u64 * u64::from(owner);
        let (bytes, unmeasured) = (operations * self.perf.size as u64, None);
        Ok(Stream {
            bytes,
            operations,
            seconds,
            processor_seconds: unmeasured,
            other_processor_seconds: unmeasured,
        })
    }

    /// Passes `count` elements of each producer. Returns on every node when all elements have been
    /// taken out.
    fn pass(&self, end: &End, count: usize) -> Result<()> {
        self.job.barrier()?;
        match end {
            End::Takes(fifo) => take(fifo, count * (self.job.size() as usize - 1))?,
            End::Pushes(fifo) => self.push(fifo, count)?,
        }
        self.job.barrier()
    }

    /// Pushes `left` elements. An element refused because the queue was full is pushed again.
    fn push(&self, fifo: &RemoteFifo, mut left: usize) -> Result<()> {
        let element = vec![7; self.perf.size];
        let mut flying: VecDeque<Operation<()>> = VecDeque::with_capacity(IN_FLIGHT);
        while left > 0 || !flying.is_empty() {
            if left > 0 && flying.len() + BATCH <= IN_FLIGHT {
                let together = left.min(BATCH);
                left -= together;
                self.job.batch(|| flying.extend((0..together).map(|_| fifo.post(&element))));
                continue;
            }
            match flying.pop_front().map(|first| first.wait_for(PATIENCE)) {
                Some(Err(error)) if error.is_full() => left += 1,
                Some(Err(error)) => return Err(error),
                Some(Ok(())) | None => {}
            }
        }
        Ok(())
    }
}

fn take(fifo: &Fifo, count: usize) -> Result<()> {
    let mut element = Vec::new();
    for _ in 0..count {
        element.clear();
        fifo.pop_for(&mut element, PATIENCE)?;
    }
    Ok(())
}
