//! Calls of all nodes of a job, as the nodes of one machine compare them in an arena before the
//! engines see them (COH-6.14). A barrier is over there if no node has anything to tell.
//!
//! Calls of a node are in one order. A call for which no thread waits any more stays in that order.
//! The thread that runs turns lets it go on, because other nodes may be in it.

use crate::node::driver::WordPolls;
use crate::sync::lock;
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_os::shm::{Arena, ArenaWait, CallWay, LockHost, OwnedInterval};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockView;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Node, as its calls use it.
pub trait CallHost {
    /// Returns `true` in the process that joined the job, and not in a child of fork.
    fn is_joined(&self) -> bool;
    /// Submits a call to the engine.
    fn submit_call(&self, request: Request) -> Arc<Completion>;
    /// Returns `true` if the engine has anything to tell in a barrier (COH-6.14). A thread that
    /// leaves turns to the engine's own thread does not wait for that thread to find out.
    fn has_to_tell(&self) -> bool;
    /// Returns `true` if not all nodes will come to a call: the job was aborted, a node is lost, or
    /// a node has left in order and has not come to the call.
    fn ends_call(&self, has_come: impl Fn(Rank) -> bool) -> bool;
    /// Returns why no result comes any more, if so.
    fn over(&self) -> Option<Failure>;
    /// Returns the polls for other nodes that pay, before a thread runs turns while it waits.
    fn word_polls(&self) -> WordPolls;
    /// Wakes threads that wait for an outcome.
    fn wake_waiting(&self);
}

/// Calls of this node of which all nodes make the same ones.
pub struct JobCalls {
    /// `None`: the engines alone compare calls.
    arena: Option<Arc<Arena>>,
    order: Mutex<CallQueue>,
    /// Is `true` while the queue has calls.
    has_queued: AtomicBool,
    /// Number of the call that this node has come to, and whose way it does not know, or 0.
    undecided: AtomicU64,
    /// Is `true` while a thread lets queued calls go on.
    is_advancing: AtomicBool,
    /// Set once this node has called more than barriers and reductions. From then on it asks its
    /// engine whether there is anything to tell.
    may_tell: AtomicBool,
    /// Set once this node compares no calls in the arena any more, because a node has died.
    is_broken: AtomicBool,
}

#[derive(Default)]
struct CallQueue {
    /// Number of the latest call that this node has come to in the arena.
    number: u64,
    /// Number of a call that all nodes have come to.
    complete: u64,
    /// Calls whose way is not known, in their order. Only the first may have a number.
    waiting: VecDeque<Arc<QueuedCall>>,
}

/// Call that waits for other nodes in the arena, or for an earlier call.
pub struct QueuedCall {
    state: Mutex<QueuedState>,
    /// Outcome of the call, once its way is known.
    decided: OnceLock<JobCall>,
}

struct QueuedState {
    /// Request for the engine, until it is submitted.
    request: Option<Request>,
    /// Number in the arena, once this node has come to the call there.
    number: Option<u64>,
    /// Is `true` if this node has said there that the call is for the engines.
    is_for_engines: bool,
    /// Bytes that guards owned, which this node tells when it comes.
    interval: OwnedInterval,
}

/// A call of this node.
#[derive(Clone)]
pub enum JobCall {
    /// The barrier with this number in the arena is over.
    Passed(u64),
    /// The engine has the call, whose number in the arena is this, or 0 if it has none.
    Submitted(Arc<Completion>, u64),
    /// The call waits.
    Queued(Arc<QueuedCall>),
}

impl JobCall {
    /// Returns `true` if the call was over in the arena before its thread had to wait.
    #[inline]
    pub(super) fn has_passed_at_once(&self) -> bool {
        matches!(self, JobCall::Passed(_))
    }

    /// Returns `true` if the call, whose outcome is known, was over in the arena.
    pub(super) fn has_passed(&self) -> bool {
        match self {
            JobCall::Passed(_) => true,
            JobCall::Submitted(..) => false,
            JobCall::Queued(call) => call.decided.get().is_none_or(JobCall::has_passed),
        }
    }

    /// Returns the number of the call in the arena, or 0 if this node has not come to it there.
    pub(super) fn number(&self) -> u64 {
        match self {
            JobCall::Passed(number) | JobCall::Submitted(_, number) => *number,
            JobCall::Queued(call) => lock(&call.state).number.unwrap_or(0),
        }
    }
}

impl JobCalls {
    /// Makes the calls of a node, before the first. Without an arena, the engines compare them.
    pub fn new(arena: Option<Arc<Arena>>) -> JobCalls {
        JobCalls {
            arena,
            order: Mutex::default(),
            has_queued: AtomicBool::new(false),
            undecided: AtomicU64::new(0),
            is_advancing: AtomicBool::new(false),
            may_tell: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Returns the outcome of a call if it is known.
    pub fn outcome(&self, call: &JobCall, host: &impl CallHost) -> Option<Result<Value, Failure>> {
        match call {
            JobCall::Passed(_) => Some(Ok(Value::Done)),
            JobCall::Submitted(completion, _) => completion.outcome(),
            JobCall::Queued(call) => match call.decided.get() {
                Some(decided) => self.outcome(decided, host),
                None => self.outcome_of_queued(call, host),
            },
        }
    }

    /// Returns the nodes that have not come to the latest call in the arena, and those that have.
    pub fn late_and_come(&self) -> (Vec<Rank>, Vec<Rank>) {
        self.arena.as_ref().map(|arena| arena.late_and_come()).unwrap_or_default()
    }

    /// Begins the next call. The thread polls for a moment if only other nodes are missing.
    #[inline]
    pub fn begin(
        &self,
        host: &impl CallHost,
        request: Request,
        interval: OwnedInterval,
    ) -> JobCall {
        match &self.arena {
            Some(arena) if host.is_joined() => self.begin_in(arena, host, request, interval),
            _ => JobCall::Submitted(host.submit_call(request), 0),
        }
    }

    /// Returns the arena, if the nodes compare their calls there.
    pub fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    fn begin_in(
        &self,
        arena: &Arena,
        host: &impl CallHost,
        request: Request,
        interval: OwnedInterval,
    ) -> JobCall {
        let is_barrier = matches!(request, Request::Barrier);
        if !is_barrier && !matches!(request, Request::Reduce(_)) {
            self.may_tell.store(true, Ordering::SeqCst);
        }
        // Not under the lock, because looking at the engine may run a turn.
        let for_engines = !is_barrier || self.has_to_tell(host);
        let is_over = self.is_over(arena, host, 0);
        let mut order = lock(&self.order);
        let mut number = None;
        let may_come = order.waiting.is_empty() && !is_over && order.is_complete(arena);
        if order.waiting.is_empty() && (is_over || (may_come && for_engines)) {
            let mut number = 0;
            if !is_over {
                number = order.come(arena, true, &interval);
                end_calls_after(&request, arena);
            }
            drop(order);
            return JobCall::Submitted(host.submit_call(request), number);
        }
        if may_come {
            let come = order.come(arena, false, &interval);
            match self.poll(arena, host, come) {
                Some(CallWay::Passed) => {
                    order.complete = come;
                    return JobCall::Passed(come);
                }
                Some(CallWay::Engines) => {
                    drop(order);
                    return JobCall::Submitted(host.submit_call(request), come);
                }
                None => number = Some(come),
            }
        }
        let request = Some(request);
        let state = QueuedState { request, number, is_for_engines: false, interval };
        let state = Mutex::new(state);
        let call = Arc::new(QueuedCall { state, decided: OnceLock::new() });
        order.waiting.push_back(Arc::clone(&call));
        if let Some(number) = number {
            self.undecided.store(number, Ordering::SeqCst);
            arena.note_wait();
        }
        self.has_queued.store(true, Ordering::SeqCst);
        drop(order);
        self.advance(host);
        JobCall::Queued(call)
    }

    #[inline]
    fn poll(&self, arena: &Arena, host: &impl CallHost, number: u64) -> Option<CallWay> {
        let mut polls = host.word_polls();
        loop {
            let way = arena.poll(number);
            if way.is_some() || !polls.wait() {
                return way;
            }
        }
    }

    /// Returns `true` if a barrier of this node is for the engines.
    #[inline]
    fn has_to_tell(&self, host: &impl CallHost) -> bool {
        self.may_tell.load(Ordering::SeqCst) && host.has_to_tell()
    }

    /// Returns `true` if call `number` cannot be completed in the arena: a node has died, this node
    /// is in a job that has ended, or another node has seen a death. Such a node takes part in no
    /// call any more. A node that has left in order counts only if it has not come to the call.
    #[inline]
    fn is_over(&self, arena: &Arena, host: &impl CallHost, number: u64) -> bool {
        if self.is_broken.load(Ordering::Acquire) {
            return true;
        }
        let is_over = host.ends_call(|rank| arena.has_come(rank, number));
        if is_over && !self.is_broken.swap(true, Ordering::AcqRel) {
            arena.fail();
        }
        is_over
    }

    /// Returns the outcome of a call that no thread has decided yet, if it is known.
    fn outcome_of_queued(
        &self,
        call: &QueuedCall,
        host: &impl CallHost,
    ) -> Option<Result<Value, Failure>> {
        let undecided = self.undecided.load(Ordering::Acquire);
        // The engines end a call for which this node has something to tell.
        let is_this = || {
            let state = lock(&call.state);
            state.number == Some(undecided) && !state.is_for_engines
        };
        match &self.arena {
            Some(arena)
                if undecided != 0
                    && arena.poll(undecided) == Some(CallWay::Passed)
                    && is_this() =>
            {
                Some(Ok(Value::Done))
            }
            _ => host.over().map(Err),
        }
    }

    /// Lets queued calls go on, in their order (COH-6.15). Called after each turn, and outside of
    /// the engine.
    #[inline]
    pub fn advance(&self, host: &impl CallHost) {
        if self.has_queued.load(Ordering::Relaxed) {
            self.advance_queued(host);
        }
    }

    #[cold]
    fn advance_queued(&self, host: &impl CallHost) {
        /// Lets other threads in also if a waker panics.
        struct Advancing<'c>(&'c AtomicBool);
        impl Drop for Advancing<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let Some(arena) = &self.arena else { return };
        // The turn that a submission runs would begin anew.
        if self.is_advancing.swap(true, Ordering::Acquire) {
            return;
        }
        let advancing = Advancing(&self.is_advancing);
        let mut has_decided = false;
        while self.decide_first(arena, host) {
            has_decided = true;
        }
        drop(advancing);
        if has_decided {
            host.wake_waiting();
        }
    }

    /// Decides the first queued call, if its way is known. Returns `true` if it did.
    fn decide_first(&self, arena: &Arena, host: &impl CallHost) -> bool {
        let first = || lock(&self.order).waiting.front().map(Arc::clone);
        let Some(call) = first() else { return false };
        // Only this thread decides, so the call stays the first.
        let has_come = lock(&call.state).number.is_some();
        // Not under the lock, because looking at the engine may run a turn.
        let has_to_tell = !has_come && self.has_to_tell(host);
        let request = {
            let mut order = lock(&self.order);
            let mut state = lock(&call.state);
            if !has_come && !self.come_first(arena, host, &mut order, &mut state, has_to_tell) {
                return false;
            }
            let number = state.number.unwrap_or(order.number);
            let is_over = self.is_over(arena, host, number) || arena.has_failed();
            // A death is believed only after the words are read once more.
            let way = match state.number {
                Some(_) if state.is_for_engines => Some(CallWay::Engines),
                Some(number) => arena.way(number),
                None => None,
            };
            match way {
                Some(CallWay::Passed) => {
                    order.complete = number;
                    drop(state);
                    self.end_first(&mut order, &call, JobCall::Passed(number));
                    return true;
                }
                None if !is_over => return false,
                None if !self.is_broken.swap(true, Ordering::AcqRel) => arena.fail(),
                None | Some(CallWay::Engines) => {}
            }
            state.request.take()
        };
        let Some(request) = request else { return false };
        let number = lock(&call.state).number.unwrap_or(0);
        let decided = JobCall::Submitted(host.submit_call(request), number);
        self.end_first(&mut lock(&self.order), &call, decided);
        true
    }

    /// Comes to the first queued call, if all nodes have come to the one before. Returns `true` if
    /// the way of the call may be known.
    fn come_first(
        &self,
        arena: &Arena,
        host: &impl CallHost,
        order: &mut CallQueue,
        state: &mut QueuedState,
        has_to_tell: bool,
    ) -> bool {
        let is_over = self.is_over(arena, host, order.number) || arena.has_failed();
        if is_over || !order.is_complete(arena) {
            return is_over;
        }
        let is_barrier = matches!(state.request, Some(Request::Barrier));
        state.is_for_engines = !is_barrier || has_to_tell;
        let number = order.come(arena, state.is_for_engines, &state.interval);
        if let Some(request) = &state.request {
            end_calls_after(request, arena);
        }
        state.number = Some(number);
        self.undecided.store(number, Ordering::SeqCst);
        arena.note_wait();
        true
    }

    fn end_first(&self, order: &mut CallQueue, call: &QueuedCall, decided: JobCall) {
        // Nobody else decides.
        let _ = call.decided.set(decided);
        self.undecided.store(0, Ordering::SeqCst);
        order.waiting.pop_front();
        self.has_queued.store(!order.waiting.is_empty(), Ordering::SeqCst);
    }

    /// Returns what this node waits for in the arena, if it does.
    pub fn arena_wait(&self) -> Option<ArenaWait> {
        self.arena.as_ref()?.wait(&self.undecided)
    }

    /// Returns `true` if a thread of this node has got a lock in the arena, and has not seen that.
    #[inline]
    pub fn has_granted_lock(&self) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.locks().is_over_here())
    }

    /// Describes a lock, if it has an entry in the arena.
    pub fn lock_view(&self, lock: u64, host: &impl LockHost) -> Option<LockView> {
        self.arena.as_ref()?.locks().view(lock, host)
    }

    /// Sleeps for at most this time until the call that this node has come to has ended, until
    /// another node takes the step that is waited for in a collective of data, or until a lock is
    /// granted. Returns `false` at once if the node waits for none of these, or for several. Called
    /// by the thread that drives.
    #[must_use]
    pub fn sleep_on_word(&self, limit: Duration) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.sleep_on_word(&self.undecided, limit))
    }

    /// Announces that a thread may sleep that lets queued calls and collectives of data go on.
    /// Returns `true` if it must look again instead.
    pub fn fall_asleep(&self) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.fall_asleep(&self.undecided))
    }
}

/// Notes that this node comes to no call after a leave, which is its last one. Other nodes then
/// call the engines, which say so.
fn end_calls_after(request: &Request, arena: &Arena) {
    if matches!(request, Request::Leave) {
        arena.fail();
    }
}

impl CallQueue {
    /// Returns `true` if all nodes have come to the latest call of this one.
    #[inline]
    fn is_complete(&mut self, arena: &Arena) -> bool {
        if self.complete < self.number && arena.have_all_come(self.number) {
            self.complete = self.number;
        }
        self.complete >= self.number
    }

    /// Comes to the next call in the arena. Returns its number.
    #[inline]
    fn come(&mut self, arena: &Arena, for_engines: bool, interval: &OwnedInterval) -> u64 {
        self.number += 1;
        interval.tell(self.number);
        arena.come(self.number, for_engines);
        self.number
    }
}
