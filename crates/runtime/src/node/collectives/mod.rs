//! Collectives of data of a node: its teams, and the memory of their buffers.

mod pool;
mod registry;

pub use pool::{POOLED_MIN, PooledBytes, WorkPool};
pub use registry::{RegisteredTeam, Registry, WORLD};
