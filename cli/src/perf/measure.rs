//! Parts common to all measurements: two nodes, their memory, and the results.

use super::{Metric, Perf, Test, consecutive};
use hdrhistogram::Histogram;
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{LocalRegion, Region, RegionSlice, Rights};
use oikaze::shared::SharedArray;
use oikaze::shared::builder::Homes;
use oikaze::{Error, Job, Peer, Result};
use std::time::{Duration, Instant};

/// Bytes of memory on each side that throughput is measured over. No cache holds as much.
pub const COLD: usize = 512 << 20;
/// Minimum size in bytes of operations that walk through [`COLD`] bytes. Smaller operations are
/// measured by their number per second, in memory that a cache holds.
const COLD_FROM: usize = 4096;
/// Alignment in bytes that separates source and destination: two cache lines, because processors
/// fetch lines in pairs.
const LINE: usize = 128;
/// Maximum length in bytes of a message whose throughput is measured by copying sends. Longer
/// messages are gathered from a region.
pub const COPIED: usize = 1024;
/// Maximum time to wait for one operation or message of the peer.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum size of an operation in bytes. The memory has room for two operations.
const SIZE_MAX: usize = 1 << 30;
/// Name under which each node publishes its memory.
const NAME: &str = "perf";

/// Results of a measurement.
#[derive(Default)]
pub struct Figures {
    /// Latencies in nanoseconds, if measured.
    pub latency: Option<Histogram<u64>>,
    /// Throughput, if measured.
    pub stream: Option<Stream>,
    /// Values to compare with. For `mixed`, small puts alone and bulk puts alone. For `passive`,
    /// puts to a node that waits. For `update-reader`, the work alone.
    pub reference: Option<Box<Figures>>,
}

/// Throughput of many operations in flight.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Bytes of payload.
    pub bytes: u64,
    /// Number of operations that carried the payload.
    pub operations: u64,
    /// Time from the first call to the last completion.
    pub seconds: f64,
    /// Processor time of both nodes together, if measured.
    pub processor_seconds: Option<f64>,
    /// Processor time of node 1 alone, if measured.
    pub other_processor_seconds: Option<f64>,
}

/// One measurement, ready to run on this node.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub perf: &'a Perf,
    pub local: LocalRegion,
    /// Source of puts. Its last word is the flag that the peer waits for.
    pub flagged: RegionSlice,
    /// The peer and its memory. Nodes beyond the first two only take part in collectives.
    pub pair: Option<(Peer, RemoteRegion)>,
    /// Payload of the messages.
    pub payload: Vec<u8>,
    /// Minimum time between two readings of the clock, in nanoseconds.
    pub clock: u64,
}

impl<'a> Bench<'a> {
    pub fn new(job: &'a Job, perf: &'a Perf) -> Result<Self> {
        if job.size() < 2 {
            return Err(Error::invalid(
                format!("measuring in a job of {} node", job.size()),
                "two are needed: `oikaze run -n 2 -- oikaze perf …`, or `oikaze perf …` alone, which starts two",
            ));
        }
        let size = perf.size;
        if size > SIZE_MAX {
            return Err(Error::invalid(
                format!("operations of {size} bytes"),
                format!("{SIZE_MAX} at most"),
            ));
        }
        perf.check_parts()?;
        let len = exchanged(perf.span()) + walked(perf);
        let region = if perf.shared { Region::shared(len)? } else { Region::zeroed(len)? };
        // Writes every page now, so that the kernel does not clear new pages during the
        // measurement.
        region.fill(0, region.len() as u64, 1)?;
        region.fill(0, exchanged(perf.span()) as u64, 0)?;
        let local = job.publish(NAME, region, Rights::ALL)?;
        let pair = match job.rank() {
            rank @ (0 | 1) => {
                let peer = job.peer(1 - rank)?;
                let region = peer.region(NAME)?;
                Some((peer, region))
            }
            _ => None,
        };
        let flagged = local.slice(0..size.next_multiple_of(8))?;
        let payload = vec![
            1;
            if perf.test == Test::Message && (perf.wants(Metric::Latency) || size <= COPIED) {
                size
            } else {
                0
            }
        ];
        let clock = (0..1000).map(|_| since(Instant::now())).min().unwrap_or(0);
        Ok(Self { job, perf, local, flagged, pair, payload, clock })
    }

    /// Runs the measurement. Only node 0 returns valid figures.
    pub fn run(&self) -> Result<Figures> {
        match self.perf.test {
            Test::Mixed => return self.mixed(),
            Test::Passive => return self.passive(),
            Test::Fetch => return self.fetches(),
            Test::BarrierUpdate | Test::NotifyUpdate => return self.updates(),
            Test::UpdateReader => return self.updates_at_reader(),
            Test::Post => {
                return Ok(Figures { latency: Some(self.posts()?), ..Figures::default() });
            }
            _ => {}
        }
        if self.perf.test == Test::Fifo {
            return Ok(Figures { stream: Some(self.elements()?), ..Figures::default() });
        }
        let streams = self.perf.streams();
        let latency = if self.perf.wants(Metric::Latency) || !streams {
            Some(self.exchanges()?)
        } else {
            None
        };
        let stream = if self.perf.wants(Metric::Throughput) && streams {
            Some(self.stream()?)
        } else {
            None
        };
        Ok(Figures { latency, stream, reference: None })
    }

    /// Makes the shared array of a measurement.
    pub fn array(&self, name: &str, len: usize, homes: Homes) -> Result<SharedArray<u64>> {
        let builder = self.job.array_builder::<u64>(name, len).homes(homes);
        match self.perf.delivery {
            Some(delivery) => builder.delivery(delivery).build(),
            None => builder.build(),
        }
    }

    /// Returns how often a single operation is timed.
    pub fn iterations(&self) -> u32 {
        self.perf.iterations.unwrap_or(if self.perf.size > 65_536 { 200 } else { 10_000 })
    }

    /// Returns the bytes of payload to move for throughput.
    pub fn volume(&self) -> usize {
        /// Number of operations that are too small to fill [`COLD`] bytes.
        const SMALL: usize = 200_000;
        self.perf.volume.unwrap_or(if self.perf.size >= COLD_FROM {
            COLD
        } else {
            SMALL * self.perf.size
        })
    }
}

/// Returns the length of the front part of the memory, which operations one at a time use. This
/// part holds their source and their destination, and at its end the source and destination of a
/// header.
pub fn exchanged(size: usize) -> usize {
    (lands(size) + size.next_multiple_of(8) + consecutive::ROOM).next_multiple_of(4096)
}

/// Returns the offset at which a payload of this size lands at the peer. The payload shares no
/// cache line with the source.
pub fn lands(size: usize) -> usize {
    size.next_multiple_of(LINE)
}

/// Returns the length of the rest of the memory, behind [`exchanged`] bytes. Many operations in
/// flight walk through it.
fn walked(perf: &Perf) -> usize {
    match perf.test {
        Test::Mixed => COLD,
        // One more huge page, so that the first exchange can begin at a huge page.
        Test::Exchange => COLD.max(perf.size) + (2 << 20),
        _ if perf.streams() && perf.wants(Metric::Throughput) => {
            if perf.hot {
                perf.span().max(COLD_FROM)
            } else if perf.size >= COLD_FROM {
                COLD.max(2 * perf.span())
            } else {
                COLD_FROM
            }
        }
        _ => 0,
    }
}

/// Makes an empty histogram of nanoseconds.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new(3).map_err(|error| Error::invalid("a histogram", error.to_string()))
}

/// Returns the time since `begun` in nanoseconds.
pub fn since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
