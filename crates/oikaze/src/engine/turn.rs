//! Turns: whole ones, and those that end early for somebody's sake.

use super::Engine;
use oikaze_os::link::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Who submits runs a turn at once, and would find nothing on the link if it was looked at less
/// than this ago: a system call for nothing, before the datagram that somebody waits for.
const LOOK_AGAIN: Duration = Duration::from_micros(5);

/// A turn with more datagrams than this takes longer than a look at the clock is worth.
const LONG: usize = 4;

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Datagrams received.
    pub received: usize,
    /// Datagrams sent.
    pub sent: usize,
    /// Operations settled and messages arrived.
    pub settled: usize,
    /// There is more to do at once.
    pub more: bool,
}

impl Work {
    /// Nothing was done and nothing is due.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.received == 0 && self.sent == 0 && self.settled == 0 && !self.more
    }

    /// What this turn and the next one did.
    pub fn add(&mut self, next: Work) {
        self.received += next.received;
        self.sent += next.sent;
        self.settled += next.settled;
        self.more = next.more;
    }

    /// So many datagrams came or went that the clock has moved on noticeably since the turn began.
    #[must_use]
    pub fn is_long(self) -> bool {
        self.more || self.sent + self.received > LONG
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// One turn (WIND-10.4).
    pub fn turn(&mut self, now: Time) -> Work {
        self.looked = now;
        let received = self.ingress(now);
        self.rest_of_turn(now, received)
    }

    /// A turn for the sake of somebody who waits: if something arrived and nothing presses, it ends
    /// with that, and what is left (to tell what has arrived, to set timers) is for the next turn,
    /// most often that of the answer. The next is always a whole one (WIND-10.4).
    pub fn turn_for_news(&mut self, now: Time) -> Work {
        if self.unfinished {
            return self.turn(now);
        }
        (self.looked, self.now) = (now, now);
        let received = self.ingress(now);
        self.end_with_news(now, received)
    }

    /// After [`Engine::turn_for_news`] found nothing: another look where something is most likely
    /// to come, for who still waits.
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

    /// A turn for the sake of what was just submitted: it does not look at the link if a turn has
    /// lately done so.
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
        let late = self.peers.process_deferred_ack(now);
        // What these set free (a barrier's arrival after its diffs, say) is posted by the next
        // turn.
        let begun = self.settle_events();
        self.peers.settle(now);
        self.rest_buffer_pool();
        let unposted =
            self.rma.answers() > deferred || self.coherence.owes() || self.loopback.is_due();
        // A link without room says itself when to try again, if it can.
        let stopped = self.is_stopped() && self.link.next_wakeup().is_none();
        self.more = owed
            || late
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

    /// What has been settled since a turn said so, or this did: those who may wait for it are to be
    /// told.
    pub fn take_settled(&mut self) -> usize {
        std::mem::take(&mut self.news) + self.operations.take_settled()
    }

    /// Is anything to be done now that peers or other threads wait for, or time asks for?
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

    /// Did the last turn leave something to do at once? Whoever is about to sleep must know.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more || self.unfinished || self.ahead.count() > 0
    }

    /// When the next turn is needed at the latest, if nothing arrives and nothing is asked.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if self.unfinished {
            return Some(self.now);
        }
        let own = [self.coherence.next_question(), self.rma.next_look()];
        let peers = [self.peers.next_timeout(), self.retry.next(), self.next_of_local_peers()];
        own.into_iter().chain(peers).flatten().min()
    }

    /// Has every peer that lives acknowledged all that was sent to it, and has all been moved that
    /// goes to ourselves?
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let sent =
            self.peers.are_settled() && self.local_peers_are_settled() && !self.loopback.is_due();
        !self.unfinished && self.retry.is_empty() && sent
    }

    /// Is anything left to be sent, or has a deadline come?
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.unfinished || self.is_stopped() || self.peers.have_due(now)
    }

    /// After [`Request::Close`]: has every peer been told, as often as it takes?
    #[must_use]
    pub fn has_parted(&self, now: Time) -> bool {
        !self.has_due(now) && self.next_timeout().is_none()
    }

    /// Has the link no room for what waits, of either lane?
    fn is_stopped(&self) -> bool {
        self.egress.both().iter().any(|batch| batch.is_stopped())
    }
}
