//! Memory that peers reach, and memory that is sent from.
//!
//! - [`Region`]: counted memory of one of three kinds (shared, private, borrowed), read and written
//!   by copy.
//! - [`RegionTable`]: the regions of one engine, by slot and by key, with rights and bounds; what
//!   the protocol calls [`Memory`](oikaze_protocol::rma::Memory).
//! - [`Gather`]: bytes of a region on their way into an iovec.
//! - [`Scatter`]: bytes of a region that an iovec is filled into.
//! - [`fifo`]: queues in regions that peers push to.
//! - [`shared`]: shared arrays (spec/coherence.md), tracked page by page.
//! - [`placement`]: pages that change place instead of bytes.
//! - [`scope`]: memory of the program lent to the runtime until the scope ends.
//!
//! ## Races
//! Peers write regions whenever they like, so no reference to the inside of a region is ever handed
//! out for keeps: bytes are copied in and out through raw pointers, and words are loaded and stored
//! atomically. Two copies that meet at the same bytes leave some mixture of both, which is what the
//! remote side of any one-sided network promises; bytes have no invalid values, so the mixture is
//! never worse than wrong data. Programs order their accesses by signals (an atomic word written
//! after the data: release, read with acquire) or by completions.

mod accumulate;
mod available;
pub mod borrowed;
mod error;
pub mod fifo;
mod gather;
mod huge;
pub(crate) mod mapping;
mod memfd;
pub mod placement;
mod region;
mod residence;
mod room;
mod scatter;
pub mod shared;
mod swap;
mod table;
#[cfg(test)]
mod tests;
mod truncated_file;
mod words;

pub use available::has_memory_for;
pub(crate) use available::memory_left;
pub use borrowed::{Scope, scope, with_borrowed, with_borrowed_mut};
pub use error::{AccessError, MemoryError};
pub use gather::Gather;
pub use huge::{PageSize, huge_page};
pub(crate) use memfd::lasting_len;
#[cfg(not(all(test, loom)))]
pub(crate) use memfd::sealed as sealed_file;
pub use region::{Disk, FilePages, NotTaken, PagesLock, Region, RegionKind, WeakRegion};
pub use scatter::{Places, Scatter};
pub use table::{Holder, REGIONS_MAX, RegionId, RegionTable, Registered};
pub use truncated_file::TruncatedFile;
pub use words::LocalWord;
