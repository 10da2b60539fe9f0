//! Requests of a node that wait for its engine.

use crossbeam_queue::SegQueue;
use oikaze_engine::{ShownGroups, Submission, UnreportedFailures};
use std::sync::Arc;

/// Requests that wait for the engine, and failures that wait for the program.
pub struct Requests {
    /// Requests that were made while the engine was taken.
    pub submissions: Arc<SegQueue<Submission>>,
    /// Failures that no caller has been told of.
    pub untaken: Arc<UnreportedFailures>,
    /// Multicast groups of the node.
    pub groups: Arc<ShownGroups>,
}

impl Requests {
    /// Makes the record of a node that has made no request.
    pub fn new(
        submissions: Arc<SegQueue<Submission>>,
        untaken: Arc<UnreportedFailures>,
        groups: Arc<ShownGroups>,
    ) -> Requests {
        Requests { submissions, untaken, groups }
    }
}
