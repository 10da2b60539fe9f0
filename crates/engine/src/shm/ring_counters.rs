//! Counters of the rings of one local peer.

use oikaze_protocol::counters;

counters! {
/// Counters of the messages and bytes that went through the rings of one local peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Messages posted, withdrawn ones included.
    pub messages_out: u64,
    /// Bytes of their bodies.
    pub bytes_out: u64,
    /// Messages handed up.
    pub messages_in: u64,
    /// Bytes of their bodies.
    pub bytes_in: u64,
    /// Messages that found no room, or no credit, at once.
    pub waited: u64,
}
}
