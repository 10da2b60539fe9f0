//! Memory: shared arrays (spec/coherence.md) and regions (spec/memory.md).

pub mod shared;
