//! Roles of the two ends of a floor, of TCP or of QUIC. Both ends are processes of the bench
//! itself, one on each host.

use clap::{Args, Subcommand};
use memmap2::MmapMut;

use super::memory::touched;
use super::{Effort, Found};
use crate::error::{Error, Tried};
use crate::lab::Lab;
use crate::process::own;
use crate::suite::case::{Case, Figure, Test};

/// Bytes of memory on both sides that a stream walks through, which no cache holds.
const COLD: usize = 512 << 20;
/// Bytes that are moved before the clock starts, so that the congestion window opens. A smaller
/// volume is warmed up with a quarter of its bytes.
const WARM_UP: usize = 64 << 20;

/// Role of a process in a measurement. `S` holds the settings of a stream.
#[derive(Subcommand)]
pub enum Role<S: Args> {
    /// Sends first, and prints what it measured.
    Latency(Exchanges),
    /// Answers each exchange.
    LatencyServer(Exchanges),
    /// Sends, and prints what it measured.
    Stream(S),
    /// Receives all bytes.
    StreamServer(S),
}

/// Settings of exchanges, on which both ends must agree.
#[derive(Args)]
pub struct Exchanges {
    /// Bytes each way.
    #[arg(long)]
    pub size: usize,
    /// Number of exchanges.
    #[arg(long)]
    pub exchanges: u32,
}

/// Settings of a stream through cold memory, on which both ends must agree.
#[derive(Args)]
pub struct Bulk {
    /// Bytes of a call.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Bytes to be moved.
    #[arg(long)]
    pub volume: usize,
}

impl Bulk {
    /// Returns the bytes of a call, at most those of the memory.
    pub fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(COLD).min(COLD)
    }

    /// Returns the bytes of each call that moves `volume` bytes, from all of the memory in turn.
    pub fn calls<'m>(&self, memory: &'m [u8], volume: usize) -> impl Iterator<Item = &'m [u8]> {
        let mut left = volume;
        memory.chunks(self.size()).cycle().map_while(move |chunk| {
            let call = &chunk[..chunk.len().min(left)];
            left -= call.len();
            (!call.is_empty()).then_some(call)
        })
    }

    /// Returns memory for a whole number of calls, with every page touched.
    ///
    /// # Errors
    /// The system has no room.
    pub fn memory(&self) -> Result<MmapMut, Error> {
        touched(COLD / self.size() * self.size()).tried("making memory to walk through")
    }

    /// Returns the bytes that are moved before the clock starts.
    pub fn warm_up(&self) -> usize {
        WARM_UP.min(self.volume / 4)
    }

    /// Describes a stream that took `seconds`, and `spent` seconds of the processors of both sides:
    /// GB/s, and processor seconds per GiB.
    pub fn line(&self, seconds: f64, spent: f64) -> String {
        let bytes = self.volume as f64;
        format!("{} {}", bytes / seconds / 1e9, spent / (bytes / f64::from(1 << 30)))
    }
}

/// Measures a case by both ends of one of the bench's own programs, which prints what
/// [`Bulk::line`] returns, or the µs of one way.
///
/// # Errors
/// An end failed, or printed something else.
pub fn measure(
    lab: &Lab,
    program: &str,
    options: &[&str],
    case: Case,
    effort: Effort,
) -> Result<Found, Error> {
    let (role, amount, value) = match case.test {
        test @ (Test::MessageLatency | Test::FirstMessages) => {
            ("latency", "--exchanges", effort.exchanges_of(test) as usize)
        }
        Test::MessageRate => ("stream", "--volume", effort.operations as usize * case.size),
        Test::Processor => ("stream", "--volume", effort.costly),
        _ => ("stream", "--volume", effort.volume),
    };
    let settings = ["--size", &case.size.to_string(), amount, &value.to_string()];
    let arguments = settings.iter().chain(options).map(|argument| (*argument).to_owned());
    let printed = own(lab, program, role, &arguments.collect::<Vec<_>>())?;
    let numbers: Result<Vec<f64>, _> = printed.split_whitespace().map(str::parse).collect();
    match (case.test, numbers.as_deref()) {
        (Test::MessageLatency, Ok(&[microseconds])) => Ok(vec![(Figure::MessageLat, microseconds)]),
        (Test::FirstMessages, Ok(&[microseconds])) => Ok(vec![(Figure::FirstLat, microseconds)]),
        (Test::Processor, Ok(&[_, seconds_per_gib])) => Ok(vec![(Figure::Cpu, seconds_per_gib)]),
        (Test::MessageRate, Ok(&[gigabytes_per_second, _])) => {
            Ok(vec![(Figure::MessageRate, gigabytes_per_second * 1e3 / case.size as f64)])
        }
        (_, Ok(&[gigabytes_per_second, _])) => Ok(vec![(Figure::MessageBw, gigabytes_per_second)]),
        _ => Err(Error::new(format!(
            "{program} {role} printed {printed:?} where numbers were expected"
        ))),
    }
}
