//! Tests of what arrives: which messages, in which order, and in which datagrams.

pub(in crate::wind::tests) mod lanes;
pub(in crate::wind::tests) mod messages;
pub(in crate::wind::tests) mod packing;
pub(in crate::wind::tests) mod pairs;
