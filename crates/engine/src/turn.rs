//! Turns of the engine: whole turns, and turns that end early for a thread that waits.

use super::Engine;
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Minimum age of the latest poll of the link before a submitter's turn polls again. A submitter
/// runs a turn at once, and an earlier poll would be a useless system call that delays its
/// datagram.
const LOOK_AGAIN: Duration = Duration::from_micros(5);

/// Number of datagrams above which a turn takes longer than a reading of the clock is worth.
const LONG: usize = 4;

/// Work that a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of datagrams received.
    pub received: usize,
    /// Number of datagrams sent.
    pub sent: usize,
    /// Number of operations settled and messages arrived.
    pub settled: usize,
    /// Is `true` if there is more to do at once.
    pub more: bool,
}

impl Work {
    /// Returns `true` if nothing was done and nothing is due.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.received == 0 && self.sent == 0 && self.settled == 0 && !self.more
    }

    /// Adds the work of the next turn.
    pub fn add(&mut self, next: Work) {
        self.received += next.received;
        self.sent += next.sent;
        self.settled += next.settled;
        self.more = next.more;
    }

    /// Returns `true` if the turn handled so many datagrams that the clock has moved on noticeably.
    #[must_use]
    pub fn is_long(self) -> bool {
        self.more || self.sent + self.received > LONG
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Runs one whole turn (WIND-10.4).
    pub fn turn(&mut self, now: Time) -> Work {
        self.looked = now;
        let received = self.ingress(now);
        self.rest_of_turn(now, received)
    }

    /// Runs a turn for a thread that waits. If something arrived and no other work is urgent, the
    /// turn ends there. The next turn acknowledges the arrivals and sets timers, most often
    /// together with the answer. The next turn is always a whole one (WIND-10.4).
    pub fn turn_for_news(&mut self, now: Time) -> Work {
        if self.unfinished {
            return self.turn(now);
        }
        (self.looked, self.now) = (now, now);
        let received = self.ingress(now);
        self.end_with_news(now, received)
    }

    /// Polls again, for a thread that still waits, where data is most likely to arrive. Called
    /// after [`Engine::turn_for_news`] found nothing.
    pub fn look_again(&mut self, now: Time) -> Work {
        if self.unfinished {
            return self.turn(now);
        }
        (self.looked, self.now) = (now, now);
        match self.link_ingress(now, L::receive_again) {
            0 => Work::default(),
            received => self.end_with_news(now, received),
        }
    }

    fn end_with_news(&mut self, now: Time, received: usize) -> Work {
        if received > 0 {
            self.settle_events();
        }
        if self.is_pressed(now) {
            return self.rest_of_turn(now, received);
        }
        if received > 0 {
            // The next turn may be long in coming.
            self.wake_stirred_local_peers();
        }
        self.unfinished = received > 0;
        Work { received, settled: self.take_news(), ..Work::default() }
    }

    /// Runs a turn for a new submission. The turn does not poll the link if a turn has lately done
    /// so.
    pub fn turn_to_send(&mut self, now: Time) -> Work {
        if now - self.looked > LOOK_AGAIN { self.turn(now) } else { self.rest_of_turn(now, 0) }
    }

    fn rest_of_turn(&mut self, now: Time, received: usize) -> Work {
        self.counters.turns += 1;
        self.now = now;
        self.unfinished = false;
        self.settle_events();
        self.peers.timers(now);
        self.coherence.ask(now, self.failure_time);
        self.rma.look_for_unanswered(now, self.failure_time);
        self.post_retries(now);
        self.take_submissions(now);
        let owed = self.post_replies();
        let deferred = self.rma.answers();
        let (sent, cut) = self.send_due(now);
        let smaller = self.apply_refused_sizes(now);
        self.end_broken();
        let asked = self.stir_local_peers();
        // The next turn posts the messages that these events set free, such as a barrier's arrival
        // after its diffs.
        let begun = self.settle_events();
        self.peers.settle(now);
        self.rest_buffer_pool();
        let unposted =
            self.rma.answers() > deferred || self.coherence.owes() || self.loopback.is_due();
        // A link without room says itself when to try again, if it can.
        let stopped = self.is_stopped() && self.link.next_wakeup().is_none();
        self.more = owed
            || asked
            || begun
            || unposted
            || cut
            || smaller
            || stopped
            || !self.submissions.is_empty();
        Work { received, sent, settled: self.take_news(), more: self.more }
    }

    fn take_news(&mut self) -> usize {
        self.take_settled() + self.ahead.take()
    }

    /// Returns the number of events settled since it was last taken, so that their waiters are
    /// woken.
    pub fn take_settled(&mut self) -> usize {
        std::mem::take(&mut self.news) + self.operations.take_settled()
    }

    /// Returns `true` if there is work now for which peers or other threads wait, or whose time has
    /// come.
    fn is_pressed(&self, now: Time) -> bool {
        self.more
            || self.is_stopped()
            || self.loopback.is_due()
            || self.retry.next().is_some_and(|due| due <= now)
            || self.coherence.owes()
            || self.rma.answers() > 0
            || !self.submissions.is_empty()
            || self.peers.is_any_pressed(now)
    }

    /// Returns `true` if the last turn left something to do at once. A thread must check this
    /// before it sleeps.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more || self.unfinished || self.ahead.count() > 0
    }

    /// Returns the latest time for the next turn, if nothing arrives and nothing is submitted.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if self.unfinished {
            return Some(self.now);
        }
        let own = [self.coherence.next_question(), self.rma.next_look()];
        let peers = [self.peers.next_timeout(), self.retry.next(), self.next_of_local_peers()];
        own.into_iter().chain(peers).flatten().min()
    }

    /// Returns `true` if every live peer has acknowledged all data and no loopback data is left to
    /// move.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let sent =
            self.peers.are_settled() && self.local_peers_are_settled() && !self.loopback.is_due();
        !self.unfinished && self.retry.is_empty() && sent
    }

    /// Returns `true` if anything is left to send or a deadline has come.
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.unfinished || self.is_stopped() || self.peers.have_due(now)
    }

    /// Returns `true` if, after [`Request::Close`], every peer has been told as often as it takes.
    #[must_use]
    pub fn has_parted(&self, now: Time) -> bool {
        !self.has_due(now) && self.next_timeout().is_none()
    }

    /// Returns `true` if the link has no room for the waiting datagrams of either lane.
    fn is_stopped(&self) -> bool {
        self.egress.both().iter().any(|batch| batch.is_stopped())
    }
}
