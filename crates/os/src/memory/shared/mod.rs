//! Shared arrays' memory on one node: a memfd with two mappings (spec/coherence.md).
//!
//! - The *view* is what the application loads from and stores to. A [`Tracker`] keeps its pages
//!   unmapped, read-only or writable, and tells when a thread touches a page it may not touch yet;
//!   that thread sleeps until the page is changed.
//! - The *alias* is the runtime's own mapping of the same bytes. It never traps. Pages and diffs
//!   arrive through it, twins and diffs are taken through it, and the link gathers from it.
//!
//! Whether a page is *valid* is known to `oikaze_protocol::coherence` alone: that a page of the
//! memfd exists says nothing.
//!
//! [`SharedMemory`] is one array, [`PageSet`] all of them as the protocol sees them, [`choose`]
//! picks the tracker that works here.

mod borrows;
mod choose;
#[cfg(test)]
mod conformance;
mod error;
mod guards;
mod live_guards;
mod lost_pages;
mod mprotect;
mod page_set;
mod page_word;
mod pending;
mod segv;
pub(super) mod segv_chain;
mod self_test;
mod shared_memory;
mod tracker;
pub(super) mod uffd_sys;
mod userfaultfd;

pub use borrows::Borrows;
pub use choose::{Choice, choose, open};
pub use error::SharedError;
pub use guards::{ReadGuard, WriteGuard};
pub use live_guards::LiveGuards;
pub use mprotect::Mprotect;
pub use page_set::PageSet;
pub use shared_memory::SharedMemory;
pub use tracker::{FaultAt, Tracker, TrackerKind, View};
pub use userfaultfd::{Feature, Userfaultfd, userfaultfd_features};
