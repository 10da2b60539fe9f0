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
#[path = "trackers/choose.rs"]
mod choose;
#[cfg(test)]
mod conformance;
mod error;
mod guards;
mod live_guards;
mod lost_pages;
#[path = "trackers/mprotect.rs"]
mod mprotect;
mod page_set;
#[path = "trackers/page_word.rs"]
mod page_word;
mod pending;
#[path = "trackers/segv.rs"]
mod segv;
#[path = "trackers/segv_chain.rs"]
pub(super) mod segv_chain;
#[path = "trackers/self_test.rs"]
mod self_test;
mod shared_memory;
#[path = "trackers/tracker.rs"]
mod tracker;
#[path = "trackers/uffd_sys.rs"]
pub(super) mod uffd_sys;
#[path = "trackers/userfaultfd.rs"]
mod userfaultfd;

pub use borrows::Borrows;
pub use choose::{Choice, choose, open};
pub use error::SharedError;
pub use guards::{LentBytes, ReadGuard, ReadRows, WriteGuard, WriteRows};
pub use live_guards::LiveGuards;
pub use mprotect::Mprotect;
pub use page_set::PageSet;
pub use segv_chain::{ensure_again, put_back, set_aside};
pub use shared_memory::SharedMemory;
pub use tracker::{FaultAt, Tracker, TrackerKind, View};
pub use userfaultfd::{Feature, Userfaultfd, userfaultfd_features};
