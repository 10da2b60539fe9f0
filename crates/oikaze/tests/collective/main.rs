//! Barriers and collectives of several nodes, and tasks that await them.
#![forbid(unsafe_code)]

mod call_order;
mod calls;
mod collectives;
#[path = "../support/everywhere.rs"]
mod everywhere;
mod same_bits;
mod tasks;
#[path = "../support/ways.rs"]
mod ways;
