//! Child processes on other hosts.
//!
//! - `ssh` and [`agent`]: the two ends. `pipe`: the protocol between them.
//! - `control_queue`: messages that wait for a host, which may have stopped reading.
//! - `install`: the command on other hosts. `files` and `directory`: files that are sent to them.

pub mod agent;
pub(super) mod control_queue;
pub(super) mod directory;
pub(super) mod files;
pub(super) mod install;
pub(super) mod pipe;
pub(super) mod ssh;
