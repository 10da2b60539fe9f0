//! Busy polling: decides whether a waiting thread spins or sleeps.
//!
//! Spinning pays on a core of one's own. On a shared core it spends the thread's share on nothing,
//! and the scheduler gives the core to other threads when there is work at last. A thread that
//! sleeps keeps its claim, because the kernel prefers it when it is woken. This is two-phase
//! waiting (Ousterhout, "Scheduling techniques for concurrent systems", 1982). Here the second
//! phase begins at once where the first was seen to cost more than it saves.
//!
//! Bench cases: `message_lat` of 8 bytes and `passive` (`bench wind`).

use super::limits::{
    PREEMPTED_AGAIN_MAX, PREEMPTED_CHECK_AFTER, PREEMPTED_MIN, PREEMPTED_TIMES, SPIN_REST,
};
use oikaze_os::cpu::preemptions;
use oikaze_protocol::time::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Time for which threads of a node may spin.
#[derive(Debug)]
pub(crate) struct SpinLimit {
    longest: Duration,
    /// End of the time without spin_limit, in nanoseconds of the node's clock.
    shared_until: AtomicU64,
    /// Last time at which a spin_limit thread lost its core, and how often that happened in a row.
    taken_at: AtomicU64,
    taken: AtomicU32,
}

impl SpinLimit {
    /// Limits spin_limit to `longest` while no other thread takes the cores.
    pub fn new(longest: Duration) -> SpinLimit {
        SpinLimit {
            longest,
            shared_until: AtomicU64::new(0),
            taken_at: AtomicU64::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// Returns how long a thread that begins now may spin. A user's setting to spin for ever always
    /// holds.
    pub fn limit(&self, now: Time) -> Duration {
        let own =
            self.longest == Duration::MAX || now.0 >= self.shared_until.load(Ordering::Relaxed);
        if own { self.longest } else { Duration::ZERO }
    }

    /// Notes that another thread had the core. Several threads of this node may call this at the
    /// same time. It does not matter which of the calls counts.
    fn core_was_taken(&self, now: Time) {
        let before = Time(self.taken_at.swap(now.0, Ordering::Relaxed));
        let in_a_row = now - before < PREEMPTED_AGAIN_MAX + self.spell_of_sharing(before);
        let taken = if in_a_row { self.taken.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.taken.store(taken, Ordering::Relaxed);
        if taken >= PREEMPTED_TIMES {
            self.shared_until.store((now + SPIN_REST).0, Ordering::Relaxed);
        }
    }

    /// Returns for how long no thread spun after `at`. A thread that does not spin does not notice
    /// a lost core.
    fn spell_of_sharing(&self, at: Time) -> Duration {
        Time(self.shared_until.load(Ordering::Relaxed)) - at
    }
}

/// Idle spans of a driver, one after another.
#[derive(Debug)]
pub(crate) struct Idle<'s> {
    spin_limit: &'s SpinLimit,
    /// Returns how often this thread was preempted so far.
    count: fn() -> u64,
    span: Option<IdleSpan>,
}

#[derive(Clone, Copy, Debug)]
struct IdleSpan {
    since: Time,
    latest: Time,
    /// Preemptions of the thread at some moment of this span.
    preemptions: Option<u64>,
}

impl<'s> Idle<'s> {
    pub fn new(spin_limit: &'s SpinLimit) -> Idle<'s> {
        Idle { spin_limit, count: preemptions, span: None }
    }

    /// Notes an idle poll. Returns `true` if the thread may poll again at once.
    pub fn may_spin(&mut self, now: Time) -> bool {
        self.look(now);
        let span = self.span.get_or_insert(IdleSpan { since: now, latest: now, preemptions: None });
        span.latest = now;
        if span.preemptions.is_none() && now - span.since > PREEMPTED_CHECK_AFTER {
            span.preemptions = Some((self.count)());
        }
        now - span.since < self.spin_limit.limit(now)
    }

    /// Notes that the thread has slept. Its delay after a sleep does not mean a lost core.
    pub fn slept(&mut self) {
        if let Some(span) = &mut self.span {
            span.preemptions = None;
        }
    }

    /// Ends the span, because there is something to do. The work may have come while the core was
    /// taken away.
    pub fn ends(&mut self, now: Time) {
        self.look(now);
        self.span = None;
    }

    fn look(&mut self, now: Time) {
        let Some(IdleSpan { latest, preemptions: Some(before), .. }) = &mut self.span else {
            return;
        };
        if now - *latest > PREEMPTED_MIN {
            let count = (self.count)();
            if count > *before {
                self.spin_limit.core_was_taken(now);
            }
            *before = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SPIN: Duration = Duration::from_millis(2);

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
        Idle { spin_limit, count, span: None }
    }

    /// Polls every microsecond, from `from` on. Returns the microsecond from which on the thread
    /// may no longer spin.
    fn spin(idle: &mut Idle<'_>, from: u64, to: u64) -> Option<u64> {
        (from..to).find(|micros| !idle.may_spin(at(*micros)))
    }

    #[test]
    fn on_its_own_core_a_thread_spins_for_its_time_and_hardly_asks() {
        let spin_limit = SpinLimit::new(SPIN);
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
        let spin_limit = SpinLimit::new(SPIN);
        let mut idle = idle(&spin_limit);
        let (shared, every) = (u64::try_from(SPIN_REST.as_micros()).unwrap(), 10_000);
        for n in 0..u64::from(PREEMPTED_TIMES) {
            assert_eq!(spin_limit.limit(at(n * every)), SPIN);
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
        assert_eq!(spin_limit.limit(at(since + shared)), SPIN);
    }

    #[test]
    fn a_loss_now_and_then_is_no_reason() {
        let spin_limit = SpinLimit::new(SPIN);
        let mut idle = idle(&spin_limit);
        let seldom = u64::try_from(PREEMPTED_AGAIN_MAX.as_micros()).unwrap();
        for n in 0..20 {
            lose_core(&mut idle, n * seldom);
            assert_eq!(spin_limit.limit(at(n * seldom + 2051)), SPIN);
        }
    }

    #[test]
    fn a_sleep_is_no_loss() {
        let spin_limit = SpinLimit::new(SPIN);
        let mut idle = idle(&spin_limit);
        assert_eq!(spin(&mut idle, 0, 3000), Some(2000));
        COUNT.set(COUNT.get() + 1);
        idle.slept();
        assert!(!idle.may_spin(at(5000)), "still the same idle span");
        idle.ends(at(5001));
        assert_eq!(spin_limit.taken.load(Ordering::Relaxed), 0);
    }

    /// A hypervisor, or an interrupt, takes the processor from all its threads alike: sleeping
    /// would not bring it back sooner.
    #[test]
    fn time_lost_to_no_other_thread_changes_nothing() {
        let spin_limit = SpinLimit::new(SPIN);
        let mut idle = idle(&spin_limit);
        assert_eq!(spin(&mut idle, 0, 100), None);
        assert!(idle.may_spin(at(1500)));
        // And a switch that took no time: a thread of the kernel's.
        COUNT.set(COUNT.get() + 1);
        assert!(idle.may_spin(at(1501)));
        assert_eq!(spin_limit.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_is_to_spin_for_ever_does_and_who_is_not_to_does_not() {
        let (always, never) = (SpinLimit::new(Duration::MAX), SpinLimit::new(Duration::ZERO));
        (0..PREEMPTED_TIMES).for_each(|_| always.core_was_taken(at(0)));
        assert!(idle(&always).may_spin(at(1)));
        assert!(!idle(&never).may_spin(at(1)));
    }
}
