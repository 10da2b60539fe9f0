//! Trackers of page accesses.

pub mod mprotect;
pub mod page_word;
pub mod segv;
pub mod segv_chain;
pub mod tracker;
pub mod uffd_sys;
pub mod userfaultfd;
