//! CUBIC's congestion window (RFC 9438), in integers: bytes, milliseconds, and a cube root found
//! bit by bit.

use super::{Controller, HASTE_DOUBLING, Limits, PACING_GAIN, Sample};
use crate::time::Time;
use core::time::Duration;

/// CUBIC's constant C = 0.4 datagrams per cubed second (section 5), as a fraction.
const C: (u64, u64) = (4, 10);

/// Controller whose window is a cubic function of the time since it last shrank, but never below
/// Reno's window.
#[derive(Clone, Debug)]
pub struct Cubic {
    limits: Limits,
    window: u64,
    threshold: u64,
    /// Acknowledged bytes that have not yet made a byte of growth, times the window.
    remainder: u64,
    /// Time of the last reduction. Signals about datagrams sent before belong to the same event.
    cut: Option<Time>,
    epoch: Option<Epoch>,
    /// Window at which there was no more room, where the curve is flat.
    origin: u64,
    round_trip: Duration,
    /// Window, threshold and origin before the last reduction, if that was for a loss or a stall
    /// (WIND-9.6).
    undo: Option<(u64, u64, u64)>,
}

/// Stretch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// Time from the start to the flat part of the curve, in milliseconds.
    flat_after: u64,
    /// Reno's window (section 4.3), and its acknowledged bytes without effect yet.
    reno: u64,
    reno_rest: u64,
}

impl Cubic {
    /// Creates a controller in slow start.
    #[must_use]
    pub fn new(limits: Limits) -> Cubic {
        Cubic { window: limits.first, threshold: u64::MAX, ..Cubic::resume(limits, limits.first) }
    }

    /// Creates a controller in congestion avoidance at this window.
    pub(super) fn resume(limits: Limits, window: u64) -> Cubic {
        let window = limits.clamp(window);
        let round_trip = Duration::ZERO;
        Cubic {
            limits,
            window,
            threshold: window,
            remainder: 0,
            cut: None,
            epoch: None,
            origin: window,
            round_trip,
            undo: None,
        }
    }

    /// Returns the curve's value at `after` milliseconds (section 4.2).
    fn curve(&self, epoch: &Epoch, after: u64) -> u64 {
        let offset = i128::from(after) - i128::from(epoch.flat_after);
        let scale = i128::from(C.1) * 1_000_000_000;
        let rise =
            i128::from(self.limits.datagram) * i128::from(C.0) * offset.saturating_pow(3) / scale;
        let window = (i128::from(self.origin) + rise).clamp(0, i128::from(self.limits.most));
        u64::try_from(window).unwrap_or(0)
    }

    fn begin_epoch(&mut self, now: Time) -> Epoch {
        // Above the old maximum the curve begins at its flat part (section 4.8).
        self.origin = self.origin.max(self.window);
        let missing = u128::from(self.origin - self.window) * u128::from(C.1) * 1_000_000_000;
        let cubed = missing / (u128::from(C.0) * u128::from(self.limits.datagram));
        Epoch {
            start: now,
            flat_after: cube_root(u64::try_from(cubed).unwrap_or(u64::MAX)),
            reno: self.window,
            reno_rest: 0,
        }
    }

    fn avoid(&mut self, sample: &Sample) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(sample.now));
        // Section 4.3: 3 (1 − β) / (1 + β) datagrams per round trip until the old maximum is
        // reached, then one.
        let parts = if epoch.reno < self.origin { 9 } else { 17 };
        epoch.reno_rest += sample.bytes * self.limits.datagram * parts / 17;
        epoch.reno += epoch.reno_rest / epoch.reno.max(1);
        epoch.reno_rest %= epoch.reno.max(1);
        self.epoch = Some(epoch);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let after = millis(sample.now - epoch.start);
        if self.curve(&epoch, after) < epoch.reno {
            self.window = self.window.max(epoch.reno);
        } else {
            let target = self.curve(&epoch, after.saturating_add(millis(self.round_trip)));
            let target = target.clamp(self.window, self.window / 2 * 3);
            self.remainder += sample.bytes * (target - self.window);
            self.window += self.remainder / self.window;
            self.remainder %= self.window;
        }
    }

    /// Shrinks the window to `percent` percent, once for each event (sections 4.6 and 4.7).
    /// `undoable` means that the event may turn out spurious.
    fn shrink(&mut self, percent: u64, undoable: bool, sent: Time, now: Time) {
        if self.cut.is_some_and(|cut| sent <= cut) {
            return;
        }
        self.undo = undoable.then_some((self.window, self.threshold, self.origin));
        self.cut = Some(now);
        // Fast convergence: a flow with less than before yields to new flows.
        self.origin = if self.window < self.origin {
            self.window / 200 * (100 + percent)
        } else {
            self.window
        };
        self.window = self.limits.clamp(self.window / 100 * percent);
        self.threshold = self.window;
        self.epoch = None;
        self.remainder = 0;
    }
}

impl Controller for Cubic {
    fn window(&self) -> u64 {
        self.window
    }

    fn acknowledged(&mut self, sample: &Sample) {
        if let Some(delay) = sample.delay {
            self.round_trip = delay;
        }
        if sample.marked > 0 {
            // A mark is weaker evidence of congestion than a loss (RFC 8511).
            self.shrink(85, false, sample.sent, sample.now);
        }
        if self.cut.is_some_and(|cut| sample.sent <= cut) {
            return;
        }
        if !sample.limited {
            // The curve does not run on while the application has nothing to send (section 4.2).
            self.epoch = None;
        } else if self.window < self.threshold {
            self.window += sample.bytes;
        } else {
            self.avoid(sample);
        }
        self.window = self.limits.clamp(self.window);
    }

    fn lost(&mut self, sent: Time, now: Time) {
        self.shrink(70, true, sent, now);
    }

    fn spurious(&mut self, _: Time) {
        if let Some((window, threshold, origin)) = self.undo.take()
            && window > self.window
        {
            (self.window, self.threshold, self.origin, self.epoch) =
                (window, threshold, origin, None);
        }
    }

    fn stalled(&mut self, now: Time) {
        self.undo = Some((self.window, self.threshold, self.origin));
        self.origin = self.window;
        self.threshold = self.limits.clamp(self.window / 2);
        self.window = self.limits.least;
        (self.cut, self.epoch, self.remainder) = (Some(now), None, 0);
    }

    fn resized(&mut self, datagram: u64) {
        self.limits = self.limits.resized(datagram);
        self.window = self.limits.clamp(self.window);
        // The curve was computed for the old datagram size.
        self.epoch = None;
    }

    fn pacing_gain(&self) -> u64 {
        if self.window < self.threshold { HASTE_DOUBLING } else { PACING_GAIN }
    }
}

/// Returns the largest number whose cube is not above `value`.
fn cube_root(value: u64) -> u64 {
    (0..22).rev().fold(0, |root, bit| {
        let larger: u64 = root | 1 << bit;
        if larger.checked_pow(3).is_some_and(|cube| cube <= value) { larger } else { root }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for value in [0, 1, 7, 8, 26, 27, 999, 1000, u64::MAX] {
            let root = cube_root(value);
            assert!(root.pow(3) <= value, "{value}");
            assert!((root + 1).checked_pow(3).is_none_or(|next| next > value), "{value}");
        }
    }

    fn run(cubic: &mut Cubic, from: Time, span: Duration, round_trip: Duration) -> Time {
        let (mut now, end) = (from, from + span);
        while now < end {
            let sent = now;
            now += round_trip;
            let bytes = cubic.window();
            let sample = Sample {
                now,
                bytes,
                sent,
                delay: Some(round_trip),
                datagrams: 1,
                marked: 0,
                limited: true,
            };
            cubic.acknowledged(&sample);
        }
        now
    }

    #[test]
    fn the_curve_is_that_of_the_rfc() {
        // 10 Gb/s and 100 ms would be 83,333 datagrams; here 1000 at the loss, so K = cbrt(300 /
        // 0.4) = 9.086 s.
        let limits = Limits::new(1000, 1 << 40);
        let mut cubic = Cubic::resume(limits, 1_000_000);
        let start = Time(1_000_000_000);
        cubic.lost(start, start);
        assert_eq!(cubic.window(), 700_000);
        let late = Duration::from_millis(100);
        let now = run(&mut cubic, start, Duration::from_millis(4500), late);
        // W(4.5) = 0.4 (4.5 − 9.086)³ + 1000 = 961.4
        assert!(cubic.window().abs_diff(961_400) < 8_000, "{}", cubic.window());
        let now = run(&mut cubic, now, Duration::from_millis(4600), late);
        assert!(cubic.window().abs_diff(1_000_000) < 5_000, "{}", cubic.window());
        run(&mut cubic, now, Duration::from_millis(5000), late);
        // W(14.1) = 0.4 (5.0)³ + 1000 = 1050
        assert!(cubic.window().abs_diff(1_050_000) < 10_000, "{}", cubic.window());
    }

    #[test]
    fn on_a_short_path_it_is_renos_equal() {
        let mut cubic = Cubic::resume(Limits::new(1000, 1 << 40), 100_000);
        cubic.lost(Time(1), Time(1));
        let before = cubic.window();
        run(&mut cubic, Time(2), Duration::from_millis(10), Duration::from_micros(100));
        // 100 round trips at 9/17 of a datagram until the old maximum, then one each.
        assert!(cubic.window() > before + 60_000, "{}", cubic.window());
    }

    /// WIND-9.1, 9.6.
    #[test]
    fn once_an_event_and_undone_if_it_was_none() {
        let mut cubic = Cubic::resume(Limits::new(1000, 1 << 40), 100_000);
        cubic.lost(Time(5), Time(10));
        cubic.lost(Time(9), Time(11));
        assert_eq!(cubic.window(), 70_000);
        cubic.spurious(Time(12));
        assert_eq!(cubic.window(), 100_000);
        cubic.spurious(Time(12));
        assert_eq!(cubic.window(), 100_000, "once");
        cubic.stalled(Time(20));
        assert_eq!(cubic.window(), 2000);
    }
}
