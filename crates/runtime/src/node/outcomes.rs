//! Outcomes of requests: waiting for them, and the errors that a program gets.

use super::driver::WakeSource;
use super::{LongWait, Node, WaitSubject};
use crate::error::{Cause, Error, Result};
use oikaze_engine::{Completion, Failure, Value};
use oikaze_protocol::Rank;
use std::time::{Duration, Instant};

impl Node {
    /// Waits for an outcome.
    #[track_caller]
    pub fn outcome(
        &self,
        what: &dyn std::fmt::Display,
        completion: &Completion,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.outcome_of(
            &|| WaitSubject::other(what.to_string()),
            what,
            || completion.outcome(),
            limit,
        )
    }

    /// Waits for an outcome, wherever it appears. A long wait is explained as one for `subject`.
    #[track_caller]
    pub fn outcome_of(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        what: &dyn std::fmt::Display,
        ready: impl FnMut() -> Option<std::result::Result<Value, Failure>>,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.outcome_from(WakeSource::Broadcast, subject, what, ready, limit)
    }

    /// Waits for an outcome as [`Node::outcome_of`] does. The wake source says what may bring it.
    #[track_caller]
    pub(super) fn outcome_from(
        &self,
        wake_source: WakeSource,
        subject: &dyn Fn() -> WaitSubject,
        what: &dyn std::fmt::Display,
        mut ready: impl FnMut() -> Option<std::result::Result<Value, Failure>>,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.check_process(|| what.to_string())?;
        if let Some(outcome) = ready() {
            return outcome.map_err(|failure| self.departures.failure(what, failure));
        }
        let mut long = LongWait::new(self, subject);
        let begun = long.begun();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let outcome = self.wait_begun(&mut long, deadline, wake_source, ready);
        drop(long);
        self.awaited(|| what.to_string(), begun, outcome)
    }

    /// Returns the result of a wait that began at `begun`. The error says why there is no result,
    /// or that the wait took too long.
    pub fn awaited<T>(
        &self,
        what: impl FnOnce() -> String,
        begun: Instant,
        brought: Option<std::result::Result<T, Failure>>,
    ) -> Result<T> {
        match brought {
            Some(Ok(value)) => Ok(value),
            Some(Err(failure)) => Err(self.departures.failure(&what(), failure)),
            None if self.enter().is_none() => Err(Error::failed(what(), self.forked())),
            None => Err(Cause::Timeout { what: what(), waited: begun.elapsed() }.into()),
        }
    }
}

/// Names some of the ranks, for a message.
pub(super) fn ranks(ranks: &[Rank]) -> String {
    const SOME: usize = 8;
    let mut text: Vec<String> = ranks.iter().take(SOME).map(Rank::to_string).collect();
    if ranks.len() > SOME {
        text.push(format!("{} more", ranks.len() - SOME));
    }
    text.join(", ")
}
