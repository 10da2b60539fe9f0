//! Retries operations whose target had absent pages, with backoff, until the pages are present
//! (MEM-1.11).

use super::backoff::Backoff;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PRESENT_PAUSE_MIN;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Message, Token};
use std::collections::HashMap;

/// Message that waits for its next try.
pub(crate) struct Retry {
    due: Time,
    pub to: Rank,
    pub message: Message,
}

/// Messages that wait for their next try. Empty in nodes whose peers have no files for memory.
#[derive(Default)]
pub(crate) struct RetryQueue {
    waiting: Vec<Retry>,
    tried: HashMap<Token, Backoff>,
}

impl RetryQueue {
    /// Returns the time of the earliest try.
    pub fn next(&self) -> Option<Time> {
        self.waiting.iter().map(|retry| retry.due).min()
    }

    /// Returns `true` if no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Called when nothing is to be sent for this operation any more.
    pub fn forget(&mut self, token: Token) {
        if !self.tried.is_empty() {
            self.tried.remove(&token);
            self.waiting.retain(|retry| retry.message.token != token);
        }
    }

    /// Does the same for all operations that `forgotten` selects.
    pub fn forget_all(&mut self, forgotten: &impl Fn(Token) -> bool) {
        if !self.tried.is_empty() {
            self.tried.retain(|&token, _| !forgotten(token));
            self.waiting.retain(|retry| !forgotten(retry.message.token));
        }
    }

    /// Keeps a message for its next try. Returns `false` if it was tried for long enough.
    pub fn add(&mut self, to: Rank, message: Message, now: Time) -> bool {
        let token = message.token;
        let due = self.tried.entry(token).or_insert_with(|| Backoff::new(now)).next(now);
        let Some(due) = due else {
            self.forget(token);
            return false;
        };
        self.waiting.push(Retry { due, to, message });
        true
    }

    /// Takes the messages whose time has come.
    pub fn take_due(&mut self, now: Time) -> Vec<Retry> {
        self.take(|retry| retry.due <= now)
    }

    /// Puts back a message for which there was no room.
    pub fn postpone(&mut self, retry: Retry, now: Time) {
        self.waiting.push(Retry { due: now + PRESENT_PAUSE_MIN, ..retry });
    }

    /// Takes all messages to this peer.
    pub fn take_to(&mut self, peer: Rank) -> Vec<Retry> {
        self.take(|retry| retry.to == peer)
    }

    fn take(&mut self, wanted: impl Fn(&Retry) -> bool) -> Vec<Retry> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.waiting.extract_if(.., |retry| wanted(retry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{pair, turn_both};
    use crate::{Failure, Request};
    use oikaze_os::memory::Region;
    use oikaze_protocol::limits::PAGE;
    use oikaze_protocol::rma::Rights;
    use oikaze_protocol::wind::{Body, Death};

    /// MEM-7.4: messages that wait for a retry, and messages that were posted again and are in
    /// flight, fail with the cause of the peer's loss. Nothing of them is kept.
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
            while a.engine.ops.retry.is_empty() {
                turn_both(&mut now, &mut a, &mut b);
            }
            if posted_again {
                now = a.engine.ops.retry.next().unwrap();
                a.turn(now);
                assert!(a.engine.ops.retry.is_empty());
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
            assert!(a.engine.ops.retry.tried.is_empty(), "{posted_again}");
        }
    }
}
