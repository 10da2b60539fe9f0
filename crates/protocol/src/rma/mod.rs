//! One-sided operations and messages (spec/memory.md), as segments, never bytes.

mod memory;
pub use memory::{AtomicOp, Memory, Rights};
