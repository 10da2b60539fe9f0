//! Memory of a node: regions, registrations, files, exchanged pages, and what local peers map.
#![forbid(unsafe_code)]

mod exchange;
mod files;
mod local_peers;
mod regions;
mod registrations;
#[path = "../support/mod.rs"]
mod support;
