//! Collectives of data of a node: its teams, and the memory of their buffers.

mod pool;
mod registry;

pub(crate) use pool::{POOLED_MIN, PooledBytes, WorkPool};
pub(crate) use registry::{RegisteredTeam, Registry, WORLD};
