//! Runs a program on several nodes of this process, which exchange their values in several ways.

use crate::ways::{ExchangeWay, ways};
use oikaze::Job;
use std::error::Error;
use std::time::Duration;

/// Time limit of each wait.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Runs a program on so many nodes: over the network, in memory, and in one further way.
pub fn everywhere(
    nodes: u32,
    further: ExchangeWay,
    program: impl Fn(&Job) -> Result<(), Box<dyn Error>> + Sync,
) {
    for way in ways(further) {
        way.run(nodes, &Job::builder().time_limit(LIMIT), &program);
    }
}
