//! Requests of a node that wait for its engine.

use crossbeam_queue::SegQueue;
use oikaze_engine::{Submission, UnreportedFailures};
use std::sync::Arc;

/// Requests that wait for the engine, and failures that wait for the program.
pub struct Requests {
    /// Requests that were made while the engine was taken.
    pub submissions: Arc<SegQueue<Submission>>,
    /// Failures that no caller has been told of.
    pub untaken: Arc<UnreportedFailures>,
}

impl Requests {
    /// Makes the record of a node that has made no request.
    pub fn new(
        submissions: Arc<SegQueue<Submission>>,
        untaken: Arc<UnreportedFailures>,
    ) -> Requests {
        Requests { submissions, untaken }
    }
}
