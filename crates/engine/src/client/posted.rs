//! Posted receives of a node, as its engine sees them: long messages are placed as their bytes
//! arrive (MEM-26.8).

use oikaze_protocol::Rank;

/// The posted receives of a node.
pub trait PostedMemory: Send + Sync {
    /// Takes the oldest posted receive that matches a message of `len` bytes which has begun to
    /// arrive. Returns `None` if there is none, or if its memory has no room or cannot be written.
    fn begin(&self, from: Rank, tag: u64, len: u64) -> Option<Box<dyn MessagePlacement>>;
}

/// Memory of a posted receive, into which a message is placed.
pub trait MessagePlacement: Send {
    /// Writes bytes of the message.
    fn write(&mut self, offset: u64, bytes: &[u8]);

    /// Ends the receive, because the message is whole and its turn has come. Returns `false` if
    /// the memory is gone.
    fn finish(self: Box<Self>) -> bool;

    /// Puts the receive back, because the rest of the message will not come. Ends the receive
    /// instead if it was cancelled meanwhile, or its memory is gone.
    fn abort(self: Box<Self>);
}
