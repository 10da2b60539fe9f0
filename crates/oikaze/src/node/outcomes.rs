//! Outcomes of requests: waiting for them, and the errors that a program gets.

use super::access::Access;
use super::{Needs, Node, WaitSubject, line_of};
use crate::error::Cause;
use crate::{Error, Result};
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_protocol::Rank;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum time that an error of a wait which took too long spends on asking other nodes why. A
/// shorter wait asks for no longer than it lasted, so that a program may poll with short limits.
const CAUSE_TIME: Duration = Duration::from_millis(500);

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
            return outcome.map_err(|failure| self.failure(what, failure));
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
            Some(Err(failure)) => Err(self.failure(&what(), failure)),
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
        self.check_handlers_soon();
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
            Err(error) => Err(self.explain_timeout(error, &subject())),
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

    /// Returns the number of this node's next barrier. All nodes count alike, from 1.
    pub fn next_barrier(&self) -> u64 {
        self.barriers.fetch_add(1, Ordering::Relaxed) + 1
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

    /// Adds to the error of the caller's wait where it was (MEM-21.5) if nodes have called
    /// different things, and also why if it took too long (MEM-21.4).
    #[track_caller]
    pub fn explain_timeout(&self, error: Error, subject: &WaitSubject) -> Error {
        let line = line_of(Location::caller());
        let misfits = error.is_mismatch() || error.is_timeout();
        let error = if misfits { error.at(line) } else { error };
        match error.into_cause() {
            Cause::Timeout { what, waited } => {
                let cause = self.waits.cause(subject, waited.min(CAUSE_TIME));
                Cause::Timeout { what: format!("{what} ({cause})"), waited }.into()
            }
            other => other.into(),
        }
    }

    /// Notes that a thread of this node holds a lock of the job from now on.
    #[track_caller]
    pub fn took_lock(&self, number: u64) {
        self.waits.took_lock(number, Location::caller());
    }

    /// Refuses a lock that the calling thread has taken, and that was not given back: the thread
    /// would wait for itself (COH-7.8).
    pub fn check_lock_is_not_mine(&self, number: u64) -> Result<()> {
        let Some(since) = self.waits.holds_lock(number) else { return Ok(()) };
        let why = format!(
            "this thread took the lock {since}, and it was not given back; locks are not \
             recursive: give it back first"
        );
        Err(Error::invalid(self.lock_text(number), why))
    }

    /// Returns how texts name a lock of the job.
    pub fn lock_text(&self, number: u64) -> String {
        self.waits.lock_text(number)
    }

    /// Notes the name that the program gives a lock of the job.
    pub fn name_lock(&self, number: u64, name: &str) {
        self.waits.name_lock(number, name);
    }

    /// Notes that this node gives a lock of the job back.
    pub fn gave_lock_back(&self, number: u64) {
        self.waits.gave_lock_back(number);
    }

    /// Returns the error of an operation that failed, with the launcher's reason if a node is lost.
    pub fn failure(&self, what: &dyn std::fmt::Display, failure: Failure) -> Error {
        let shared = matches!(failure, Failure::Coherence(_));
        let error = Error::failed(what.to_string(), failure);
        let lost = error.lost_peer().is_some();
        if lost || shared {
            self.failed.store(true, Ordering::Relaxed);
        }
        let Some(peer) = error.lost_peer() else { return error };
        match (self.launcher_words(peer), self.loss_of(Some(peer), Needs::Messages)) {
            // An error of shared memory does not say how the node was lost, such as by silence.
            (None, Some(loss @ Failure::PeerLost { .. })) if shared => {
                Error::failed(what.to_string(), loss)
            }
            (words, _) => error.with_reason(words),
        }
    }

    /// Reports the failures of operations to this peer, or to all, that no caller has been told of.
    /// They count as told from now on.
    pub fn report_untaken(&self, peer: Option<Rank>) -> Result<()> {
        let Some(report) = self.untaken.report(peer) else { return Ok(()) };
        let first = report.first.map(|(what, failure)| {
            Box::new(self.failure(&what, failure).of_unknown_fate(what.fate()))
        });
        Err(Cause::Unseen { count: report.count, first }.into())
    }

    /// Returns `true` if the program has got an error that concerns all nodes.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
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
