//! Memory of shared arrays on one node: a memfd with two mappings (spec/coherence.md).
//!
//! - The *view* is what the application loads from and stores to. A [`Tracker`] keeps its pages
//!   unmapped, read-only or writable, and reports when a thread touches a page that it may not
//!   touch yet. That thread sleeps until the page's mapping changes.
//! - The *alias* is the runtime's own mapping of the same bytes. It never traps. The runtime writes
//!   received pages and diffs through it and makes twins and diffs from it, and the link gathers
//!   from it.
//!
//! Only `oikaze_protocol::coherence` knows whether a page is *valid*. A page that exists in the
//! memfd need not be valid.
//!
//! [`SharedMemory`] is one array, [`PageSet`] all of them as the protocol sees them, [`choose`]
//! picks the tracker that works here.

mod borrows;
mod choose;
#[cfg(test)]
mod conformance;
mod error;
mod guards;
mod hold;
mod live_guards;
mod lost_pages;
mod others;
mod page_set;
mod pending;
mod private_copy;
mod self_test;
mod shared_memory;
pub(super) mod trackers;

pub use borrows::Borrows;
pub use choose::{Choice, choose, open};
pub use error::SharedError;
pub use guards::{KeptBytes, LentBytes, ReadGuard, ReadRows, WriteGuard, WriteRows};
pub use live_guards::LiveGuards;
pub use others::{Attempt, Begun, GuardBytes, GuardKind, OtherNodes};
pub use page_set::PageSet;
pub use shared_memory::{ElementOp, SharedMemory, sparse_file};
pub use trackers::mprotect::Mprotect;
pub use trackers::segv_chain::{ensure_again, put_back, set_aside};
pub use trackers::tracker::{FaultAt, Tracker, TrackerKind, View};
pub use trackers::userfaultfd::{UffdFeature, Userfaultfd, userfaultfd_features};
