//! Does data of ours soon follow what asks for an acknowledgement? Then the acknowledgement rides along (WIND-3.8).
//!
//! Two nodes that put to each other in turns would otherwise send two datagrams each way for every one that is needed. TCP calls such
//! a connection *interactive* ("pingpong mode", RFC 1122, section 4.2.3.2, refined by measuring instead of assuming): while it is, an
//! acknowledgement that was asked for waits a moment. One that waited for nothing ends it, and it takes twice as many exchanges as before
//! that would have paid to begin it anew.

use crate::limits::{ACK_HOLD, INTERACTIVE_AFTER, INTERACTIVE_AFTER_MAX};
use crate::time::Time;

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Interactive {
    on: bool,
    /// Exchanges in a row in which data of ours followed soon enough.
    paid: u32,
    /// So many begin it.
    needed: u32,
    /// The first arrival since data of ours went that asked for an acknowledgement, then; of those in vain only the latest counts.
    asked: Option<Time>,
}

impl Interactive {
    pub const fn new() -> Interactive {
        Interactive { on: false, paid: 0, needed: INTERACTIVE_AFTER, asked: None }
    }

    /// A datagram that asks for an acknowledgement arrived; `alone`: nothing else waits to be acknowledged but what is itself held
    /// back. Until when may it be held back?
    pub fn asked(&mut self, now: Time, alone: bool) -> Option<Time> {
        match self.asked {
            // Of several at once, such as a header and its data: what follows answers all of them.
            Some(first) if now - first <= ACK_HOLD => {}
            before => {
                if before.is_some() && !self.on {
                    // Nothing followed the one before.
                    self.paid = 0;
                }
                self.asked = Some(now);
            }
        }
        (self.on && alone).then(|| now + ACK_HOLD)
    }

    /// Data of ours goes.
    pub fn data_goes(&mut self, now: Time) {
        let Some(asked) = self.asked.take() else { return };
        if now - asked > ACK_HOLD {
            self.paid = 0;
            return;
        }
        self.paid = self.paid.saturating_add(1);
        if !self.on && self.paid >= self.needed {
            (self.on, self.paid) = (true, 0);
        } else if self.on && self.paid >= INTERACTIVE_AFTER_MAX {
            self.needed = INTERACTIVE_AFTER;
        }
    }

    /// An acknowledgement goes without data. If it was held back, that was in vain.
    pub fn goes_alone(&mut self, now: Time) {
        if self.on && self.asked.is_some_and(|asked| now - asked >= ACK_HOLD) {
            (self.on, self.paid) = (false, 0);
            self.needed = (self.needed * 2).min(INTERACTIVE_AFTER_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// What happens, at which microsecond.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An arrival asks; is its acknowledgement held back?
        Asked(bool),
        /// One asks while others wait to be acknowledged.
        AskedAmongOthers,
        /// Data of ours goes.
        Data,
        /// An acknowledgement goes without.
        Alone,
    }
    use Step::{Alone, Asked, AskedAmongOthers, Data};

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    fn play(habit: &mut Interactive, steps: &[(u64, Step)]) {
        for (micros, step) in steps {
            let now = at(*micros);
            match step {
                Asked(held) => {
                    let until = habit.asked(now, true);
                    assert_eq!(until, held.then(|| now + ACK_HOLD), "at {micros} µs");
                }
                AskedAmongOthers => assert_eq!(habit.asked(now, false), None),
                Data => habit.data_goes(now),
                Alone => habit.goes_alone(now),
            }
        }
    }

    /// So many exchanges in which data follows after 3 µs, beginning at `from`.
    fn exchanges(from: u64, count: u32, held: bool) -> std::vec::Vec<(u64, Step)> {
        (0..u64::from(count)).flat_map(|n| [(from + 10 * n, Asked(held)), (from + 10 * n + 3, Data)]).collect()
    }

    fn interactive() -> Interactive {
        let mut habit = Interactive::new();
        play(&mut habit, &exchanges(0, INTERACTIVE_AFTER, false));
        habit
    }

    /// WIND-3.8, case by case.
    #[test]
    fn holds_while_it_pays() {
        let hold = u64::try_from(ACK_HOLD.as_micros()).unwrap();
        let cases: [(&str, &[(u64, Step)]); 9] = [
            ("rides along", &[(100, Asked(true)), (101, Data), (110, Asked(true)), (113, Data), (120, Asked(true))]),
            ("one in vain ends it", &[(100, Asked(true)), (100 + hold, Alone), (200, Asked(false))]),
            (
                "data long after an end counts for nothing",
                &[(100, Asked(true)), (100 + hold, Alone), (900, Data), (901, Asked(false))],
            ),
            (
                "an acknowledgement that had to go anyway is no failure",
                &[(100, Asked(true)), (101, Alone), (103, Data), (110, Asked(true))],
            ),
            ("in bulk nothing is held", &[(100, AskedAmongOthers), (101, Alone), (102, Data), (110, Asked(true))]),
            ("acknowledgements that nobody asked for say nothing", &[(500, Alone), (900, Alone), (910, Asked(true))]),
            ("data without a question says nothing", &[(500, Data), (900, Data), (910, Asked(true))]),
            ("a second question while one is held", &[(100, Asked(true)), (105, Asked(true)), (110, Data), (120, Asked(true))]),
            (
                "questions one after another, and no answer",
                &[(100, Asked(true)), (110, Asked(true)), (100 + hold, Alone), (150, Asked(false))],
            ),
        ];
        for (case, steps) in cases {
            std::eprintln!("{case}");
            play(&mut interactive(), steps);
        }
    }

    #[test]
    fn begins_only_after_exchanges_in_a_row() {
        let mut habit = Interactive::new();
        play(&mut habit, &exchanges(0, INTERACTIVE_AFTER - 1, false));
        play(&mut habit, &[(500, Asked(false)), (600, Asked(false)), (603, Data)]);
        play(&mut habit, &exchanges(700, INTERACTIVE_AFTER - 1, false));
        play(&mut habit, &[(900, Asked(true))]);
        // A header and its data, answered together, are one exchange.
        let mut habit = Interactive::new();
        for n in 0..u64::from(INTERACTIVE_AFTER) {
            play(&mut habit, &[(1000 * n, Asked(false)), (1000 * n + 4, Asked(false)), (1000 * n + 7, Data)]);
        }
        play(&mut habit, &[(100_000, Asked(true)), (100_004, Asked(true)), (100_007, Data)]);
        // Late data is not soon data.
        let mut habit = Interactive::new();
        for n in 0..100 {
            play(&mut habit, &[(1000 * n, Asked(false)), (1000 * n + 50, Data)]);
        }
    }

    #[test]
    fn each_disappointment_doubles_what_it_takes_and_long_success_is_rewarded() {
        let mut habit = interactive();
        let mut now = 1000;
        let mut needed = INTERACTIVE_AFTER;
        for _ in 0..8 {
            play(&mut habit, &[(now, Asked(true)), (now + 100, Alone), (now + 500, Data)]);
            needed = (needed * 2).min(INTERACTIVE_AFTER_MAX);
            play(&mut habit, &exchanges(now + 1000, needed, false));
            now += 100_000;
        }
        play(&mut habit, &exchanges(now, INTERACTIVE_AFTER_MAX, true));
        now += 100_000;
        play(&mut habit, &[(now, Asked(true)), (now + 100, Alone), (now + 500, Data)]);
        play(&mut habit, &exchanges(now + 1000, INTERACTIVE_AFTER * 2, false));
        play(&mut habit, &[(now + 10_000, Asked(true))]);
        assert!(ACK_HOLD < Duration::from_micros(50));
    }
}
