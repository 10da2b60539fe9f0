//! Measures reads of a shared array whose pages are not valid here. Node 0 fetches from node 1.

use super::measure::{Bench, Figures, Stream, histogram, since};
use oikaze::prelude::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze::{Error, Result};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the array, unless one read is longer.
const ARRAY: usize = 32 << 20;
/// Bytes of a page of a shared array.
const PAGE: usize = 4096;
/// Elements of a page.
const WORDS: usize = PAGE / size_of::<u64>();

impl Bench<'_> {
    /// Measures reads of `size` bytes, each from the call to the guard, one at a time. The
    /// throughput is that of the same reads.
    pub fn fetches(&self) -> Result<Figures> {
        let (size, iterations) = (self.perf.size, self.iterations() as usize);
        let places = (ARRAY / size).max(1);
        let pages = places * size / PAGE;
        let homes = Homes::Explicit(vec![1; pages]);
        let array = self.array("perf fetch", pages * WORDS, homes)?;
        if array.why_not_shared().is_none() {
            return Err(Error::invalid(
                "measuring fetches",
                "all nodes map the array, so nothing is fetched: set OIKAZE_WITHOUT=segment, or use two machines",
            ));
        }
        let (mut latency, mut spent) = (histogram()?, Duration::ZERO);
        // The kernel makes the memory of both nodes in the first round, which is not measured.
        let (mut left, mut round) = (places + iterations, 0);
        let wanted = (left * size / PAGE) as u64;
        while left > 0 {
            self.write_each_page(&array, round)?;
            let count = left.min(places);
            let is_warm_up = round == 0;
            if self.job.rank() == 0 {
                for place in 0..count {
                    let begun = Instant::now();
                    let guard = array.read(place * size / 8..(place + 1) * size / 8)?;
                    let (nanoseconds, elapsed) = (since(begun), begun.elapsed());
                    check(black_box(&guard), round)?;
                    if !is_warm_up {
                        spent += elapsed;
                        let _ = latency.record(nanoseconds.saturating_sub(self.clock));
                    }
                }
            }
            left -= count;
            round += 1;
        }
        self.job.barrier()?;
        let fetched = array.statistics().fetched_pages;
        if self.job.rank() == 0 && fetched != wanted {
            return Err(Error::invalid(
                format!("measuring the fetch of {wanted} pages"),
                format!("{fetched} were fetched (a defect)"),
            ));
        }
        let stream = Stream {
            bytes: (iterations * size) as u64,
            operations: iterations as u64,
            seconds: spent.as_secs_f64(),
            processor_seconds: None,
            other_processor_seconds: None,
        };
        Ok(Figures { latency: Some(latency), stream: Some(stream), reference: None })
    }

    /// Writes one word of each page on node 1. After the barrier, no page is valid on node 0. A
    /// node that fetches pages in each round would be sent them with the barrier, so node 0
    /// declines that.
    fn write_each_page(&self, array: &SharedArray<u64>, round: u64) -> Result<()> {
        if self.job.rank() == 0 {
            array.unsubscribe(0..array.len())?;
        }
        self.job.barrier()?;
        if self.job.rank() == 1 {
            let mut words = array.write(0..array.len())?;
            words.iter_mut().step_by(WORDS).for_each(|word| *word = round + 1);
        }
        self.job.barrier()
    }
}

/// Checks that the pages have the bytes of this round. A defect would otherwise look like speed.
fn check(words: &[u64], round: u64) -> Result<()> {
    match words.iter().step_by(WORDS).find(|word| **word != round + 1) {
        None => Ok(()),
        Some(old) => Err(Error::invalid(
            format!("fetching a page of round {}", round + 1),
            format!("it has the bytes of round {old} (a defect)"),
        )),
    }
}
