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

mod turns;

use super::limits::{BURST_TIME, TASK_TURNS_APART};
use super::spin::IdleSpan;
use crate::error::{Error, Result};
use oikaze_os::cpu::{AnyReadable, Event};
use oikaze_protocol::time::Time;
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
}
