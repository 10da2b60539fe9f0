//! Roles of the two ends of a floor or of plain TCP. Both ends are processes of the bench itself,
//! one on each host.

use clap::{Args, Subcommand};

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
