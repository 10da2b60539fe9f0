//! Busy polling: decides whether a waiting thread spins, pauses or sleeps.
//!
//! Spinning pays on a core of one's own. On a shared core it spends the thread's share on nothing,
//! and the scheduler gives the core to other threads when there is work at last. A thread that
//! sleeps keeps its claim, because the kernel prefers it when it is woken. This is two-phase
//! waiting (Ousterhout, "Scheduling techniques for concurrent systems", 1982). Here the second
//! phase begins at once where the first was seen to cost more than it saves, and after as long as
//! the first has been paying off otherwise ([`SpinHistory`]).
//!
//! Bench cases: `message_lat` of 8 bytes and `passive` (`bench wind`).

mod word_polls;

pub use word_polls::WordPolls;

use super::limits::{
    BURST_TIME, PREEMPTED_AGAIN_MAX, PREEMPTED_CHECK_AFTER, PREEMPTED_MIN, PREEMPTED_TIMES,
    SPIN_PAUSE, WORD_SLEEP_TIME, YIELD_TIME,
};
use super::spin_history::SpinHistory;
use super::wait_policy::WaitMode;
use oikaze_os::cpu::{begin_to_spin, core_is_shared, may_yield, preemptions};
use oikaze_protocol::time::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Time for which threads of a node may spin.
#[derive(Debug)]
pub struct SpinLimit {
    mode: WaitMode,
    /// The machine has cores for the adaptive policy to spin on.
    has_room: bool,
    word_polls: WordPolls,
    /// End of the time without spinning, in nanoseconds of the node's clock.
    shared_until: AtomicU64,
    /// Last time at which a spinning thread lost its core, and how often that happened in a row.
    taken_at: AtomicU64,
    taken: AtomicU32,
}

impl SpinLimit {
    /// Limits spinning by this mode. `has_room` says whether the machine has cores to spin on.
    pub fn new(mode: WaitMode, has_room: bool) -> SpinLimit {
        SpinLimit {
            mode,
            has_room,
            word_polls: WordPolls::of(mode, has_room),
            shared_until: AtomicU64::new(0),
            taken_at: AtomicU64::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// Returns `true` if threads of the node spin before they sleep.
    pub fn spins(&self) -> bool {
        match self.mode {
            WaitMode::Spin => true,
            WaitMode::Adaptive => self.has_room,
            WaitMode::Poll(_) | WaitMode::Block => false,
        }
    }

    /// Returns `true` if a thread that begins to wait now polls before it sleeps.
    pub fn may_poll(&self, now: Time) -> bool {
        match self.mode {
            WaitMode::Spin => true,
            WaitMode::Adaptive => !self.is_shared(now) && (self.has_room || may_yield()),
            WaitMode::Poll(_) | WaitMode::Block => false,
        }
    }

    /// Returns the polls of words that other nodes of this machine write.
    #[inline]
    pub fn word_polls(&self) -> WordPolls {
        self.word_polls
    }

    /// Returns how long a thread that waits for a step of a node of this machine may sleep on a
    /// word.
    pub fn word_sleep(&self) -> Duration {
        match self.mode {
            WaitMode::Adaptive if self.has_room => Duration::ZERO,
            WaitMode::Adaptive | WaitMode::Block => WORD_SLEEP_TIME,
            WaitMode::Spin | WaitMode::Poll(_) => Duration::ZERO,
        }
    }

    /// Returns the interval of polling, if threads neither spin nor are woken.
    pub fn interval(&self) -> Option<Duration> {
        match self.mode {
            WaitMode::Poll(interval) => Some(interval),
            _ => None,
        }
    }

    /// Returns how long a thread may spin that has nothing to do. A user's setting to spin for ever
    /// always holds.
    fn limit(&self, now: Time, history: &SpinHistory, in_burst: bool) -> Duration {
        match self.mode {
            WaitMode::Spin => Duration::MAX,
            WaitMode::Block if in_burst && !self.is_shared(now) => BURST_TIME,
            WaitMode::Adaptive if !self.is_shared(now) => {
                if self.has_room {
                    history.limit()
                } else {
                    history.limit().min(YIELD_TIME)
                }
            }
            WaitMode::Poll(_) | WaitMode::Block | WaitMode::Adaptive => Duration::ZERO,
        }
    }

    /// Returns the way to poll. Where nodes share cores, each poll hands the core to another thread
    /// first, which may be the one that is waited for.
    fn way_to_poll(&self) -> IdleStep {
        let yields = self.mode == WaitMode::Adaptive && !self.has_room;
        if yields { IdleStep::Yield } else { IdleStep::Spin }
    }

    fn is_shared(&self, now: Time) -> bool {
        now.0 < self.shared_until.load(Ordering::Relaxed)
    }

    /// Notes that another thread had the core. Several threads of this node may call this at the
    /// same time. It does not matter which of the calls counts.
    fn core_was_taken(&self, now: Time) {
        let before = Time(self.taken_at.swap(now.0, Ordering::Relaxed));
        let in_a_row = now - before < PREEMPTED_AGAIN_MAX + self.spell_of_sharing(before);
        let taken = if in_a_row { self.taken.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.taken.store(taken, Ordering::Relaxed);
        if taken >= PREEMPTED_TIMES {
            self.shared_until.store((now + SPIN_PAUSE).0, Ordering::Relaxed);
            core_is_shared();
        }
    }

    /// Returns for how long no thread spun after `at`. A thread that does not spin does not notice
    /// a lost core.
    fn spell_of_sharing(&self, at: Time) -> Duration {
        Time(self.shared_until.load(Ordering::Relaxed)) - at
    }
}

/// Next step of an idle thread. A thread that is to yield sleeps instead if
/// [`yield_core`](oikaze_os::cpu::yield_core) says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStep {
    /// Polls again at once.
    Spin,
    /// Polls again after other threads have had the core.
    Yield,
    /// Polls again after this time, and is not woken before.
    Pause(Duration),
    /// Sleeps until it is woken.
    Sleep,
}

impl IdleSpan {
    /// Returns the time of the latest poll.
    pub fn latest(&self) -> Time {
        self.latest
    }
}

/// Idle spans of a waiting thread, one after another.
#[derive(Debug)]
pub struct Idle<'s> {
    spin_limit: &'s SpinLimit,
    /// Returns how often this thread was preempted so far.
    count: fn() -> u64,
    history: SpinHistory,
    /// A blocking thread was woken, and news has come since again and again.
    in_burst: bool,
    span: Option<IdleSpan>,
}

/// Time since which a waiting thread, or a task, has found nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct IdleSpan {
    since: Time,
    latest: Time,
    /// Preemptions of the thread at some moment of this span.
    preemptions: Option<u64>,
    has_slept: bool,
    /// Another thread had the core, so the length of the span says nothing about the wait.
    was_taken: bool,
}

impl<'s> Idle<'s> {
    /// Begins the wait of the calling thread.
    pub fn new(spin_limit: &'s SpinLimit) -> Idle<'s> {
        if spin_limit.interval().is_some() {
            oikaze_os::cpu::make_timers_exact();
        }
        Self::resume(spin_limit, None)
    }

    /// Goes on with a span that a task has left by [`Idle::suspend`], in the calling thread.
    pub fn resume(spin_limit: &'s SpinLimit, span: Option<IdleSpan>) -> Idle<'s> {
        let history = SpinHistory::of_thread();
        Idle { spin_limit, count: preemptions, history, in_burst: false, span }
    }

    /// Begins a burst: news has just come to another wait.
    pub fn begin_burst(&mut self) {
        self.in_burst = true;
    }

    /// Leaves the span for a later [`Idle::resume`], which another thread may call.
    pub fn suspend(mut self) -> Option<IdleSpan> {
        // Another thread has preemptions of its own.
        self.span.take().map(|span| IdleSpan { preemptions: None, ..span })
    }

    /// Notes an idle poll. Returns what the thread does next.
    pub fn next(&mut self, now: Time) -> IdleStep {
        self.note_preemptions(now);
        let span = self.span.get_or_insert(IdleSpan {
            since: now,
            latest: now,
            preemptions: None,
            has_slept: false,
            was_taken: false,
        });
        span.latest = now;
        if span.preemptions.is_none() && now - span.since > PREEMPTED_CHECK_AFTER {
            span.preemptions = Some((self.count)());
        }
        if now - span.since < self.spin_limit.limit(now, &self.history, self.in_burst) {
            let step = self.spin_limit.way_to_poll();
            if step == IdleStep::Spin {
                begin_to_spin();
            }
            return step;
        }
        self.in_burst = false;
        self.spin_limit.interval().map_or(IdleStep::Sleep, IdleStep::Pause)
    }

    /// Notes that the thread has yielded several times. The delay after that does not mean a lost
    /// core.
    pub fn yielded(&mut self) {
        if let Some(span) = &mut self.span {
            span.preemptions = None;
        }
    }

    /// Notes that the thread has slept. Its delay after a sleep does not mean a lost core.
    pub fn slept(&mut self) {
        if let Some(span) = &mut self.span {
            span.preemptions = None;
            span.has_slept = true;
        }
    }

    /// Ends the span, because there is something to do. The work may have come while the core was
    /// taken away.
    pub fn ends(&mut self, now: Time) {
        self.note_preemptions(now);
        if let Some(span) = self.span.take() {
            self.in_burst |= span.has_slept;
            if !span.was_taken {
                self.history.add(now - span.since);
            }
        }
    }

    fn note_preemptions(&mut self, now: Time) {
        let Some(IdleSpan { latest, preemptions: Some(before), was_taken, .. }) = &mut self.span
        else {
            return;
        };
        if now - *latest > PREEMPTED_MIN {
            let count = (self.count)();
            if count > *before {
                *was_taken = true;
                self.spin_limit.core_was_taken(now);
            }
            *before = count;
        }
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.history.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn adaptive() -> SpinLimit {
        SpinLimit::new(WaitMode::Adaptive, true)
    }

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    fn count() -> u64 {
        ASKED.set(ASKED.get() + 1);
        COUNT.get()
    }

    fn at(micros: u64) -> Time {
        Time(1_000_000_000 + micros * 1000)
    }

    fn idle(spin_limit: &SpinLimit) -> Idle<'_> {
        Idle { spin_limit, count, history: SpinHistory::new(), in_burst: false, span: None }
    }

    /// Polls every microsecond, from `from` on. Returns the microsecond from which on the thread
    /// may no longer spin.
    fn spin(idle: &mut Idle<'_>, from: u64, to: u64) -> Option<u64> {
        (from..to).find(|micros| idle.next(at(*micros)) != IdleStep::Spin)
    }

    #[test]
    fn on_its_own_core_a_thread_spins_for_its_time_and_hardly_asks() {
        let spin_limit = adaptive();
        let mut idle = idle(&spin_limit);
        assert_eq!(spin(&mut idle, 0, 10_000), Some(2000));
        assert_eq!(ASKED.get(), 1);
        idle.ends(at(2001));
        // Messages that come every few microseconds.
        for from in (3000..4000).step_by(10) {
            assert_eq!(spin(&mut idle, from, from + 9), None);
            idle.ends(at(from + 9));
        }
        assert_eq!(ASKED.get(), 1);
    }

    /// Idle from `from` on for 50 µs; then another thread has the core for 2 ms, after which there
    /// is something to do.
    fn lose_core(idle: &mut Idle<'_>, from: u64) {
        assert_eq!(spin(idle, from, from + 50), None);
        COUNT.set(COUNT.get() + 1);
        idle.ends(at(from + 2050));
    }

    #[test]
    fn on_a_shared_core_it_sleeps_at_once_for_a_while() {
        let spin_limit = adaptive();
        let mut idle = idle(&spin_limit);
        let (shared, every) = (u64::try_from(SPIN_PAUSE.as_micros()).unwrap(), 10_000);
        for n in 0..u64::from(PREEMPTED_TIMES) {
            assert!(spin_limit.may_poll(at(n * every)));
            lose_core(&mut idle, n * every);
        }
        let mut since = u64::from(PREEMPTED_TIMES - 1) * every + 2050;
        for _ in 0..3 {
            assert_eq!(spin(&mut idle, since + 1, since + 100), Some(since + 1));
            idle.ends(at(since + 100));
            // It is tried again, and once is enough.
            lose_core(&mut idle, since + shared);
            since += shared + 2050;
        }
        assert!(spin_limit.may_poll(at(since + shared)));
    }

    #[test]
    fn a_loss_now_and_then_is_no_reason() {
        let spin_limit = adaptive();
        let mut idle = idle(&spin_limit);
        let seldom = u64::try_from(PREEMPTED_AGAIN_MAX.as_micros()).unwrap();
        for n in 0..20 {
            for start in [3000, 3100, 3200, 3300].map(|micros| n * seldom + micros) {
                assert_eq!(spin(&mut idle, start, start + 60), None, "spinning pays");
                idle.ends(at(start + 60));
            }
            lose_core(&mut idle, (n + 1) * seldom);
            assert!(spin_limit.may_poll(at((n + 1) * seldom + 2051)));
        }
    }

    #[test]
    fn a_sleep_is_no_loss() {
        let spin_limit = adaptive();
        let mut idle = idle(&spin_limit);
        assert_eq!(spin(&mut idle, 0, 3000), Some(2000));
        COUNT.set(COUNT.get() + 1);
        idle.slept();
        assert_eq!(idle.next(at(5000)), IdleStep::Sleep, "still the same idle span");
        idle.ends(at(5001));
        assert_eq!(spin_limit.taken.load(Ordering::Relaxed), 0);
    }

    /// A hypervisor, or an interrupt, takes the processor from all its threads alike: sleeping
    /// would not bring it back sooner.
    #[test]
    fn time_lost_to_no_other_thread_changes_nothing() {
        let spin_limit = adaptive();
        let mut idle = idle(&spin_limit);
        assert_eq!(spin(&mut idle, 0, 100), None);
        assert_eq!(idle.next(at(1500)), IdleStep::Spin);
        // And a switch that took no time: a thread of the kernel's.
        COUNT.set(COUNT.get() + 1);
        assert_eq!(idle.next(at(1501)), IdleStep::Spin);
        assert_eq!(spin_limit.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_is_to_spin_for_ever_does_and_who_is_not_to_does_not() {
        let (always, never) =
            (SpinLimit::new(WaitMode::Spin, false), SpinLimit::new(WaitMode::Block, true));
        (0..PREEMPTED_TIMES).for_each(|_| always.core_was_taken(at(0)));
        assert_eq!(spin(&mut idle(&always), 1, 100_000), None);
        assert_eq!(idle(&never).next(at(1)), IdleStep::Sleep);
    }

    /// More nodes than cores: a waiting thread hands its core over at once. A thread that computes
    /// and takes the core for long ends that.
    #[test]
    fn where_nodes_share_cores_a_thread_yields_and_then_sleeps() {
        let limit = SpinLimit::new(WaitMode::Adaptive, false);
        let mut idle = idle(&limit);
        let yields = u64::try_from(YIELD_TIME.as_micros()).unwrap();
        for micros in 0..yields {
            assert_eq!(idle.next(at(micros)), IdleStep::Yield);
        }
        assert_eq!(idle.next(at(yields)), IdleStep::Sleep);
        idle.ends(at(yields + 1));
        for n in 1..=u64::from(PREEMPTED_TIMES) {
            let from = n * 10_000;
            for micros in from..from + 50 {
                assert_eq!(idle.next(at(micros)), IdleStep::Yield);
            }
            COUNT.set(COUNT.get() + 1);
            idle.ends(at(from + 3050));
        }
        assert_eq!(idle.next(at(40_000)), IdleStep::Sleep);
    }

    /// Paper 000: after the first wakeup, the driver polls until nothing has come for 100 µs.
    #[test]
    fn blocking_thread_polls_after_a_wakeup_until_nothing_comes() {
        let limit = SpinLimit::new(WaitMode::Block, true);
        let mut idle = idle(&limit);
        assert_eq!(idle.next(at(0)), IdleStep::Sleep);
        idle.slept();
        assert_eq!(idle.next(at(500)), IdleStep::Sleep, "a timer is not news");
        idle.slept();
        idle.ends(at(1000));
        for news in [1090, 1180, 1270] {
            assert_eq!(spin(&mut idle, news - 89, news), None, "the burst goes on");
            idle.ends(at(news));
        }
        assert_eq!(spin(&mut idle, 1271, 9999), Some(1371));
        assert_eq!(idle.next(at(1372)), IdleStep::Sleep);
        idle.ends(at(1373));
        assert_eq!(idle.next(at(1374)), IdleStep::Sleep, "nobody woke it");
    }

    #[test]
    fn polling_thread_pauses_for_its_interval_and_never_spins() {
        let interval = Duration::from_micros(10);
        let limit = SpinLimit::new(WaitMode::Poll(interval), true);
        let mut idle = idle(&limit);
        for micros in [0, 10, 20, 5000] {
            assert_eq!(idle.next(at(micros)), IdleStep::Pause(interval));
            idle.slept();
        }
        idle.ends(at(5010));
        assert_eq!(idle.next(at(5020)), IdleStep::Pause(interval), "no burst either");
    }

    /// The adaptive thread follows its waits: answers after 5 µs, then none for long, then again.
    #[test]
    fn adaptive_thread_spins_only_while_that_has_paid() {
        let limit = adaptive();
        let mut idle = idle(&limit);
        let mut now = 0;
        let mut waits = |idle: &mut Idle<'_>, micros: u64, times: u64| {
            let mut spun = 0;
            for _ in 0..times {
                spun = spin(idle, now, now + micros).unwrap_or(now + micros) - now;
                idle.slept();
                now += micros;
                idle.ends(at(now));
                now += 1;
            }
            spun
        };
        assert_eq!(waits(&mut idle, 5, 40), 5);
        assert_eq!(waits(&mut idle, 10_000, 80), 0, "sleeps at once");
        assert_eq!(waits(&mut idle, 60, 40), 60);
    }
}
