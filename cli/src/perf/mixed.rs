//! Small puts to and fro while bulk puts go from node 0 to node 1: do control and small messages
//! wait behind bulk?

use super::measure::{Bench, COLD, Figures, PATIENCE, Stream, exchanged, histogram, since};
use hdrhistogram::Histogram;
use oikaze::{Operation, Result};
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of one bulk put, and how many are in flight.
const BULK: usize = 64 << 20;
const BULK_IN_FLIGHT: usize = 2;
/// Bytes of bulk, unless said otherwise.
const VOLUME: usize = 1 << 30;
/// The flag that ends the exchange.
const STOP: u64 = u64::MAX;

impl Bench<'_> {
    /// Each alone, then both.
    pub fn mixed(&self) -> Result<Figures> {
        let volume = self.perf.volume.unwrap_or(VOLUME).next_multiple_of(BULK);
        let (idle, _) = self.pings_during(None)?;
        let (_, alone) = self.pings_during(Some(Bulk::new(self, volume, false)))?;
        let (latency, stream) = self.pings_during(Some(Bulk::new(self, volume, true)))?;
        let reference =
            Some(Box::new(Figures { latency: Some(idle), stream: alone, reference: None }));
        Ok(Figures { latency: Some(latency), stream, reference })
    }

    /// Exchanges until the bulk is through, or, without bulk, as many as wanted.
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
        // The word that was seen last must not be taken for one of the next exchange.
        self.local.store_u64(self.flag_at(), 0)?;
        Ok((latency, stream))
    }

    /// Node 0's side.
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

    /// Node 1's side: whatever comes is put back, until it is told to stop.
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

/// The bulk puts.
struct Bulk<'a> {
    bench: &'a Bench<'a>,
    volume: usize,
    begun: usize,
    flying: VecDeque<Operation<()>>,
    /// Exchanges go on meanwhile.
    pinged: bool,
}

impl<'a> Bulk<'a> {
    fn new(bench: &'a Bench<'a>, volume: usize, pinged: bool) -> Self {
        Self { bench, volume, begun: 0, flying: VecDeque::new(), pinged }
    }

    /// Begin what there is room for; is anything left in flight? Waits only if nobody else does.
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
