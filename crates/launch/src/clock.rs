//! A clock that does not count time during which this process was stopped (Ctrl-Z, SIGSTOP, a
//! frozen container).
//!
//! A process gets no notice that SIGSTOP stopped it. It reads the clock at least once in [`TICK`]
//! while it has a deadline, so a longer gap means that it did not run. Such a gap counts as
//! [`GAP_MAX`].

use std::time::{Duration, Instant};

/// Users of the clock with a deadline wake up at least this often.
pub const TICK: Duration = Duration::from_millis(500);
/// Maximum time that counts between two reads of the clock.
pub const GAP_MAX: Duration = Duration::from_secs(2);

/// Time since its creation, less the time of being stopped (LAUNCH-4.3).
pub struct Clock {
    last: Instant,
    counted: Duration,
}

impl Clock {
    /// Makes a clock that starts at zero.
    #[must_use]
    pub fn new() -> Clock {
        Clock { last: Instant::now(), counted: Duration::ZERO }
    }

    /// Returns the time that has counted until now.
    pub fn now(&mut self) -> Duration {
        let now = Instant::now();
        self.counted += counted(now.saturating_duration_since(self.last));
        self.last = now;
        self.counted
    }
}

/// Returns the part of a gap between two reads that counts.
fn counted(gap: Duration) -> Duration {
    gap.min(GAP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LAUNCH-4.3.
    #[test]
    fn gap_longer_than_a_tick_counts_as_its_maximum() {
        assert_eq!(counted(TICK), TICK);
        assert_eq!(counted(Duration::from_secs(3600)), GAP_MAX);
        let mut clock = Clock::new();
        clock.last = clock.last.checked_sub(Duration::from_secs(60)).unwrap_or(clock.last);
        let first = clock.now();
        assert!(first <= GAP_MAX, "{first:?}");
        assert!(clock.now() >= first);
    }
}
