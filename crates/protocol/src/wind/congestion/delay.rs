//! Delay-based controller of the congestion window, the default: a delay target in the manner of
//! Swift (Kumar and others, SIGCOMM 2020) with the marks of DCTCP (RFC 8257).
//!
//! Swift's target is tens of microseconds, measured by network cards. Here a round trip passes two
//! hosts whose processors are shared, so the target is milliseconds. The target keeps deep queues
//! short, marks keep shallow queues from filling, and an idle path is never throttled.
//!
//! The target is the same for all flows, and not relative to the least round trip seen. A late flow
//! has never seen the path without a queue, and would allow itself more than the others. A path
//! that is longer than the target is not in a data centre, and is left to CUBIC (`competition`).

use super::competition::{Competition, Finding};
use super::{Controller, HASTE_DOUBLING, Limits, PACING_GAIN, Sample};
use crate::limits::PACING_BURST;
use crate::time::Time;
use core::time::Duration;

/// Delay target: no round trip below it is a signal.
const TARGET: Duration = Duration::from_millis(2);
/// Round trip below which nothing queues.
const CALM: Duration = Duration::from_millis(1);
/// Flow scaling: the addition to the target for the smallest window, and the window in datagrams
/// from which there is no addition.
const SCALING: Duration = Duration::from_millis(2);
const SCALING_UNTIL: u64 = 256;
/// Window in bytes from which data is sent in several bursts (WIND-9.8), so that its
/// acknowledgements come spread too (WIND-9.3).
const STEADY: u64 = 4 * PACING_BURST;
/// Number of round trips without a signal until growth doubles with each.
const PATIENCE: u32 = 8;
/// Fixed-point one, for the fraction of marked datagrams.
const ALL: u64 = 1 << 20;

/// Controller whose window follows delay and marks.
#[derive(Clone, Debug)]
pub struct Delay {
    limits: Limits,
    window: u64,
    /// Window below which growth doubles.
    threshold: u64,
    /// Acknowledged bytes that have not yet made a byte of growth, times the window.
    remainder: u64,
    /// Smoothed fraction of datagrams that are marked, in units of 1 / [`ALL`].
    fraction: u64,
    round: Round,
    /// Number of round trips without a signal.
    clean: u32,
    /// Time of the last reduction. Signals about datagrams sent before belong to the same event
    /// (WIND-9.1).
    cut: Option<Time>,
    /// Window and threshold before the last reduction, if that was for a loss or a stall
    /// (WIND-9.6).
    undo: Option<(u64, u64)>,
    competition: Competition,
}

/// One round trip, until something sent after its start is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Round {
    start: Time,
    least: Duration,
    datagrams: u64,
    marked: u64,
    /// Largest window in the round trip.
    window: u64,
    signal: bool,
    limited: bool,
    /// Time of the latest acknowledgement, and the longest time without one.
    heard: Time,
    silence: Duration,
}

impl Round {
    fn new(start: Time, window: u64) -> Round {
        Round {
            start,
            least: Duration::MAX,
            datagrams: 0,
            marked: 0,
            window,
            signal: false,
            limited: false,
            heard: start,
            silence: Duration::ZERO,
        }
    }

    /// Notes that an acknowledgement has come.
    fn hear(&mut self, now: Time) {
        self.silence = self.silence.max(now - self.heard);
        self.heard = now;
    }

    /// Returns `true` if most of the round trip was silence, though much was in flight. Then a host
    /// stood still, because a queue lets its content through bit by bit.
    fn stood_still(&self) -> bool {
        self.window >= STEADY && self.silence >= (self.heard - self.start) / 4 * 3
    }
}

impl Delay {
    /// Creates a controller in slow start (WIND-9.2).
    #[must_use]
    pub fn new(limits: Limits) -> Delay {
        Delay {
            limits,
            window: limits.first,
            threshold: u64::MAX,
            remainder: 0,
            fraction: ALL,
            round: Round::new(Time(0), limits.first),
            clean: 0,
            cut: None,
            undo: None,
            competition: Competition::new(),
        }
    }

    /// Returns the addition to a small window's target, as 1 / √window.
    fn scaling(&self) -> Duration {
        let thousandths =
            |datagrams: u64| 1_000_000 / (datagrams.saturating_mul(1_000_000)).isqrt().max(1);
        let (small, large) = (thousandths(2), thousandths(SCALING_UNTIL));
        let now = thousandths(self.window / self.limits.datagram).clamp(large, small);
        SCALING * u32::try_from(now - large).unwrap_or(0)
            / u32::try_from(small - large).unwrap_or(1)
    }

    /// Returns by how much this delay exceeds the target.
    fn excess(&self, delay: Duration) -> Option<Duration> {
        // Most delays are below the target, and need no square root.
        let excess = delay.checked_sub(TARGET)?;
        excess.checked_sub(self.scaling()).filter(|excess| !excess.is_zero())
    }

    fn shrink(&mut self, less: u64, now: Time) {
        self.window = self.limits.clamp(self.window.saturating_sub(less));
        self.threshold = self.window;
        (self.cut, self.undo) = (Some(now), None);
        (self.clean, self.remainder, self.round.signal) = (0, 0, true);
    }

    /// Reacts to marks and to the round trip's delay (WIND-9.3, WIND-9.5). The delay is the least
    /// one in the round trip so far: a processor that was taken away for a moment delays some
    /// datagrams, a queue delays all. Returns `true` if there was a signal.
    fn process(&mut self, sample: &Sample) -> bool {
        let ends = sample.sent >= self.round.start;
        let delay = Some(self.round.least)
            .filter(|least| ends && *least < Duration::MAX && !self.round.stood_still());
        let excess = delay.and_then(|delay| self.excess(delay).map(|excess| (excess, delay)));
        if sample.marked == 0 && excess.is_none() {
            return false;
        }
        if self.cut.is_none_or(|cut| sample.sent > cut) {
            let by_marks =
                if sample.marked > 0 { share_of(self.window, self.fraction, 2 * ALL) } else { 0 };
            let by_delay = excess.map_or(0, |(excess, delay)| {
                let part = share_of(self.window, nanos(excess) / 5 * 4, nanos(delay));
                part.min(self.window / 2)
            });
            self.shrink(by_marks.max(by_delay), sample.now);
        }
        true
    }

    fn grow(&mut self, sample: &Sample) {
        if !sample.limited || self.cut.is_some_and(|cut| sample.sent <= cut) {
            return;
        }
        if self.window < self.threshold {
            if sample.delay.is_some_and(|delay| delay > CALM) && !self.round.stood_still() {
                self.threshold = self.window;
            }
            self.window += sample.bytes;
        } else {
            let step = self.limits.datagram << self.clean.saturating_sub(PATIENCE).min(20);
            self.remainder += sample.bytes * step.min(self.window / 4).max(1);
            self.window += self.remainder / self.window;
            self.remainder %= self.window;
        }
        self.window = self.limits.clamp(self.window);
    }

    /// Called when a round trip is over.
    fn end_round(&mut self, now: Time) {
        let Round { least, datagrams, marked, signal, limited, window, .. } = self.round;
        if datagrams > 0 {
            self.fraction = self.fraction - self.fraction / 16
                + share_of(ALL, marked.min(datagrams), datagrams) / 16;
        }
        self.clean = if signal { 0 } else { self.clean.saturating_add(u32::from(limited)) };
        if least < Duration::MAX {
            let finding = match least {
                _ if self.round.stood_still() => Finding::Mixed,
                _ if least < CALM => Finding::Calm,
                _ if least > (TARGET + self.scaling()) / 4 * 5 => Finding::Unresponsive,
                _ => Finding::Mixed,
            };
            if let Some(window) = self.competition.round(now, finding, window, self.limits) {
                (self.window, self.threshold, self.clean, self.cut, self.undo) =
                    (window, window, 0, None, None);
            }
        }
        self.round = Round::new(now, self.window());
    }
}

impl Controller for Delay {
    fn window(&self) -> u64 {
        self.competition.contest().map_or(self.window, Controller::window)
    }

    fn acknowledged(&mut self, sample: &Sample) {
        if let Some(delay) = sample.delay {
            self.round.least = self.round.least.min(delay);
        }
        self.round.hear(sample.now);
        self.round.datagrams += u64::from(sample.datagrams);
        self.round.marked += u64::from(sample.marked);
        self.round.limited |= sample.limited;
        if let Some(cubic) = self.competition.contest_mut() {
            cubic.acknowledged(sample);
        } else if !self.process(sample) {
            self.grow(sample);
        }
        self.round.window = self.round.window.max(self.window);
        if sample.sent >= self.round.start {
            self.end_round(sample.now);
        }
    }

    fn lost(&mut self, sent: Time, now: Time) {
        if let Some(cubic) = self.competition.contest_mut() {
            cubic.lost(sent, now);
        } else if self.cut.is_none_or(|cut| sent > cut) {
            let before = (self.window, self.threshold);
            self.shrink(self.window / 10 * 3, now);
            self.undo = Some(before);
        }
    }

    fn spurious(&mut self, now: Time) {
        if let Some(cubic) = self.competition.contest_mut() {
            cubic.spurious(now);
        } else if let Some((window, threshold)) = self.undo.take() {
            (self.window, self.threshold) =
                (self.window.max(window), self.threshold.max(threshold));
        }
    }

    fn stalled(&mut self, now: Time) {
        let before = (self.window(), self.threshold);
        self.competition.forget();
        self.shrink(self.window, now);
        (self.threshold, self.undo) = (self.limits.clamp(before.0 / 2), Some(before));
    }

    fn resized(&mut self, datagram: u64) {
        self.limits = self.limits.resized(datagram);
        self.window = self.limits.clamp(self.window);
        if let Some(cubic) = self.competition.contest_mut() {
            cubic.resized(datagram);
        }
    }

    fn pacing_gain(&self) -> u64 {
        match self.competition.contest() {
            Some(cubic) => cubic.pacing_gain(),
            None if self.window < self.threshold => HASTE_DOUBLING,
            None => PACING_GAIN,
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns `part` / `of` of a value.
fn share_of(value: u64, part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(part) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}
