//! Outcomes of requests: waiting for them, and the errors that a program gets.

use super::access::Access;
use super::{Node, WaitSubject};
use crate::error::Cause;
use crate::{Error, Result};
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_protocol::Rank;
use std::fmt;
use std::time::{Duration, Instant};

/// Maximum time that a node stays in a collective only to send the rest of its updates.
const SEND_REST_MAX: Duration = Duration::from_millis(2);

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
        mut ready: impl FnMut() -> Option<std::result::Result<Value, Failure>>,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.check_process(|| what.to_string())?;
        if let Some(outcome) = ready() {
            return outcome.map_err(|failure| self.departures.failure(what, failure));
        }
        let begun = Instant::now();
        let outcome =
            self.wait_on(subject, limit.and_then(|limit| begun.checked_add(limit)), ready);
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

    /// Takes part in a collective, and waits for its end. On a timeout, the error names the nodes
    /// that are late.
    #[track_caller]
    pub fn collective(
        &self,
        what: &dyn fmt::Display,
        request: Request,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.handlers.look_soon(|| self.now());
        let call = self.count_coherence_call(what);
        let completion = self.submit(request, None);
        let subject = || WaitSubject::Collective(what.to_string());
        let ready = || {
            let outcome = completion.outcome();
            if outcome.is_none() {
                call.look_at_notices();
            }
            outcome
        };
        // A closure has no caller's place, so the error is explained outside of one.
        let outcome = match self.outcome_of(&subject, what, ready, limit) {
            Err(error) => Err(self.waits.explain_timeout(error, &subject())),
            done => done,
        };
        call.note(&outcome);
        let outcome = outcome?;
        // The program touches pages from now on, and may have changed handlers before (COH-8.6).
        oikaze_os::memory::tracking::ensure_again()
            .map_err(|error| Error::system("installing the handler for page faults", error))?;
        self.send_rest();
        Ok(outcome)
    }

    /// Drives until all bytes have left this node, because other nodes wait for its updates, and
    /// this thread may compute for long from now on.
    fn send_rest(&self) {
        if self.access() == Access::Requests {
            // The engine's thread sends by itself.
            return;
        }
        let all_sent = || (!self.with_engine(|engine| engine.has_unsent())).then_some(());
        if all_sent().is_none() {
            let _ = self.wait(Instant::now().checked_add(SEND_REST_MAX), all_sent);
        }
    }

    /// Reports the failures of operations to this peer, or to all, that no caller has been told of.
    /// They count as told from now on.
    pub fn report_untaken(&self, peer: Option<Rank>) -> Result<()> {
        let Some(report) = self.untaken.report(peer) else { return Ok(()) };
        let first = report.first.map(|(what, failure)| {
            Box::new(self.departures.failure(&what, failure).of_unknown_fate(what.fate()))
        });
        Err(Cause::Unseen { count: report.count, first }.into())
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
