//! Memory that peers reach, and memory that is sent from.
//!
//! - [`Region`]: reference-counted memory (shared, private, borrowed or a file's), read and written
//!   by copy.
//! - [`RegionTable`]: the regions of one engine, by slot and by key, with rights and bounds. It
//!   implements the protocol's [`Memory`](oikaze_protocol::rma::Memory).
//! - [`Gather`]: bytes of a region that an iovec sends from.
//! - [`Scatter`]: bytes of a region that an iovec receives into.
//! - [`fifo`]: queues in regions that peers push to.
//! - [`tracking`]: shared arrays (spec/coherence.md), tracked page by page.
//! - [`placement`]: moves pages instead of copying bytes.
//! - [`borrowed`]: lends memory of the program to the runtime until the scope ends.
//!
//! ## Races
//!
//! Peers write regions at any time, so the crate never hands out a lasting reference into a region.
//! Bytes are copied in and out through raw pointers, and words are loaded and stored atomically.
//! Two concurrent copies of the same bytes leave a mixture of both, as with any one-sided network.
//! Bytes have no invalid values, so the mixture is never worse than wrong data. Programs order
//! their accesses by signals (an atomic word written after the data: release, read with acquire) or
//! by completions.

mod accumulate;
mod atomic;
mod available;
pub mod borrowed;
mod error;
pub mod fifo;
mod gather;
mod huge;
pub(crate) mod mapping;
mod memfd;
mod paging;
pub mod placement;
mod region;
mod room;
mod scatter;
mod table;
#[cfg(test)]
mod tests;
pub mod tracking;
mod truncated_file;

pub use atomic::LocalWord;
pub use available::has_memory_for;
pub(crate) use available::memory_left;
pub use borrowed::{Scope, scope, with_borrowed, with_borrowed_mut};
pub use error::{AccessError, MemoryError};
pub use gather::Gather;
pub use huge::{PageSize, ask_for_huge_pages, collapses_files, huge_page};
#[cfg(not(all(test, loom)))]
pub(crate) use memfd::sealed as sealed_file;
pub(crate) use memfd::{lasting_len, reserve as reserve_file};
pub use region::weak::WeakRegion;
pub use region::{Disk, FilePages, NotTaken, PagesLock, Region, RegionKind};
pub use scatter::Scatter;
pub use table::{Holder, REGIONS_MAX, RegionId, RegionTable, Registered};
pub use truncated_file::{TruncatedFile, nameless_file};
