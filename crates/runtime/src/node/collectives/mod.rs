//! Collectives of data of a node: its teams, and the memory of their buffers.

pub(super) mod awaited;
pub(super) mod registry;

pub use awaited::{AwaitedParcels, ParcelMemory, ParcelPlace};
