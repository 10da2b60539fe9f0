//! Delayed ACK: decides whether an acknowledgement waits for data that it can travel with
//! (WIND-3.8).
//!
//! Two nodes that put to each other in turns would otherwise send two datagrams each way instead of
//! one. TCP calls such a connection *interactive* (RFC 1122, section 4.2.3.2; Linux: "pingpong
//! mode"). This module measures instead of assuming: [`AckPolicy`] keeps a score of exchanges in
//! which data followed soon and of those in which none did, each weighed by what it saves or costs.
//! One pause therefore ends nothing, and a connection on which no data follows any more gets its
//! acknowledgements at once.
//!
//! Bench cases: `message_lat` of 8 bytes and `get_lat` (`bench wind`, `bench remote`).

use crate::limits::{
    ACK_LATE_EXCHANGES, ACK_PIGGYBACK_TIME, ACK_SCORE_MAX, ACK_SCORE_MIN, ACK_SCORE_PENALTY,
};
use crate::time::Time;

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct AckPolicy {
    balance: u8,
    /// Arrival time of the first datagram that asked for an acknowledgement since this node last
    /// sent data. `None` also once it is known what followed.
    asked: Option<Time>,
    /// The acknowledgement has gone alone since `asked`.
    alone: bool,
    /// Number of exchanges in which data followed late, after an acknowledgement that went alone.
    late: u8,
}

impl AckPolicy {
    pub const fn new() -> AckPolicy {
        AckPolicy { balance: 0, asked: None, alone: false, late: 0 }
    }

    /// Called when a datagram arrived that asks for an acknowledgement. `alone` means that nothing
    /// else waits to be acknowledged, except datagrams that are held back themselves. Returns until
    /// when the acknowledgement may be held back.
    pub fn asked(&mut self, now: Time, alone: bool) -> Option<Time> {
        match self.asked {
            // One answer serves several datagrams that came at once, such as a header and its data.
            Some(first) if now - first <= ACK_PIGGYBACK_TIME => {}
            before => {
                if before.is_some() {
                    self.in_vain();
                }
                (self.asked, self.alone) = (Some(now), false);
            }
        }
        (self.is_on() && alone).then(|| now + ACK_PIGGYBACK_TIME)
    }

    /// Called when this node sends data.
    pub fn data_goes(&mut self, now: Time) {
        match self.asked.take().map(|asked| now - asked) {
            Some(gap) if gap <= ACK_PIGGYBACK_TIME => self.pays(),
            // An acknowledgement that goes alone delays the data that it could have waited for, and
            // would prove itself right for ever. So holding is tried again now and then.
            Some(gap) if self.alone && !self.is_on() && gap <= 2 * ACK_PIGGYBACK_TIME => {
                self.late += 1;
                if self.late == ACK_LATE_EXCHANGES {
                    self.late = 0;
                    self.pays();
                }
            }
            Some(_) => self.in_vain(),
            None => {}
        }
    }

    /// Called when an acknowledgement is sent without data. If it was held back, that was in vain.
    pub fn goes_alone(&mut self, now: Time) {
        self.alone = true;
        if self.is_on() && self.asked.is_some_and(|asked| now - asked >= ACK_PIGGYBACK_TIME) {
            self.asked = None;
            self.in_vain();
        }
    }

    fn pays(&mut self) {
        self.balance = (self.balance + 1).min(ACK_SCORE_MAX);
    }

    fn is_on(&self) -> bool {
        self.balance >= ACK_SCORE_MIN
    }

    fn in_vain(&mut self) {
        self.balance = self.balance.saturating_sub(ACK_SCORE_PENALTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// Event at a microsecond.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A datagram asks. The value tells whether its acknowledgement is held back.
        Asked(bool),
        /// A datagram asks while others wait to be acknowledged.
        AskedAmongOthers,
        /// This node sends data.
        Data,
        /// An acknowledgement is sent without data.
        Alone,
    }
    use Step::{Alone, Asked, AskedAmongOthers, Data};

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    fn play(habit: &mut AckPolicy, steps: &[(u64, Step)]) {
        for (micros, step) in steps {
            let now = at(*micros);
            match step {
                Asked(held) => {
                    let until = habit.asked(now, true);
                    assert_eq!(until, held.then(|| now + ACK_PIGGYBACK_TIME), "at {micros} µs");
                }
                AskedAmongOthers => assert_eq!(habit.asked(now, false), None),
                Data => habit.data_goes(now),
                Alone => habit.goes_alone(now),
            }
        }
    }

    /// Returns `count` exchanges in which data follows after 3 µs, beginning at `from`.
    fn exchanges(from: u64, count: u32, held: bool) -> std::vec::Vec<(u64, Step)> {
        (0..u64::from(count))
            .flat_map(|n| [(from + 10 * n, Asked(held)), (from + 10 * n + 3, Data)])
            .collect()
    }

    fn interactive() -> AckPolicy {
        let mut habit = AckPolicy::new();
        play(&mut habit, &exchanges(0, ACK_SCORE_MIN.into(), false));
        habit
    }

    /// WIND-3.8, case by case, for a connection that has just become interactive.
    #[test]
    fn holds_while_it_pays() {
        let hold = u64::try_from(ACK_PIGGYBACK_TIME.as_micros()).unwrap();
        let cases: [(&str, &[(u64, Step)]); 9] = [
            (
                "rides along",
                &[
                    (100, Asked(true)),
                    (101, Data),
                    (110, Asked(true)),
                    (113, Data),
                    (120, Asked(true)),
                ],
            ),
            (
                "one in vain ends it",
                &[(100, Asked(true)), (100 + hold, Alone), (200, Asked(false))],
            ),
            (
                "data long after an end counts for nothing",
                &[(100, Asked(true)), (100 + hold, Alone), (900, Data), (901, Asked(false))],
            ),
            (
                "an acknowledgement that had to go anyway is not a failure",
                &[(100, Asked(true)), (101, Alone), (103, Data), (110, Asked(true))],
            ),
            (
                "in bulk nothing is held",
                &[(100, AskedAmongOthers), (101, Alone), (102, Data), (110, Asked(true))],
            ),
            (
                "acknowledgements that nobody asked for say nothing",
                &[(500, Alone), (900, Alone), (910, Asked(true))],
            ),
            (
                "data without a question says nothing",
                &[(500, Data), (900, Data), (910, Asked(true))],
            ),
            (
                "a second question while one is held",
                &[(100, Asked(true)), (105, Asked(true)), (110, Data), (120, Asked(true))],
            ),
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
    fn begins_only_after_exchanges_that_would_have_paid() {
        let mut habit = AckPolicy::new();
        let few = u32::from(ACK_SCORE_MIN) - 1;
        play(&mut habit, &exchanges(0, few, false));
        play(&mut habit, &[(500, Asked(false)), (600, Asked(false)), (603, Data)]);
        play(&mut habit, &exchanges(700, few - 1, false));
        play(&mut habit, &[(900, Asked(false)), (903, Data), (910, Asked(true))]);
        // A header and its data, answered together, are one exchange.
        let mut habit = AckPolicy::new();
        for n in 0..u64::from(ACK_SCORE_MIN) {
            play(
                &mut habit,
                &[(1000 * n, Asked(false)), (1000 * n + 4, Asked(false)), (1000 * n + 7, Data)],
            );
        }
        play(&mut habit, &[(100_000, Asked(true)), (100_004, Asked(true)), (100_007, Data)]);
        // Late data does not count as data that follows soon.
        let mut habit = AckPolicy::new();
        for n in 0..100 {
            play(&mut habit, &[(1000 * n, Asked(false)), (1000 * n + 50, Data)]);
        }
    }

    /// An occasional interruption by the machine ends nothing. If every third exchange is in vain,
    /// acknowledgements are soon no longer held back.
    #[test]
    fn a_balance_is_kept_of_what_pays_and_what_does_not() {
        let held = |every: u64| {
            let (mut habit, mut held) = (AckPolicy::new(), 0);
            for n in 0..10_000 {
                let asked = Time(1_000_000 * n);
                held += u32::from(habit.asked(asked, true).is_some());
                if n % every == 0 {
                    habit.goes_alone(asked + ACK_PIGGYBACK_TIME);
                    habit.data_goes(asked + 3 * ACK_PIGGYBACK_TIME);
                } else {
                    habit.data_goes(asked + ACK_PIGGYBACK_TIME / 5);
                }
            }
            held
        };
        assert!(held(100) > 9_900 && held(20) > 9_900, "{} {}", held(100), held(20));
        assert!(held(3) < 10, "{}", held(3));
    }

    /// Returns how many of 10,000 acknowledgements are held. Data follows after `gap` µs, or after
    /// `more` µs more if the acknowledgement went alone.
    fn held_with(gap: u64, more: u64) -> u32 {
        let (mut habit, mut held) = (AckPolicy::new(), 0);
        for n in 0..10_000 {
            let asked = at(1000 * n);
            let holds = habit.asked(asked, true).is_some();
            held += u32::from(holds);
            if !holds {
                habit.goes_alone(asked);
            } else if gap > 15 {
                habit.goes_alone(asked + ACK_PIGGYBACK_TIME);
            }
            habit.data_goes(asked + Duration::from_micros(gap + if holds { 0 } else { more }));
        }
        held
    }

    /// An acknowledgement that goes alone takes time. That does not keep others from being held.
    /// Where data is late anyway, few are held in vain.
    #[test]
    fn the_cost_of_an_acknowledgement_is_no_proof_against_holding() {
        assert!(held_with(8, 10) > 9_900, "{}", held_with(8, 10));
        assert!((1..200).contains(&held_with(20, 5)), "{}", held_with(20, 5));
        assert_eq!(held_with(40, 5), 0);
    }

    #[test]
    fn it_ends_soon_however_long_it_has_paid() {
        let mut habit = interactive();
        play(&mut habit, &exchanges(1000, 1000, true));
        let mut lost = 0;
        while habit.asked(at(100_000 * (lost + 1)), true).is_some() {
            habit.goes_alone(at(100_000 * (lost + 1)) + ACK_PIGGYBACK_TIME);
            lost += 1;
        }
        assert!((2..=8).contains(&lost), "{lost}");
        assert!(ACK_PIGGYBACK_TIME < Duration::from_micros(50));
    }
}
