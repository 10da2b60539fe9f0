//! Shared arrays (spec/coherence.md): home-based release consistency.

mod pages;
pub use pages::{Access, ArrayId, Pages};
