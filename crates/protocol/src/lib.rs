//! # Oikaze's decisions
//!
//! Everything here is a pure function of its inputs: arrived bytes, the time, and random numbers
//! that the caller drew. The compiler keeps I/O, clocks and threads out (`no_std`) and memory sound
//! (`forbid(unsafe_code)`). From the bottom up:
//!
//! - [`wire`]: datagram and frame formats. A checked view of raw bytes, and the owned values that
//!   go to upper layers.
//! - [`wind`]: one peer. Message classes, numbering, packing, acknowledgement, loss, window,
//!   credit, path, liveness.
//! - [`bytes`]: the reader and the writer of all formats.
//! - [`block`]: rows and planes at equal distances, packed one after the other.
//! - [`rma`]: one-sided operations and messages, as segments (region, offset, length), never bytes.
//! - [`shm`]: records in the rings between two nodes of one machine.
//! - [`coherence`]: shared arrays. Page states, write notices, homes, diffs, locks, collectives.
//! - [`collective`]: collective operations as plans of rounds, and the heads of their parcels.
//! - [`seal`]: agreement on keys, and which key is for which datagram.
//! - [`serve`]: messages between a node and the server that sends and receives for it.
//! - [`traffic`]: messages by purpose and size.
//!
//! The engine (crate `oikaze-engine`) hands each datagram to [`wind::Connection::receive`], which
//! calls *up* through [`wind::Handler`]. That path only marks what is due and never transmits. Only
//! [`wind::Connection::transmit`] emits datagrams.
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
pub mod bytes;
pub mod coherence;
pub mod collective;
pub mod counters;
pub mod extremes;
pub mod fnv;
pub mod limits;
pub mod planted;
pub mod random;
pub mod rma;
pub mod seal;
pub mod serve;
pub mod shm;
pub mod time;
pub mod traffic;
pub mod wind;
pub mod wire;
pub mod wire_enum;

/// Number of a node within its job, 0 to n − 1.
pub type Rank = u32;
