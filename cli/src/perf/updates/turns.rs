//! Measures barriers and notifications that bring an update: one node writes a part of a shared
//! array, and every other node has subscribed to it.
//!
//! The nodes write in turn, each a part of its own that is homed there. A node writes after it has
//! left the barrier before, so each round begins where the update of the round before has arrived.
//! That needs no common clock, as a ping and a pong need none. The time of a round lasts from one
//! departure to the next one: a write guard, stores, the end of the guard, and the barrier with the
//! update of `size` bytes. The paper on Wind measures the same (figure 7). All words change, or
//! with `--changed` only every so many, for deliveries that send changes alone.
//!
//! In `notify-update`, the node that has written notifies all others in place of a barrier, and
//! they wait for that. The next one writes when it has read, so with two nodes this is a ping and a
//! pong.

use super::WORDS;
use crate::perf::Test;
use crate::perf::measure::{Bench, Figures, Stream, histogram, since};
use oikaze::shared::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze::{Error, Result};
use std::time::Instant;

/// Number of turns of all nodes before the measurement.
const WARM_UP: u64 = 16;

/// The part of the array that each node writes.
struct Parts {
    array: SharedArray<u64>,
    /// Elements from one part to the next.
    stride: usize,
    /// Elements that a guard covers.
    written: usize,
    /// Elements from one that changes to the next.
    step: usize,
}

impl Bench<'_> {
    /// Measures barriers or notifications with an update of `size` bytes, rounded up to whole
    /// words. The throughput is that of the same rounds.
    pub fn updates(&self) -> Result<Figures> {
        let (nodes, rank) = (self.job.size() as usize, self.job.rank() as usize);
        let written = self.perf.size.div_ceil(size_of::<u64>());
        let stride = written.next_multiple_of(WORDS);
        // A part's pages have the node that writes them as their home.
        let array = self.array("perf barrier-update", stride * nodes, Homes::Block)?;
        let step = 100 / usize::from(self.perf.changed.clamp(1, 100));
        let parts = Parts { array, stride, written, step };
        for other in (0..nodes).filter(|&other| other != rank) {
            parts.array.subscribe(parts.of(other))?;
        }
        self.job.barrier()?;
        let mut latency = histogram()?;
        let turns = u64::from(self.iterations()).div_ceil(nodes as u64);
        for turn in 0..WARM_UP {
            self.one_turn(&parts, turn)?;
        }
        let fetched = self.job.statistics().pages_fetched;
        let started = Instant::now();
        for turn in WARM_UP..WARM_UP + turns {
            let begun = Instant::now();
            self.one_turn(&parts, turn)?;
            // Nodes leave a barrier at different times, which a turn of all nodes evens out.
            let of_one = since(begun).saturating_sub(self.clock) / nodes as u64;
            let _ = latency.record_n(of_one, nodes as u64);
        }
        let seconds = started.elapsed().as_secs_f64();
        let fetched = self.job.statistics().pages_fetched - fetched;
        if fetched > 0 {
            return Err(Error::invalid(
                "measuring updates",
                format!("{fetched} pages were fetched, and not updated (a defect)"),
            ));
        }
        let rounds = turns * nodes as u64;
        let stream = Stream {
            bytes: rounds * (written * size_of::<u64>()) as u64,
            operations: rounds,
            seconds,
            processor_seconds: None,
            other_processor_seconds: None,
        };
        Ok(Figures { latency: Some(latency), stream: Some(stream), reference: None })
    }

    /// Lets every node write its part once, each with a barrier or notifications behind it.
    fn one_turn(&self, parts: &Parts, turn: u64) -> Result<()> {
        for writer in 0..self.job.size() as usize {
            let word = turn + 1;
            if writer == self.job.rank() as usize {
                let mut words = parts.array.write(parts.of(writer))?;
                words.iter_mut().step_by(parts.step).for_each(|at| *at = word);
            }
            self.tell_all(writer as u32)?;
            if writer != self.job.rank() as usize {
                parts.check(writer, word)?;
            }
        }
        Ok(())
    }

    /// Makes what a node wrote visible to all others.
    fn tell_all(&self, writer: u32) -> Result<()> {
        let rank = self.job.rank();
        if self.perf.test != Test::NotifyUpdate {
            return self.job.barrier();
        }
        if writer != rank {
            return self.job.wait_notify(writer);
        }
        let mut others = (0..self.job.size()).filter(|other| *other != rank);
        others.try_for_each(|other| self.job.notify(other))
    }
}

impl Parts {
    /// Returns the elements that a node writes.
    fn of(&self, rank: usize) -> std::ops::Range<usize> {
        rank * self.stride..rank * self.stride + self.written
    }

    /// Checks that a part has the words of this turn. A defect would otherwise look like speed.
    fn check(&self, writer: usize, word: u64) -> Result<()> {
        let words = self.array.read(self.of(writer))?;
        match words.iter().step_by(self.step).find(|at| **at != word) {
            None => Ok(()),
            Some(old) => Err(Error::invalid(
                format!("reading what node {writer} wrote in turn {word}"),
                format!("it has the bytes of turn {old} (a defect)"),
            )),
        }
    }
}
