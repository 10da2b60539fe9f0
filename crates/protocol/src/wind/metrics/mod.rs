//! Figures of a connection: counters, histograms and a snapshot of its state.

pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod snapshot;
