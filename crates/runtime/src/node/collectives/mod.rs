//! Collectives of data of a node: its teams, and the memory of their buffers.

mod pool;
pub(super) mod registry;

pub use pool::{POOLED_MIN, PooledBytes, WorkPool};
