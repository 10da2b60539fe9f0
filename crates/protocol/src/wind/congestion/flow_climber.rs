//! Number of flows that pay (WIND-14.7): hill climbing on the rate at which bulk is acknowledged.
//!
//! A network that caps each flow carries twice as much by twice as many. Elsewhere more flows
//! change nothing, or cost something. The sender cannot know, so it tries.

use crate::limits::{
    FLOW_TRIAL_INTERVAL_MIN, FLOW_TRIAL_ROUND_TRIPS, FLOW_TRIAL_WAIT_MAX, FLOW_TRIAL_WAIT_MIN,
    FLOWS_MAX,
};
use crate::time::Time;
use core::time::Duration;

/// Rate in percent of that of half as many, for which more flows are kept. Where each flow has a
/// cap of its own, twice as many carry twice as much. Where one flow shares a link with `m` others,
/// two carry `2 (1 + m) / (2 + m)` times as much, and take that from the others.
const MORE_MIN: u64 = 170;
/// Rate in percent of that of twice as many, for which fewer flows are kept. It is more than the
/// inverse of [`MORE_MIN`], so that no number is left and taken again for the same rates.
const FEWER_MIN: u64 = 67;
/// Difference in percent up to which the rates of two intervals count as equal.
const STEADY: u64 = 10;
/// Share in percent of the bytes of an interval that something else than the application limited.
const LIMITED_MIN: u64 = 75;
/// Time after a failed trial before the next one, in times of the trial.
const TRIAL_PAUSE: u32 = 16;
/// Intervals after a change whose rates say nothing, because windows still grow.
const WARM_UP: u8 = 3;

/// Trial of another number of flows.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Number of flows before, and the rate of these in bytes per second.
    flows: u8,
    rate: u64,
    began: Time,
    /// Number of intervals that still say nothing.
    warm_up: u8,
}

/// Chooses the number of flows from what was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowClimber {
    flows: u8,
    trial: Option<Trial>,
    /// Whether the next trial is of fewer flows, if there can be fewer.
    goes_down: bool,
    /// Start of the interval, the bytes acknowledged in it, and those of them that something other
    /// than the application limited.
    began: Time,
    bytes: u64,
    limited: u64,
    /// Rate of the interval before, in bytes per second, or 0.
    rate: u64,
    /// Time before which no trial begins, and the time that a failed one adds.
    next: Time,
    wait: Duration,
}

impl Default for FlowClimber {
    /// Begins with one flow.
    fn default() -> FlowClimber {
        FlowClimber {
            flows: 1,
            trial: None,
            goes_down: false,
            began: Time(0),
            bytes: 0,
            limited: 0,
            rate: 0,
            next: Time(0),
            wait: FLOW_TRIAL_WAIT_MIN,
        }
    }
}

impl FlowClimber {
    /// Returns the number of flows to use.
    pub fn flows(&self) -> u8 {
        self.flows
    }

    /// Notes that bytes were acknowledged. `limited` tells whether window, pace or grant limited
    /// the sender, and not the application.
    pub fn acknowledged(&mut self, now: Time, bytes: u64, limited: bool, round_trip: Duration) {
        self.bytes += bytes;
        self.limited += if limited { bytes } else { 0 };
        let interval = (round_trip * FLOW_TRIAL_ROUND_TRIPS).max(FLOW_TRIAL_INTERVAL_MIN);
        let elapsed = now - self.began;
        if elapsed < interval {
            return;
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
        let rate = self.bytes.saturating_mul(1_000_000) / micros;
        // After a pause, the interval is much longer than it should be.
        let counts = elapsed < interval * 2 && self.limited * 100 >= self.bytes * LIMITED_MIN;
        (self.began, self.bytes, self.limited) = (now, 0, 0);
        let before = core::mem::replace(&mut self.rate, if counts { rate } else { 0 });
        if counts {
            self.interval_ended(now, before, rate);
        }
    }

    /// Called instead of [`acknowledged`](Self::acknowledged) while a flow in use carries nothing.
    /// A trial ends without success. `fewer_carry` tells whether half the flows carry anything.
    pub fn flow_is_silent(&mut self, now: Time, fewer_carry: bool) {
        (self.began, self.rate) = (Time(0), 0);
        match self.trial.take() {
            Some(trial) if trial.flows > self.flows || fewer_carry => self.fail(now, trial),
            _ => {}
        }
    }

    fn interval_ended(&mut self, now: Time, before: u64, rate: u64) {
        match self.trial.take() {
            None => {
                let is_steady = before > 0 && before.abs_diff(rate) * 100 <= before * STEADY;
                if is_steady && now >= self.next {
                    self.begin_trial(now, before.max(rate));
                }
            }
            Some(trial) if trial.warm_up > 0 => {
                self.trial = Some(Trial { warm_up: trial.warm_up - 1, ..trial });
            }
            Some(trial) => {
                let was_more = self.flows > trial.flows;
                let least = if was_more { MORE_MIN } else { FEWER_MIN };
                if rate.saturating_mul(100) < trial.rate.saturating_mul(least) {
                    return self.fail(now, trial);
                }
                // A change that paid may pay again soon.
                (self.rate, self.wait, self.goes_down) = (0, FLOW_TRIAL_WAIT_MIN, !was_more);
            }
        }
    }

    fn begin_trial(&mut self, now: Time, rate: u64) {
        let flows = self.flows;
        let (fewer, more) = (flows.div_ceil(2), flows.saturating_mul(2).min(FLOWS_MAX));
        let goes_down = (self.goes_down && fewer < flows) || more == flows;
        self.flows = if goes_down { fewer } else { more };
        self.trial = Some(Trial { flows, rate, began: now, warm_up: WARM_UP });
    }

    /// Uses as many flows as before, for longer each time. The next trial goes the other way.
    fn fail(&mut self, now: Time, trial: Trial) {
        (self.goes_down, self.rate) = (self.flows > trial.flows, 0);
        self.flows = trial.flows;
        // Long round trips make long trials, which cost no larger share of the time.
        let share = (now - trial.began).min(FLOW_TRIAL_WAIT_MAX) * TRIAL_PAUSE;
        self.next = now + self.wait.max(share).min(FLOW_TRIAL_WAIT_MAX);
        self.wait = (self.wait * 2).min(FLOW_TRIAL_WAIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs for `span` over a network in which `flows` flows carry `rate(flows)` bytes per second,
    /// give or take `noise` percent. Returns how long more flows were used than `best`.
    fn run(
        climber: &mut FlowClimber,
        now: &mut Time,
        span: Duration,
        best: u8,
        noise: u64,
        rate: impl Fn(u8) -> u64,
    ) -> Duration {
        let (end, mut over) = (*now + span, Duration::ZERO);
        let step = Duration::from_millis(1);
        let mut random = crate::random::Random::new(9);
        while *now < end {
            *now += step;
            let percent = 100 - noise + random.below(2 * noise as usize + 1) as u64;
            let bytes = rate(climber.flows()) / 1000 * percent / 100;
            climber.acknowledged(*now, bytes, true, Duration::from_micros(200));
            over += if climber.flows() > best { step } else { Duration::ZERO };
        }
        over
    }

    proptest! {
        /// WIND-14.7: where each flow is capped, as many are used as pay, however noisy the rates.
        #[test]
        fn climbs_to_what_pays(cap in 1u64..1000, links in 1u8..20, noise in 0u64..20) {
            let (cap, all) = (cap * 1_000_000, cap * 1_000_000 * u64::from(links));
            let mut climber = FlowClimber::default();
            let mut now = Time(0);
            let rate = |flows: u8| (cap * u64::from(flows)).min(all);
            run(&mut climber, &mut now, Duration::from_secs(5), 16, noise, rate);
            let settled = climber.trial.map_or(climber.flows, |trial| trial.flows);
            let used = u64::from(settled.min(links));
            let best = u64::from(links.min(16));
            prop_assert!(used * 100 >= best * 55, "{used} of {links} with noise {noise}");
        }
    }

    /// WIND-14.7: a sender takes no more than its share of a link that it shares with others, and
    /// returns to it if it has more.
    #[test]
    fn one_flow_is_enough_beside_others() {
        for others in 1..=4 {
            for cap in [None, Some(1_000_000)] {
                let (mut climber, mut now) = (FlowClimber::default(), Time(0));
                if let Some(cap) = cap {
                    let rate = |flows: u8| cap * u64::from(flows);
                    run(&mut climber, &mut now, Duration::from_secs(1), 16, 0, rate);
                    assert_eq!(climber.flows(), 16);
                }
                let share =
                    |flows: u8| 1_000_000_000 * u64::from(flows) / u64::from(flows + others);
                run(&mut climber, &mut now, Duration::from_secs(1000), 16, 3, share);
                let settled = climber.trial.map_or(climber.flows, |trial| trial.flows);
                assert!(settled <= others, "{settled} beside {others}");
            }
        }
    }

    /// WIND-14.7: where more flows do not pay, they are tried ever more rarely.
    #[test]
    fn stays_at_one_where_more_do_not_pay() {
        let mut climber = FlowClimber::default();
        let mut now = Time(0);
        let minute = Duration::from_secs(60);
        let first = run(&mut climber, &mut now, minute, 1, 3, |_| 1_000_000_000);
        let later = run(&mut climber, &mut now, minute, 1, 3, |_| 1_000_000_000);
        assert!(first > Duration::ZERO && first < minute / 50, "{first:?}");
        assert!(later < first, "{first:?}, {later:?}");
        // The network begins to cap flows.
        run(&mut climber, &mut now, 10 * minute, 16, 3, |flows| 1_000_000 * u64::from(flows));
        assert!(climber.flows() >= 8, "{climber:?}");
        // The caps are lifted again.
        run(&mut climber, &mut now, 20 * minute, 16, 3, |_| 1_000_000_000);
        assert!(climber.flows() <= 2, "{climber:?}");
    }

    /// WIND-14.7: a trial that a long pause of the application interrupts puts none off for long.
    #[test]
    fn trial_that_was_interrupted_puts_none_off() {
        let (mut climber, mut now) = (FlowClimber::default(), Time(0));
        while climber.flows() == 1 {
            now += Duration::from_millis(1);
            climber.acknowledged(now, 1_000_000, true, Duration::from_millis(1));
        }
        now += Duration::from_secs(12 * 3600);
        climber.flow_is_silent(now, true);
        assert_eq!((climber.flows(), climber.next - now), (1, FLOW_TRIAL_WAIT_MAX));
    }

    /// WIND-14.7: what the application limits says nothing.
    #[test]
    fn application_that_limits_starts_no_trial() {
        let mut climber = FlowClimber::default();
        for at in 0..10_000u64 {
            climber.acknowledged(Time(at * 1_000_000), 5000, at % 3 != 0, Duration::from_millis(1));
        }
        assert_eq!(climber.flows(), 1);
    }

    /// WIND-14.7, WIND-14.5: a trial fails if a flow of it carries nothing. It ends with the flows
    /// that carry.
    #[test]
    fn silent_flow_ends_a_trial() {
        for fewer_carry in [true, false] {
            let (mut climber, mut now) = (FlowClimber::default(), Time(0));
            while climber.flows() == 1 {
                now += Duration::from_millis(1);
                climber.acknowledged(now, 1_000_000, true, Duration::from_millis(1));
            }
            climber.flow_is_silent(now, fewer_carry);
            assert_eq!(climber.flows(), if fewer_carry { 1 } else { 2 });
            run(&mut climber, &mut now, Duration::from_millis(100), 16, 0, |_| 1_000_000);
            assert_eq!(climber.flows(), if fewer_carry { 1 } else { 4 }, "{climber:?}");
        }
    }
}
