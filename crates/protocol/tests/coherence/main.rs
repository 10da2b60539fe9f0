//! Coherence (spec/coherence.md) over a model of machine and network.

mod agreement;
mod cluster;
mod collectives;
mod failures;
mod freeing;
mod hostile;
mod litmus;
mod machines;
mod prefetch;
mod questions;
mod random;
mod steady;
mod targets;
mod updates;
