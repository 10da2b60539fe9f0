//! Collectives of coherence of a node: their order, and what must not be under way meanwhile.
//!
//! Synchronisation makes other nodes' writes visible, and the contents that a guard shows must not
//! change. So it is refused while guards are alive.

mod call_order;
mod declaring;
mod handler_check;
mod interrupted;
mod job_calls;
mod lock_counts;

use super::driver::{WakeSource, WordPolls};
use super::parts::Node;
use super::parts::access::Access;
use super::waits::WaitSubject;
use crate::error::{Error, Result};
use crate::observe::WithoutEngine;
use call_order::{CallOrder, CoherenceCall};
use declaring::DeclarationTurns;
pub(super) use declaring::NotYet;
use handler_check::HandlerCheck;
use interrupted::{Interrupted, InterruptedCall, RepeatableCall, Repetition};
use job_calls::{CallHost, JobCall, JobCalls};
use lock_counts::LockCounts;
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_os::memory::tracking::LiveGuards;
use oikaze_os::shm::{Arena, LockHost, OwnedInterval, OwnedOverlap, Segment, SegmentTable};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{CoherenceError, both_wrote};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maximum time that a node stays in a collective only to send the rest of its updates.
const SEND_REST_MAX: Duration = Duration::from_millis(2);

/// Collectives of coherence of a node.
pub struct CoherenceCalls {
    /// Guards of this node's arrays that are alive.
    guards: Arc<LiveGuards>,
    pub order: CallOrder,
    pub calls: JobCalls,
    /// The leave that this node has begun.
    leaving: OnceLock<JobCall>,
    pub handlers: HandlerCheck,
    interrupted: Interrupted<JobCall>,
    /// Arrays whose memory all nodes map.
    pub segments: Arc<SegmentTable>,
    pub locks: LockCounts,
    pub(super) declaring: DeclarationTurns,
    /// Why there is no arena, although all nodes are on this machine.
    why_no_arena: OnceLock<String>,
}

impl CoherenceCalls {
    /// Makes the calls of a node with these guards, before the first. With an arena, the nodes
    /// compare their calls there.
    pub fn new(guards: Arc<LiveGuards>, arena: Option<Arc<Arena>>) -> CoherenceCalls {
        CoherenceCalls {
            guards,
            order: CallOrder::default(),
            calls: JobCalls::new(arena),
            leaving: OnceLock::new(),
            handlers: HandlerCheck::default(),
            interrupted: Interrupted::default(),
            segments: Arc::default(),
            locks: LockCounts::default(),
            declaring: DeclarationTurns::default(),
            why_no_arena: OnceLock::new(),
        }
    }

    /// Sets why there is no arena, although all nodes are on this machine.
    pub fn set_why_no_arena(&self, why: String) {
        let _ = self.why_no_arena.set(why);
    }

    /// Returns why there is no arena, although all nodes are on this machine.
    #[must_use]
    pub fn why_no_arena(&self) -> Option<&str> {
        self.why_no_arena.get().map(String::as_str)
    }

    /// Called when an array is made. From now on handlers may touch its pages.
    pub fn expect_handlers(&self, node: &Node) {
        node.engine.mask_signals();
        self.handlers.check(node.now());
    }

    /// Returns how much this node has done without the engine.
    pub fn without_engine(&self) -> WithoutEngine {
        let barriers = self.order.barriers_without_engine();
        WithoutEngine { barriers, locks: self.locks.without_manager() }
    }

    /// Returns the number of the barrier that this node calls now. All nodes count alike, from 1. A
    /// barrier that repeats an interrupted one has the number of that one.
    #[inline]
    pub fn barrier_number(&self) -> u64 {
        self.order.barrier_number(self.interrupted.is(RepeatableCall::Barrier))
    }

    /// Forgets an interrupted collective, because the program makes another call or the nodes are
    /// brought in step. A later call is then a new one.
    #[inline]
    pub fn forget_interrupted(&self) {
        drop(self.interrupted.take());
    }

    /// Takes part in a collective, and waits for its end. On a timeout, the error names the nodes
    /// that are late. A call that repeats an interrupted one waits for that one's end (COLL-3.11).
    #[track_caller]
    pub fn collective(
        &self,
        node: &Node,
        what: &dyn fmt::Display,
        request: Request,
        limit: Option<Duration>,
    ) -> Result<Value> {
        self.handlers.check_if_due(|| node.now());
        node.check_process(|| what.to_string())?;
        // Held until the ends of the guards are compared, because the call may free an array.
        let segments = self.segments.all();
        let compares = !matches!(request, Request::Declare(_) | Request::Free(_));
        let repeatable = RepeatableCall::of(&request);
        let (count, repetition) = self.interrupted.resume(repeatable);
        let (call, begun) = match repetition {
            Repetition::Same(InterruptedCall { number, begun, .. }) => {
                self.order.ended.fetch_sub(1, Ordering::Relaxed);
                (CoherenceCall { node, what, number, seen: Cell::new(0) }, begun)
            }
            Repetition::OtherValues => {
                let why = format!(
                    "{what}: its wait was interrupted, and now it has other values; call it again with the same values before any other collective"
                );
                let call = self.count_coherence_call(node, what);
                let interval = self.segments.end_interval();
                (call, self.calls.begin(node, Request::Cannot(why), interval))
            }
            Repetition::None => {
                let request = match self.segments.take_race() {
                    Some(race) => cannot(&request, race),
                    None => request,
                };
                let call = self.count_coherence_call(node, what);
                (call, self.calls.begin(node, request, self.segments.end_interval()))
            }
        };
        if begun.has_passed_at_once() {
            self.order.note_passed();
            let outcome = self.check_owned(node, what, begun.number(), &segments);
            call.note(&outcome);
            return outcome.map(|()| Value::Done);
        }
        let subject = || WaitSubject::Collective(what.to_string());
        let ready = || {
            let outcome = self.calls.outcome(&begun, node);
            if outcome.is_none() {
                call.look_at_notices();
            }
            outcome
        };
        // A closure has no caller's place, so the error is explained outside of one.
        let outcome = match node.outcome_from(WakeSource::Arena, &subject, what, ready, limit) {
            Err(error) => Err(node.waits.explain_timeout(error, &subject())),
            done => done,
        };
        let outcome = match outcome {
            Ok(value) if compares => {
                self.check_owned(node, what, begun.number(), &segments).map(|()| value)
            }
            outcome => outcome,
        };
        call.note(&outcome);
        if let (Some(repeatable), Err(error)) = (repeatable, &outcome)
            && error.is_timeout()
        {
            let (number, begun) = (call.number, begun.clone());
            self.interrupted.keep(InterruptedCall { call: repeatable, number, begun }, count);
        }
        let outcome = outcome?;
        if begun.has_passed() {
            self.order.note_passed();
            // The next call finds no earlier one then.
            self.calls.advance(node);
        }
        // The program touches pages from now on, and may have changed handlers before (COH-8.6).
        oikaze_os::memory::tracking::ensure_again()
            .map_err(|error| Error::system("installing the handler for page faults", error))?;
        self.send_rest(node);
        Ok(outcome)
    }

    /// Fails a call that all nodes have made if guards of two nodes owned one byte of a segment
    /// before it (COH-16.3). All nodes find the same.
    #[inline]
    fn check_owned(
        &self,
        node: &Node,
        what: &dyn fmt::Display,
        number: u64,
        segments: &[Arc<Segment>],
    ) -> Result<()> {
        match OwnedOverlap::of(segments, number) {
            None => Ok(()),
            Some(OwnedOverlap { array, ranks, bytes }) => {
                let why = CoherenceError::Mismatch(both_wrote(ranks, &bytes, &array));
                Err(node.departures.failure(&what, Failure::Coherence(why)))
            }
        }
    }

    /// Begins to leave the job, which is the last call of this node, or returns the leave that has
    /// begun.
    pub(in crate::node) fn begin_leave(&self, node: &Node) -> &JobCall {
        self.leaving.get_or_init(|| {
            self.order.called.fetch_add(1, Ordering::SeqCst);
            self.order.ended.fetch_add(1, Ordering::Relaxed);
            if let (Some(arena), Some(node)) = (self.calls.arena(), node.enter()) {
                arena.locks().give_all_back(node);
            }
            self.calls.begin(node, Request::Leave, OwnedInterval::default())
        })
    }

    /// Drives until all bytes have left this node, because other nodes wait for its updates, and
    /// this thread may compute for long from now on.
    pub fn send_rest(&self, node: &Node) {
        if node.access() == Access::Requests {
            // The engine's thread sends by itself.
            return;
        }
        let all_sent = || (!node.with_engine(|engine| engine.has_unsent())).then_some(());
        if all_sent().is_none() {
            let _ = node.wait(Instant::now().checked_add(SEND_REST_MAX), all_sent);
        }
    }

    /// Counts a call of a collective of coherence. Called before it is submitted, so that what
    /// arrives meanwhile finds it counted.
    fn count_coherence_call<'a>(
        &self,
        node: &'a Node,
        what: &'a dyn fmt::Display,
    ) -> CoherenceCall<'a> {
        let number = self.order.called.fetch_add(1, Ordering::SeqCst) + 1;
        CoherenceCall { node, what, number, seen: Cell::new(0) }
    }

    /// Takes part in the collective of coherence with this number only to make it fail, unless the
    /// program has called it.
    pub fn join_coherence(&self, node: &Node, number: u64, why: &str) {
        let order = &self.order;
        let next = number.saturating_add(1);
        let is_next =
            order.called.compare_exchange(number, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if is_next {
            self.fail_call(node, why);
        }
    }

    /// Takes part in the next collective only to make it fail, because this node has stopped
    /// waiting for the one before, which others may have passed.
    pub fn give_up(&self, node: &Node, why: &str) {
        self.order.called.fetch_add(1, Ordering::SeqCst);
        self.fail_call(node, why);
    }

    /// Begins a call, which is counted already, only to make it fail. No thread waits for it.
    fn fail_call(&self, node: &Node, why: &str) {
        self.forget_interrupted();
        self.order.ended.fetch_add(1, Ordering::Relaxed);
        let interval = self.segments.end_interval();
        self.calls.begin(node, Request::Cannot(why.to_owned()), interval);
    }

    /// Returns the counter of the guards of this node's arrays.
    #[inline]
    pub fn guards(&self) -> &Arc<LiveGuards> {
        &self.guards
    }

    /// Refuses a collective while any guard of this node is alive (COH-6.10).
    #[inline]
    pub fn check_no_guard(&self, node: &Node, doing: &str) -> Result<()> {
        if self.guards.are_any() { self.refuse_for_guard(node, doing, false) } else { Ok(()) }
    }

    /// Refuses a lock while a guard that the calling thread took is alive (COH-7.7).
    #[inline]
    pub fn check_no_guard_of_this_thread(
        &self,
        node: &Node,
        doing: impl FnOnce() -> String,
    ) -> Result<()> {
        // The thread's guards may belong to another node of this process, and then none is found
        // here.
        let may_be = self.guards.are_any() && LiveGuards::are_any_of_this_thread();
        if may_be { self.refuse_for_guard(node, &doing(), true) } else { Ok(()) }
    }

    #[cold]
    fn refuse_for_guard(&self, node: &Node, doing: &str, of_this_thread: bool) -> Result<()> {
        let refusal =
            node.with_engine(|engine| engine.pages().guard_in_the_way(doing, of_this_thread));
        // A counted guard may have ended since.
        refusal.map_or(Ok(()), |refusal| Err(refusal.into()))
    }
}

/// Returns the call that a node makes in place of this one to tell the others why it cannot.
fn cannot(request: &Request, why: String) -> Request {
    match request {
        // The number of the array is used up.
        Request::Declare(_) | Request::CannotDeclare(_) => Request::CannotDeclare(why),
        _ => Request::Cannot(why),
    }
}

impl CallHost for Node {
    #[inline]
    fn is_joined(&self) -> bool {
        self.enter().is_some()
    }

    fn submit_call(&self, request: Request) -> Arc<Completion> {
        self.submit(request, None)
    }

    #[inline]
    fn has_to_tell(&self) -> bool {
        self.access() == Access::Requests
            || self.with_engine(|engine| engine.coherence().has_to_tell())
    }

    #[inline]
    fn ends_call(&self, has_come: impl Fn(Rank) -> bool) -> bool {
        self.departures.ends_call(has_come)
    }

    fn over(&self) -> Option<Failure> {
        self.departures.over()
    }

    #[inline]
    fn word_polls(&self) -> WordPolls {
        Self::word_polls(self)
    }

    fn wake_waiting(&self) {
        self.tell_waiters();
    }
}

impl LockHost for Node {
    #[inline]
    fn is_dead(&self, rank: Rank) -> bool {
        self.departures.death_of(rank).is_some()
    }

    fn wake_waiting(&self) {
        self.tell_waiters();
    }
}
