//! Tests of a node together with what programs use of it.

mod arena;
pub(crate) mod engine_thread;
mod locks;
pub(crate) mod node;
mod placement;
