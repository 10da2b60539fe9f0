//! Quota of bulk for each turn (WIND-3.10). The quota is small while small messages come and go,
//! because nothing can overtake bulk that the kernel has, and the node receives nothing while it
//! sends. Only messages to which bulk gives way count.
//!
//! Bench cases: `mixed_lat` and `mixed_bw` (`bench wind`), `fetch_bw` and `barrier_update` (`bench
//! dsm`).

use oikaze_protocol::limits::{
    BULK_A_TURN, BULK_AMONG_SMALL, BULK_AMONG_SMALL_MAX, BULK_AMONG_SMALL_TIME, SMALL_RECENT_TIME,
};
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Quota of bulk for each turn, from the recent small messages.
#[derive(Default)]
pub(crate) struct BulkQuota {
    /// Time at which a small message to which bulk gives way was delivered last.
    latest: Time,
    /// Is `true` if such a message was delivered since a turn last asked for its share.
    came: bool,
    /// Is `true` if the last turn left bulk to the next one.
    waited: bool,
    /// Time at which the last turn asked, and the number of bulk bytes that it has sent since.
    turn: (Time, usize),
    pace: Pace,
}

/// Pace of turns with bulk: the recent minimum of the time per byte. The minimum counts, because a
/// turn may be interrupted, and a program may let time pass before the next turn.
#[derive(Default)]
struct Pace {
    /// Number of bytes sent in `took`.
    bytes: usize,
    /// Time that these bytes took.
    took: Duration,
}

impl Pace {
    fn learn(&mut self, bytes: usize, took: Duration) {
        self.took += self.took / 16 + Duration::from_nanos(1);
        // Compares the times per byte.
        if self.bytes == 0
            || took.as_nanos() * self.bytes as u128 <= self.took.as_nanos() * bytes as u128
        {
            *self = Self { bytes, took };
        }
    }

    /// Returns the number of bytes that a turn sends within `time`.
    fn within(&self, time: Duration) -> usize {
        usize::try_from(self.bytes as u128 * time.as_nanos() / self.took.as_nanos().max(1))
            .unwrap_or(usize::MAX)
    }
}

impl BulkQuota {
    /// Called when a small message was delivered to which bulk gives way.
    pub fn small_came(&mut self, now: Time) {
        (self.latest, self.came) = (now, true);
    }

    /// Returns the number of bulk bytes that this turn may send. A turn that has delivered a small
    /// message sends none, because a thread may wait for that message. No two turns in a row send
    /// none.
    pub fn bulk_share(&mut self, now: Time) -> usize {
        let (before, sent) = std::mem::replace(&mut self.turn, (now, 0));
        // A thread that waited for the engine enters with a time that it read earlier, so that the
        // previous turn seems to have taken no time.
        if sent > 0 && now > before {
            self.pace.learn(sent, now - before);
        }
        self.waited = std::mem::take(&mut self.came) && !self.waited;
        if self.waited {
            0
        } else if self.latest != Time(0) && now - self.latest < SMALL_RECENT_TIME {
            self.pace.within(BULK_AMONG_SMALL_TIME).clamp(BULK_AMONG_SMALL, BULK_AMONG_SMALL_MAX)
        } else {
            BULK_A_TURN
        }
    }

    /// Called when this turn has sent `bytes` of bulk.
    pub fn bulk_went(&mut self, bytes: usize) {
        self.turn.1 += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::tests::{Node, pair, run};
    use oikaze_os::memory::Region;
    use oikaze_protocol::rma::Rights;
    use oikaze_protocol::wind::Body;

    /// WIND-3.10: an arrival at a barrier comes with bulk for which the same threads wait.
    #[test]
    fn bulk_gives_way_to_puts_and_not_to_arrivals() {
        let (mut a, mut b, mut now) = pair();
        let share = |node: &mut Node, now| {
            let quota = &mut node.engine.egress.quota;
            quota.bulk_share(now).max(quota.bulk_share(now))
        };
        let barriers = [a.ask(Request::Barrier), b.ask(Request::Barrier)];
        run(&mut a, &mut b, &mut now, |_| barriers.iter().all(|barrier| barrier.is_done()));
        assert_eq!(share(&mut b, now), BULK_A_TURN);
        let there = b.engine.memory().insert(Region::zeroed(8).unwrap(), Rights::ALL).unwrap();
        let body = Body::Inline(vec![0; 8]);
        let put = a.ask(Request::Put { to: 1, key: there.key, offset: 0, body, signal: None });
        run(&mut a, &mut b, &mut now, |_| put.is_done());
        assert!(share(&mut b, now) < BULK_A_TURN);
    }

    /// WIND-3.10: among small messages, a fast machine sends more bulk per turn than a slow
    /// machine.
    #[test]
    fn among_small_messages_bulk_goes_for_a_limited_time() {
        let mut quota = BulkQuota::default();
        let mut now = Time(5);
        let mut shares = |quota: &mut BulkQuota, nanoseconds: u64| {
            for turn in 0..200 {
                quota.small_came(now);
                let share = match quota.bulk_share(now) {
                    0 => quota.bulk_share(now),
                    share => share,
                };
                quota.bulk_went(share);
                // Every seventh turn spends 80 µs on other work than bulk.
                let lost = if turn % 7 == 0 { 80_000 } else { 0 };
                now += Duration::from_nanos(5_000 + lost + share as u64 * nanoseconds / 1000);
            }
            quota.bulk_share(now).max(quota.bulk_share(now))
        };
        let [fast, slow, between, again] =
            [200, 1500, 700, 200].map(|cost| shares(&mut quota, cost));
        assert_eq!(fast, BULK_AMONG_SMALL_MAX);
        assert_eq!(slow, BULK_AMONG_SMALL);
        assert_eq!(again, BULK_AMONG_SMALL_MAX);
        assert!(between > BULK_AMONG_SMALL && between < BULK_AMONG_SMALL_MAX, "{between}");
    }

    #[test]
    fn a_turn_that_seems_to_have_taken_no_time_says_nothing_of_the_machine() {
        let mut quota = BulkQuota::default();
        let mut now = Time(1_000_000);
        for turn in 0..20 {
            quota.small_came(now);
            quota.bulk_share(now);
            quota.bulk_went(BULK_AMONG_SMALL);
            if turn == 9 {
                quota.bulk_share(Time(now.0 - 100));
                quota.bulk_went(BULK_AMONG_SMALL);
            }
            now += Duration::from_micros(80);
        }
        quota.small_came(now);
        assert_eq!(quota.bulk_share(now).max(quota.bulk_share(now)), BULK_AMONG_SMALL);
    }

    #[test]
    fn bulk_gives_way_to_small_messages_and_is_not_stopped_by_them() {
        let mut quota = BulkQuota::default();
        let mut now = Time(5);
        assert_eq!(quota.bulk_share(now), BULK_A_TURN);
        for _ in 0..3 {
            quota.small_came(now);
            assert_eq!(quota.bulk_share(now), 0);
            quota.small_came(now);
            assert_eq!(quota.bulk_share(now), BULK_AMONG_SMALL);
        }
        now += SMALL_RECENT_TIME - core::time::Duration::from_nanos(1);
        assert_eq!(quota.bulk_share(now), BULK_AMONG_SMALL);
        now += SMALL_RECENT_TIME;
        assert_eq!(quota.bulk_share(now), BULK_A_TURN);
    }
}
