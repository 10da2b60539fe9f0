//! Measures the latency of operations, one at a time.

use super::Test;
use super::measure::{Bench, PATIENCE, exchanged, histogram, lands, since};
use hdrhistogram::Histogram;
use oikaze::collective::operator::Sum;
use oikaze::completion::Operation;
use oikaze::memory::page_size;
use oikaze::memory::remote::RemoteRegion;
use oikaze::{Error, Result};
use std::hint::black_box;
use std::time::Instant;

/// Alignment of the memory whose pages are exchanged: one huge page.
const HUGE: usize = 2 << 20;

impl Bench<'_> {
    /// Times the number of operations that the user asked for, after a warm-up.
    pub fn exchanges(&self) -> Result<Histogram<u64>> {
        self.job.barrier()?;
        let mut latency = histogram()?;
        let warm_up = (self.iterations() / 10).min(1000);
        let mut quickest = u64::MAX;
        for turn in 0..warm_up {
            let begun = Instant::now();
            self.one(turn)?;
            quickest = quickest.min(since(begun));
        }
        let block = self.block(quickest);
        let (mut turn, end) = (warm_up, warm_up + self.iterations());
        while turn < end {
            let count = block.min(end - turn);
            let begun = Instant::now();
            let mut ways = 0;
            for turn in turn..turn + count {
                ways += self.one(turn)?;
            }
            let nanoseconds = since(begun).saturating_sub(self.clock) / ways.max(1);
            // The histogram resizes itself, and no latency exceeds its range (584 years).
            let _ = latency.record_n(nanoseconds, u64::from(count));
            turn += count;
        }
        self.job.barrier()?;
        Ok(latency)
    }

    /// Returns the number of operations that are timed together as a block, of which the mean
    /// counts. Reading the clock takes a fifth of the time of the quickest operations. It also
    /// keeps the processor from executing ahead, so subtracting its time does not correct the
    /// result.
    fn block(&self, quickest: u64) -> u32 {
        /// Minimum length of a block, in readings of the clock, so that these matter little.
        const LONG_ENOUGH: u64 = 50;
        /// Maximum number of operations of a block, so that percentiles still mean something.
        const MOST: u64 = 50;
        let block = (LONG_ENOUGH * self.clock).div_ceil(quickest.max(1)).clamp(1, MOST);
        u32::try_from(block).unwrap_or(1)
    }

    /// Runs one operation. Returns the number of one-way trips in sequence that the operation took,
    /// by which the caller divides the measured time.
    fn one(&self, turn: u32) -> Result<u64> {
        Ok(match self.perf.test {
            Test::Put => {
                self.ping_put(u64::from(turn) + 1)?;
                2
            }
            Test::Consecutive => {
                self.ping_consecutive(u64::from(turn) + 1)?;
                2
            }
            Test::Message => {
                self.ping_message(u64::from(turn))?;
                2
            }
            Test::Get => self.asked(|there| there.get(0, self.source()?).wait_for(PATIENCE))?,
            Test::FetchAdd => self.asked(|there| there.fetch_add(0, 1).wait_for(PATIENCE))?,
            Test::CompareSwap => self.asked(|there| self.count_up(there, u64::from(turn)))?,
            Test::Accumulate => self.asked(|there| self.add_numbers(there))?,
            // These tests run elsewhere.
            Test::Post
            | Test::Fifo
            | Test::Fetch
            | Test::BarrierUpdate
            | Test::NotifyUpdate
            | Test::UpdateReader
            | Test::Collectives => 1,
            Test::Block => self.asked(|there| self.block_done(there))?,
            Test::PutDone | Test::Passive | Test::Mixed => {
                self.asked(|_| self.put_done(u64::from(turn) + 1))?
            }
            Test::Exchange => self.asked(|there| self.pages_exchanged(there, turn as usize))?,
            Test::Barrier => {
                self.job.barrier()?;
                1
            }
        })
    }

    /// Runs an operation on node 0 only. Node 1 serves the operation without a call, while node 1
    /// waits at the barrier that follows.
    fn asked<T>(&self, ask: impl FnOnce(&RemoteRegion) -> Result<T>) -> Result<u64> {
        if let (0, Some((_, there))) = (self.job.rank(), &self.pair) {
            ask(there)?;
        }
        Ok(1)
    }

    /// Exchanges pages with the peer's pages at the same offset, and reads a word of each page.
    /// Each turn moves on to the next pages of the memory.
    fn pages_exchanged(&self, there: &RemoteRegion, turn: usize) -> Result<()> {
        let (size, page) = (self.perf.size, page_size());
        let first = exchanged(self.perf.span()).next_multiple_of(HUGE);
        let places = (self.local.len() - first) / size;
        let at = first + turn % places * size;
        there.exchange(at as u64, &self.local, at as u64, (size / page) as u64)?;
        for offset in (at..at + size).step_by(page) {
            black_box(self.local.load_u64(offset as u64)?);
        }
        Ok(())
    }

    /// Adds 1 to the peer's word that counts these operations, by compare-and-swap. No other node
    /// changes the word, so an unexpected value is a defect.
    fn count_up(&self, there: &RemoteRegion, turn: u64) -> Result<()> {
        let found = there.compare_exchange(0, turn, turn + 1).wait_for(PATIENCE)?;
        if found == turn {
            return Ok(());
        }
        Err(Error::invalid(
            format!("compare-and-swap number {turn} of a word that nobody else changes"),
            format!("the word was {found} (a defect)"),
        ))
    }

    /// Adds the doubles of the source to the doubles of the peer's destination.
    fn add_numbers(&self, there: &RemoteRegion) -> Result<()> {
        there.accumulate::<f64>(self.lands() as u64, Sum, self.source()?)?.wait_for(PATIENCE)
    }

    /// Puts a payload and waits for its completion.
    pub fn put_done(&self, flag: u64) -> Result<()> {
        self.put_flag(flag)?.map_or(Ok(()), |operation| operation.wait_for(PATIENCE))
    }

    /// Returns the memory of this node from which an operation reads, or to which a get writes.
    fn source(&self) -> Result<oikaze::memory::RegionSlice> {
        self.local.slice(0..self.perf.size)
    }

    /// Returns the offset of the destination, which lies behind the source, in cache lines of its
    /// own. If source and destination shared a line, each write of the source would fetch the line
    /// from the peer's core and back.
    pub fn lands(&self) -> usize {
        lands(self.perf.size)
    }

    /// Returns the offset at which the last word of a payload lands.
    pub fn flag_at(&self) -> u64 {
        (self.lands() + self.flagged.len() - 8) as u64
    }

    /// Runs one ping and pong. Node 0 puts. Node 1 sees the last word change and puts back. A flag
    /// is never 0, and differs from the previous one.
    pub fn ping_put(&self, flag: u64) -> Result<()> {
        // The answering put shows that this put has arrived. As in `ucp_put_lat`, neither node
        // waits for the completion of its put.
        if self.job.rank() == 0 {
            let _settles_by_itself = self.put_flag(flag)?;
            self.see_flag(|word| word == flag)?;
        } else {
            self.see_flag(|word| word == flag)?;
            let _settles_by_itself = self.put_flag(flag)?;
        }
        Ok(())
    }

    /// Puts a payload of `size` bytes, rounded up to a multiple of 8, that ends with the word
    /// `flag`.
    pub fn put_flag(&self, flag: u64) -> Result<Option<Operation<()>>> {
        let Some((_, there)) = &self.pair else { return Ok(None) };
        let len = self.flagged.len();
        self.local.store_u64(len as u64 - 8, flag)?;
        Ok(Some(there.put(self.lands() as u64, &self.flagged)))
    }

    /// Waits until the last word of the peer's payload satisfies `wanted`.
    pub fn see_flag(&self, wanted: impl FnMut(u64) -> bool) -> Result<u64> {
        match &self.pair {
            Some((peer, _)) => {
                self.local.wait_until_by_for(peer.rank(), self.flag_at(), PATIENCE, wanted)
            }
            None => Ok(0),
        }
    }

    fn ping_message(&self, turn: u64) -> Result<()> {
        let Some((peer, _)) = &self.pair else { return Ok(()) };
        let receive = || self.job.receive_for(Some(peer.rank()), PATIENCE);
        if self.job.rank() == 0 {
            let _settles_by_itself = peer.send(self.perf.class.class(), turn, &self.payload);
            receive()?;
        } else {
            receive()?;
            let _settles_by_itself = peer.send(self.perf.class.class(), turn, &self.payload);
        }
        Ok(())
    }
}
