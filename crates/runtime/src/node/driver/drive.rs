//! Loop of a waiting thread, which drives the engine while it waits.

use super::limits::{SLEEP_MAX, SPIN_POLLS_OF_LINK, SPIN_TURNS_UNTIL_CREDIT};
use super::link_watch::LinkWatch;
use super::{Idle, IdleStep, Wakes};
use crate::node::cork;
use crate::node::parts::Node;
use crate::node::parts::access::Access;
use crate::node::parts::engine::RealEngine;
use crate::node::parts::engine_thread::stand_aside;
use crate::node::waits::{LongWait, WaitSubject};
use oikaze_engine::Work;
use oikaze_os::cpu::yield_core;
use oikaze_protocol::time::Time;
use std::time::{Duration, Instant};

impl Node {
    /// Waits until `ready` returns a value, and drives the engine if no other thread does. Returns
    /// `None` if the deadline has passed, or in a child of fork.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        WaitLoop::run(self, deadline, Wakes::WithAll, &mut LongWait::short(self), ready)
    }

    /// Waits as [`Node::wait`] does. A long wait is explained as one for `subject` (MEM-21.1).
    #[track_caller]
    pub fn wait_on<T>(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = ready() {
            return Some(value);
        }
        WaitLoop::run(self, deadline, Wakes::WithAll, &mut LongWait::new(self, subject), ready)
    }

    /// Waits as [`Node::wait_on`] does, for a part of a longer wait.
    pub fn wait_within<T>(
        &self,
        long: &mut LongWait<'_>,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        WaitLoop::run(self, deadline, Wakes::WithAll, long, ready)
    }

    /// Waits as [`Node::wait_on`] does. The thread that makes `ready` true wakes the calling thread
    /// ([`crate::node::Waiters`]), and other news do not.
    #[track_caller]
    pub fn wait_quietly<T>(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        WaitLoop::run(self, deadline, Wakes::Alone, &mut LongWait::new(self, subject), ready)
    }

    /// Runs a turn. The turn may end at the first news, unless the helper is asleep and would run
    /// the rest too late, or this thread is likely to compute for long after the news.
    pub fn turn_until_news(&self, now: Time) -> Option<Work> {
        if self.threads.driver.helper.is_watching() || !self.threads.driver.comes_soon() {
            return self.run_turns(now, RealEngine::turn);
        }
        // With local peers, the thread polls the rings meanwhile.
        let polls = if self.has_local_peers() { 0 } else { SPIN_POLLS_OF_LINK };
        self.run_turns(now, |engine, now| {
            let mut left = polls;
            engine.turn_until_news(now, || {
                if left == 0 || self.engine.is_asked() || self.is_called() {
                    return None;
                }
                left -= 1;
                Some(self.now())
            })
        })
    }

    /// Returns `true` if other threads want something of the engine's own thread.
    #[inline]
    pub(in crate::node) fn is_called(&self) -> bool {
        self.threads.engine_thread.is_called(&self.requests.submissions)
    }

    /// Returns the time at which the engine must turn again at the latest. Called by a thread that
    /// is about to sleep until then, and tells local peers.
    pub fn next_timeout(&self) -> Option<Time> {
        self.with_engine(|engine| {
            let told = self.mail.give_credit_back(engine, self.now());
            if self.has_local_peers() && engine.shm_mut().doze() || told {
                Some(Time(0))
            } else {
                self.clock.due(engine)
            }
        })
    }
}

/// Loop of one waiting thread.
pub(in crate::node) struct WaitLoop<'w, 's> {
    node: &'w Node,
    idle: Idle<'w>,
    deadline: Option<Instant>,
    long: &'w mut LongWait<'s>,
}

impl<'w, 's> WaitLoop<'w, 's> {
    /// Makes the loop of a wait until this deadline, which is `long` or a part of it.
    pub fn new(
        node: &'w Node,
        deadline: Option<Instant>,
        long: &'w mut LongWait<'s>,
    ) -> WaitLoop<'w, 's> {
        WaitLoop { node, idle: Idle::new(&node.threads.spin_limit), deadline, long }
    }

    /// Waits until `ready` returns a value, as a driver or beside one. `wakes` says which news
    /// wakes the thread while it is parked.
    fn run<T>(
        node: &'w Node,
        deadline: Option<Instant>,
        wakes: Wakes,
        long: &'w mut LongWait<'s>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        node.enter()?;
        if let Some(value) = ready() {
            return Some(value);
        }
        let mut now = node.now();
        let mut driving = node.threads.driver.try_drive(now);
        let mut waiting = WaitLoop::new(node, deadline, long);
        if driving.is_none() && cork::is_on() {
            // The driver does not know the posts that this thread has held back, and may sleep.
            node.send_what_was_held();
        }
        loop {
            if let Some(driving) = driving {
                let (value, now) = waiting.drive(now, &mut ready);
                driving.leave(now);
                return value;
            }
            let wakes = match waiting.spin_beside(&mut ready) {
                Ok(value) => return Some(value),
                Err(IdleStep::Pause(_)) => Wakes::Alone,
                Err(IdleStep::Spin | IdleStep::Yield | IdleStep::Sleep) => wakes,
            };
            let limit =
                node.threads.spin_limit.interval().unwrap_or(SLEEP_MAX).min(until(deadline));
            let (value, role) = node.threads.driver.park(Some(limit), wakes, &mut ready);
            driving = role;
            now = node.now();
            waiting.idle.slept();
            // A thread that was woken for another one's news goes on with the same wait.
            if value.is_some() {
                waiting.idle.ends(now);
            }
            if value.is_some() || passed(deadline) || waiting.long.is_interrupted() {
                if let Some(driving) = driving {
                    driving.leave(now);
                }
                return value;
            }
            waiting.long.look(now);
        }
    }

    /// Polls while another thread drives, for as long as spinning may pay. Returns the value, or
    /// what to do next.
    fn spin_beside<T>(&mut self, ready: &mut impl FnMut() -> Option<T>) -> Result<T, IdleStep> {
        let Self { node, idle, deadline, long } = self;
        while node.threads.driver.is_driven() && !passed(*deadline) {
            let now = node.now();
            if let Some(value) = ready() {
                idle.ends(now);
                return Ok(value);
            }
            long.look(now);
            if long.is_interrupted() {
                return Err(IdleStep::Sleep);
            }
            match idle.next(now) {
                IdleStep::Spin => std::hint::spin_loop(),
                IdleStep::Yield if yield_core() => {}
                IdleStep::Yield => return Err(IdleStep::Sleep),
                step => return Err(step),
            }
        }
        Err(IdleStep::Sleep)
    }

    /// Returns the awaited value if it is there, and the time of the last reading of the clock.
    pub(super) fn drive<T>(
        &mut self,
        mut now: Time,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> (Option<T>, Time) {
        let Self { node, idle, deadline, long } = self;
        let (node, deadline) = (*node, *deadline);
        let last = deadline.map(|deadline| node.clock.time_of(deadline));
        let mut watch = LinkWatch::new(node);
        let has_own_turns = node.access() == Access::OwnTurns;
        let (mut spun, mut stood_aside) = (0u64, 0);
        loop {
            node.threads.driver.begin_round();
            node.threads.engine_thread.let_visitors_in();
            let work = node.turn_until_news(now);
            let value = ready();
            let is_late = last.is_some_and(|last| last <= now) || long.is_interrupted();
            if value.is_some() || is_late {
                idle.ends(now);
                return (value, node.end_of(work, now));
            }
            match work {
                Some(work) if work.is_idle() => {
                    let step = match idle.next(now) {
                        IdleStep::Yield if !yield_core() => IdleStep::Sleep,
                        step => step,
                    };
                    match step {
                        IdleStep::Spin => {
                            spun += 1;
                            if spun == SPIN_TURNS_UNTIL_CREDIT {
                                return_credit(node);
                            }
                            let value = match has_own_turns {
                                // `ready` of the engine's own thread takes page faults by a system
                                // call, which is worth one call a turn.
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
                // Another thread runs the turn, and may need this core for that.
                None => stand_aside(&mut stood_aside),
            }
            // Reads the clock once a round, because that costs as much as the rest of an idle turn.
            now = node.now();
            long.look(now);
        }
    }
}

/// Gives peers the credit back that they may wait for.
fn return_credit(node: &Node) {
    node.with_engine(|engine| node.mail.give_credit_back(engine, node.now()));
}

/// Sleeps for an interval of polling. Peers get the credit back that they may wait for.
fn pause(node: &Node, interval: Duration) {
    return_credit(node);
    std::thread::sleep(interval);
}

/// Blocks until the socket is readable, a timer is due, another thread has news for this one,
/// or the deadline has passed.
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
    node.threads.driver.sleep.fall_asleep(node.now() + timeout);
    // Submissions and outcomes since the last check: their makers may not have seen this thread
    // sleep.
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
