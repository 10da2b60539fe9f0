//! Settings that the user of a connection chooses.

use super::congestion::Algorithm;
use crate::limits;
use crate::wire::seal::SealKind;
use core::time::Duration;

/// Number of flows over which the bulk of a connection is sprayed (WIND-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCount {
    /// This number, from 1 to [`FLOWS_MAX`](limits::FLOWS_MAX).
    Fixed(u8),
    /// As many as pay (WIND-14.7).
    Auto,
}

impl FlowCount {
    /// Returns the number that a link with `most` flows can have.
    #[must_use]
    pub fn within(self, most: u8) -> FlowCount {
        match self {
            FlowCount::Fixed(count) => FlowCount::Fixed(count.min(most).max(1)),
            FlowCount::Auto if most <= 1 => FlowCount::Fixed(1),
            FlowCount::Auto => FlowCount::Auto,
        }
    }
}

impl Default for FlowCount {
    fn default() -> FlowCount {
        FlowCount::Fixed(1)
    }
}

/// Error for a text that is not a number of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such number of flows; write auto or a number from 1 to {}", limits::FLOWS_MAX)]
pub struct FlowCountSyntax;

impl core::str::FromStr for FlowCount {
    type Err = FlowCountSyntax;

    fn from_str(text: &str) -> Result<FlowCount, FlowCountSyntax> {
        match text.parse() {
            Ok(count) if (1..=limits::FLOWS_MAX).contains(&count) => Ok(FlowCount::Fixed(count)),
            _ if text == "auto" => Ok(FlowCount::Auto),
            _ => Err(FlowCountSyntax),
        }
    }
}

/// Writes what [`FromStr`](core::str::FromStr) reads.
impl core::fmt::Display for FlowCount {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FlowCount::Fixed(count) => write!(f, "{count}"),
            FlowCount::Auto => f.write_str("auto"),
        }
    }
}

/// Settings of one connection. The defaults fit a LAN.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time without a datagram from the peer after which the peer counts as dead.
    pub failure_time: Duration,
    /// Time without a datagram from the peer after which the connection asks for a sign of life;
    /// `None` means a fifth of `failure_time`.
    pub keepalive: Option<Duration>,
    /// How long to try to reach a peer that was never heard.
    pub connect_time: Duration,
    /// Maximum number of bytes in flight. The peer's receive buffer bounds them too.
    pub window_max: u64,
    /// Maximum bytes of the peer's credited messages that this node keeps before the program reads
    /// them.
    pub credit: u64,
    /// Maximum bytes of messages that are held back or reassembled. The oldest message does not
    /// count, because it is always accepted.
    pub held_max: u64,
    /// Maximum length in bytes of a message that this node reassembles instead of placing it.
    pub assembly_max: u64,
    /// Bytes of the largest UDP payload that the links of this node carry.
    pub datagram_max: u16,
    /// Bytes that the socket of this node buffers.
    pub receive_buffer: u32,
    /// Congestion control algorithm.
    pub congestion: Algorithm,
    /// Number of flows over which bulk is sprayed (WIND-14.1).
    pub flows: FlowCount,
    /// Seal at the end of every datagram except those of the handshake.
    pub seal: SealKind,
    /// Random number that no other node knows. It chooses the datagram numbers that are skipped
    /// (WIND-7.11); 0 means that none is.
    pub private_seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            failure_time: limits::FAILURE_TIME,
            keepalive: None,
            connect_time: limits::CONNECT_TIME,
            window_max: limits::WINDOW_MAX,
            credit: limits::CREDIT,
            held_max: limits::HELD_MAX,
            assembly_max: limits::ASSEMBLY_MAX,
            datagram_max: limits::DATAGRAM_ETHERNET,
            receive_buffer: limits::RECEIVE_BUFFER,
            congestion: Algorithm::default(),
            flows: FlowCount::default(),
            seal: SealKind::EndToEnd,
            private_seed: 0,
        }
    }
}

impl Settings {
    /// Returns how long the peer may be silent before the connection asks for a sign of life.
    #[must_use]
    pub fn keepalive(&self) -> Duration {
        self.keepalive.unwrap_or(self.failure_time / 5)
    }
}
