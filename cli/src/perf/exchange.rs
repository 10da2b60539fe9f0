//! One operation at a time.

use super::Test;
use super::measure::{Bench, PATIENCE, exchanged, histogram, lands, since};
use hdrhistogram::Histogram;
use oikaze::{Combine, Error, Operation, RemoteRegion, Result, page_size};
use std::hint::black_box;
use std::time::Instant;

/// Where the memory begins whose pages change place: at a huge page.
const HUGE: usize = 2 << 20;

impl Bench<'_> {
    /// Time as many as wanted, after a warm-up.
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
            // Resizes itself; a latency past its range (584 years) cannot be.
            let _ = latency.record_n(nanoseconds, u64::from(count));
            turn += count;
        }
        self.job.barrier()?;
        Ok(latency)
    }

    /// Exchanges that are timed together, as one mean: a look at the clock takes a fifth of what
    /// the quickest take, and keeps a processor from running ahead, so that it cannot just be
    /// subtracted.
    fn block(&self, quickest: u64) -> u32 {
        /// In so many times as long as the clock takes, it does not matter.
        const LONG_ENOUGH: u64 = 50;
        /// Percentiles are still to say something.
        const MOST: u64 = 50;
        let block = (LONG_ENOUGH * self.clock).div_ceil(quickest.max(1)).clamp(1, MOST);
        u32::try_from(block).unwrap_or(1)
    }

    /// One exchange; how many ways it went, one after the other.
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
            // Of which there is throughput only.
            Test::Fifo => 1,
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

    /// Operations that node 0 asks and node 1 serves without a call, while it waits for the barrier
    /// after them.
    fn asked<T>(&self, ask: impl FnOnce(&RemoteRegion) -> Result<T>) -> Result<u64> {
        if let (0, Some((_, there))) = (self.job.rank(), &self.pair) {
            ask(there)?;
        }
        Ok(1)
    }

    /// Pages of a place of the walk change place with those at the same place there, and are looked
    /// at.
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

    /// Replace the word that counts such turns by the next number. Nobody else does, so it is as
    /// expected, or something is wrong.
    fn count_up(&self, there: &RemoteRegion, turn: u64) -> Result<()> {
        let found = there.compare_swap(0, turn, turn + 1).wait_for(PATIENCE)?;
        if found == turn {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("compare-and-swap number {turn} of a word that nobody else changes"),
            why: format!("the word was {found} (a defect)"),
        })
    }

    /// Doubles of the source are added to those behind it.
    fn add_numbers(&self, there: &RemoteRegion) -> Result<()> {
        there
            .accumulate::<f64>(self.lands() as u64, Combine::Sum, self.source()?)?
            .wait_for(PATIENCE)
    }

    /// From the call to the completion.
    pub fn put_done(&self, flag: u64) -> Result<()> {
        self.put_flag(flag)?.map_or(Ok(()), |operation| operation.wait_for(PATIENCE))
    }

    /// An operation's source here (a get's destination).
    fn source(&self) -> Result<oikaze::RegionSlice> {
        self.local.slice(0..self.perf.size)
    }

    /// It lands behind its source, and in lines of its own: a source that is written in the line
    /// where the peer's answer lands would be fetched from there and back each time.
    fn lands(&self) -> usize {
        lands(self.perf.size)
    }

    /// Where the word lands that ends a payload.
    pub fn flag_at(&self) -> u64 {
        (self.lands() + self.flagged.len() - 8) as u64
    }

    /// Node 0 puts, node 1 sees the last word change and puts back. Flags are never 0, and each
    /// differs from the last.
    pub fn ping_put(&self, flag: u64) -> Result<()> {
        // The answering put says that this one has arrived; its completion is not waited for, as it
        // is not in `ucp_put_lat`.
        if self.job.rank() == 0 {
            let _settles_by_itself = self.put_flag(flag)?;
            self.see_flag(|word| word == flag)?;
        } else {
            self.see_flag(|word| word == flag)?;
            let _settles_by_itself = self.put_flag(flag)?;
        }
        Ok(())
    }

    /// Put a payload of `size` bytes (8 at least) that ends with this word.
    pub fn put_flag(&self, flag: u64) -> Result<Option<Operation<()>>> {
        let Some((_, there)) = &self.pair else { return Ok(None) };
        let len = self.flagged.len();
        self.local.store_u64(len as u64 - 8, flag)?;
        Ok(Some(there.put(self.lands() as u64, &self.flagged)))
    }

    /// Wait until the word that ends the peer's payload is as wanted.
    pub fn see_flag(&self, wanted: impl FnMut(u64) -> bool) -> Result<u64> {
        match &self.pair {
            Some((peer, _)) => {
                self.local.wait_until_by(peer.rank(), self.flag_at(), Some(PATIENCE), wanted)
            }
            None => Ok(0),
        }
    }

    fn ping_message(&self, turn: u64) -> Result<()> {
        let Some((peer, _)) = &self.pair else { return Ok(()) };
        let receive = || self.job.receive(Some(peer.rank()), Some(PATIENCE));
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
