//! Jobs of real processes, some of which are killed, stopped, forked or get signals.
// One test takes all mappings that a process may have.
#![deny(unsafe_code)]

mod array_kills;
#[path = "../support/cuts.rs"]
mod cuts;
mod fork;
#[allow(dead_code)]
#[path = "../support/nodes.rs"]
mod nodes;
mod notified;
#[path = "../support/process_job.rs"]
mod process_job;
#[path = "../support/processes.rs"]
mod processes;
mod programs;
#[cfg_attr(not(debug_assertions), allow(dead_code))]
mod segment_faults;
#[cfg(debug_assertions)]
mod segment_points;
mod signals;
mod stopped;
mod unshared;
#[path = "../support/ways.rs"]
mod ways;
