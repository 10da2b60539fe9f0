//! Spinning: for as long as it has paid, and never where another thread needs the core.

use std::time::Duration;

/// One step of a spin: tells the core that nothing is being done.
#[inline]
pub fn relax() {
    std::hint::spin_loop();
}

/// How long a thread spins before it blocks.
///
/// Being put to sleep and woken costs a few to some tens of microseconds, on both sides; a spin that ends sooner was worth it. So the budget
/// follows how long waits have lately been (an average that forgets by an eighth each time, as TCP's round-trip time does, RFC 6298): twice
/// that, within a limit; and nothing at all while waits are typically longer than the limit, or while there is no core to spare.
#[derive(Clone, Debug)]
pub struct Spin {
    limit: u64,
    typical: u64,
}

impl Spin {
    /// Up to `limit`; [`Duration::ZERO`] to block at once, always.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit: nanoseconds(limit), typical: 0 }
    }

    /// For how long to spin now.
    #[must_use]
    pub fn budget(&self) -> Duration {
        if self.typical > self.limit {
            return Duration::ZERO;
        }
        // Never so short that one lucky series ends the spinning for good.
        Duration::from_nanos(self.typical.saturating_mul(2).max(self.limit / 4).min(self.limit))
    }

    /// A wait took this long, spun or blocked. Each is counted as eight limits at most, so that one long pause is soon forgotten.
    pub fn waited(&mut self, time: Duration) {
        let time = nanoseconds(time).min(self.limit.saturating_mul(8));
        self.typical = self.typical - self.typical / 8 + time / 8;
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Spin;
    use proptest::prelude::*;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_micros(40);

    #[test]
    fn spins_while_it_pays_and_learns_both_ways() {
        let mut spin = Spin::new(LIMIT);
        assert_eq!(spin.budget(), LIMIT / 4);
        (0..50).for_each(|_| spin.waited(Duration::from_micros(15)));
        assert!(spin.budget() > Duration::from_micros(25) && spin.budget() <= Duration::from_micros(30));
        (0..50).for_each(|_| spin.waited(Duration::from_millis(5)));
        assert_eq!(spin.budget(), Duration::ZERO, "waits are long: block at once");
        (0..50).for_each(|_| spin.waited(Duration::from_micros(5)));
        assert!(spin.budget() >= LIMIT / 4, "short again");
    }

    proptest! {
        #[test]
        fn never_over_the_limit(limit in any::<u32>(), waits in prop::collection::vec(any::<u64>(), 0..50)) {
            let limit = Duration::from_nanos(limit.into());
            let mut spin = Spin::new(limit);
            for wait in waits {
                spin.waited(Duration::from_nanos(wait));
                prop_assert!(spin.budget() <= limit);
            }
        }
    }
}
