//! How many elements a second pass a FIFO: node 0 takes out, all others push, in batches.
//!
//! `oikaze run -n 3 -- target/release/examples/fifo [ELEMENTS [BYTES]]` prints what each producer pushed in all and how long it took.

use oikaze::{Operation, ReduceOp, Result};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const SLOTS: u64 = 1 << 16;
/// Posted together, and under way at a time.
const BATCH: usize = 64;
const WINDOW: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let count = arguments.next().unwrap_or(2_000_000);
    let bytes = arguments.next().unwrap_or(8).clamp(8, 4096);
    let job = oikaze::join()?;
    let producers = job.size() as usize - 1;
    if job.rank() == 0 {
        let fifo = job.fifo("elements", SLOTS, bytes as u64)?;
        job.barrier()?;
        let (begun, mut element) = (Instant::now(), Vec::with_capacity(bytes));
        for _ in 0..count * producers {
            element.clear();
            fifo.pop(&mut element, Some(PATIENCE))?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let full = job.reduce(0_u64, ReduceOp::Sum)?;
        let rate = (count * producers) as f64 / seconds / 1e6;
        println!("{producers} producers, {bytes} bytes: {rate:.2} M/s ({full} were refused for want of room)");
    } else {
        let fifo = job.peer(0)?.fifo("elements")?;
        job.barrier()?;
        let element = vec![7; bytes];
        let (mut left, mut full) = (count, 0_u64);
        let mut flying: VecDeque<Operation<()>> = VecDeque::with_capacity(WINDOW);
        while left > 0 || !flying.is_empty() {
            if left > 0 && flying.len() + BATCH <= WINDOW {
                let together = left.min(BATCH);
                left -= together;
                job.batch(|| flying.extend((0..together).map(|_| fifo.post(&element))));
                continue;
            }
            let Some(first) = flying.pop_front() else { continue };
            match first.wait_for(PATIENCE) {
                Ok(()) => {}
                Err(error) if error.is_full() => (left, full) = (left + 1, full + 1),
                Err(error) => return Err(error),
            }
        }
        job.reduce(full, ReduceOp::Sum)?;
    }
    job.leave()
}
