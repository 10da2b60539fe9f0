//! Guards, updates and reads ahead of arrays, and arrays whose element type is known at run time.

mod guards;
mod locks;
mod plain;
mod prefetch;
#[path = "../support/process_job.rs"]
mod process_job;
#[path = "../support/processes.rs"]
mod processes;
mod segment_limits;
mod segments;
#[path = "../support/mod.rs"]
mod support;
mod untyped;
mod updates;
