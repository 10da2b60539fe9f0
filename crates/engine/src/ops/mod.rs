//! Operations of this node: their requests, their state until they end, and their order.

pub(crate) mod compound;
pub(crate) mod fence;
pub(crate) mod fence_watch;
pub mod label;
pub mod operation;
pub(crate) mod outstanding;
pub(crate) mod region_checks;
pub(crate) mod retry;
pub mod submission;
pub(crate) mod untaken;
