//! The measurements themselves.

use super::Test;
use hdrhistogram::Histogram;
use oikaze::{Class, Error, Job, LocalRegion, Operation, Peer, Region, RemoteRegion, Result, Rights};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bandwidth is measured over at least this much memory, so that no cache holds it.
const COLD: usize = 256 << 20;
/// Operations in flight while bandwidth is measured, at most; and their bytes.
const IN_FLIGHT: usize = 64;
const BYTES_IN_FLIGHT: usize = 16 << 20;
/// From this size on bandwidth is measured.
const BANDWIDTH_FROM: usize = 4096;
/// A peer that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name under which each node publishes its memory.
const NAME: &str = "perf";

/// What came out.
pub struct Figures {
    /// Latencies in nanoseconds.
    pub latency: Histogram<u64>,
    /// Bytes a second, if measured.
    pub bandwidth: Option<f64>,
}

/// One measurement, ready to go on this node.
pub struct Bench<'a> {
    job: &'a Job,
    test: Test,
    size: usize,
    iterations: u32,
    local: LocalRegion,
    /// The peer and its memory; nodes beyond the first two only take part in barriers.
    pair: Option<(Peer, RemoteRegion)>,
}

impl<'a> Bench<'a> {
    pub fn new(job: &'a Job, test: Test, size: usize, iterations: Option<u32>) -> Result<Self> {
        if job.size() < 2 {
            return Err(Error::Invalid {
                what: format!("measuring in a job of {} node", job.size()),
                why: "two are needed: `oikaze run -n 2 -- oikaze perf …`, or `oikaze perf …` alone, which starts two".into(),
            });
        }
        let iterations = iterations.unwrap_or(if size > 65_536 { 200 } else { 10_000 });
        let memory = if size >= BANDWIDTH_FROM { COLD.max(2 * size) } else { 65_536 };
        let region = Region::zeroed(memory)?;
        // Every page is there before it is measured: the kernel's clearing of new pages is not what is asked.
        region.fill(0, memory as u64, 1)?;
        let local = job.publish(NAME, region, Rights::ALL)?;
        let pair = match job.rank() {
            rank @ (0 | 1) => {
                let peer = job.peer(1 - rank)?;
                let region = peer.region(NAME)?;
                Some((peer, region))
            }
            _ => None,
        };
        Ok(Self { job, test, size, iterations, local, pair })
    }

    /// Measure; the figures mean something on node 0.
    pub fn run(&self) -> Result<Figures> {
        self.job.barrier()?;
        let mut latency =
            Histogram::new(3).map_err(|error| Error::Invalid { what: "a histogram".into(), why: error.to_string() })?;
        let warm_up = (self.iterations / 10).min(1000);
        for turn in 0..warm_up + self.iterations {
            let nanoseconds = self.one(turn)?;
            if turn >= warm_up {
                // Resizes itself; a latency past its range (584 years) cannot be.
                let _ = latency.record(nanoseconds);
            }
        }
        self.job.barrier()?;
        let streams = matches!(self.test, Test::Put | Test::Get | Test::Message) && self.size >= BANDWIDTH_FROM;
        let bandwidth = if streams { self.stream()? } else { None };
        self.job.barrier()?;
        Ok(Figures { latency, bandwidth })
    }

    /// One exchange; its latency in nanoseconds.
    fn one(&self, turn: u32) -> Result<u64> {
        let begun = Instant::now();
        let ways = match self.test {
            Test::Barrier => {
                self.job.barrier()?;
                1
            }
            Test::Put => self.ping_put(turn)?,
            Test::Message => self.ping_message(turn)?,
            Test::Get => self.asked(|there| there.get(0, self.local.slice(0..self.size)?).wait_for(PATIENCE))?,
            Test::FetchAdd => self.asked(|there| there.fetch_add(0, 1).wait_for(PATIENCE))?,
        };
        Ok(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / ways)
    }

    /// Operations that node 0 asks and node 1 serves without a call.
    fn asked<T>(&self, ask: impl FnOnce(&RemoteRegion) -> Result<T>) -> Result<u64> {
        if let (0, Some((_, there))) = (self.job.rank(), &self.pair) {
            ask(there)?;
        }
        Ok(1)
    }

    /// Node 0 puts, node 1 sees the last word change and puts back.
    fn ping_put(&self, turn: u32) -> Result<u64> {
        let Some((_, there)) = &self.pair else { return Ok(2) };
        // Source, then landing place: never the same bytes. The word that is polled ends the payload.
        let len = self.size.next_multiple_of(8);
        let landing = len as u64;
        let flag = u64::from(turn) + 1;
        let send = |flag: u64| -> Result<Operation<()>> {
            self.local.store_u64(len as u64 - 8, flag)?;
            Ok(there.put(landing, self.local.slice(0..len)?))
        };
        let seen = || self.local.wait_until(landing + len as u64 - 8, Some(PATIENCE), |word| word == flag);
        // The answering put says that this one has arrived; its completion is not waited for, as it is not in `ucp_put_lat`.
        if self.job.rank() == 0 {
            let _settles_by_itself = send(flag)?;
            seen()?;
        } else {
            seen()?;
            let _settles_by_itself = send(flag)?;
        }
        Ok(2)
    }

    fn ping_message(&self, turn: u32) -> Result<u64> {
        let Some((peer, _)) = &self.pair else { return Ok(2) };
        let bytes = vec![turn as u8; self.size];
        let receive = || self.job.receive(Some(peer.rank()), Some(PATIENCE));
        if self.job.rank() == 0 {
            let _settles_by_itself = peer.send(Class::Ordered, u64::from(turn), &bytes);
            receive()?;
        } else {
            receive()?;
            let _settles_by_itself = peer.send(Class::Ordered, u64::from(turn), &bytes);
        }
        Ok(2)
    }

    /// Many operations in flight, from node 0; bytes a second.
    fn stream(&self) -> Result<Option<f64>> {
        let total = self.iterations.max(u32::try_from(COLD / self.size).unwrap_or(u32::MAX));
        let Some((peer, there)) = &self.pair else { return Ok(None) };
        if self.job.rank() == 1 {
            for _ in 0..if self.test == Test::Message { total } else { 0 } {
                self.job.receive(Some(peer.rank()), Some(PATIENCE))?;
            }
            return Ok(None);
        }
        let window = (BYTES_IN_FLIGHT / self.size).clamp(2, IN_FLIGHT);
        let places = self.local.len() / self.size;
        let mut flying = VecDeque::with_capacity(window);
        let message = vec![1; if self.test == Test::Message { self.size } else { 0 }];
        let begun = Instant::now();
        for turn in 0..total {
            if flying.len() == window {
                wait_first(&mut flying)?;
            }
            let at = turn as usize % places * self.size;
            let here = || self.local.slice(at..at + self.size);
            flying.push_back(match self.test {
                Test::Put => there.put(at as u64, here()?),
                Test::Get => there.get(at as u64, here()?),
                _ => peer.send(Class::Ordered, u64::from(turn), &message),
            });
        }
        while !flying.is_empty() {
            wait_first(&mut flying)?;
        }
        Ok(Some(f64::from(total) * self.size as f64 / begun.elapsed().as_secs_f64()))
    }
}

fn wait_first(flying: &mut VecDeque<Operation<()>>) -> Result<()> {
    flying.pop_front().map_or(Ok(()), |operation| operation.wait_for(PATIENCE))
}
