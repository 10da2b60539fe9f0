//! Child processes on other hosts.

pub mod agent;
pub mod directory;
pub mod files;
pub mod install;
pub mod pipe;
pub mod ssh;
