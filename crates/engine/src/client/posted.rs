//! Memory of a node that waits for messages, as its engine sees it: long messages and parcels are
//! placed as their bytes arrive (MEM-26.8, COLL-1.5).

use oikaze_os::memory::Scatter;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;

/// The posted receives and the awaited parcels of a node.
pub trait PostedMemory: Send + Sync {
    /// Takes the oldest posted receive that matches a message of `len` bytes which has begun to
    /// arrive. Returns `None` if there is none, or if its memory has no room or cannot be written.
    fn begin(&self, from: Rank, tag: u64, len: u64) -> Option<Box<dyn MessagePlacement>>;

    /// Takes the memory that waits for this parcel of `len` bytes, which has begun to arrive.
    /// Returns `None` if there is none.
    fn begin_parcel(
        &self,
        from: Rank,
        head: &ParcelHead,
        len: u64,
    ) -> Option<Box<dyn MessagePlacement>>;
}

/// Memory into which a message is placed.
pub trait MessagePlacement: Send {
    /// Returns a part of the memory for bytes of the message, so that the link receives directly
    /// into it. Returns `None` if the bytes must come by [`write`](Self::write).
    fn scatter(&self, offset: u64, len: u64) -> Option<Scatter>;

    /// Writes bytes of the message.
    fn write(&mut self, offset: u64, bytes: &[u8]);

    /// Ends the placement, because the message is whole and its turn has come. Returns `false` if
    /// the memory is gone.
    fn finish(self: Box<Self>) -> bool;

    /// Puts the receive back, because the rest of the message will not come. Ends the receive
    /// instead if it was cancelled meanwhile, or its memory is gone.
    fn abort(self: Box<Self>);
}
