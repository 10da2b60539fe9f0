//! # Oikaze: shared and remote memory for clusters on ordinary Ethernet
//!
//! ```
#![doc = include_str!("../examples/readme.rs")]
//! ```
//!
//! The crate has four layers. [`engine`] runs Wind, remote memory and coherence of one node, one
//! turn after another. `node` gives the engine its threads. [`job`] is how processes become nodes.
//! Programs use [`Job`], [`Peer`], [`RemoteRegion`] and [`SharedArray`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod builder;
mod completion;
mod debug;
mod error;
mod exchange;
mod fifo;
mod handle;
mod join;
pub mod limits;
mod member;
mod membership;
mod node;
pub mod observe;
mod operation;
mod refused;
mod region;
mod remote;
mod rules;
mod run;
mod scope;
mod shared;
pub(crate) mod shm_setup;
mod statistics;
mod sync;

pub use builder::{JobBuilder, OnDeath};
pub use completion::{Completed, CompletionQueue, Counter, Counts};
pub use error::{Error, Result};
pub use fifo::Fifo;
pub use handle::{Handle, Keepable};
pub use join::{join, join_as};
pub use member::{Job, Reducible};
pub use oikaze_engine::{Arrived, Body};
pub use oikaze_os::memory::placement::{Placed, PlacementError, page_size};
pub use oikaze_os::memory::{LocalWord, PageSize, Region, RegionId};
pub use oikaze_protocol::Rank;
pub use oikaze_protocol::block::{BadBlock, Block};
pub use oikaze_protocol::coherence::{Homes, ReduceOp};
pub use oikaze_protocol::rma::{
    Accumulation, AtomicOp, Change, Combine, Number, NumberKind, Rights, Width, Word,
};
pub use oikaze_protocol::wind::{Class, Refusal};
pub use operation::{Operation, OperationFuture, Outcome};
pub use refused::RefusedAccess;
pub use region::{LocalRegion, RegionSlice, RemoteId};
pub use remote::{COPY_MAX, MESSAGE_MAX, Peer, RemoteFifo, RemoteRegion, RemoteSignal, RemoteWord};
pub use run::run;
pub use scope::Scope;
pub use shared::{Element, LockGuard, ReadGuard, SharedArray, WriteGuard};
pub use statistics::NodeStatistics;
