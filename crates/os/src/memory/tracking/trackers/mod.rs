//! Trackers of page accesses, and the choice of the one that works here.

#[path = "../choose.rs"]
pub mod choose;
pub mod mprotect;
pub mod page_word;
pub mod segv;
pub mod segv_chain;
#[path = "../self_test.rs"]
pub mod self_test;
pub mod tracker;
pub mod uffd_sys;
pub mod userfaultfd;
