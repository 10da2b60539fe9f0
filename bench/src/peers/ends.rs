//! Two ends of a floor or of plain TCP: programs of the bench itself, one on each host.

use clap::{Args, Subcommand};

/// End of a measurement that a process plays. Streams have settings of their own.
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

/// Bytes there and back: what both ends must agree on.
#[derive(Args)]
pub struct Exchanges {
    /// Bytes each way.
    #[arg(long)]
    pub size: usize,
    /// Number of exchanges.
    #[arg(long)]
    pub exchanges: u32,
}
