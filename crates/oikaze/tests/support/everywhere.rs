//! Runs a program on several nodes of this process, over UDP and through shared memory.

use oikaze::Job;
use oikaze::job::Feature;
use oikaze::testing::cluster_with;
use std::error::Error;
use std::time::Duration;

/// Time limit of each wait.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Runs a program on so many nodes, over UDP and through shared memory.
pub fn everywhere(nodes: u32, program: impl Fn(&Job) -> Result<(), Box<dyn Error>> + Sync) {
    for without in ["shm", ""] {
        let settings = Job::builder().without(Feature::list(without).unwrap()).time_limit(LIMIT);
        cluster_with(nodes, settings, &program);
    }
}
