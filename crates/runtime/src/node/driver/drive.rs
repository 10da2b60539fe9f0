//! Loop of a waiting thread, which drives the engine while it waits.

use super::limits::{SLEEP_MAX, SPIN_POLLS_OF_LINK, SPIN_TURNS_UNTIL_CREDIT};
use super::link_watch::LinkWatch;
use super::sleeper::WatchClaim;
use super::{Idle, IdleStep, WakeSource};
use crate::node::cork;
use crate::node::parts::Node;
use crate::node::parts::access::Access;
use crate::node::parts::engine::RealEngine;
use crate::node::parts::engine_thread::yield_or_sleep;
use crate::node::waits::{LongWait, WaitSubject};
use oikaze_engine::Work;
use oikaze_os::cpu::{may_yield, yield_core};
use oikaze_os::shm::ArenaWait;
use oikaze_protocol::time::Time;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

impl Node {
    /// Waits until `ready` returns a value, and drives the engine if no other thread does. Returns
    /// `None` if the deadline has passed, or in a child of fork.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait_within(&mut LongWait::short(self), deadline, ready)
    }

    /// Waits as [`Node::wait`] does. A long wait is explained as one for `subject` (MEM-21.1).
    #[track_caller]
    pub fn wait_on<T>(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait_from(WakeSource::Broadcast, subject, deadline, ready)
    }

    /// Waits as [`Node::wait_on`] does, for a call that all nodes make, or the members of a team.
    #[track_caller]
    pub fn wait_on_call<T>(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait_from(WakeSource::Arena, subject, deadline, ready)
    }

    #[track_caller]
    fn wait_from<T>(
        &self,
        wake_source: WakeSource,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = ready() {
            return Some(value);
        }
        let mut long = LongWait::new(self, subject);
        self.wait_begun(&mut long, deadline, wake_source, ready)
    }

    /// Waits as [`Node::wait_on`] does, in a wait that has just begun. The clock is not read again.
    pub(in crate::node) fn wait_begun<T>(
        &self,
        long: &mut LongWait<'_>,
        deadline: Option<Instant>,
        wake_source: WakeSource,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let now = Some(self.clock.time_of(long.begun()));
        WaitLoop::run(self, now, deadline, wake_source, long, ready)
    }

    /// Waits as [`Node::wait_on`] does, for a part of a longer wait.
    pub fn wait_within<T>(
        &self,
        long: &mut LongWait<'_>,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        WaitLoop::run(self, None, deadline, WakeSource::Broadcast, long, ready)
    }

    /// Waits as [`Node::wait_on`] does, for a condition whose maker wakes the calling thread
    /// ([`crate::node::Waiters`]). Other events do not wake it, which saves a wakeup per event
    /// where many threads wait for different conditions.
    #[track_caller]
    pub fn wait_quietly<T>(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut long = LongWait::new(self, subject);
        let now = Some(self.clock.time_of(long.begun()));
        WaitLoop::run(self, now, deadline, WakeSource::Direct, &mut long, ready)
    }

    /// Runs a turn, which may end as soon as an operation has completed or a message has come, so
    /// that the waiting thread learns of it at once. The stages that such a turn skips are left to
    /// the next driver or to the helper. So the turn runs all stages if neither is likely to come
    /// soon: the helper sleeps, or this thread is likely to compute for long.
    pub fn turn_until_news(&self, now: Time) -> Option<Work> {
        if self.threads.driver.helper.is_watching() || !self.threads.driver.predicts_quick_return()
        {
            return self.run_turns(now, RealEngine::turn);
        }
        // With local peers, the thread polls their rings between turns, so the turn polls the
        // link only once.
        let polls = if self.has_local_peers() { 0 } else { SPIN_POLLS_OF_LINK };
        self.run_turns(now, |engine, now| {
            let mut left = polls;
            engine.turn_until_news(now, || {
                if left == 0 || self.engine.is_asked() || self.has_callers() {
                    return None;
                }
                left -= 1;
                Some(self.now())
            })
        })
    }

    /// Returns `true` if another thread waits for the engine's own thread.
    #[inline]
    pub(in crate::node) fn has_callers(&self) -> bool {
        self.threads.engine_thread.has_callers(&self.requests.submissions)
    }

    /// Returns the time at which the engine must run its next turn at the latest. Called by a
    /// thread that is about to sleep until then. From here on local peers wake the thread, and
    /// peers have their credit, so that none waits for a node that sleeps.
    pub fn next_timeout(&self) -> Option<Time> {
        self.with_engine(|engine| {
            let reported = self.mail.give_credit_back(engine, self.now());
            let is_due = self.has_local_peers()
                && (engine.shm_mut().arm_wakeups() | self.coherence.calls.fall_asleep());
            if is_due || reported { Some(Time(0)) } else { self.clock.due(engine) }
        })
    }
}

/// Loop of one waiting thread.
pub(in crate::node) struct WaitLoop<'w, 's> {
    node: &'w Node,
    idle: Idle<'w>,
    deadline: Option<Instant>,
    arena_span: ArenaSpan,
    long: &'w mut LongWait<'s>,
}

impl<'w, 's> WaitLoop<'w, 's> {
    /// Makes the loop of a wait until this deadline, which is `long` or a part of it.
    pub fn new(
        node: &'w Node,
        deadline: Option<Instant>,
        long: &'w mut LongWait<'s>,
    ) -> WaitLoop<'w, 's> {
        let idle = Idle::new(&node.threads.spin_limit);
        WaitLoop { node, idle, deadline, arena_span: ArenaSpan::default(), long }
    }

    /// Waits until `ready` returns a value. The thread drives the engine, or waits while another
    /// thread drives it. `wake_source` says what wakes the thread while it is parked, and `now` is
    /// the present time if the caller knows it.
    fn run<T>(
        node: &'w Node,
        now: Option<Time>,
        deadline: Option<Instant>,
        wake_source: WakeSource,
        long: &'w mut LongWait<'s>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        node.enter()?;
        if let Some(value) = ready() {
            return Some(value);
        }
        let mut now = now.unwrap_or_else(|| node.now());
        let mut driving = node.threads.driver.try_drive(now);
        let mut waiting = WaitLoop::new(node, deadline, long);
        waiting.arena_span.is_for_arena = wake_source == WakeSource::Arena;
        if driving.is_none() && cork::is_on() {
            // The thread that drives does not know of the posts that this thread holds back, and
            // may sleep. Nobody else would send them.
            node.send_what_was_held();
        }
        loop {
            if let Some(driving) = driving {
                let (value, now) = waiting.drive(now, &mut ready);
                driving.leave(now);
                return value;
            }
            let wake_source = match waiting.spin_beside(&mut ready) {
                Ok(value) => return Some(value),
                Err(IdleStep::Pause(_)) => WakeSource::Direct,
                Err(IdleStep::Spin | IdleStep::Yield | IdleStep::Sleep) => wake_source,
            };
            let limit =
                node.threads.spin_limit.interval().unwrap_or(SLEEP_MAX).min(until(deadline));
            let (value, role) = node.threads.driver.park(Some(limit), wake_source, &mut ready);
            driving = role;
            now = node.now();
            waiting.idle.slept();
            // A thread that was woken for the condition of another thread goes on waiting.
            if value.is_some() {
                waiting.idle.ends(now);
            }
            if value.is_some() || passed(deadline) || waiting.long.is_interrupted() {
                if let Some(driving) = driving {
                    driving.leave(now);
                }
                return value;
            }
            waiting.long.check(now);
        }
    }

    /// Polls `ready` while another thread drives, for as long as spinning is likely to be cheaper
    /// than a sleep and a wakeup. Returns the value, or what to do next.
    fn spin_beside<T>(&mut self, ready: &mut impl FnMut() -> Option<T>) -> Result<T, IdleStep> {
        let Self { node, idle, deadline, arena_span, long } = self;
        while node.threads.driver.is_driven() && !passed(*deadline) {
            let now = node.now();
            if let Some(value) = ready() {
                idle.ends(now);
                return Ok(value);
            }
            long.check(now);
            if long.is_interrupted() {
                return Err(IdleStep::Sleep);
            }
            let waits_in_arena = arena_span.goes_on(node, idle, now);
            match idle.next(now) {
                IdleStep::Spin => std::hint::spin_loop(),
                // The caller has only paused.
                _ if waits_in_arena && node.collectives.may_go_on() => {
                    yield_core();
                }
                IdleStep::Yield if yield_core() => {}
                IdleStep::Yield => return Err(IdleStep::Sleep),
                step => return Err(step),
            }
        }
        Err(IdleStep::Sleep)
    }

    /// Runs turns of the engine until `ready` returns a value, or the deadline has passed. Returns
    /// the value, and the latest reading of the clock.
    pub(super) fn drive<T>(
        &mut self,
        mut now: Time,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> (Option<T>, Time) {
        let Self { node, idle, deadline, arena_span, long } = self;
        let (node, deadline) = (*node, *deadline);
        let last = deadline.map(|deadline| node.clock.time_of(deadline));
        let claim = WatchClaim::default();
        let mut watch = LinkWatch::new(node, &claim);
        let has_own_turns = node.access() == Access::OwnTurns;
        let (mut spun, mut yields) = (0u64, 0);
        loop {
            node.threads.driver.begin_round();
            node.threads.engine_thread.yield_to_visitors();
            let work = node.turn_until_news(now);
            let value = ready();
            let is_late = last.is_some_and(|last| last <= now) || long.is_interrupted();
            if value.is_some() || is_late {
                idle.ends(now);
                return (value, node.end_of(work, now));
            }
            match work {
                Some(work) if work.is_idle() => {
                    let waits_in_arena = arena_span.goes_on(node, idle, now);
                    let step = match idle.next(now) {
                        step @ (IdleStep::Yield | IdleStep::Sleep) if waits_in_arena => {
                            let limit = until(deadline);
                            match arena_span.wait(node, idle, step, limit, ready) {
                                ControlFlow::Continue(step) => step,
                                ControlFlow::Break(value) => {
                                    let now = node.now();
                                    idle.ends(now);
                                    return (Some(value), now);
                                }
                            }
                        }
                        IdleStep::Yield if !yield_core() => IdleStep::Sleep,
                        step => step,
                    };
                    match step {
                        IdleStep::Spin => {
                            // Nothing comes by the link for a thread that waits in the arena.
                            if !waits_in_arena {
                                node.take_watch_of_helper();
                            }
                            spun += 1;
                            if spun == SPIN_TURNS_UNTIL_CREDIT {
                                return_credit(node);
                            }
                            let value = match has_own_turns {
                                // `ready` of the engine's own thread takes page faults by a system
                                // call. It is called once a turn, and not at each poll of the
                                // rings.
                                true => node.fast.view(node, &mut || None),
                                false => node.fast.view(node, ready),
                            };
                            if let Some(value) = value {
                                idle.ends(now);
                                return (Some(value), now);
                            }
                        }
                        IdleStep::Yield => {
                            spun += 1;
                            if spun == SPIN_TURNS_UNTIL_CREDIT {
                                return_credit(node);
                            }
                        }
                        IdleStep::Pause(interval) => {
                            pause(node, interval.min(until(deadline)));
                            idle.slept();
                        }
                        IdleStep::Sleep => {
                            let value = sleep_on_socket(node, &mut watch, deadline, ready);
                            idle.slept();
                            if let Some(value) = value {
                                let now = node.now();
                                idle.ends(now);
                                return (Some(value), now);
                            }
                        }
                    }
                }
                Some(_) => {
                    spun = 0;
                    idle.ends(now);
                    if node.threads.spin_limit.may_poll(now) {
                        watch.release();
                    }
                }
                // Another thread runs the turn, and may need this core for it.
                None => yield_or_sleep(&mut yields),
            }
            // Reads the clock once a round, because that costs as much as the rest of an idle turn.
            now = node.now();
            long.check(now);
        }
    }
}

/// Step of other nodes of this machine for which a waiting thread's idle span lasts.
#[derive(Default)]
struct ArenaSpan {
    /// The wait may end by a step in the arena.
    is_for_arena: bool,
    step: Option<ArenaWait>,
    /// Time for which the thread may yet sleep on a word for this step.
    word_sleep: Duration,
}

impl ArenaSpan {
    /// Returns `true` if the thread waits for a step in the arena. The idle span begins anew with
    /// each step, as with news of the engine.
    fn goes_on(&mut self, node: &Node, idle: &mut Idle<'_>, now: Time) -> bool {
        if !self.is_for_arena {
            return false;
        }
        let step = node.coherence.calls.arena_wait();
        if step != self.step {
            idle.ends(now);
            self.step = step;
            self.word_sleep = node.threads.spin_limit.word_sleep();
        }
        step.is_some()
    }

    /// Waits for the step by handing the core over, or asleep on a word in shared memory. Returns
    /// the value, or what the thread does next: it has yielded, or it is to sleep as for events of
    /// any kind.
    fn wait<T>(
        &mut self,
        node: &Node,
        idle: &mut Idle<'_>,
        step: IdleStep,
        limit: Duration,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> ControlFlow<T, IdleStep> {
        if step == IdleStep::Yield {
            let mut polls = node.word_polls();
            while polls.wait() {
                if let Some(value) = ready() {
                    idle.yielded();
                    return ControlFlow::Break(value);
                }
            }
            idle.yielded();
            if may_yield() {
                return ControlFlow::Continue(IdleStep::Yield);
            }
        }
        let limit = self.word_sleep.min(limit);
        if limit.is_zero() {
            return ControlFlow::Continue(IdleStep::Sleep);
        }
        return_credit(node);
        let begun = node.now();
        if !node.coherence.calls.sleep_on_word(limit) {
            return ControlFlow::Continue(IdleStep::Sleep);
        }
        self.word_sleep = self.word_sleep.saturating_sub(node.now() - begun);
        idle.slept();
        ready().map_or(ControlFlow::Continue(IdleStep::Yield), ControlFlow::Break)
    }
}

/// Grants peers the credit of what the program has read. A peer without credit cannot send, so a
/// driver that spins or sleeps does not keep credit back.
fn return_credit(node: &Node) {
    node.with_engine(|engine| node.mail.give_credit_back(engine, node.now()));
}

/// Sleeps until the next poll ([`super::Idle`]), with the peers' credit granted.
fn pause(node: &Node, interval: Duration) {
    return_credit(node);
    std::thread::sleep(interval);
}

/// Blocks until the socket is readable, a timer is due, another thread wakes this one, or the
/// deadline has passed.
fn sleep_on_socket<T>(
    node: &Node,
    watch: &mut LinkWatch<'_>,
    deadline: Option<Instant>,
    ready: &mut impl FnMut() -> Option<T>,
) -> Option<T> {
    let most = watch.hold();
    node.threads.driver.sleep.fall_asleep(node.now() + most);
    let next = node.next_timeout();
    let timeout = node.clock.span_until(next).min(until(deadline)).min(most);
    node.threads.driver.sleep.shorten(node.now() + timeout);
    // A request or an outcome may have come after the last check and before `fall_asleep`. Then its
    // thread has seen this thread awake, and has not woken it.
    let value = ready();
    if value.is_none() && node.requests.submissions.is_empty() {
        let faults = node.access() == Access::OwnTurns;
        node.threads.descriptors.poll(&node.threads.driver.sleep, true, faults, timeout);
    }
    node.threads.driver.sleep.wake_up();
    value
}

fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn until(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}
