//! Operations on remote memory, on every path: to the node itself, over the network, through rings
//! and into mapped memory.
#![forbid(unsafe_code)]

mod arrivals;
#[path = "../support/block_on.rs"]
mod block_on;
mod blocks;
mod completion;
mod copies;
mod handles;
mod lists;
mod order;
mod refused;
#[path = "../support/mod.rs"]
mod support;
mod unseen;
mod ways;
mod withdrawn;
mod words;
