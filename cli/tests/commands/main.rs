//! The other commands: `perf`, `top`, `stats`, `doctor`, `record`, `ship`.

mod doctor;
mod perf;
mod record;
mod ship;
mod stats;
#[path = "../support/mod.rs"]
mod support;
mod top;
