//! Handing the core of a waiting thread over to other threads.
//!
//! A `sched_yield(2)` takes less than a microsecond where no other thread wants the core. Beside a
//! thread of the same group that computes, each call costs that thread's slice, which is 3 to 5 ms
//! on Linux 6.18. A thread that sleeps keeps its claim to the core, and is back within microseconds
//! of its wakeup. So a thread that has met a slow yield sleeps instead for a while, and then tries
//! again ([`YieldPolicy`]).
//!
//! A thread that is bound to a core may find another thread there for good. While it knows that,
//! and therefore sleeps whenever it is idle, it may have a real-time class, where the system
//! permits one. It gives that class up before it spins or yields again, so no thread spins in it.

use super::priority::Priority;
use super::priority::leave_real_time;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time of a yield from which on another thread has had the core for its slice.
const SLOW_YIELD: Duration = Duration::from_micros(500);
/// Time without yields after the first slow one. One by chance costs little then.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Maximum time without yields. A thread beside one that computes for long then spends less than
/// 0.5 % of its time in slow yields.
const PAUSE_MAX: Duration = Duration::from_millis(1280);
/// Factor by which the pause grows while each yield after it is slow.
const PAUSE_GROWTH: u32 = 2;
/// Number of fast yields in a row after which slow ones are forgotten.
const FAST_YIELDS: u32 = 256;
/// Priority in the real-time class `SCHED_FIFO`: the lowest.
const RAISED: Priority = Priority::Fifo(1);

/// Decides whether a waiting thread yields its core or sleeps. Times are those of any one clock.
#[derive(Clone, Copy, Debug)]
struct YieldPolicy {
    paused_until: Duration,
    /// Length of the next pause.
    pause: Duration,
    /// Fast yields since the latest slow one.
    fast: u32,
}

impl YieldPolicy {
    const fn new() -> YieldPolicy {
        YieldPolicy { paused_until: Duration::ZERO, pause: PAUSE_MIN, fast: 0 }
    }

    /// Returns `true` if the thread may yield. Otherwise it is better to sleep.
    fn may_yield(&self, now: Duration) -> bool {
        now >= self.paused_until
    }

    /// Notes a yield.
    fn yielded(&mut self, begin: Duration, end: Duration) {
        if end.saturating_sub(begin) >= SLOW_YIELD {
            self.lost_core(end);
        } else if self.fast < FAST_YIELDS {
            self.fast += 1;
            if self.fast == FAST_YIELDS {
                self.pause = PAUSE_MIN;
            }
        }
    }

    /// Notes that another thread has had the core for its slice.
    fn lost_core(&mut self, now: Duration) {
        self.fast = 0;
        self.paused_until = now + self.pause;
        self.pause = (self.pause * PAUSE_GROWTH).min(PAUSE_MAX);
    }
}

/// Class of a thread that is bound to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It stays as it is: the thread is not bound, has a priority of the user's, or may not have
    /// another class.
    Fixed,
    /// Ordinary; real-time while the core is shared.
    Ordinary,
    /// Real-time, because the core is shared.
    Raised,
}

thread_local! {
    static POLICY: Cell<YieldPolicy> = const { Cell::new(YieldPolicy::new()) };
    static CLASS: Cell<Class> = const { Cell::new(Class::Fixed) };
}

/// Lets the calling thread, which is bound to cores and sleeps when it is idle, take a real-time
/// class while it shares its core with a thread that computes. Without the permission
/// (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`) the thread keeps its class.
pub fn raise_on_shared_core() {
    CLASS.set(Class::Ordinary);
}

/// Yields the core of the calling thread, unless that has been slow lately. Returns `false` if the
/// thread is better to sleep than to yield again.
pub fn yield_core() -> bool {
    let begin = now();
    if !POLICY.get().may_yield(begin) {
        return false;
    }
    begin_to_spin();
    // A handler of a signal that comes now may wait and yield, too.
    std::thread::yield_now();
    let end = now();
    let mut policy = POLICY.get();
    policy.yielded(begin, end);
    POLICY.set(policy);
    let may = policy.may_yield(end);
    if !may {
        raise();
    }
    may
}

/// Returns `true` if [`yield_core`] yields, and does not refuse because that has been slow lately.
#[must_use]
pub fn may_yield() -> bool {
    POLICY.get().may_yield(now())
}

/// Notes that a thread that computes has taken the core of the calling thread again and again. The
/// calling thread sleeps when it is idle, until [`begin_to_spin`].
pub fn core_is_shared() {
    let mut policy = POLICY.get();
    policy.lost_core(now());
    POLICY.set(policy);
    raise();
}

/// Called before the thread spins: gives a real-time class up that [`raise_on_shared_core`] has led
/// to. A spinning thread of such a class would leave its core to no other thread.
#[inline]
pub fn begin_to_spin() {
    if CLASS.get() == Class::Raised {
        // The kernel permits every thread to leave the class.
        let _ = leave_real_time();
        CLASS.set(Class::Ordinary);
    }
}

fn raise() {
    if CLASS.get() == Class::Ordinary {
        let is_raised = RAISED.apply().is_ok();
        CLASS.set(if is_raised { Class::Raised } else { Class::Fixed });
    }
}

/// Returns the time since some moment before, which is the same for all calls of a process.
fn now() -> Duration {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // A policy that has met no slow yield pauses until zero.
    BEGIN.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scheduler of one core: a yield costs the slice of a thread that computes, if one runs.
    struct Scheduler {
        now: Duration,
        hog_until: Duration,
        yields: u32,
        in_yields: Duration,
    }

    const SLICE: Duration = Duration::from_millis(4);
    const FAST: Duration = Duration::from_nanos(600);
    /// Time of a sleep with its wakeup.
    const SLEEP: Duration = Duration::from_micros(60);

    impl Scheduler {
        /// Waits with this policy until `end`.
        fn run(&mut self, policy: &mut YieldPolicy, end: Duration) {
            (self.yields, self.in_yields) = (0, Duration::ZERO);
            while self.now < end {
                let begin = self.now;
                if policy.may_yield(begin) {
                    self.now += if begin < self.hog_until { SLICE } else { FAST };
                    policy.yielded(begin, self.now);
                    (self.yields, self.in_yields) =
                        (self.yields + 1, self.in_yields + (self.now - begin));
                } else {
                    self.now += SLEEP;
                }
            }
        }
    }

    #[test]
    fn thread_beside_a_hog_sleeps_and_yields_again_when_the_hog_has_gone() {
        let second = Duration::from_secs(1);
        let mut scheduler =
            Scheduler { now: second, hog_until: 21 * second, yields: 0, in_yields: Duration::ZERO };
        let mut policy = YieldPolicy::new();
        scheduler.run(&mut policy, second + SLICE);
        assert!(!policy.may_yield(scheduler.now), "one slow yield is enough");
        scheduler.run(&mut policy, 21 * second);
        let share = scheduler.in_yields.as_secs_f64() / 20.0;
        assert!(share < 0.006, "{share} of the time in {} yields", scheduler.yields);
        scheduler.run(&mut policy, 21 * second + PAUSE_MAX);
        scheduler.run(&mut policy, 25 * second);
        assert!(scheduler.in_yields > second, "an idle core is polled without sleeps");
        assert_eq!(policy.pause, PAUSE_MIN, "and the hog is forgotten");
    }

    #[test]
    fn slow_yield_by_chance_costs_a_short_pause() {
        let mut policy = YieldPolicy::new();
        let ms = Duration::from_millis;
        policy.yielded(ms(100), ms(102));
        assert!(!policy.may_yield(ms(103)) && policy.may_yield(ms(102) + PAUSE_MIN));
        assert_eq!(policy.pause, PAUSE_MIN * PAUSE_GROWTH);
        for _ in 0..FAST_YIELDS {
            policy.yielded(ms(200), ms(200) + FAST);
        }
        assert_eq!(policy.pause, PAUSE_MIN);
    }

    /// With and without the permission, a thread that spins has an ordinary class.
    #[test]
    fn real_time_class_of_a_shared_core_ends_before_the_thread_spins() {
        // SAFETY: the call takes a number and has no memory to touch.
        let class = || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        std::thread::spawn(move || {
            core_is_shared();
            assert_eq!(class(), libc::SCHED_OTHER, "a thread that is not bound keeps its class");
            raise_on_shared_core();
            core_is_shared();
            let may = RAISED.apply().is_ok();
            assert_eq!(class(), if may { libc::SCHED_FIFO } else { libc::SCHED_OTHER });
            assert!(!may_yield() && !yield_core(), "the core is known to be shared");
            begin_to_spin();
            assert_eq!(class(), libc::SCHED_OTHER);
        })
        .join()
        .unwrap();
    }
}
