//! Tasks that await: futures, and event loops that sleep on the node's descriptor.
//!
//! A task must not block its executor, and a sleep costs two wakeups: of the helper by the socket,
//! and of the executor by the helper. A task that finds nothing therefore drives for one turn, and
//! asks to be polled again, for as long as a blocking thread would spin. Other tasks of the
//! executor run in between. After that, the task sleeps, and the helper watches the socket for it.
//! The helper may watch up to two times `HELPER_SLEEP` later if other threads drive meanwhile.
//!
//! An event loop that sleeps on the descriptor is woken by the socket itself, and runs the turn
//! ([`LoopWatch`]).
//!
//! Bench case: `await` (`bench placement`).

use super::limits::{BURST_TIME, LOOP_GRACE, SPIN_TIME, TASK_TURNS_APART, TURNS_BEFORE_SLEEP};
use super::spin::IdleSpan;
use super::{Idle, IdleStep};
use crate::error::{Error, Result};
use crate::node::access::Access;
use crate::node::{Node, RealEngine};
use crate::sync::lock;
use oikaze_os::cpu::{AnyReadable, Event, may_yield, yield_core};
use oikaze_os::net::Link;
use oikaze_protocol::time::Time;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll};

/// Wait of one task, from its first poll on.
#[derive(Debug, Default)]
pub enum TaskWait {
    #[default]
    New,
    /// Drives, and is polled again soon.
    Polls(Option<IdleSpan>),
    /// Sleeps until it is woken.
    Sleeps(Option<IdleSpan>),
}

impl TaskWait {
    /// Notes that the wait is over.
    pub fn end(&mut self, node: &Node) {
        if let Self::Polls(span) | Self::Sleeps(span) = std::mem::take(self) {
            let now = node.now();
            Idle::resume(&node.threads.spin_limit, span).ends(now);
            node.tasks.turns.news_at.store(now.0, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the task has found nothing at least once.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        !matches!(self, Self::New)
    }
}

/// Result of a turn that an event loop has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopProgress {
    /// Operations have ended, or messages have come, since the loop last asked.
    pub news: bool,
    /// The loop is best called again soon. Otherwise the loop should sleep on the descriptor.
    pub polls_on: bool,
}

/// Ends the poll of a task that has found nothing. A task that `polls_on` is polled again after the
/// other tasks of its executor.
pub fn pending<T>(polls_on: bool, context: &Context<'_>) -> Poll<T> {
    if polls_on {
        context.waker().wake_by_ref();
    }
    Poll::Pending
}

/// Sleep of a program's event loops on the node's descriptor.
#[derive(Debug)]
pub struct LoopWatch {
    /// Is readable while there is an unseen message, outcome or death.
    news: Event,
    /// There is a loop, which may sleep on the descriptor.
    is_wanted: AtomicBool,
    /// Number of times that news was reported.
    reports: AtomicU64,
    /// Is readable while `news` is, and while there is something to receive. Made when it is
    /// wanted, because each datagram then wakes more. None if there is no descriptor to be had.
    any: OnceLock<Option<AnyReadable>>,
    /// A loop has looked, and as far as is known it sleeps on the descriptor now.
    sleeps: AtomicBool,
    /// The link is watched for a loop, so that the descriptor reports arrivals.
    watches_link: AtomicBool,
    state: Mutex<LoopState>,
}

#[derive(Debug, Default)]
struct LoopState {
    wait: TaskWait,
    /// Value of `reports` when a loop last looked.
    seen: u64,
}

impl LoopWatch {
    pub fn new() -> std::io::Result<LoopWatch> {
        Ok(LoopWatch {
            news: Event::new()?,
            is_wanted: AtomicBool::new(false),
            reports: AtomicU64::new(0),
            any: OnceLock::new(),
            sleeps: AtomicBool::new(false),
            watches_link: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Returns the event of news.
    pub fn news(&self) -> &Event {
        &self.news
    }

    /// Tells the loops that there is news.
    pub fn report(&self) {
        if self.is_wanted.load(Ordering::Relaxed) {
            self.reports.fetch_add(1, Ordering::Relaxed);
            self.news.signal();
        }
    }

    /// Asks for signals from here on. Earlier news was not signalled, so the first call reports
    /// news. A loop that has looked before this call looks once more.
    fn want(&self) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            self.report();
        }
    }

    /// Returns `true` if the descriptor reports arrivals while the link is watched.
    fn reports_arrivals(&self) -> bool {
        matches!(self.any.get(), Some(Some(_)))
    }
}

/// Times of the latest turn of any task, and of the latest end of a task's wait, in nanoseconds of
/// the node's clock.
#[derive(Debug, Default)]
struct TaskTurns {
    turned_at: AtomicU64,
    news_at: AtomicU64,
}

impl TaskTurns {
    /// Returns `true` if no task has run a turn just before. Many tasks that are polled in a row
    /// need one turn together.
    fn are_due(&self, now: Time) -> bool {
        let is_due = now - Time(self.turned_at.load(Ordering::Relaxed)) >= TASK_TURNS_APART;
        if is_due {
            self.turned_at.store(now.0, Ordering::Relaxed);
        }
        is_due
    }

    /// Returns `true` if a task has just got what it awaited. A job that blocks polls for a while
    /// then, as a blocking thread does after a wakeup (paper 000), from wait to wait.
    fn is_in_burst(&self, now: Time) -> bool {
        let news_at = self.news_at.load(Ordering::Relaxed);
        news_at > 0 && now - Time(news_at) < BURST_TIME
    }
}

/// Tasks that await in a node, and event loops that sleep on its descriptor.
#[derive(Debug)]
pub struct Tasks {
    pub watch_loop: LoopWatch,
    turns: TaskTurns,
}

impl Tasks {
    /// Makes the record of a node on which no task waits.
    pub fn new() -> Result<Tasks> {
        let watch_loop =
            LoopWatch::new().map_err(|error| Error::system("making an event descriptor", error))?;
        Ok(Tasks { watch_loop, turns: TaskTurns::default() })
    }

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
    pub(super) fn takes_over(&self, node: &Node, rounds: u64) -> bool {
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
