//! Interface of simulated programs: their threads, and the state that a thread sees.

use super::sharer::collective::Together;
use crate::net::SimLink;
use crate::oracle::Oracle;
use crate::pages::SimPages;
use crate::trace::Trace;
use crossbeam_queue::SegQueue;
use oikaze_engine::{
    Completion, Compound, Engine, Failure, Keep, Request, Submission, Value, tracked,
};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::fmt;
use std::sync::Arc;

/// Engine under test.
pub type SimEngine = Engine<SimLink, SimPages>;

/// State that a thread sees and changes while it is polled.
pub struct Context<'a> {
    /// Current virtual time.
    pub now: Time,
    /// Rank of the node.
    pub me: Rank,
    /// Incarnation of the node. The first is 0.
    pub life: u8,
    /// Number of nodes in the job.
    pub nodes: u32,
    /// Engine of the node, between turns.
    pub engine: &'a mut SimEngine,
    /// Queue for requests.
    pub submissions: &'a SegQueue<Submission>,
    /// Knowledge of all nodes together.
    pub oracle: &'a mut Oracle,
    /// Trace of the events.
    pub trace: &'a mut Trace,
    /// Common work of the threads of a node that share arrays.
    pub together: &'a mut Together,
}

impl Context<'_> {
    /// Notes an event at the node.
    pub fn event(&mut self, what: fmt::Arguments<'_>) {
        self.trace.event(self.now, self.me, what);
    }

    /// Submits a request and returns its completion.
    pub fn submit(&mut self, request: Request, keep: Keep) -> Arc<Completion> {
        let (submission, completion) = tracked(request, keep);
        self.submissions.push(submission);
        completion
    }

    /// Submits these requests with one completion for all of them.
    pub fn submit_list(&mut self, requests: Vec<Request>) -> Arc<Completion> {
        let whole = Completion::new();
        let joined = Compound::new(requests.len(), &whole);
        requests.into_iter().for_each(|request| self.submissions.push(joined.part(request, None)));
        whole
    }

    /// Counts an operation that has ended, and notes whether it was in flight to the node that
    /// died.
    pub fn account(
        &mut self,
        kind: &'static str,
        target: Rank,
        since: Time,
        outcome: &Result<Value, Failure>,
    ) {
        let lost = outcome.as_ref().is_err_and(Oracle::is_loss);
        self.oracle.ends.ended(kind, self.oracle.killed == Some(target), (since, self.now), lost);
    }

    /// Submits a request without a completion.
    pub fn tell(&mut self, request: Request) {
        self.submissions.push(Submission { request, completion: None, keep: None });
    }

    /// Returns `true` if node `rank` has been killed, or cut off from this node.
    #[must_use]
    pub fn is_casualty(&self, rank: Rank) -> bool {
        self.oracle.is_lost_to(self.me, rank)
    }
}

/// Result of polling a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Set if something was done, so that the thread should be polled again soon.
    pub acted: bool,
    /// Time at which the thread must be polled again in any case.
    pub wake: Option<Time>,
}

impl Progress {
    /// Nothing to do before an event.
    pub const NONE: Progress = Progress { acted: false, wake: None };
    /// Something was done.
    pub const ACTED: Progress = Progress { acted: true, wake: None };

    /// Returns a progress with nothing to do before `wake`.
    #[must_use]
    pub fn until(wake: Time) -> Progress {
        Progress { acted: false, wake: Some(wake) }
    }
}

/// A thread of a node.
pub trait Program {
    /// Handles what has happened and does the next step.
    ///
    /// # Errors
    /// The program observed something that the clauses forbid.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String>;

    /// Returns `true` if the thread has finished its work.
    fn is_finished(&self) -> bool;

    /// Returns the time since which the thread waits for its oldest operation.
    fn waits_since(&self) -> Option<Time>;

    /// Checks the conditions that must hold when all threads have finished.
    ///
    /// # Errors
    /// A condition does not hold.
    fn conclude(&self, me: Rank, oracle: &Oracle) -> Result<(), String> {
        let _ = (me, oracle);
        Ok(())
    }

    /// Describes the thread for a person, when the run is stuck.
    fn describe(&self) -> String;
}
