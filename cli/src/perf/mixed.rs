//! Measures small puts between nodes 0 and 1 while bulk puts go from node 0 to node 1. The result
//! shows whether control and small messages wait behind bulk.

use super::measure::{Bench, COLD, Figures, PATIENCE, Stream, exchanged, histogram, since};
use hdrhistogram::Histogram;
use oikaze::Result;
use oikaze::completion::Operation;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of one bulk put.
const BULK: usize = 64 << 20;
const BULK_IN_FLIGHT: usize = 2;
/// Default number of bytes that all bulk puts move.
const VOLUME: usize = 1 << 30;
/// Flag that ends the exchange.
const STOP: u64 = u64::MAX;

impl Bench<'_> {
    /// Measures small puts alone, bulk puts alone, then both together.
    pub fn mixed(&self) -> Result<Figures> {
        let volume = self.perf.volume.unwrap_or(VOLUME).next_multiple_of(BULK);
        let (idle, _) = self.pings_during(None)?;
        let (_, alone) = self.pings_during(Some(Bulk::new(self, volume, false)))?;
        let (latency, stream) = self.pings_during(Some(Bulk::new(self, volume, true)))?;
        let reference =
            Some(Box::new(Figures { latency: Some(idle), stream: alone, reference: None }));
        Ok(Figures { latency: Some(latency), stream, reference })
    }

    /// Exchanges small puts until the bulk puts have ended. Without bulk, runs the wanted number of
    /// exchanges.
    fn pings_during(&self, bulk: Option<Bulk<'_>>) -> Result<(Histogram<u64>, Option<Stream>)> {
        self.job.barrier()?;
        let mut latency = histogram()?;
        let mut stream = None;
        match self.job.rank() {
            0 => stream = self.ping(&mut latency, bulk)?,
            1 => self.answer()?,
            _ => {}
        }
        self.job.barrier()?;
        // Clears the flag, so that the next exchange does not take the last one for its own.
        self.local.store_u64(self.flag_at(), 0)?;
        Ok((latency, stream))
    }

    /// Runs node 0's side of the exchange, and starts the bulk puts.
    fn ping(
        &self,
        latency: &mut Histogram<u64>,
        mut bulk: Option<Bulk<'_>>,
    ) -> Result<Option<Stream>> {
        let begun = Instant::now();
        let mut flag = 0;
        let mut goes_on = true;
        while goes_on {
            flag += 1;
            goes_on = match &mut bulk {
                Some(bulk) => bulk.go_on()?,
                None => flag < u64::from(self.iterations()),
            };
            if goes_on && bulk.as_ref().is_none_or(|bulk| bulk.pinged) {
                let begun = Instant::now();
                self.ping_put(flag)?;
                let _ = latency.record(since(begun) / 2);
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let _settles_by_itself = self.put_flag(STOP)?;
        Ok(bulk.map(|bulk| Stream {
            bytes: bulk.volume as u64,
            operations: (bulk.volume / BULK) as u64,
            seconds,
            processor_seconds: None,
            other_processor_seconds: None,
        }))
    }

    /// Runs node 1's side: puts each flag back until [`STOP`] arrives.
    fn answer(&self) -> Result<()> {
        let mut seen = 0;
        loop {
            seen = self.see_flag(|word| word != seen && word != 0)?;
            if seen == STOP {
                return Ok(());
            }
            let _settles_by_itself = self.put_flag(seen)?;
        }
    }
}

/// Bulk puts of node 0.
struct Bulk<'a> {
    bench: &'a Bench<'a>,
    volume: usize,
    begun: usize,
    flying: VecDeque<Operation<()>>,
    /// Set if the nodes exchange small puts meanwhile.
    pinged: bool,
}

impl<'a> Bulk<'a> {
    fn new(bench: &'a Bench<'a>, volume: usize, pinged: bool) -> Self {
        Self { bench, volume, begun: 0, flying: VecDeque::new(), pinged }
    }

    /// Starts bulk puts, up to [`BULK_IN_FLIGHT`] at a time. Returns `true` while any is in flight.
    /// Waits for the oldest bulk put only if no small puts are exchanged meanwhile.
    fn go_on(&mut self) -> Result<bool> {
        while self.flying.front().is_some_and(Operation::is_done) {
            super::stream::wait_first(&mut self.flying)?;
        }
        let Some((_, there)) = &self.bench.pair else { return Ok(false) };
        while self.flying.len() < BULK_IN_FLIGHT && self.begun < self.volume {
            let at = exchanged(self.bench.perf.size) + self.begun % COLD;
            let here = self.bench.local.slice(at..at + BULK)?;
            self.flying.push_back(there.put(at as u64, here));
            self.begun += BULK;
        }
        if !self.pinged
            && let Some(first) = self.flying.front()
        {
            first.wait_for(PATIENCE)?;
        }
        Ok(!self.flying.is_empty())
    }
}
