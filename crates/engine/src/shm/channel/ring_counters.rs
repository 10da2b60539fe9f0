//! Counters of the rings of one local peer.

use oikaze_protocol::counters;

counters! {
/// Counters of the messages and bytes that went through the rings of one local peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Messages that this node posted, withdrawn ones included.
    pub messages_out: u64,
    /// Bytes of the bodies of posted messages.
    pub bytes_out: u64,
    /// Messages that this node has read to their end, refused ones included.
    pub messages_in: u64,
    /// Bytes of the bodies of messages that were read.
    pub bytes_in: u64,
    /// Posted messages that had to wait for room in the ring or for credit.
    pub waited: u64,
}
}
