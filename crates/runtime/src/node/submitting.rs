//! Submission of requests to the engine: directly, by the thread in it, or several together.

use super::cork;
use super::parts::Node;
use super::parts::access::Access;
use super::parts::engine::RealEngine;
use super::parts::engine_thread::YIELD_SLEEP;
use super::parts::requests::Requests;
use oikaze_engine::{
    Completion, GroupState, Keep, OperationLabel, Request, Submission, Work, tracked, tracked_by,
};
use oikaze_os::cpu::yield_core;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Maximum number of requests that wait for the thread in the engine. Each other thread may add one
/// more.
pub const LEFT_MAX: usize = 4096;

/// Checks of a thread that has submitted too much for the moment, before it begins requests itself.
const ROOM_POLLS: u32 = 1024;

impl Requests {
    /// Leaves a submission to the engine's own thread, which may wait for the end of a batch.
    fn push_to_queue(&self, node: &Node, submission: Submission) {
        if cork::hold_post(node.number()).is_some() {
            self.submissions.push(submission);
        } else {
            self.post(node, submission);
        }
        if self.submissions.len() > LEFT_MAX {
            node.ring_engine();
            if !self.wait_for_room(node, LEFT_MAX) {
                node.begin_what_was_left(|_| ());
            }
        }
    }

    /// Puts a request into the submission queue. The engine's thread takes requests up in the order
    /// in which they were put there.
    fn post(&self, node: &Node, submission: Submission) {
        self.submissions.push(submission);
        node.ring_engine();
    }

    /// Waits until the engine's thread has taken up enough requests. A thread that submits faster
    /// than the engine begins requests waits here, because the limits apply where a request begins
    /// (MEM-15.4). Returns `false` if the engine's thread has not come to it for long. It may wait
    /// for a lock of the caller's.
    #[cold]
    fn wait_for_room(&self, node: &Node, most: usize) -> bool {
        for _ in 0..ROOM_POLLS {
            if self.submissions.len() <= most || node.access() != Access::Requests {
                return true;
            }
            if !yield_core() {
                std::thread::sleep(YIELD_SLEEP);
            }
        }
        false
    }
}

impl Node {
    /// Submits a request, and returns the completion to wait for.
    #[inline]
    pub fn submit(&self, request: Request, keep: Keep) -> Arc<Completion> {
        let (submission, completion) = tracked(request, keep);
        self.push(submission);
        completion
    }

    /// Begins an operation for a caller. Its failure is kept until the caller is told of it
    /// (MEM-15.5).
    #[inline]
    pub fn begin(&self, what: OperationLabel, request: Request, keep: Keep) -> Arc<Completion> {
        let completion = Completion::begun(what, &self.requests.untaken);
        self.push(tracked_by(Arc::clone(&completion), request, keep));
        completion
    }

    /// Submits a request that no caller waits for.
    #[inline]
    pub fn tell(&self, request: Request) {
        self.push(Submission { request, completion: None, keep: None });
    }

    /// Submits a request that takes effect at once and sends nothing. No turn is run for it.
    pub fn note(&self, request: Request) {
        let submission = Submission { request, completion: None, keep: None };
        match self.access() {
            Access::Refused => return,
            Access::Requests => return self.requests.post(self, submission),
            Access::Turns | Access::OwnTurns => {}
        }
        let _masked = self.engine.mask_for_entry();
        let mut settled = 0;
        match self.engine.try_enter() {
            Some(mut engine) if self.requests.submissions.is_empty() => {
                engine.submit(submission, self.now());
                settled = engine.take_settled();
            }
            _ => self.leave_to_holder(submission),
        }
        self.after_leaving();
        if settled > 0 {
            return self.tell_waiters();
        }
        // A sleeping driver may wait for this.
        fence(Ordering::SeqCst);
        self.threads.driver.sleep.wake();
    }

    /// Submits to the engine and runs a turn, if no other thread is in the engine. Otherwise the
    /// thread in the engine takes the submission up. In thread mode that is always the engine's own
    /// thread. Either way a thread's requests are taken up in their order.
    pub fn push(&self, submission: Submission) {
        match self.access() {
            Access::Refused => return self.refuse(&submission),
            Access::Requests => return self.requests.push_to_queue(self, submission),
            Access::Turns | Access::OwnTurns => {}
        }
        if !self.push_at_once(submission) && self.requests.submissions.len() > LEFT_MAX {
            self.begin_what_was_left(|_| ());
        }
    }

    /// Submits requests that the engine begins one after the other, with no other in between. So it
    /// finds messages that are alike, and sends them by multicast.
    pub fn push_together(&self, submissions: Vec<Submission>) {
        if self.access() == Access::Refused {
            return submissions.iter().for_each(|submission| self.refuse(submission));
        }
        self.begin_what_was_left(|engine| engine.submit_together(submissions, self.now()));
        self.take_turn();
    }

    /// Returns `true` if the node uses multicast.
    #[must_use]
    pub fn uses_multicast(&self) -> bool {
        self.requests.groups.is_on()
    }

    /// Returns the state of the multicast group of these nodes, which are sorted.
    #[must_use]
    pub fn group_state(&self, receivers: &[Rank]) -> GroupState {
        self.requests.groups.state(receivers)
    }

    /// Fails a submission at once in a child of fork.
    #[cold]
    fn refuse(&self, submission: &Submission) {
        if let Some(completion) = &submission.completion {
            completion.settle(Err(self.forked()));
        }
    }

    /// Begins the requests that were left, because the limits apply where a request begins
    /// (MEM-15.4), and then runs `then`. A thread that submits faster than the thread in the engine
    /// begins requests waits here.
    pub fn begin_what_was_left<T>(&self, then: impl FnOnce(&mut RealEngine) -> T) -> T {
        let value = self.with_engine(|engine| {
            engine.begin_waiting(self.now());
            then(engine)
        });
        if self.access() == Access::Requests {
            // The engine's thread does not know the timers of requests that it has not begun.
            self.ring_engine();
        }
        value
    }

    /// Submits at once. Returns `false` if the submission was left, to be begun later.
    fn push_at_once(&self, submission: Submission) -> bool {
        let _masked = self.engine.mask_for_turns();
        let since = cork::hold_post(self.number());
        let (held, now) = (since.is_some(), since.unwrap_or_else(|| self.now()));
        let Some(mut engine) = self.engine.try_enter() else {
            self.leave_to_holder(submission);
            if !held {
                self.drive_meanwhile(now, || self.run_turns(now, RealEngine::turn));
            }
            return false;
        };
        let is_next = self.requests.submissions.is_empty();
        if is_next {
            engine.submit(submission, now);
        } else {
            self.requests.submissions.push(submission);
        }
        if held {
            drop(engine);
            self.after_leaving();
        } else {
            self.drive_meanwhile(now, || Some(self.run_turns_in(engine, now, RealEngine::turn)));
        }
        is_next
    }

    /// Runs a turn amid long work of this thread, so that what comes meanwhile is acknowledged.
    pub fn take_turn(&self) {
        let now = self.now();
        self.drive_meanwhile(now, || self.try_turn(now));
    }

    /// Runs turns for this thread's submissions. The thread drives meanwhile, because bulk may take
    /// its time, and the helper would only be in the way.
    pub(super) fn drive_meanwhile(&self, now: Time, turns: impl FnOnce() -> Option<Work>) {
        let driving = self.threads.driver.try_drive(now);
        let work = turns();
        if let Some(driving) = driving {
            driving.leave(self.end_of(work, now));
        }
    }

    /// Returns the end of a turn that began at `began`. A run of bulk takes longer than a short gap
    /// between two drivers, but is not a gap, so it must not wake the helper.
    pub(super) fn end_of(&self, work: Option<Work>, began: Time) -> Time {
        if work.is_some_and(Work::is_long) { self.now() } else { began }
    }

    /// Leaves the submission to the thread in the engine. That thread may just have left, so the
    /// caller must try again.
    pub(super) fn leave_to_holder(&self, submission: Submission) {
        self.requests.submissions.push(submission);
        self.engine.ask();
    }

    /// Runs `posts`, and lets the engine take up its submissions together, at the end or whenever
    /// many have come together.
    pub fn batch<T>(&self, posts: impl FnOnce() -> T) -> T {
        /// Runs the turn also if `posts` panics, because others may wait for the posted operations.
        struct Flush<'n>(&'n Node, cork::Cork);
        impl Drop for Flush<'_> {
            fn drop(&mut self) {
                // Otherwise all posts were done without the engine.
                if self.1.lift() {
                    self.0.send_what_was_held();
                }
            }
        }
        let _flushed_after = Flush(self, cork::Cork::new(self.number(), self.now()));
        posts()
    }

    /// Runs a turn for held posts of a batch, and for what shared arrays have to send, by this
    /// thread or the one in the engine.
    pub fn send_what_was_held(&self) {
        match self.access() {
            Access::Refused => return,
            Access::Requests => return self.ring_engine(),
            Access::Turns | Access::OwnTurns => {}
        }
        self.engine.ask();
        let now = self.now();
        self.drive_meanwhile(now, || self.run_turns(now, RealEngine::turn));
    }
}
