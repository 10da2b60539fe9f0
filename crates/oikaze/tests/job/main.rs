//! Whole jobs in one process: how nodes work together, are interrupted, and leave.
#![forbid(unsafe_code)]

mod cluster;
mod debug;
mod interruption;
mod leaving;
#[path = "../support/mod.rs"]
mod support;
