//! How what was asked for ends: waiting for it, and the errors that a program is handed.

use super::Node;
use crate::engine::{Completion, Failure, Request, Value};
use crate::{Error, Result};
use oikaze_protocol::Rank;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Node {
    /// Wait for an outcome.
    pub fn outcome(&self, what: &dyn std::fmt::Display, completion: &Completion, limit: Option<Duration>) -> Result<Value> {
        self.outcome_of(what, || completion.outcome(), limit)
    }

    /// Wait for an outcome, wherever it appears.
    pub fn outcome_of(
        &self,
        what: &dyn std::fmt::Display,
        mut ready: impl FnMut() -> Option<std::result::Result<Value, Failure>>,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.check_process(|| what.to_string())?;
        if let Some(outcome) = ready() {
            return outcome.map_err(|failure| self.failure(what, failure));
        }
        let begun = Instant::now();
        let outcome = self.wait(limit.and_then(|limit| begun.checked_add(limit)), ready);
        self.awaited(|| what.to_string(), begun, outcome)
    }

    /// What a wait that began then has brought; or the error that says why there is none, or that it took too long.
    pub fn awaited<T>(
        &self,
        what: impl FnOnce() -> String,
        begun: Instant,
        brought: Option<std::result::Result<T, Failure>>,
    ) -> Result<T> {
        match brought {
            Some(Ok(value)) => Ok(value),
            Some(Err(failure)) => Err(self.failure(&what(), failure)),
            None if self.is_forked() => Err(Error::failed(what(), self.forked())),
            None => Err(Error::Timeout { what: what(), waited: begun.elapsed() }),
        }
    }

    /// Take part in something that all nodes do together, and wait for its end. If it does not come in time, node 0 knows who
    /// is late.
    pub fn collective(&self, what: &str, request: Request, limit: Option<Duration>) -> Result<Value> {
        self.look_at_handlers_soon();
        let completion = self.submit(request, None);
        let late = |waited| {
            let what = match self.with_engine(|engine| (engine.rank(), engine.coherence().late())) {
                (0, late) if !late.is_empty() => format!("{what}, to which node {} has not come", ranks(&late)),
                (0, _) => what.to_owned(),
                _ => format!("{what} (node 0 tells who has not come)"),
            };
            Error::Timeout { what, waited }
        };
        self.outcome(&what, &completion, limit).map_err(|error| match error {
            Error::Timeout { waited, .. } => late(waited),
            other => other,
        })
    }

    /// The error of an operation that failed, with the launcher's reason if a node is lost.
    pub fn failure(&self, what: &dyn std::fmt::Display, failure: Failure) -> Error {
        let shared = matches!(failure, Failure::Coherence(_));
        let error = Error::failed(what.to_string(), failure);
        let lost = error.lost_peer().is_some();
        if lost || shared {
            self.failed.store(true, Ordering::Relaxed);
        }
        match error.lost_peer() {
            Some(peer) => error.with_reason(self.launcher_words(peer)),
            None => error,
        }
    }

    /// The failures of operations to this peer, or to all, that no caller has been told of. They count as told from now on.
    pub fn report_untaken(&self, peer: Option<Rank>) -> Result<()> {
        let Some(report) = self.untaken.report(peer) else { return Ok(()) };
        let first = report.first.map(|(what, failure)| Box::new(self.failure(&what, failure).of_unknown_fate(what.fate())));
        Err(Error::Unseen { count: report.count, first })
    }

    /// Has an error that concerns all nodes been handed to the program?
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Some of them, for a message.
pub(super) fn ranks(ranks: &[Rank]) -> String {
    const SOME: usize = 8;
    let mut text: Vec<String> = ranks.iter().take(SOME).map(Rank::to_string).collect();
    if ranks.len() > SOME {
        text.push(format!("{} more", ranks.len() - SOME));
    }
    text.join(", ")
}
