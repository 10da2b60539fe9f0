//! Retries operations whose target had absent pages, with backoff, until the pages are present
//! (MEM-1.11).

use crate::events::Owner;
use crate::{Engine, Failure};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{PRESENT_PAUSE_MAX, PRESENT_PAUSE_MIN, PRESENT_TIME};
use oikaze_protocol::rma::Rma;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Message, Refusal, Token};
use std::collections::HashMap;

/// A message that waits.
struct Waiting {
    due: Time,
    to: Rank,
    message: Message,
}

/// Backoff of retries until pages are present: their number and the time of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    since: Time,
    times: u32,
}

impl Backoff {
    pub fn new(now: Time) -> Backoff {
        Backoff { since: now, times: 0 }
    }

    /// Called after another failed try. Returns the time of the next try, if there is one.
    pub fn next(&mut self, now: Time) -> Option<Time> {
        if now - self.since > PRESENT_TIME {
            return None;
        }
        let pause =
            PRESENT_PAUSE_MIN.saturating_mul(1 << self.times.min(16)).min(PRESENT_PAUSE_MAX);
        self.times += 1;
        Some(now + pause)
    }
}

/// Timer between two tries of work that absent pages hold up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTimer {
    patience: Option<Backoff>,
    until: Option<Time>,
}

impl RetryTimer {
    /// Called after another failed try. Returns `true` if there will be another one.
    pub fn begin(&mut self, now: Time) -> bool {
        // Who has tried in between has not waited for longer.
        if self.until.is_none_or(|due| due <= now) {
            self.until = self.patience.get_or_insert_with(|| Backoff::new(now)).next(now);
        }
        self.until.is_some()
    }

    /// Called when no page is absent any more.
    #[inline]
    pub fn end(&mut self) {
        *self = RetryTimer::default();
    }

    /// Ends the pause if its time has come.
    #[inline]
    pub fn wake_up(&mut self, now: Time) {
        if self.until.is_some_and(|due| due <= now) {
            self.until = None;
        }
    }

    /// Until when it rests.
    #[inline]
    pub fn until(&self) -> Option<Time> {
        self.until
    }
}

/// All of them. Empty in nodes whose peers have no files for memory.
#[derive(Default)]
pub(crate) struct RetryQueue {
    waiting: Vec<Waiting>,
    tried: HashMap<Token, Backoff>,
}

impl RetryQueue {
    pub fn next(&self) -> Option<Time> {
        self.waiting.iter().map(|waiting| waiting.due).min()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing is to be sent for this operation any more.
    pub fn forget(&mut self, token: Token) {
        if !self.tried.is_empty() {
            self.tried.remove(&token);
            self.waiting.retain(|waiting| waiting.message.token != token);
        }
    }

    /// Nor for these.
    pub fn forget_all(&mut self, forgotten: &impl Fn(Token) -> bool) {
        if !self.tried.is_empty() {
            self.tried.retain(|&token, _| !forgotten(token));
            self.waiting.retain(|waiting| !forgotten(waiting.message.token));
        }
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// A peer could not take this message in, for pages that are absent there.
    pub(crate) fn returned(&mut self, to: Rank, message: Message) {
        let token = message.token;
        if Owner::of(token) != Owner::Operation || !Rma::may_repeat(&message.head) {
            return self.refused(token, Refusal::NotPresent);
        }
        let now = self.now;
        let Some(due) =
            self.retry.tried.entry(token).or_insert_with(|| Backoff::new(now)).next(now)
        else {
            self.retry.forget(token);
            return self.refused(token, Refusal::NotPresent);
        };
        self.retry.waiting.push(Waiting { due, to, message });
    }

    /// Post what has waited for long enough.
    pub(crate) fn post_retries(&mut self, now: Time) {
        if self.retry.is_empty() {
            return;
        }
        let (due, later) = std::mem::take(&mut self.retry.waiting)
            .into_iter()
            .partition(|waiting| waiting.due <= now);
        self.retry.waiting = later;
        for Waiting { to, message, .. } in due {
            if self.is_full(to) {
                self.retry.waiting.push(Waiting { due: now + PRESENT_PAUSE_MIN, to, message });
            } else {
                self.post(to, message);
            }
        }
    }

    /// A peer is gone, and with it what was to be sent there again.
    pub(crate) fn abandon_retries(&mut self, peer: Rank) {
        let (gone, rest): (Vec<_>, _) = std::mem::take(&mut self.retry.waiting)
            .into_iter()
            .partition(|waiting| waiting.to == peer);
        self.retry.waiting = rest;
        for Waiting { message, .. } in gone {
            let death = self.death_of(peer);
            self.fail(peer, message.token, Failure::PeerLost { peer, death });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{pair, step};
    use crate::{Failure, Request};
    use oikaze_os::memory::Region;
    use oikaze_protocol::limits::PAGE;
    use oikaze_protocol::rma::Rights;
    use oikaze_protocol::wind::{Body, Death};

    /// MEM-7.4: what waits here to be posted again, and what was posted again and is under way,
    /// ends with how the peer was lost, and nothing of it is kept.
    #[test]
    fn who_has_left_is_said_to_have_left() {
        for posted_again in [false, true] {
            let (mut a, mut b, mut now) = pair();
            let (region, disk) = Region::staged(PAGE).unwrap();
            let there = b.engine.memory().insert(region, Rights::ALL).unwrap();
            disk.evict(0..1);
            let put = a.ask(Request::Put {
                to: 1,
                key: there.key,
                offset: 0,
                body: Body::Inline(vec![1; 8]),
                signal: None,
            });
            while a.engine.retry.is_empty() {
                now = step(now);
                a.turn(now);
                b.turn(now);
            }
            if posted_again {
                now = a.engine.retry.next().unwrap();
                a.turn(now);
                assert!(a.engine.retry.is_empty());
            }
            b.engine.link_mut().from.lock().unwrap().clear();
            let _ = b.ask(Request::Close);
            b.turn(now);
            a.turn(now);
            assert_eq!(
                put.outcome(),
                Some(Err(Failure::PeerLost { peer: 1, death: Death::Closed })),
                "{posted_again}"
            );
            assert!(a.engine.retry.tried.is_empty(), "{posted_again}");
        }
    }
}
