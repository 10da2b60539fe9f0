//! What the user of a connection chooses.

use super::congestion::Algorithm;
use crate::limits;
use crate::wire::SealKind;
use core::time::Duration;

/// Of one connection. The defaults fit a LAN.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A peer from which nothing is heard for this long is dead.
    pub failure_time: Duration,
    /// After this long without a word from the peer it is asked; `None`: a fifth of `failure_time`.
    pub keepalive: Option<Duration>,
    /// How long to try to reach a peer that was never heard of.
    pub connect_time: Duration,
    /// Bytes in flight at most; the peer's receive buffer bounds it too.
    pub window_max: u64,
    /// Bytes of credited messages we keep for the peer before they are read.
    pub credit: u64,
    /// Bytes of messages held back or being collected, other than the oldest one, which always gets
    /// in.
    pub held_max: u64,
    /// The longest message that is collected (not placed) here.
    pub assembly_max: u64,
    /// The largest UDP payload our links carry.
    pub datagram_max: u16,
    /// Bytes our socket buffers.
    pub receive_buffer: u32,
    /// What decides how much may be in flight.
    pub congestion: Algorithm,
    /// What every datagram but the handshake's ends with.
    pub seal: SealKind,
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
            seal: SealKind::EndToEnd,
        }
    }
}

impl Settings {
    /// How long the peer may be silent before it is asked.
    #[must_use]
    pub fn keepalive(&self) -> Duration {
        self.keepalive.unwrap_or(self.failure_time / 5)
    }
}
