//! Polls of the sockets. A wrapper with a receive path of its own polls them step by step.

use super::link::UdpLink;
use crate::net::sink::Sink;
use oikaze_protocol::wire::Lane;
use std::io;

/// Polls in a row on behalf of a waiting thread before any other work. On average a datagram is
/// noticed half a poll interval after it arrives, and other work between two polls lengthens the
/// interval.
pub(in crate::net) const WAITING_POLLS: usize = 4;

/// Result of the first half of a poll, which is for small datagrams.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) struct SmallPoll {
    /// Small datagrams came.
    pub(in crate::net) came: bool,
    /// The hot small socket was not polled, because small datagrams come by a bypass.
    pub(in crate::net) by_bypass: bool,
}

impl UdpLink {
    /// Polls once: the hot small socket, then the others.
    pub(super) fn poll(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.schedule.begin_poll();
        let small = self.poll_hot_small(sink)?;
        let first = SmallPoll { came: small > 0, by_bypass: false };
        Ok(small + self.poll_others(first, sink, || false)?)
    }

    /// Polls a few more times on behalf of a waiting thread, until something comes. Only the hot
    /// socket is polled, unless bulk is recent.
    pub(super) fn poll_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.schedule.is_bulk_recent() {
            return self.poll(sink);
        }
        for _ in 0..WAITING_POLLS {
            self.schedule.begin_poll();
            let taken = self.poll_hot_small(sink)?;
            if taken > 0 {
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Polls the hot small socket: the first half of a poll.
    pub(in crate::net) fn poll_hot_small(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.poll_small(self.schedule.hot_small, sink)
    }

    /// Polls the hot bulk socket if bulk is recent, and every few polls one of the others: the
    /// second half of a poll. Bulk ends early if `small_waits` returns `true`.
    pub(in crate::net) fn poll_others(
        &mut self,
        first: SmallPoll,
        sink: &mut dyn Sink,
        small_waits: impl Fn() -> bool,
    ) -> io::Result<usize> {
        let mut taken = 0;
        let (bulk, idle) = (self.schedule.may_poll_bulk(first.came), self.schedule.may_poll_idle());
        if self.sockets.count(Lane::Bulk) > 0 && (idle || bulk) {
            taken += self.poll_bulk(self.schedule.hot_bulk, sink, &small_waits)?;
            self.schedule.hot_bulk = self.next_hot_bulk();
        }
        if idle {
            self.schedule.idle_polled_at = self.schedule.polls;
            taken += self.poll_idle(first, sink, &small_waits)?;
        }
        Ok(taken)
    }

    /// Chooses the next hot bulk socket. Recently active bulk sockets take turns, because several
    /// peers may send bulk, each to a socket of its own.
    fn next_hot_bulk(&self) -> usize {
        let hot = self.schedule.hot_bulk;
        let mut recent = self
            .sockets
            .last_polls(Lane::Bulk)
            .enumerate()
            .filter(|(_, came)| self.schedule.is_recent_for_bulk(*came))
            .map(|(index, _)| index);
        let first = recent.next();
        let next = first.filter(|first| *first > hot).or_else(|| recent.find(|index| *index > hot));
        next.or(first).unwrap_or(hot)
    }

    /// Polls one socket that is not hot, in turn. It becomes hot if the hot one had nothing.
    fn poll_idle(
        &mut self,
        first: SmallPoll,
        sink: &mut dyn Sink,
        small_waits: &impl Fn() -> bool,
    ) -> io::Result<usize> {
        let [small, bulk] = Lane::BOTH.map(|lane| self.sockets.count(lane));
        let hot = usize::from(!first.by_bypass);
        let (others, other_bulk) = (small.saturating_sub(hot), bulk.saturating_sub(1));
        if others + other_bulk == 0 {
            return Ok(0);
        }
        let turn = self.schedule.idle_polls % (others + other_bulk);
        self.schedule.idle_polls = self.schedule.idle_polls.wrapping_add(1);
        if let Some(turn) = turn.checked_sub(others) {
            let index = (self.schedule.hot_bulk + 1 + turn) % bulk;
            let taken = self.poll_bulk(index, sink, small_waits)?;
            if taken > 0 {
                self.schedule.hot_bulk = index;
            }
            return Ok(taken);
        }
        let index = (self.schedule.hot_small + hot + turn) % small;
        let taken = self.poll_small(index, sink)?;
        if taken > 0 && !first.came {
            self.schedule.hot_small = index;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
