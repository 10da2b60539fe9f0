//! Parts common to all measurements: two nodes, their memory, and the results.

use super::{Half, Perf, Test, consecutive};
use hdrhistogram::Histogram;
use oikaze::{Error, Job, LocalRegion, Peer, Region, RegionSlice, RemoteRegion, Result, Rights};
use std::time::{Duration, Instant};

/// Throughput is measured over at least this much memory on each side, so that no cache holds it.
pub const COLD: usize = 512 << 20;
/// From this size on operations walk through as much; smaller ones are asked how many a second.
const COLD_FROM: usize = 4096;
/// Processors fetch cache lines in pairs.
const LINE: usize = 128;
/// Messages up to this are sent from wherever they are.
pub const COPIED: usize = 1024;
/// A peer that says nothing for so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The largest operation: two of them fit into the memory.
const SIZE_MAX: usize = 1 << 30;
/// The name under which each node publishes its memory.
const NAME: &str = "perf";

/// Results of a measurement.
#[derive(Default)]
pub struct Figures {
    /// Latencies in nanoseconds, if measured.
    pub latency: Option<Histogram<u64>>,
    /// Throughput, if measured.
    pub stream: Option<Stream>,
    /// For `mixed`: each of the two alone. For `passive`: to a node that waits.
    pub reference: Option<Box<Figures>>,
}

/// Many operations in flight.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Payload.
    pub bytes: u64,
    /// How many carried it.
    pub operations: u64,
    /// From the first call to the last completion.
    pub seconds: f64,
    /// Processor time of both nodes together, if measured.
    pub processor_seconds: Option<f64>,
    /// Processor time of node 1 alone, if measured.
    pub other_processor_seconds: Option<f64>,
}

/// One measurement, ready to go on this node.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub perf: &'a Perf,
    pub local: LocalRegion,
    /// The source of a payload that ends with a word.
    pub flagged: RegionSlice,
    /// The peer and its memory; nodes beyond the first two only take part in collectives.
    pub pair: Option<(Peer, RemoteRegion)>,
    /// Payload of the messages.
    pub payload: Vec<u8>,
    /// Nanoseconds that two looks at the clock are apart at least.
    pub clock: u64,
}

impl<'a> Bench<'a> {
    pub fn new(job: &'a Job, perf: &'a Perf) -> Result<Self> {
        if job.size() < 2 {
            return Err(Error::Invalid {
                what: format!("measuring in a job of {} node", job.size()),
                why: "two are needed: `oikaze run -n 2 -- oikaze perf …`, or `oikaze perf …` alone, which starts two".into(),
            });
        }
        let size = perf.size;
        if size > SIZE_MAX {
            return Err(Error::Invalid {
                what: format!("operations of {size} bytes"),
                why: format!("{SIZE_MAX} at most"),
            });
        }
        perf.check_parts()?;
        let len = exchanged(perf.span()) + walked(perf);
        let region = if perf.shared { Region::shared(len)? } else { Region::zeroed(len)? };
        // Every page is there before it is measured: the kernel's clearing of new pages is not what
        // is asked.
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
            if perf.test == Test::Message && (perf.wants(Half::Latency) || size <= COPIED) {
                size
            } else {
                0
            }
        ];
        let clock = (0..1000).map(|_| since(Instant::now())).min().unwrap_or(0);
        Ok(Self { job, perf, local, flagged, pair, payload, clock })
    }

    /// Measure; the figures mean something on node 0.
    pub fn run(&self) -> Result<Figures> {
        match self.perf.test {
            Test::Mixed => return self.mixed(),
            Test::Passive => return self.passive(),
            _ => {}
        }
        if self.perf.test == Test::Fifo {
            return Ok(Figures { stream: Some(self.elements()?), ..Figures::default() });
        }
        let streams = self.perf.streams();
        let latency =
            if self.perf.wants(Half::Latency) || !streams { Some(self.exchanges()?) } else { None };
        let stream =
            if self.perf.wants(Half::Throughput) && streams { Some(self.stream()?) } else { None };
        Ok(Figures { latency, stream, reference: None })
    }

    /// How often a single operation is timed.
    pub fn iterations(&self) -> u32 {
        self.perf.iterations.unwrap_or(if self.perf.size > 65_536 { 200 } else { 10_000 })
    }

    /// Bytes of payload to be moved for throughput.
    pub fn volume(&self) -> usize {
        /// Operations too small to fill memory with.
        const SMALL: usize = 200_000;
        self.perf.volume.unwrap_or(if self.perf.size >= COLD_FROM {
            COLD
        } else {
            SMALL * self.perf.size
        })
    }
}

/// Memory begins with what single operations use: a source, and a place where they land, and at its
/// end the same for a header.
pub fn exchanged(size: usize) -> usize {
    (lands(size) + size.next_multiple_of(8) + consecutive::ROOM).next_multiple_of(4096)
}

/// Where the peer's payload of this size lands: in lines of its own.
pub fn lands(size: usize) -> usize {
    size.next_multiple_of(LINE)
}

/// Behind it is the memory that many operations walk through.
fn walked(perf: &Perf) -> usize {
    match perf.test {
        Test::Mixed => COLD,
        // Whole places, the first of them at a huge page.
        Test::Exchange => COLD.max(perf.size) + (2 << 20),
        _ if perf.streams() && perf.wants(Half::Throughput) => {
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

/// An empty histogram of nanoseconds.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new(3)
        .map_err(|error| Error::Invalid { what: "a histogram".into(), why: error.to_string() })
}

/// Since then, in nanoseconds.
pub fn since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
