//! Measures updates that reach a node while it computes.
//!
//! Node 0 writes the two halves of an array in turn, and notifies all others. Each of these nodes
//! has subscribed to both halves. A reader works for a fixed number of steps, waits for the
//! notification, reads what it brought, and notifies node 0. Node 0 is one update ahead, so the
//! update arrives during the work, where no thread of the reader waits for it. The time of a round
//! is that of node 1. Its work alone is measured before, and is the reference. The processor time
//! is that of node 1 beyond its work: what receiving, placing and reading an update cost a reader.

use super::WORDS;
use crate::perf::measure::{Bench, Figures, Stream, histogram, since};
use crate::perf::passive::compute;
use oikaze::collective::Collectives;
use oikaze::shared::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze::{Error, Result};
use oikaze_os::cpu::Meter;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Minimum time of a reader's work in a round.
const WORK_MIN: Duration = Duration::from_millis(1);
/// Additional work for each byte of an update, in nanoseconds, so that an update arrives before the
/// work ends.
const WORK_NS_PER_BYTE: u64 = 4;
/// Number of rounds before the measurement.
const WARM_UP: u64 = 16;
/// Number of rounds, unless `--iterations` says otherwise.
const ROUNDS: u32 = 500;

/// The array, and the part of it that a round writes.
struct Halves {
    array: SharedArray<u64>,
    /// Elements from one half to the next.
    stride: usize,
    /// Elements that a round writes.
    written: usize,
}

/// Rounds of a reader.
struct Measured {
    /// Nanoseconds of each round.
    rounds: Vec<u64>,
    processor: Duration,
}

impl Bench<'_> {
    /// Measures updates of `size` bytes, rounded up to whole words, at a reader that computes.
    pub fn updates_at_reader(&self) -> Result<Figures> {
        let rounds = u64::from(self.perf.iterations.unwrap_or(ROUNDS));
        let written = self.perf.size.div_ceil(size_of::<u64>());
        let stride = written.next_multiple_of(WORDS);
        let homes = Homes::Explicit(vec![0; 2 * stride / WORDS]);
        let array = self.array("perf update-reader", 2 * stride, homes)?;
        let halves = Halves { array, stride, written };
        if self.job.rank() != 0 {
            halves.array.subscribe(0..halves.array.len())?;
        }
        // All nodes do as many steps as node 1 needs for the time, as they may differ in speed.
        let steps = self.job.broadcast(1, &[steps_for(self.perf.size)])?;
        let steps = steps.first().copied().unwrap_or(1);
        self.job.barrier()?;
        let alone = self.rounds(rounds, |_| {
            work(steps);
            Ok(())
        })?;
        self.job.barrier()?;
        for round in 0..WARM_UP {
            self.update_round(&halves, round, steps)?;
        }
        let fetched = self.job.statistics().pages_fetched;
        let begun = Instant::now();
        let measured =
            self.rounds(rounds, |round| self.update_round(&halves, WARM_UP + round, steps))?;
        let seconds = begun.elapsed().as_secs_f64();
        let fetched = self.job.statistics().pages_fetched - fetched;
        if self.job.rank() == 0 {
            // The readers' answer to the last update.
            self.wait_for_readers()?;
        } else if fetched > 0 {
            return Err(Error::invalid(
                "measuring updates",
                format!("{fetched} pages were fetched, and not updated (a defect)"),
            ));
        }
        self.job.barrier()?;
        let beyond = measured.processor.saturating_sub(alone.processor).as_secs_f64();
        let stream = Stream {
            bytes: rounds * (written * size_of::<u64>()) as u64,
            operations: rounds,
            seconds,
            processor_seconds: None,
            other_processor_seconds: self.job.broadcast(1, &[beyond])?.first().copied(),
        };
        let reference = Figures { latency: Some(self.at_reader(&alone)?), ..Figures::default() };
        Ok(Figures {
            latency: Some(self.at_reader(&measured)?),
            stream: Some(stream),
            reference: Some(Box::new(reference)),
        })
    }

    /// Runs and times rounds.
    fn rounds(&self, count: u64, mut round: impl FnMut(u64) -> Result<()>) -> Result<Measured> {
        let meter = Meter::new();
        let before = meter.spent();
        let mut rounds = Vec::new();
        for number in 0..count {
            let begun = Instant::now();
            round(number)?;
            rounds.push(since(begun).saturating_sub(self.clock));
        }
        Ok(Measured { rounds, processor: meter.spent().saturating_sub(before) })
    }

    /// Writes an update, or works and reads one.
    fn update_round(&self, halves: &Halves, round: u64, steps: u64) -> Result<()> {
        let (half, word) = (halves.half(round), round + 1);
        if self.job.rank() != 0 {
            work(steps);
            self.job.wait_notify(0)?;
            halves.check(half, word)?;
            return self.job.notify(0);
        }
        halves.array.write(half)?.fill(word);
        (1..self.job.size()).try_for_each(|reader| self.job.notify(reader))?;
        // The readers have read the other half, which is the next one to be written.
        if round == 0 { Ok(()) } else { self.wait_for_readers() }
    }

    fn wait_for_readers(&self) -> Result<()> {
        (1..self.job.size()).try_for_each(|reader| self.job.wait_notify(reader))
    }

    /// Returns the times of node 1's rounds, on each node.
    fn at_reader(&self, measured: &Measured) -> Result<hdrhistogram::Histogram<u64>> {
        let mut latency = histogram()?;
        for nanoseconds in self.job.broadcast(1, &measured.rounds)? {
            let _ = latency.record(nanoseconds);
        }
        Ok(latency)
    }
}

impl Halves {
    /// Returns the elements that a round writes.
    fn half(&self, round: u64) -> Range<usize> {
        let first = (round % 2) as usize * self.stride;
        first..first + self.written
    }

    /// Checks that all elements have the word of this round. A defect would otherwise look like
    /// speed.
    fn check(&self, half: Range<usize>, word: u64) -> Result<()> {
        let words = self.array.read(half)?;
        match words.iter().find(|at| **at != word) {
            None => Ok(()),
            Some(old) => Err(Error::invalid(
                format!("reading what node 0 wrote in round {word}"),
                format!("it has the bytes of round {old} (a defect)"),
            )),
        }
    }
}

/// Returns the number of steps of work beside updates of `size` bytes.
fn steps_for(size: usize) -> u64 {
    let wanted = WORK_MIN + Duration::from_nanos(size as u64 * WORK_NS_PER_BYTE);
    let begun = Instant::now();
    let mut steps = 0;
    while begun.elapsed() < wanted {
        compute();
        steps += 1;
    }
    steps.max(1)
}

fn work(steps: u64) {
    (0..steps).for_each(|_| compute());
}
