//! One node with its threads: who drives the engine, how threads wait, and what a node shows of
//! itself.
//!
//! Programs use the crate `oikaze`, which names no type of this one but the error and the settings.
//! This crate knows nothing of jobs, arrays and typed regions. What it needs of them stands behind
//! small traits, such as [`node::RegisteredTeam`] and [`node::RegisteredMemory`].
#![forbid(unsafe_code)]
// The documentation is for builders of Oikaze, who read it with private items.
#![allow(rustdoc::private_intra_doc_links)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod error;
pub mod node;
pub mod observe;
pub mod received;
pub mod shm_setup;
mod sync;
