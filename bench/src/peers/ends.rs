//! Two ends of a floor or of plain TCP: programs of the bench itself, one on each host.

use clap::{Args, Subcommand};

/// End of a measurement that a process plays. Streams have settings of their own.
#[derive(Subcommand)]
pub enum Role<S: Args> {
    /// Sends first, and prints what it measured.
    Latency(Exchanges),
    /// Answers.
    LatencyServer(Exchanges),
    /// Sends, and prints what it measured.
    Stream(S),
    /// Receives.
    StreamServer(S),
}

/// Bytes there and back: what both ends must agree on.
#[derive(Args)]
pub struct Exchanges {
    /// Bytes each way.
    #[arg(long)]
    pub size: usize,
    /// How often.
    #[arg(long)]
    pub exchanges: u32,
}
