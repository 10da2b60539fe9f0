//! Parts that several programs share: two nodes with memory for each other, and clocks.

use std::time::Duration;

use oikaze::completion::Operation;
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{LocalRegion, Region, RegionSlice, Rights};
use oikaze::message::Class;
use oikaze::{Job, Peer};
use rustix::time::{ClockId, clock_gettime};

use super::failed;
use crate::error::Error;

/// Time limit of an operation or a message.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Name under which each node publishes its memory.
const NAME: &str = "bench";
/// Bytes of the memory in front of source and destination, for words that nodes wait for.
const FRONT: usize = 4096;

/// One of two nodes, with its peer. Behind the words at the front, the memory has room for a source
/// and for a destination of the same size.
pub struct Pair<'a> {
    pub job: &'a Job,
    pub peer: Peer,
    pub local: LocalRegion,
    pub there: RemoteRegion,
    /// Bytes of the source, a multiple of 8.
    pub size: usize,
    /// Source of puts.
    pub source: RegionSlice,
}

impl<'a> Pair<'a> {
    /// Makes this node's memory, and looks up that of the peer.
    ///
    /// # Errors
    /// There is no room, or no peer.
    pub fn new(job: &'a Job, size: usize) -> Result<Self, Error> {
        Self::named(job, NAME, size)
    }

    /// Makes memory as [`Pair::new`] does, under another name.
    ///
    /// # Errors
    /// As [`Pair::new`].
    pub fn named(job: &'a Job, name: &str, size: usize) -> Result<Self, Error> {
        let size = size.next_multiple_of(8);
        let room = size.next_multiple_of(4096);
        let region = Region::zeroed(FRONT + 2 * room).map_err(failed)?;
        // Touches every page now, so that the kernel clears no page during the measurement.
        let filled = region.fill(0, region.len() as u64, 0);
        filled.map_err(failed)?;
        let local = job.publish(name, region, Rights::ALL).map_err(failed)?;
        let peer = job.peer(1 - job.rank().min(1)).map_err(failed)?;
        let there = peer.region(name).map_err(failed)?;
        let source = local.slice(FRONT..FRONT + size).map_err(failed)?;
        Ok(Self { job, peer, local, there, size, source })
    }

    /// Returns the first `len` bytes of the source.
    pub fn source_of(&self, len: usize) -> Result<RegionSlice, Error> {
        self.local.slice(FRONT..FRONT + len).map_err(failed)
    }

    /// Returns the offset at which a payload lands at the peer.
    pub fn lands(&self) -> u64 {
        (FRONT + self.size.next_multiple_of(4096)) as u64
    }

    /// Puts the source, whose last word becomes `flag`.
    pub fn put(&self, flag: u64) -> Result<Operation<()>, Error> {
        let last = (FRONT + self.size - 8) as u64;
        self.local.store_u64(last, flag).map_err(failed)?;
        Ok(self.there.put(self.lands(), &self.source))
    }

    /// Waits until the last word of what the peer puts satisfies `wanted`.
    pub fn see(&self, wanted: impl FnMut(u64) -> bool) -> Result<u64, Error> {
        let at = self.lands() + self.size as u64 - 8;
        self.local.wait_until_by_for(self.peer.rank(), at, PATIENCE, wanted).map_err(failed)
    }

    /// Sends a word, in order.
    pub fn send(&self, word: u64) -> Operation<()> {
        self.peer.send(Class::Ordered, 0, &word.to_le_bytes())
    }

    /// Waits for the peer's next word.
    pub fn receive(&self) -> Result<u64, Error> {
        let message = self.job.receive_for(Some(self.peer.rank()), PATIENCE).map_err(failed)?;
        let bytes = message.bytes().try_into();
        bytes.map(u64::from_le_bytes).map_err(|_| Error::new("the peer sent no word"))
    }
}

/// Waits for the end of an operation.
pub fn finish(operation: &Operation<()>) -> Result<(), Error> {
    operation.wait_for(PATIENCE).map_err(failed)
}

/// Returns the processor time of the calling thread, in nanoseconds.
pub fn thread_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Returns the processor time of all threads of this process, in nanoseconds.
pub fn process_time() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Returns the time of the machine's clock, in nanoseconds. All processes of a machine share it.
pub fn machine_time() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Returns the median of nanoseconds, in µs.
pub fn median_us(times: &[u64]) -> f64 {
    let times: Vec<f64> = times.iter().map(|&time| time as f64 / 1e3).collect();
    crate::record::median(&times).unwrap_or(f64::NAN)
}

/// Returns a percentile of nanoseconds, in µs.
pub fn percentile_us(times: &mut [u64], percent: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |&time| time as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_times() {
        let mut times: Vec<u64> = (1..=100).rev().map(|n| n * 1000).collect();
        assert!((percentile_us(&mut times, 99) - 100.0).abs() < 1e-9);
        assert!((percentile_us(&mut times, 50) - 51.0).abs() < 1e-9);
        assert!((median_us(&times) - 50.5).abs() < 1e-9);
        assert!(percentile_us(&mut [], 50).is_nan());
    }
}
