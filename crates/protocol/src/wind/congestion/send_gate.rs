//! Limits on sending: the congestion window, the receiver's grant and the pace together, and their
//! updates by acknowledgements.

use super::pacer::Pacer;
use super::{Controller, Sample};
use crate::time::Time;
use crate::wind::congestion::receive_share::Grant;
use core::time::Duration;

/// Count of marked datagrams that a peer reports, as far as it was processed (WIND-9.5).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks(u32);

impl Marks {
    /// Returns how many of the marks that an ACK frame reports are new.
    pub fn news(&mut self, reported: u32) -> u32 {
        // An acknowledgement that was overtaken counts fewer marks than are known. Modulo 2³², half
        // of all differences are negative.
        let new = reported.wrapping_sub(self.0);
        let new = if new > u32::MAX / 2 { 0 } else { new };
        self.0 = self.0.wrapping_add(new);
        new
    }
}

/// Send limits of one lane, or of one of its flows. The grant is that of the lane, and its first
/// flow has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    grant: Grant,
    pacer: Pacer,
    pub marks: Marks,
    /// Latest known time.
    now: Time,
}

impl Gate {
    /// Creates the limits towards a peer with this receive buffer, in a job of `nodes` nodes.
    pub fn new(buffer: u64, nodes: u32) -> Gate {
        Gate { grant: Grant::new(buffer, nodes), ..Gate::default() }
    }

    /// Sets the latest known time.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Returns the number of bytes that may be in flight (WIND-6.1).
    pub fn window(&self, controller: &dyn Controller, now: Time) -> u64 {
        controller.window().min(self.grant.bytes(now))
    }

    /// Returns the number of bytes that the peer grants.
    pub fn granted_bytes(&self, now: Time) -> u64 {
        self.grant.bytes(now)
    }

    /// Returns the number of bytes that the peer grants at the latest known time.
    pub fn share(&self) -> u64 {
        self.grant.bytes(self.now)
    }

    /// Returns the pace of fragments in bytes per second; 0 means no limit.
    pub fn pace(&self) -> u64 {
        self.pacer.pace()
    }

    /// Returns `true` if the pace permits a fragment now (WIND-9.8).
    pub fn is_open(&self, now: Time) -> bool {
        self.pacer.may_send(now)
    }

    /// Returns when the pace permits a fragment, if that is later than the latest known time.
    pub fn opens(&self) -> Option<Time> {
        self.pacer.release().filter(|at| *at > self.now)
    }

    /// Called when a datagram is sent.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        self.now = now;
        self.pacer.sent(now, bytes);
    }

    /// Called when an ACK has come that grants `share` bytes.
    pub fn granted(&mut self, now: Time, share: u32) {
        self.grant.note(now, share);
    }

    /// Called when an ACK has come that acknowledges `sample`, with as many marks as it newly
    /// reports. Returns how many of them count, which are no more than its datagrams.
    pub fn acknowledged(
        &mut self,
        controller: &mut dyn Controller,
        sample: Sample,
        round_trip: Option<Duration>,
    ) -> u64 {
        let new = sample.marked.min(sample.datagrams);
        controller.acknowledged(&Sample { marked: new, ..sample });
        if let Some(round_trip) = round_trip {
            self.pacer.set_pace(
                sample.now,
                controller.window(),
                controller.pacing_gain(),
                round_trip,
            );
        }
        u64::from(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Algorithm;
    use super::*;

    struct Counter(u32);

    impl Controller for Counter {
        fn window(&self) -> u64 {
            1 << 20
        }
        fn acknowledged(&mut self, sample: &Sample) {
            self.0 += sample.marked;
        }
        fn lost(&mut self, _: Time, _: Time) {}
        fn spurious(&mut self, _: Time) {}
        fn stalled(&mut self, _: Time) {}
    }

    /// WIND-9.5
    #[test]
    fn marks_are_told_once_and_believed_no_further_than_they_can_be() {
        let (mut gate, mut counter) = (Gate::new(1 << 20, 2), Counter(0));
        let sample = Sample {
            now: Time(9),
            bytes: 8000,
            sent: Time(1),
            delay: None,
            datagrams: 8,
            marked: 0,
            limited: true,
        };
        let mut report = |gate: &mut Gate, marked: u32| {
            let marked = gate.marks.news(marked);
            gate.acknowledged(&mut counter, Sample { marked, ..sample }, None);
            counter.0
        };
        assert_eq!(report(&mut gate, 3), 3);
        assert_eq!(report(&mut gate, 3), 3);
        assert_eq!(report(&mut gate, 1), 3, "overtaken");
        assert_eq!(report(&mut gate, 5), 5);
        assert_eq!(report(&mut gate, 1000), 13, "no more than were acknowledged");
        assert_eq!(report(&mut gate, 1001), 14);
        gate.marks = Marks(u32::MAX);
        assert_eq!(report(&mut gate, 1), 16, "it wraps");
    }

    /// WIND-9.8
    #[test]
    fn it_says_when_it_opens_only_while_it_is_closed() {
        let mut gate = Gate::new(1 << 20, 2);
        let mut controller = Algorithm::Delay.controller(8952, 1 << 20);
        let (at, round_trip) = (Time(1_000_000), Duration::from_millis(100));
        let sample = Sample {
            now: at,
            bytes: 1,
            sent: Time(1),
            delay: Some(round_trip),
            datagrams: 1,
            marked: 0,
            limited: false,
        };
        gate.acknowledged(&mut *controller, sample, Some(round_trip));
        assert_eq!((gate.is_open(at), gate.opens()), (true, None));
        let mut sent = 0;
        while gate.is_open(at) {
            gate.sent(at, 1472);
            sent += 1472;
        }
        assert!((64 << 10..(64 << 10) + 3000).contains(&sent), "a burst: {sent}");
        let opens = gate.opens().unwrap();
        assert!(opens > at && gate.is_open(opens));
        gate.set_now(opens);
        assert_eq!(gate.opens(), None);
    }
}
