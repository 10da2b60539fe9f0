//! Measures what a put costs its caller: from call to return, without the wait for its completion
//! (paper 001's 5 µs; paper 000's T1).

use super::measure::{Bench, PATIENCE, histogram, since};
use hdrhistogram::Histogram;
use oikaze::Result;
use std::time::Instant;

impl Bench<'_> {
    /// Times posts of node 0, each after the one before has completed.
    pub fn posts(&self) -> Result<Histogram<u64>> {
        self.job.barrier()?;
        let mut posts = histogram()?;
        if let (0, Some((_, there))) = (self.job.rank(), &self.pair) {
            let source = self.local.slice(0..self.perf.size)?;
            for turn in 0..self.iterations() + self.iterations() / 10 {
                let begun = Instant::now();
                let operation = there.put(self.lands() as u64, &source);
                let taken = since(begun).saturating_sub(self.clock);
                operation.wait_for(PATIENCE)?;
                if turn >= self.iterations() / 10 {
                    // The histogram resizes itself, and no post exceeds its range (584 years).
                    let _ = posts.record(taken);
                }
            }
        }
        self.job.barrier()?;
        Ok(posts)
    }
}
