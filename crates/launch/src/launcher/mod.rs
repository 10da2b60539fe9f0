//! The launcher: `oikaze run`.
//!
//! - [`plan`]: which nodes run where. [`program`]: what they run. [`netns`]: one machine as
//!   several.
//! - `node_processes`: child processes on this host. [`hosts`]: child processes on other hosts, by
//!   `ssh` and an agent, with the command and the files that are sent there.
//! - [`policy`]: decides when the launcher passes on signals, waits, terminates and kills.
//!   [`guard`]: cleans up after a launcher that was killed itself.
//! - [`output`]: lines of many nodes on one terminal. `sources`: where they come from. [`ending`]:
//!   exit statuses.

pub mod ending;
mod error;
mod events;
pub mod guard;
pub mod hosts;
pub mod netns;
mod node_processes;
pub mod output;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod program;
mod run;
mod sources;
mod word;

pub use error::LaunchError;
pub use hosts::directory::CACHE_DIR;
pub use hosts::install::binary::digest;
pub use run::{AgentChoice, Finished, Options, run};
