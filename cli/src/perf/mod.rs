//! `oikaze perf`: measures latency and throughput between nodes 0 and 1 of a job.
//!
//! Latency is that of one way: half of a ping and its pong. For put, it is half of a put and the
//! answering put, each seen by polling memory, as `ucp_put_lat` does. Where only one side acts
//! (put-done, get, fetch-add, compare-swap, block, exchange, fetch, barrier), latency lasts from
//! call to completion. In post, it lasts until the call returns. In barrier-update and
//! notify-update, all nodes write in turn. In update-reader, it is a round of work at a node that
//! gets updates meanwhile (see `updates`).
//!
//! An exchange that takes hardly longer than reading the clock is timed in blocks, and counts as
//! the mean of its block. Throughput is measured with several operations in flight, which walk
//! through memory that no cache holds.

mod block;
mod collectives;
mod consecutive;
mod exchange;
mod fetch;
mod fifo;
mod measure;
mod mixed;
mod passive;
mod post;
mod report;
mod stream;
mod updates;

use clap::{Args, ValueEnum};
use measure::Bench;
use oikaze::message::Class;
use oikaze::shared::builder::Delivery;
use oikaze::{Error, Result};
use oikaze_os::features::DisabledFeatures;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Test that `oikaze perf` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Write to the peer's memory: latency of one way, and throughput
    Put,
    /// Write to the peer's memory: from call to completion
    PutDone,
    /// Write to the peer's memory: from call to return, without its completion
    Post,
    /// Put a header of 32 bytes and the data without waiting in between: latency of one way
    Consecutive,
    /// Read from the peer's memory: from call to completion, and throughput
    Get,
    /// Send messages: latency of one way, and throughput
    Message,
    /// Fetch and add on a word of the peer's memory: from call to completion
    FetchAdd,
    /// Compare and swap a word of the peer's memory: from call to completion
    CompareSwap,
    /// Write rows of 1 KiB to every second KiB of the peer's memory, in one operation: from call to
    /// completion, and throughput
    Block,
    /// Add doubles to doubles in the peer's memory: from call to completion, and throughput
    Accumulate,
    /// Push elements from all nodes into a queue of the last node, in batches: elements per second
    Fifo,
    /// Exchange whole pages with the peer, and read one word per page: from call to completion
    Exchange,
    /// Run barriers: from call to completion
    Barrier,
    /// Run barriers that each bring SIZE bytes of one node to all others: time of write and barrier
    /// together
    BarrierUpdate,
    /// The same, but a node that has written notifies the others in place of a barrier
    NotifyUpdate,
    /// Bring SIZE bytes of node 0 to nodes that compute: time of a round of work with an update,
    /// and node 1's processor time beyond its work; then the work alone
    UpdateReader,
    /// Read pages of a shared array that are not valid here: from call to guard, and the bytes per
    /// second of these reads
    Fetch,
    /// Run collectives of all nodes, of SIZE bytes: mean time on the slowest node
    Collectives,
    /// Put latency during bulk puts, and the bandwidth of these; then each alone
    Mixed,
    /// Put to a node that computes and does not call Oikaze; then to one that waits: from call to
    /// completion
    Passive,
}

/// Quantity that a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// One operation at a time
    Latency,
    /// Many in flight
    Throughput,
}

/// Class of the messages of the test `message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MessageClass {
    /// Delivered in order
    Ordered,
    /// Delivered on arrival
    Unordered,
    /// Delivered in order, and acknowledged at once
    Sync,
}

impl MessageClass {
    fn class(self) -> Class {
        match self {
            Self::Ordered => Class::Ordered,
            Self::Unordered => Class::Unordered,
            Self::Sync => Class::Sync,
        }
    }
}

/// Measure put, get, message, atomics, blocks of rows or barrier between the nodes of a job
///
/// Inside a job (`oikaze run -n 2 --hosts a,b -- oikaze perf put`) it measures between node 0 and
/// node 1; called alone it starts two nodes on this machine.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  oikaze perf put --size 1M
  oikaze run -n 2 --hosts a,b --no-prefix -- oikaze perf message --size 8 --json
  oikaze run -n 2 --hosts a,b --seal header -- oikaze perf put --size 1M --only throughput
  oikaze run -n 4 -- oikaze perf barrier
  oikaze run -n 4 -- oikaze perf barrier-update --size 64K
  oikaze run -n 4 -- oikaze perf collectives --case all_reduce --sweep=8,1M")]
pub struct Perf {
    /// Test to run
    #[arg(value_enum)]
    test: Test,
    /// Bytes of each operation; K, M and G are powers of 1024
    #[arg(long, default_value = "8", value_parser = parse_size)]
    size: usize,
    /// Operations to time one at a time; chosen by size if absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4_000_000_000))]
    iterations: Option<u32>,
    /// Bytes to move for throughput; chosen by size if absent
    #[arg(long, value_parser = parse_size)]
    volume: Option<usize>,
    /// Class of messages
    #[arg(long, value_enum, default_value = "ordered")]
    class: MessageClass,
    /// Measure one half only, of tests that have both
    #[arg(long, value_enum)]
    only: Option<Metric>,
    /// Delivery of the shared array's transfers, in updates and fetch; the runtime's choice if
    /// absent
    #[arg(long, value_name = "DELIVERY", value_parser = parse_delivery)]
    delivery: Option<Delivery>,
    /// Percentage of the bytes of each update that change
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(1..=100))]
    changed: u8,
    /// Collective to measure; all of them if absent
    #[arg(long, value_enum)]
    case: Option<collectives::Case>,
    /// Sizes of collectives to measure; 8 bytes to 4 MiB if none are named
    #[arg(
        long,
        value_name = "SIZES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = collectives::SWEEP,
        value_delimiter = ',',
        value_parser = parse_size
    )]
    sweep: Vec<usize>,
    /// Reuse one buffer, which stays in the cache, instead of walking through more memory
    #[arg(long)]
    hot: bool,
    /// Use memory that local peers can map
    #[arg(long)]
    shared: bool,
    /// One JSON object on a line instead of a table
    #[arg(long)]
    json: bool,
}

impl Perf {
    /// Returns `true` if the test has a throughput over memory that operations walk through.
    fn streams(&self) -> bool {
        matches!(self.test, Test::Put | Test::Get | Test::Message | Test::Block | Test::Accumulate)
    }

    fn wants(&self, half: Metric) -> bool {
        self.only.is_none_or(|only| only == half)
    }
}

/// Runs the measurement and prints its result.
///
/// # Errors
/// The job or an operation fails.
pub fn run(perf: &Perf) -> Result<()> {
    if !oikaze_launch::is_launched()? {
        return start_two(perf.test);
    }
    let job = oikaze::join()?;
    if perf.test == Test::Collectives {
        let said = collectives::run(perf, &job);
        return job.leave().and(said);
    }
    let bench = Bench::new(&job, perf)?;
    let figures = bench.run()?;
    let said = match (job.rank(), perf.json) {
        (0, true) => crate::print::print(&(report::json(perf, &job, &figures) + "\n")),
        (0, false) => crate::print::print(&(report::table(perf, &job, &figures) + "\n")),
        _ => Ok(()),
    };
    job.leave().and(said)
}

impl Test {
    /// Returns `true` if the test measures how pages of an array travel.
    fn is_of_pages(self) -> bool {
        matches!(self, Test::Fetch | Test::BarrierUpdate | Test::NotifyUpdate | Test::UpdateReader)
    }
}

/// Becomes the launcher of a job of two nodes that run this same command. Called outside a job.
fn start_two(test: Test) -> Result<()> {
    let failed = |source: std::io::Error| {
        Error::system("starting a job of two nodes for oikaze perf", source)
    };
    let me = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(&me);
    if test.is_of_pages() {
        // On one machine, the nodes would map one memory and send nothing.
        let mut without = DisabledFeatures::from_env().unwrap_or_default();
        without.segment = true;
        let words: Vec<_> = without.features().map(|feature| feature.to_string()).collect();
        command.env("OIKAZE_WITHOUT", words.join(","));
    }
    let error = command
        .args(["run", "-n", "2", "--no-prefix", "--"])
        .arg(&me)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(failed(error))
}

fn parse_delivery(text: &str) -> std::result::Result<Delivery, String> {
    Delivery::from_name(text).ok_or_else(|| {
        let names = Delivery::ALL.map(Delivery::name).join(", ");
        format!("{text:?} is not a delivery: use one of {names}")
    })
}

fn parse_size(text: &str) -> std::result::Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => {
            return Err(format!(
                "{text:?} is not a size: a number, with K, M or G behind it if wanted"
            ));
        }
    };
    let number: usize = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size: it must begin with a number"))?;
    number
        .checked_mul(1 << shift)
        .filter(|&size| size > 0 && size <= 64 << 30)
        .ok_or_else(|| format!("{text:?}: sizes are 1 to 64G"))
}

#[cfg(test)]
mod tests {
    use super::{parse_delivery, parse_size};

    #[test]
    fn deliveries_have_names() {
        assert_eq!(parse_delivery("message_through"), Ok(super::Delivery::MessageThrough));
        assert!(parse_delivery("direct map").is_err_and(|why| why.contains("direct_map")));
    }

    #[test]
    fn sizes_have_suffixes_and_bounds() {
        assert_eq!(parse_size("8"), Ok(8));
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        for bad in ["", "K", "0", "65G", "1T", "-1", "1.5M"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
