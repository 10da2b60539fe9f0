//! Liveness of the peer (WIND-7).

use crate::limits::PROGRESS_FAILURE_TIMES;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::settings::Settings;
use core::time::Duration;

/// Result of a check of the time (WIND-7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    Fine,
    /// Ask the peer for a sign of life.
    Ask,
    /// Half of the failure time has passed without a sign of life. Ask for one, and doubt the fast
    /// paths by which the link receives (WIND-8.13). Reported once in each silence.
    PeerSilent,
    Dead,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    failure_time: Duration,
    keepalive: Duration,
    heard: Time,
    next_ask: Time,
    /// Time before which the peer does not count as dead, whatever `heard` says.
    grace: Time,
    last_run: Time,
    reported_silence: bool,
}

impl Liveness {
    pub fn new(settings: &Settings, now: Time) -> Liveness {
        let (failure_time, keepalive) = (settings.failure_time, settings.keepalive());
        Liveness {
            failure_time,
            keepalive,
            heard: now,
            next_ask: now + keepalive,
            grace: now,
            last_run: now,
            reported_silence: false,
        }
    }

    /// Notes that this node runs now. If it slept for more than half of the failure time, the
    /// silence says nothing about the peer, whose datagrams may still lie in the socket (WIND-7.4).
    pub fn note_running(&mut self, now: Time) {
        if now - self.last_run > self.failure_time / 2 {
            self.grace = now + self.failure_time / 2;
            self.next_ask = now;
        }
        self.last_run = self.last_run.max(now);
    }

    pub fn heard(&mut self, now: Time) {
        self.heard = self.heard.max(now);
        self.next_ask = self.heard + self.keepalive;
        self.reported_silence = false;
    }

    /// Returns `true` if a datagram heard now ends a silence.
    pub fn ends_a_silence(&self, now: Time) -> bool {
        now - self.heard >= self.keepalive / 2
    }

    /// Returns when the peer was last heard.
    pub fn heard_at(&self) -> Time {
        self.heard
    }

    /// Returns when to give up a peer that has acknowledged nothing since `since` (WIND-7.6). After
    /// a sleep of this node, that is not before its grace has passed (WIND-7.4).
    pub fn stuck_at(&self, since: Time) -> Time {
        (since + self.failure_time * PROGRESS_FAILURE_TIMES).max(self.grace)
    }

    fn dead_at(&self) -> Time {
        let late = if planted(Bug::NoticeDeathLate) { 4 } else { 1 };
        (self.heard + self.failure_time * late).max(self.grace)
    }

    /// Returns when the silence is to be reported. After a sleep of this node, the peer first gets
    /// some time to be heard (WIND-7.4).
    fn silent_at(&self) -> Time {
        let quarter = u64::try_from((self.failure_time / 4).as_nanos()).unwrap_or(u64::MAX);
        (self.heard + self.failure_time / 2).max(Time(self.grace.0.saturating_sub(quarter)))
    }

    pub fn next_timeout(&self) -> Time {
        let next = self.next_ask.min(self.dead_at());
        if self.reported_silence { next } else { next.min(self.silent_at()) }
    }

    pub fn check(&mut self, now: Time) -> Pulse {
        if now >= self.dead_at() {
            Pulse::Dead
        } else if !self.reported_silence && now >= self.silent_at() {
            (self.reported_silence, self.next_ask) = (true, now + self.keepalive);
            Pulse::PeerSilent
        } else if now >= self.next_ask {
            self.next_ask = now + self.keepalive;
            Pulse::Ask
        } else {
            Pulse::Fine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    fn fresh() -> Liveness {
        Liveness::new(
            &Settings { failure_time: Duration::from_millis(500), ..Settings::default() },
            ms(0),
        )
    }

    /// WIND-7.1, 7.2, 8.13.
    #[test]
    fn asks_five_times_and_then_gives_up() {
        let mut life = fresh();
        let (mut asked, mut reported) = (0, std::vec::Vec::new());
        let mut now = ms(0);
        let dead = loop {
            now = now.max(life.next_timeout());
            life.note_running(now);
            match life.check(now) {
                Pulse::Ask => asked += 1,
                Pulse::PeerSilent => reported.push(now),
                Pulse::Fine => {}
                Pulse::Dead => break now,
            }
        };
        assert_eq!((asked, reported.as_slice(), dead), (4, [ms(250)].as_slice(), ms(500)));
    }

    /// WIND-7.4.
    #[test]
    fn own_sleep_is_not_held_against_the_peer() {
        let mut life = fresh();
        life.note_running(ms(2000));
        assert_eq!(life.check(ms(2000)), Pulse::Ask);
        life.note_running(ms(2120));
        assert_eq!(
            life.check(ms(2120)),
            Pulse::Ask,
            "what the peer has sent may still lie in the socket"
        );
        life.note_running(ms(2200));
        assert_eq!(life.check(ms(2200)), Pulse::PeerSilent);
        life.note_running(ms(2250));
        assert_eq!(life.check(ms(2250)), Pulse::Dead);
    }
}
