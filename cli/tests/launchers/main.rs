//! Jobs of other launchers, and programs of MPI as nodes of this one. `cargo xtask test-all` runs
//! the tests that need programs of others.

mod others;
mod own;
#[path = "../support/mod.rs"]
mod support;
