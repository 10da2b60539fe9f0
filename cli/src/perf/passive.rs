//! Measures puts to a node whose only thread computes and never calls Oikaze, so that the helper
//! must serve it.

use super::measure::{Bench, Figures, histogram};
use super::measure::{PATIENCE, since};
use hdrhistogram::Histogram;
use oikaze::Result;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Maximum time of the measurement, in case the helper does not serve the node at all.
const LIMIT: Duration = Duration::from_secs(2);
/// Flag that ends the measurement.
const STOP: u64 = u64::MAX;
/// Steps of arithmetic between two reads of the flag, which take some microseconds.
const STEPS: u64 = 10_000;

/// Activity of node 1 during the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Waits,
    Computes,
}

impl Bench<'_> {
    /// Measures puts to a node that waits, then to one that computes.
    pub fn passive(&self) -> Result<Figures> {
        let driven = self.puts_to(Target::Waits)?;
        let latency = self.puts_to(Target::Computes)?;
        let reference = Some(Box::new(Figures { latency: Some(driven), ..Figures::default() }));
        Ok(Figures { latency: Some(latency), stream: None, reference })
    }

    fn puts_to(&self, target: Target) -> Result<Histogram<u64>> {
        self.job.barrier()?;
        let mut latency = histogram()?;
        match self.job.rank() {
            0 => {
                let until = Instant::now() + LIMIT;
                for turn in 0..self.iterations() {
                    let begun = Instant::now();
                    self.put_done(u64::from(turn) + 1)?;
                    let _ = latency.record(since(begun));
                    if begun > until {
                        break;
                    }
                }
                self.put_flag(STOP)?.map_or(Ok(()), |operation| operation.wait_for(PATIENCE))?;
            }
            1 if target == Target::Waits => {
                self.see_flag(|word| word == STOP)?;
            }
            // Node 1 reads plain memory, and makes no other call of Oikaze.
            1 => {
                while self.local.load_u64(self.flag_at())? != STOP {
                    compute();
                }
            }
            _ => {}
        }
        self.job.barrier()?;
        self.local.store_u64(self.flag_at(), 0)?;
        Ok(latency)
    }
}

/// Computes something that the compiler cannot leave out.
pub fn compute() {
    let mut x = black_box(1_u64);
    for _ in 0..STEPS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}
