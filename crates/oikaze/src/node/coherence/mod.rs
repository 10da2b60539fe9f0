//! Collectives of coherence of a node: their order, and what must not be under way meanwhile.

pub(super) mod call_order;
mod guards;
pub(super) mod signal_masking;
