//! One output port of a switch or a host: a line with a rate, behind a queue of limited size.

use oikaze_protocol::time::Time;
use std::time::Duration;

/// Bytes on the line for each datagram beyond its payload: UDP, IPv4, and Ethernet with preamble
/// and gap.
pub const OVERHEAD: u64 = 8 + 20 + 38;

/// Properties of an output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bits per second.
    pub rate: u64,
    /// Bytes that may wait. A datagram that does not fit is dropped (drop-tail).
    pub buffer: u64,
    /// Number of waiting bytes above which a datagram leaves marked CE, as on a switch that is set
    /// up for DCTCP (RFC 8257, section 3.1).
    pub mark_from: Option<u64>,
}

impl Line {
    /// Returns a host's own line, which drops nothing because datagrams wait in the host.
    #[must_use]
    pub fn of_host(rate: u64) -> Line {
        Line { rate, buffer: u64::MAX, mark_from: None }
    }

    /// Returns the time for which this many bytes occupy the line.
    #[must_use]
    pub fn span(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 8_000_000_000 / self.rate)
    }
}

/// Output port with the state of its queue.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    line: Line,
    /// Time at which the last accepted datagram leaves, so that the line is idle again.
    busy: Time,
    /// Counts of datagrams, and of the longest queue.
    pub counts: PortCounts,
}

/// Counts of an output port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Datagrams that the port accepted.
    pub taken: u64,
    /// Datagrams that the port dropped because its queue had no room.
    pub dropped: u64,
    /// Datagrams that the port accepted and marked CE.
    pub marked: u64,
    /// Maximum length of the queue so far, in bytes.
    pub longest: u64,
}

impl Port {
    /// Makes a port with an empty queue.
    #[must_use]
    pub fn new(line: Line) -> Port {
        Port { line, busy: Time::default(), counts: PortCounts::default() }
    }

    /// Sends a datagram with this many bytes of payload. Returns the time at which its last byte
    /// leaves, and `true` if the port marks it CE. Returns `None` if the port drops it. Calls must
    /// be in order of time.
    pub fn pass(&mut self, now: Time, payload: u64) -> Option<(Time, bool)> {
        let bytes = payload + OVERHEAD;
        // Computes in 128 bits, because a host's queue may be of any length and the product must
        // not overflow.
        let waiting = u128::from((self.busy - now).as_nanos() as u64) * u128::from(self.line.rate)
            / 8_000_000_000;
        let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        if waiting.saturating_add(bytes) > self.line.buffer {
            self.counts.dropped += 1;
            return None;
        }
        let marked = self.line.mark_from.is_some_and(|from| waiting > from);
        self.counts.taken += 1;
        self.counts.marked += u64::from(marked);
        self.counts.longest = self.counts.longest.max(waiting);
        self.busy = self.busy.max(now) + self.line.span(bytes);
        Some((self.busy, marked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_delays_marks_and_drops() {
        // The line carries a byte per nanosecond.
        let line = Line { rate: 8_000_000_000, buffer: 5000, mark_from: Some(2500) };
        let mut port = Port::new(line);
        let payload = 1000 - OVERHEAD;
        let passed: Vec<_> = (0..7).map(|_| port.pass(Time(100), payload)).collect();
        let left = |n: u64, marked| Some((Time(100 + 1000 * n), marked));
        assert_eq!(
            passed[..5],
            [left(1, false), left(2, false), left(3, false), left(4, true), left(5, true)]
        );
        assert_eq!(passed[5..], [None, None]);
        assert_eq!(port.pass(Time(9000), payload), Some((Time(10_000), false)));
        assert_eq!(port.counts, PortCounts { taken: 6, dropped: 2, marked: 2, longest: 4000 });
    }
}
