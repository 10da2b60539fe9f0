//! Loop of a waiting thread, which drives the engine while it waits.

use super::limits::{SLEEP_MAX, SPIN_POLLS_OF_LINK, SPIN_TURNS_UNTIL_CREDIT};
use super::link_watch::LinkWatch;
use super::{Idle, IdleStep, Wakes};
use crate::node::access::Access;
use crate::node::cork;
use crate::node::engine_thread::stand_aside;
use crate::node::waits::{LongWait, WaitSubject};
use crate::node::{Node, RealEngine};
use oikaze_engine::{Submission, Work};
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
        self.wait_for(deadline, Wakes::WithAll, &mut self.short_wait(), ready)
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
        self.wait_for(deadline, Wakes::WithAll, &mut self.long_wait(subject), ready)
    }

    /// Waits as [`Node::wait_on`] does, for a part of a longer wait.
    pub fn wait_within<T>(
        &self,
        long: &mut LongWait<'_>,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait_for(deadline, Wakes::WithAll, long, ready)
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
        self.wait_for(deadline, Wakes::Alone, &mut self.long_wait(subject), ready)
    }

    fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        wakes: Wakes,
        long: &mut LongWait<'_>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.enter()?;
        if let Some(value) = ready() {
            return Some(value);
        }
        let mut now = self.now();
        let mut driving = self.driver.try_drive(now);
        let mut idle = Idle::new(&self.spin_limit);
        if driving.is_none() && cork::is_on() {
            // The driver does not know the posts that this thread has held back, and may sleep.
            self.send_what_was_held();
        }
        loop {
            if let Some(driving) = driving {
                let (value, now) = self.drive(&mut idle, now, deadline, long, &mut ready);
                driving.leave(now);
                return value;
            }
            let wakes = match self.spin_beside(&mut idle, deadline, long, &mut ready) {
                Ok(value) => return Some(value),
                Err(IdleStep::Pause(_)) => Wakes::Alone,
                Err(IdleStep::Spin | IdleStep::Yield | IdleStep::Sleep) => wakes,
            };
            let limit = self.spin_limit.interval().unwrap_or(SLEEP_MAX).min(until(deadline));
            let (value, role) = self.driver.park(Some(limit), wakes, &mut ready);
            driving = role;
            now = self.now();
            idle.slept();
            // A thread that was woken for another one's news goes on with the same wait.
            if value.is_some() {
                idle.ends(now);
            }
            if value.is_some() || passed(deadline) || long.is_interrupted() {
                if let Some(driving) = driving {
                    driving.leave(now);
                }
                return value;
            }
            long.look(now);
        }
    }

    /// Polls while another thread drives, for as long as spinning may pay. Returns the value, or
    /// what to do next.
    fn spin_beside<T>(
        &self,
        idle: &mut Idle<'_>,
        deadline: Option<Instant>,
        long: &mut LongWait<'_>,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, IdleStep> {
        while self.driver.is_driven() && !passed(deadline) {
            let now = self.now();
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
        &self,
        idle: &mut Idle<'_>,
        mut now: Time,
        deadline: Option<Instant>,
        long: &mut LongWait<'_>,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> (Option<T>, Time) {
        let last = deadline.map(|deadline| self.time_of(deadline));
        let mut watch = LinkWatch::new(self);
        let has_own_turns = self.access() == Access::OwnTurns;
        let (mut spun, mut stood_aside) = (0u64, 0);
        loop {
            self.driver.begin_round();
            self.engine_thread.let_visitors_in();
            let work = self.turn_until_news(now);
            let value = ready();
            let is_late = last.is_some_and(|last| last <= now) || long.is_interrupted();
            if value.is_some() || is_late {
                idle.ends(now);
                return (value, self.end_of(work, now));
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
                                self.with_engine(|engine| self.give_credit_back(engine));
                            }
                            let value = match has_own_turns {
                                // `ready` of the engine's own thread takes page faults by a system
                                // call, which is worth one call a turn.
                                true => self.fast.view(self, &mut || None),
                                false => self.fast.view(self, ready),
                            };
                            if let Some(value) = value {
                                idle.ends(now);
                                return (Some(value), now);
                            }
                        }
                        IdleStep::Yield => {
                            spun += 1;
                            if spun == SPIN_TURNS_UNTIL_CREDIT {
                                self.with_engine(|engine| self.give_credit_back(engine));
                            }
                        }
                        IdleStep::Pause(interval) => {
                            self.pause(interval.min(until(deadline)));
                            idle.slept();
                        }
                        IdleStep::Sleep => {
                            let value = self.sleep_on_socket(&mut watch, deadline, ready);
                            idle.slept();
                            if let Some(value) = value {
                                let now = self.now();
                                idle.ends(now);
                                return (Some(value), now);
                            }
                        }
                    }
                }
                Some(_) => {
                    spun = 0;
                    idle.ends(now);
                    if self.spin_limit.may_poll(now) {
                        watch.release();
                    }
                }
                // Another thread runs the turn, and may need this core for that.
                None => stand_aside(&mut stood_aside),
            }
            // Reads the clock once a round, because that costs as much as the rest of an idle turn.
            now = self.now();
            long.look(now);
        }
    }

    /// Runs a turn. The turn may end at the first news, unless the helper is asleep and would run
    /// the rest too late, or this thread is likely to compute for long after the news.
    pub(crate) fn turn_until_news(&self, now: Time) -> Option<Work> {
        if self.driver.helper.is_watching() || !self.driver.comes_soon() {
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
        self.engine_thread.is_called(&self.submissions)
    }

    /// Sleeps for an interval of polling. Peers get the credit back that they may wait for.
    fn pause(&self, interval: Duration) {
        self.with_engine(|engine| self.give_credit_back(engine));
        std::thread::sleep(interval);
    }

    /// Blocks until the socket is readable, a timer is due, another thread has news for this one,
    /// or the deadline has passed.
    fn sleep_on_socket<T>(
        &self,
        watch: &mut LinkWatch<'_>,
        deadline: Option<Instant>,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let most = watch.hold();
        self.driver.sleep.fall_asleep(self.now() + most);
        let next = self.next_timeout();
        let timeout = self.span_until(next).min(until(deadline)).min(most);
        self.driver.sleep.fall_asleep(self.now() + timeout);
        // Submissions and outcomes since the last check: their makers may not have seen this thread
        // sleep.
        let value = ready();
        if value.is_none() && self.submissions.is_empty() {
            let faults = self.access() == Access::OwnTurns;
            self.descriptors.poll(&self.driver.sleep, true, faults, timeout);
        }
        self.driver.sleep.wake_up();
        value
    }

    /// Returns the time at which the engine must turn again at the latest. Called by a thread that
    /// is about to sleep until then, and tells local peers.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.with_engine(|engine| {
            let told = self.give_credit_back(engine);
            if self.has_local_peers() && engine.shm_mut().doze() || told {
                Some(Time(0))
            } else {
                self.due(engine)
            }
        })
    }

    /// Returns the credit of all messages that were read to their senders, to the last byte. Called
    /// when there is nothing else to do. Returns `true` if there was any.
    pub(crate) fn give_credit_back(&self, engine: &mut RealEngine) -> bool {
        let mut read = self.mailbox.read();
        read.extend(self.arrivals.read());
        let any = !read.is_empty();
        read.into_iter().for_each(|request| {
            engine.submit(Submission { request, completion: None, keep: None }, self.now())
        });
        if any {
            // Peers may sleep until they get the credit, and this thread runs no whole turn before
            // it sleeps.
            engine.shm_mut().wake_stirred();
        }
        any
    }

    pub(crate) fn due(&self, engine: &RealEngine) -> Option<Time> {
        if engine.has_more() {
            return Some(Time(0));
        }
        let delayed = engine.link().next_wakeup().map(|at| self.time_of(at));
        [engine.next_timeout(), delayed].into_iter().flatten().min()
    }

    pub(crate) fn span_until(&self, next: Option<Time>) -> Duration {
        next.map_or(Duration::MAX, |next| next.since(self.now()))
    }
}

fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn until(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}
