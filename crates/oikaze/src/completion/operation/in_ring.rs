//! Messages that their sender put directly into the receiver's ring (MEM-16.9), as their sender
//! knows them.

use super::Outcome;
use crate::error::{Error, Result};
use oikaze_engine::{Completion, Failure, OperationKind, OperationLabel, Request, Sink, Value};
use oikaze_runtime::node::{ShmRoute, WaitSubject};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Mark: the sender no longer reads the outcome of the message.
const GIVEN_UP: u8 = 1;
/// Mark: a queue or a counter gets its end.
const TOLD: u8 = 2;
/// Mark: a caller has been told of its failure.
const FAILED: u8 = 4;

/// A message in its receiver's ring.
pub(super) struct InRing<'o> {
    pub marks: &'o AtomicU8,
    pub route: &'o ShmRoute,
    /// Length of its body in bytes.
    pub len: u32,
    /// Position of its end in the ring.
    pub position: u64,
}

impl InRing<'_> {
    #[inline]
    fn is_given_up(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & GIVEN_UP != 0
    }

    fn outcome(&self) -> Option<std::result::Result<Value, Failure>> {
        if self.is_given_up() {
            Some(Err(Failure::Cancelled))
        } else {
            self.route.channel().outcome(self.position)
        }
    }

    /// Returns `true` if the receiver is known to have taken the message.
    #[inline]
    fn is_taken(&self) -> bool {
        self.route.channel().is_done(self.position) && !self.is_given_up()
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        self.is_taken() || self.outcome().is_some()
    }

    pub fn what(&self) -> OperationLabel {
        OperationLabel {
            verb: OperationKind::Message,
            len: self.len.into(),
            peer: self.route.peer(),
            at: None,
        }
    }

    /// Waits within the time limit of the peer's handle.
    #[inline]
    #[track_caller]
    pub fn wait<T: Outcome>(&self) -> Result<T> {
        self.wait_for(self.route.limit())
    }

    #[inline]
    #[track_caller]
    pub fn wait_for<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        match T::from_value(Value::Done) {
            Some(done) if self.is_taken() => Ok(done),
            _ => self.wait_longer(limit),
        }
    }

    #[cold]
    #[track_caller]
    fn wait_longer<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        let what = &self.what();
        let outcome = match self.route.node() {
            Some(node) => {
                node.outcome_of(&|| WaitSubject::of_operation(what), what, || self.outcome(), limit)
            }
            None => self
                .outcome()
                .unwrap_or(Err(Failure::Left))
                .map_err(|failure| Error::failed(what.to_string(), failure)),
        };
        let failed = |error: Error| {
            let is_first = self.outcome().is_some()
                && self.marks.fetch_or(FAILED, Ordering::Relaxed) & (FAILED | GIVEN_UP) == 0;
            if let Some(node) = self.route.node().filter(|_| is_first) {
                node.requests.untaken.take_in_ring(what.peer);
            }
            error.of_unknown_fate(what.fate())
        };
        let value = outcome.map_err(failed)?;
        T::from_value(value).ok_or_else(|| {
            Error::invalid(what.to_string(), "the outcome is of another kind (a defect)")
        })
    }

    /// Gives the outcome up, unless it is known by now. No caller will learn whether the receiver
    /// takes the message.
    pub fn give_up(&self) {
        if self.outcome().is_none() {
            self.marks.fetch_or(GIVEN_UP, Ordering::Relaxed);
        }
    }

    /// Marks the message as one that a queue or counter reports. Returns `true` if it was marked
    /// before.
    pub fn was_told(&self) -> bool {
        self.marks.fetch_or(TOLD, Ordering::Relaxed) & TOLD != 0
    }

    pub fn tell(&self, sink: Box<dyn Sink>) {
        if self.route.node().is_some_and(|node| node.enter().is_none()) {
            return;
        }
        let completion = Completion::telling(sink);
        match (self.outcome(), self.route.node()) {
            (None, Some(node)) => {
                let channel = self.route.shared_channel();
                node.note(Request::Promise {
                    peer: self.route.peer(),
                    channel,
                    position: self.position,
                    completion,
                });
            }
            (outcome, node) => {
                completion.settle(outcome.unwrap_or(Err(Failure::Left)));
                if let Some(node) = node {
                    node.tell_waiters();
                }
            }
        }
    }
}
