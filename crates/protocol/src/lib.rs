//! # Oikaze's decisions
//!
//! Everything here is a pure function of its inputs: bytes that arrived, the time, random numbers
//! drawn by somebody else. The compiler keeps I/O, clocks and threads out (`no_std`) and memory
//! sound (`forbid(unsafe_code)`). From the bottom up:
//!
//! - [`wire`]: datagram and frame formats. A checked view of raw bytes, and the owned meaning that
//!   moves up.
//! - [`wind`]: one peer. Message classes, numbering, packing, acknowledgement, loss, window,
//!   credit, path, liveness.
//! - [`block`]: rows and planes at equal distances, packed one after the other.
//! - [`rma`]: one-sided operations and messages, as segments (region, offset, length), never bytes.
//! - [`local_peer`]: what stands in the rings between two nodes of one machine.
//! - [`coherence`]: shared arrays. Page states, write notices, homes, diffs, locks, collectives.
//!
//! Who calls whom: the engine (crate `oikaze`) hands each datagram to
//! [`wind::Connection::receive`], which calls *up* through [`wind::Handler`]. Nothing on that path
//! transmits: it only marks what is due. [`wind::Connection::transmit`] is the one place that
//! emits.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod coherence;
pub mod counters;
pub mod fnv;
pub mod limits;
pub mod planted;
pub mod rma;
pub mod shm;
pub mod time;
pub mod wind;
pub mod wire;

/// A node's place in its job: 0 to n − 1.
pub type Rank = u32;
