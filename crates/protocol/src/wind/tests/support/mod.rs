//! A faulty channel, and two connections that it joins.

pub(in crate::wind::tests) mod channel;
pub(in crate::wind::tests) mod world;
