//! Description of a message.

use oikaze_protocol::Rank;

/// Description of a message that a posted receive has got (`Job::post_receive`), or that is the
/// next to be received (`Job::probe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Rank of the sender.
    pub from: Rank,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Length of the message in bytes. The bytes behind it in the posted memory are unchanged, or
    /// those of a message that was withdrawn before.
    pub len: u64,
}
