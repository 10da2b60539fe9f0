//! # Oikaze: shared and remote memory for clusters on ordinary Ethernet
//!
//! ```
#![doc = include_str!("../examples/readme.rs")]
//! ```
//!
//! A program joins its job and gets a [`Job`]: by the attribute [`main`], by [`run`], [`local`] or
//! [`join`], or with settings of its own by [`Job::builder`]. Everything else comes from the job.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | the job, its peers, how to join and to leave |
//! | [`memory`] | regions of this node and of its peers: put, get, signals, blocks, rights |
//! | [`atomic`] | words and numbers that several nodes change |
//! | [`shared`] | arrays that all nodes read and write with plain loads and stores; locks |
//! | [`message`] | messages, and FIFOs that peers push into |
//! | [`collective`] | barriers and reductions |
//! | [`completion`] | operations that are under way, and ways to learn of their end |
//! | [`testing`] | jobs of several nodes in one process, for tests |
//! | [`limits`] | every limit that a program can reach |
//!
//! [`prelude`] has the names that most programs use.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations, missing_docs)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

#[macro_use]
pub(crate) mod tables;

pub mod atomic;
#[cfg(doctest)]
mod book;
pub mod collective;
pub mod completion;
mod debug;
mod error;
#[doc(hidden)]
pub mod ffi;
#[doc(hidden)]
pub mod internal;
pub mod job;
pub mod limits;
pub mod memory;
pub mod message;
mod panics;
pub mod prelude;
mod rules;
pub mod shared;
pub mod testing;
#[cfg(all(test, not(loom)))]
mod tests;

pub use error::{Error, Result};
pub use job::join::join;
pub use job::local::local;
pub use job::run::run;
#[doc(no_inline)]
pub use job::{Job, Peer};
pub use oikaze_macros::main;
pub use oikaze_protocol::Rank;
#[doc(hidden)]
pub use oikaze_runtime::observe;
#[doc(no_inline)]
pub use shared::Element;
