//! Turns of tasks that await, and of event loops.

use crate::node::driver::limits::{LOOP_GRACE, SPIN_TIME, TURNS_BEFORE_SLEEP};
use crate::node::driver::{Idle, IdleStep};
use crate::node::parts::Node;
use crate::node::parts::access::Access;
use crate::node::parts::engine::RealEngine;
use crate::sync::lock;
use oikaze_os::cpu::{AnyReadable, may_yield, yield_core};
use oikaze_os::net::Link;
use oikaze_protocol::time::Time;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use super::{LoopProgress, LoopWatch, TaskWait, Tasks};

impl TaskWait {
    /// Notes that the wait is over.
    pub fn end(&mut self, node: &Node) {
        if let Self::Polls(span) | Self::Sleeps(span) = std::mem::take(self) {
            let now = node.now();
            Idle::resume(&node.threads.spin_limit, span).ends(now);
            node.tasks.turns.news_at.store(now.0, Ordering::Relaxed);
        }
    }
}

impl Tasks {
    /// Drives for a task that has found nothing. Returns `true` if the task is best polled again
    /// soon, and `false` if it is best woken. The helper watches the socket for it then.
    pub fn drive(&self, node: &Node, wait: &mut TaskWait) -> bool {
        if node.enter().is_none() || matches!(wait, TaskWait::Sleeps(_)) {
            return false;
        }
        let now = node.now();
        let polls = self.poll(node, now, wait);
        if !polls && let Some(driving) = node.threads.driver.drive_on() {
            driving.leave_to_helper(now);
        }
        polls
    }

    /// Notes a poll in vain. Polls the link if the task is to poll on, and returns `true` then.
    fn poll(&self, node: &Node, now: Time, wait: &mut TaskWait) -> bool {
        let (is_new, span) = match std::mem::take(wait) {
            // The earlier wait was given up.
            TaskWait::Polls(Some(span)) if now - span.latest() > SPIN_TIME => (true, None),
            TaskWait::New => (true, None),
            TaskWait::Polls(span) | TaskWait::Sleeps(span) => (false, span),
        };
        let mut idle = Idle::resume(&node.threads.spin_limit, span);
        // An engine with a thread of its own polls by itself, and may need this core for that.
        if node.access() == Access::Turns && self.turns.is_in_burst(now) {
            idle.begin_burst();
        }
        let step = match idle.next(now) {
            IdleStep::Yield if !may_yield() => IdleStep::Sleep,
            step => step,
        };
        if !matches!(step, IdleStep::Spin | IdleStep::Yield) {
            idle.slept();
            *wait = TaskWait::Sleeps(idle.suspend());
            return false;
        }
        if self.turns.are_due(now) {
            let driving = if is_new {
                node.threads.driver.try_drive(now)
            } else {
                node.threads.driver.drive_on()
            };
            if let Some(driving) = driving {
                node.threads.driver.begin_round();
                let work = node.turn_until_news(now);
                driving.leave(node.end_of(work, now));
            }
        }
        if step == IdleStep::Yield || !node.threads.spin_limit.spins() {
            // The core may be that of the node that is waited for.
            yield_core();
        }
        *wait = TaskWait::Polls(idle.suspend());
        true
    }
}

impl LoopWatch {
    /// Runs turns for an event loop that sleeps next. What arrives wakes the loop.
    fn turn(&self, node: &Node) {
        let mut now = node.now();
        let Some(driving) = node.threads.driver.try_drive(now) else {
            // The driver may sleep away from the socket, and the descriptor would stay readable.
            node.try_turn(now);
            return;
        };
        self.watch_link(node, self.reports_arrivals());
        for _ in 0..TURNS_BEFORE_SLEEP {
            node.threads.driver.begin_round();
            let work = node.run_turns(now, RealEngine::turn);
            now = node.end_of(work, now);
            let is_woken = self.watches_link.load(Ordering::Relaxed);
            if is_woken && node.next_timeout() != Some(Time(0)) {
                // The loop is likely to be back before the helper is needed.
                return driving.leave(now);
            }
        }
        driving.leave_to_helper(now);
    }

    /// Watches the link for loops that sleep, or no longer.
    fn watch_link(&self, node: &Node, yes: bool) {
        let watches = &self.watches_link;
        if watches.load(Ordering::Relaxed) == yes {
            return;
        }
        node.with_engine(|engine| {
            // Changed only in the engine, because several loops may come here.
            if watches.swap(yes, Ordering::Relaxed) != yes && engine.link_mut().watch(yes).is_err()
            {
                // Without a watch, the helper receives, and reports what ends as news.
                watches.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Returns the descriptor on which event loops sleep.
    pub fn descriptor(&self, node: &Node) -> BorrowedFd<'_> {
        let LoopWatch { news, any, .. } = self;
        let access = node.access();
        if access == Access::Refused {
            return news.as_fd();
        }
        self.want();
        let gather = || {
            // The engine's own thread receives by itself.
            let arrivals = (access == Access::Turns).then(|| node.threads.descriptors.arrivals());
            let arrivals = arrivals.into_iter().flatten();
            AnyReadable::new([news.as_fd()].into_iter().chain(arrivals)).ok()
        };
        any.get_or_init(gather).as_ref().map_or(news.as_fd(), AsFd::as_fd)
    }

    /// Makes the loops' descriptor unreadable, and takes in what has arrived.
    pub fn clear(&self, node: &Node) {
        if node.enter().is_none() {
            return;
        }
        if self.any.get().is_some() {
            self.turn(node);
            self.end_of_wait(node);
            self.sleeps.store(self.reports_arrivals(), Ordering::Relaxed);
        }
        // The caller looks for events after this call, so that it finds those of the turn.
        self.news.clear();
    }

    /// Drives for an event loop.
    pub fn progress(&self, node: &Node) -> LoopProgress {
        if node.enter().is_none() {
            return LoopProgress { news: false, polls_on: false };
        }
        self.want();
        // A turn may wake tasks, which may call this function. So it runs without the lock.
        let mut wait = std::mem::take(&mut lock(&self.state).wait);
        let polls_on = node.tasks.poll(node, node.now(), &mut wait);
        lock(&self.state).wait = wait;
        if polls_on {
            self.watch_link(node, false);
        } else {
            self.turn(node);
        }
        let sleeps = !polls_on && self.reports_arrivals();
        self.sleeps.store(sleeps, Ordering::Relaxed);
        LoopProgress { news: self.end_of_wait(node), polls_on }
    }

    /// Ends the wait of an event loop if there was news. Returns `true` if so.
    fn end_of_wait(&self, node: &Node) -> bool {
        let mut state = lock(&self.state);
        let reports = self.reports.load(Ordering::Relaxed);
        let is_over = std::mem::replace(&mut state.seen, reports) != reports;
        if is_over {
            state.wait.end(node);
        }
        is_over
    }

    /// Leaves what has arrived to an event loop that the same arrival has woken. `rounds` is the
    /// number of rounds of drivers before the arrival. Returns `false` if no loop comes soon. The
    /// program may compute then. The helper goes on, and reports what ends as news.
    pub(in crate::node) fn takes_over(&self, node: &Node, rounds: u64) -> bool {
        if !self.sleeps.load(Ordering::Relaxed) {
            return false;
        }
        let faults = node.threads.driver.rounds() == rounds
            && node
                .threads
                .descriptors
                .poll(&node.threads.driver.helper, false, true, LOOP_GRACE)
                .faults;
        let has_come = node.threads.driver.rounds() != rounds;
        if !has_come && !faults {
            self.sleeps.store(false, Ordering::Relaxed);
            self.watch_link(node, false);
        }
        has_come
    }
}
