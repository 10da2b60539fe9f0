//! History of a thread's waits: for how long spinning has been paying off.
//!
//! A wait that ends while the thread spins costs its length. A wait that outlasts the spinning
//! costs the spinning and then a sleep with its wakeup. The best limit for the waits of the past is
//! also a good one for the next (Karlin, Li, Manasse and Owicki, "Empirical studies of competitive
//! spinning for a shared-memory multiprocessor", 1991).

use super::limits::{SLEEP_COST, SPIN_TIME};
use std::cell::Cell;
use std::time::Duration;

/// Number of classes of waits. Class `n` has the waits of less than `2^n` µs that are in no lower
/// class; the last has all that are longer than [`SPIN_TIME`].
const CLASSES: usize = 13;
/// Number of waits after which the limit is chosen anew.
const WAITS_PER_CHOICE: u16 = 8;
/// Time for which a thread that hardly spins does so now and then. It could not see otherwise that
/// its waits would be short: sleeping makes them longer, by its own wakeup and often by that of a
/// peer that waits in the same way.
const TRIAL_TIME: Duration = Duration::from_micros(128);
/// Number of waits from one trial to the next.
const WAITS_PER_TRIAL: u16 = 32;
/// Number of waits at which all counts are halved, so that old waits are forgotten.
const WAITS_MAX: u16 = 16;

thread_local! {
    static OF_THREAD: Cell<SpinHistory> = const { Cell::new(SpinHistory::new()) };
}

/// Lengths of one thread's latest waits, and the limit of spinning that they suggest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinHistory {
    waits: [u16; CLASSES],
    until_choice: u16,
    until_trial: u16,
    limit: Duration,
}

impl SpinHistory {
    /// Creates the history of a thread that has not waited yet. The thread spins for the longest
    /// time, because it knows no better.
    pub const fn new() -> SpinHistory {
        SpinHistory {
            waits: [0; CLASSES],
            until_choice: WAITS_PER_CHOICE,
            until_trial: WAITS_PER_TRIAL,
            limit: SPIN_TIME,
        }
    }

    /// Returns the history of the calling thread.
    pub fn of_thread() -> SpinHistory {
        OF_THREAD.get()
    }

    /// Keeps this as the history of the calling thread.
    pub fn keep(self) {
        OF_THREAD.set(self);
    }

    /// Returns the time for which the next wait is worth spinning. Zero if it is better to sleep at
    /// once.
    pub fn limit(&self) -> Duration {
        if self.until_trial == 0 { self.limit.max(TRIAL_TIME) } else { self.limit }
    }

    /// Adds a wait of this length. The thread may have slept for a part of it.
    pub fn add(&mut self, wait: Duration) {
        if self.until_trial > 0 {
            self.until_trial -= 1;
        } else {
            self.until_trial = WAITS_PER_TRIAL;
            if wait > self.limit && wait <= TRIAL_TIME {
                // The waits that were slept through would have been short, too.
                *self = SpinHistory { limit: TRIAL_TIME, ..SpinHistory::new() };
            }
        }
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let class = (u64::BITS - micros.leading_zeros()) as usize;
        let class = if wait > SPIN_TIME { CLASSES - 1 } else { class.min(CLASSES - 2) };
        if let Some(waits) = self.waits.get_mut(class) {
            *waits += 1;
        }
        self.until_choice -= 1;
        if self.until_choice == 0 {
            self.until_choice = WAITS_PER_CHOICE;
            self.limit = self.best_limit();
            if self.waits.iter().sum::<u16>() >= WAITS_MAX {
                self.waits.iter_mut().for_each(|waits| *waits /= 2);
            }
        }
    }

    /// Returns the limit with which the waits of the past would have cost least.
    fn best_limit(&self) -> Duration {
        let limits = (0..CLASSES - 1).map(longest_of_class);
        let best = std::iter::once(Duration::ZERO).chain(limits).min_by_key(|limit| {
            let cost = |(class, count): (usize, &u16)| {
                let longest = longest_of_class(class);
                let is_spun = class < CLASSES - 1 && longest <= *limit;
                u32::from(*count) * if is_spun { longest } else { *limit + SLEEP_COST }
            };
            self.waits.iter().enumerate().map(cost).sum::<Duration>()
        });
        best.unwrap_or_default()
    }
}

/// Returns the length of the longest wait of this class.
fn longest_of_class(class: usize) -> Duration {
    Duration::from_micros(1 << class).min(SPIN_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: impl IntoIterator<Item = u64>) -> SpinHistory {
        let mut history = SpinHistory::new();
        waits.into_iter().for_each(|micros| history.add(Duration::from_micros(micros)));
        history
    }

    /// Answers that come after this many microseconds, again and again.
    fn always(micros: u64) -> Duration {
        after([micros; 40]).limit
    }

    #[test]
    fn thread_that_has_not_waited_spins_for_the_longest_time() {
        assert_eq!(after([]).limit(), SPIN_TIME);
        assert_eq!(after([1_000_000; 7]).limit(), SPIN_TIME, "a start-up is not a habit");
    }

    #[test]
    fn short_waits_are_spun_and_long_ones_slept_at_once() {
        for micros in [0, 1, 5, 20, 100, 120] {
            let limit = always(micros);
            assert!(limit >= Duration::from_micros(micros), "{micros} µs: {limit:?}");
            assert!(limit <= Duration::from_micros(2 * micros + 2), "{micros} µs: {limit:?}");
        }
        for micros in [600, 1_500, 2_500, 10_000, 1_000_000, u64::MAX] {
            assert_eq!(always(micros), Duration::ZERO, "{micros} µs");
        }
    }

    /// The rare long wait is not worth spinning for, and does not end the spinning for the others.
    #[test]
    fn mostly_short_waits_are_spun_for_as_long_as_these_last() {
        let mixed = (0..64).map(|n| if n % 8 == 7 { 20_000 } else { 5 });
        assert_eq!(after(mixed).limit, Duration::from_micros(8));
        let mostly_long = (0..64).map(|n| if n % 8 == 7 { 5 } else { 20_000 });
        assert!(after(mostly_long).limit <= Duration::from_micros(8));
    }

    #[test]
    fn change_of_habits_is_learned_and_old_ones_are_forgotten() {
        let mut history = after([20_000; 100]);
        assert_eq!(history.limit, Duration::ZERO);
        // A wait that is slept through lasts as long as the wakeup takes, at least.
        (0..3 * WAITS_PER_CHOICE).for_each(|_| history.add(Duration::from_micros(60)));
        assert_eq!(history.limit, Duration::from_micros(64));
        // The old waits still count for some choices, and spinning for longer does no harm.
        (0..8 * WAITS_PER_CHOICE).for_each(|_| history.add(Duration::from_micros(4)));
        assert_eq!(history.limit, Duration::from_micros(8));
        (0..8 * WAITS_PER_CHOICE).for_each(|_| history.add(Duration::from_millis(20)));
        assert_eq!(history.limit, Duration::ZERO);
    }

    /// Two nodes that have computed for long answer each other soon again. An answer that comes
    /// within 10 µs to a node that spins takes wakeups, and much longer, where both sleep.
    #[test]
    fn spinning_is_found_again_after_long_waits_made_all_sleep() {
        for slept_micros in [60, 150, 240, 500] {
            let mut history = after([20_000; 100]);
            for _ in 0..20 * WAITS_PER_TRIAL {
                let has_slept = history.limit() < Duration::from_micros(10);
                let micros = if has_slept { slept_micros } else { 10 };
                history.add(Duration::from_micros(micros));
            }
            assert!(history.limit >= Duration::from_micros(10), "{slept_micros} µs asleep");
        }
    }

    /// Paper 003 asks for it: never much dearer than the better of spinning and sleeping.
    #[test]
    fn cost_is_near_that_of_the_better_of_two_fixed_policies() {
        for script in [[3, 3, 3, 3], [5, 5, 5, 9_000], [90, 700, 90, 700], [9_000, 5, 9_000, 9_000]]
        {
            let mut history = SpinHistory::new();
            let (mut spent, mut spun, mut slept) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            for micros in script.into_iter().cycle().take(400) {
                let wait = Duration::from_micros(micros);
                spent += if wait <= history.limit() { wait } else { history.limit() + SLEEP_COST };
                spun += if wait <= SPIN_TIME { wait } else { SPIN_TIME + SLEEP_COST };
                slept += SLEEP_COST;
                history.add(wait);
            }
            let best = spun.min(slept);
            assert!(spent < best * 3 / 2 + 10 * SPIN_TIME, "{script:?}: {spent:?}, best {best:?}");
        }
    }

    #[test]
    fn each_thread_has_its_own() {
        after([20_000; 100]).keep();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(SpinHistory::of_thread(), SpinHistory::new()));
        });
        assert_eq!(SpinHistory::of_thread().limit, Duration::ZERO);
    }
}
