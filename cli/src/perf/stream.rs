//! Measures many operations in flight: bytes and operations per second, and their processor time.

use super::Test;
use super::measure::{Bench, COPIED, PATIENCE, Stream, exchanged};
use oikaze::Result;
use oikaze::collective::operator::Sum;
use oikaze::completion::Operation;
use oikaze::message::Class;
use oikaze_os::cpu::Meter;
use std::collections::VecDeque;
use std::time::Instant;

/// Maximum number of operations in flight.
pub const IN_FLIGHT: usize = 1024;
const BYTES_IN_FLIGHT: usize = 16 << 20;
/// Maximum number of operations that are posted together.
pub const BATCH: usize = 64;
/// Bytes that are moved before the clock starts, so that the congestion window opens. A smaller
/// volume is warmed up with a quarter of its bytes.
const WARM_UP: usize = 64 << 20;

impl Bench<'_> {
    /// Measures operations from node 0 to node 1 (get: the other way).
    pub fn stream(&self) -> Result<Stream> {
        let operations = (self.volume() / self.perf.size).max(1);
        let warm_up = (WARM_UP.min(self.volume() / 4) / self.perf.size).max(1);
        self.transfer(0, warm_up)?;
        self.job.barrier()?;
        let meter = Meter::new();
        let before = meter.spent();
        let begun = Instant::now();
        self.transfer(warm_up, operations)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.job.barrier()?;
        let spent = if self.pair.is_some() { (meter.spent() - before).as_secs_f64() } else { 0.0 };
        let processor_seconds = Some(self.job.barrier_reduce(spent, Sum)?);
        let other_processor_seconds =
            Some(self.job.barrier_reduce(if self.job.rank() == 1 { spent } else { 0.0 }, Sum)?);
        let bytes = operations as u64 * self.perf.size as u64;
        Ok(Stream {
            bytes,
            operations: operations as u64,
            seconds,
            processor_seconds,
            other_processor_seconds,
        })
    }

    /// Runs this node's part in `count` operations, beginning with operation number `first`. The
    /// number determines the memory that an operation uses.
    fn transfer(&self, first: usize, count: usize) -> Result<()> {
        let Some((peer, there)) = &self.pair else { return Ok(()) };
        let (test, size) = (self.perf.test, self.perf.size);
        if self.job.rank() == 1 {
            for _ in 0..if test == Test::Message { count } else { 0 } {
                self.job.receive_for(Some(peer.rank()), PATIENCE)?;
            }
            return Ok(());
        }
        let (class, window) =
            (self.perf.class.class(), (BYTES_IN_FLIGHT / size).clamp(2, IN_FLIGHT));
        let span = self.perf.span();
        let begins = exchanged(span);
        let places = (self.local.len() - begins) / span;
        let batch = (window / 4).clamp(1, BATCH);
        // `send` copies short messages. Ordered messages complete in order, so the completion of
        // the last message of a batch covers the batch.
        let are_copied = test == Test::Message && size <= COPIED;
        let report_batch = if are_copied && class != Class::Unordered { batch } else { 1 };
        let (last, mut unreported) = (first + count - 1, 0);
        let mut flying = VecDeque::with_capacity(window);
        // Reuses the slice while the offset stays the same.
        let (mut at, mut here) = (begins, self.local.slice(begins..begins + span)?);
        let mut post = |turn: usize, flying: &mut VecDeque<Operation<()>>| -> Result<()> {
            if are_copied {
                let sent = peer.send(class, turn as u64, &self.payload);
                unreported += 1;
                if turn == last || unreported == report_batch {
                    flying.push_back(sent);
                    unreported = 0;
                }
                return Ok(());
            }
            let next = begins + turn % places * span;
            if next != at {
                (at, here) = (next, self.local.slice(next..next + span)?);
            }
            match test {
                Test::Get => keep(there.get(at as u64, &here), flying),
                Test::Block => keep(
                    there.put_block(self.perf.rows(at), here.clone(), self.perf.rows(0))?,
                    flying,
                ),
                Test::Accumulate => {
                    keep(there.accumulate::<f64>(at as u64, Sum, here.clone())?, flying)
                }
                Test::Message => {
                    flying.push_back(peer.send_from(class, turn as u64, here.clone()));
                    Ok(())
                }
                _ => keep(there.put(at as u64, &here), flying),
            }
        };
        let mut turn = first;
        while turn < first + count {
            while flying.len() * report_batch + batch > window {
                wait_first(&mut flying)?;
            }
            let together = turn..(turn + batch).min(first + count);
            turn = together.end;
            self.job.batch(|| -> Result<()> {
                for turn in together {
                    post(turn, &mut flying)?;
                }
                Ok(())
            })?;
        }
        while !flying.is_empty() {
            wait_first(&mut flying)?;
        }
        Ok(())
    }
}

/// Adds an operation to `flying`, unless the operation is already complete. Reads the outcome of a
/// complete operation in place, because moving the operation would take time.
#[inline]
fn keep(posted: Operation<()>, flying: &mut VecDeque<Operation<()>>) -> Result<()> {
    if let Some(outcome) = posted.try_take() {
        return outcome;
    }
    flying.push_back(posted);
    Ok(())
}

/// Waits for the oldest operation.
pub fn wait_first(flying: &mut VecDeque<Operation<()>>) -> Result<()> {
    flying.pop_front().map_or(Ok(()), |operation| operation.wait_for(PATIENCE))
}
