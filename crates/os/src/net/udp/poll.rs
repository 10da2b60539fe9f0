//! Polls of the sockets. A wrapper with a receive path of its own polls them step by step.

use super::UdpLink;
use super::recv::{BUFFER_LEN, BUFFERS};
use super::recv_direct::Guess;
use crate::net::Sink;
use oikaze_protocol::wire::Lane;
use std::io;
use std::time::Instant;

/// Datagrams after which a poll for small datagrams ends.
pub(in crate::net) const SMALL_POLL_DATAGRAMS: usize = 64;
/// Polls in a row on behalf of a waiting thread before any other work. On average a datagram is
/// noticed half a poll interval after it arrives, and other work between two polls lengthens the
/// interval.
pub(in crate::net) const WAITING_POLLS: usize = 4;
/// Bytes of bulk between two polls of the small sockets while small messages are recent. They take
/// less time than an unloaded round trip.
const BULK_POLL_BYTES_AMONG_SMALL: usize = BUFFER_LEN / 2;
/// Bytes of bulk between two polls otherwise. The cost of a turn is negligible against these.
const BULK_POLL_BYTES: usize = 4 * BUFFER_LEN;
/// Average buffer length in bytes up to which several buffers are requested together.
const SMALL_BUFFER_BYTES: usize = 3 * BUFFER_LEN / (2 * BUFFERS);
/// Bytes that a datagram counts for at least, however short, so that a poll of bulk ends.
const DATAGRAM_BYTES_MIN: usize = 1024;

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
        if !self.sockets.own.bulk.is_empty() && (idle || bulk) {
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

    /// Polls a small socket and returns how many datagrams it had.
    ///
    /// An idle socket is asked for one buffer, which is what a lone small message takes and the
    /// quickest way to learn that nothing is there. A busy socket is asked for several.
    fn poll_small(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<usize> {
        let Some(socket) = self.sockets.get_mut(Lane::Small, index) else {
            // There were more sockets when this index became hot.
            self.schedule.hot_small = 0;
            return Ok(0);
        };
        let (mut taken, mut avoided) = (0, None);
        while taken < SMALL_POLL_DATAGRAMS {
            let was_busy = socket.busy;
            let burst = if self.plain_only.is_empty() {
                self.pool.receive(socket, was_busy, &mut self.statistics, &mut |arrival| {
                    sink.take(arrival);
                })?
            } else {
                let (now, is_fast) = (Instant::now(), socket.peer.is_some());
                self.pool.receive(socket, was_busy, &mut self.statistics, &mut |arrival| {
                    if is_fast {
                        self.plain_only.heard_fast(arrival.from);
                    } else if self.plain_only.heard_plain(arrival.from, now) {
                        avoided = Some(arrival.from);
                    }
                    sink.take(arrival);
                })?
            };
            taken += burst.datagrams;
            socket.busy = burst.buffers > usize::from(was_busy);
            if was_busy && socket.busy {
                // Datagrams that come one by one meet no filling queue, so marks are only requested
                // for bursts.
                socket.hear_marks();
            }
            if !(was_busy && burst.full) {
                break;
            }
        }
        if let Some(peer) = avoided {
            self.report_plain_only(peer);
        }
        if taken > 0 {
            self.schedule.small_came_by_socket();
        }
        Ok(taken)
    }

    /// Polls a bulk socket, up to a number of bytes. Several buffers are requested only while
    /// buffers are small: partial batches, or single datagrams where the kernel does not join them.
    fn poll_bulk(
        &mut self,
        index: usize,
        sink: &mut dyn Sink,
        small_waits: &impl Fn() -> bool,
    ) -> io::Result<usize> {
        let Some(socket) = self.sockets.get_mut(Lane::Bulk, index) else {
            self.schedule.hot_bulk = 0;
            return Ok(0);
        };
        let (mut taken, mut bytes, mut peer) = (0, 0, None);
        let share = if self.schedule.is_small_recent() {
            BULK_POLL_BYTES_AMONG_SMALL
        } else {
            BULK_POLL_BYTES
        };
        while bytes < share {
            let (burst, guess) = self.pool.receive_bulk(socket, &mut self.statistics, sink)?;
            if let Guess::Right(from) = guess {
                peer = Some(from);
            }
            taken += burst.datagrams;
            bytes += burst.bytes.max(burst.datagrams * DATAGRAM_BYTES_MIN);
            socket.busy = burst.buffers > 0 && burst.bytes <= burst.buffers * SMALL_BUFFER_BYTES;
            // Small datagrams do not wait for the rest of the bulk.
            if !burst.full || small_waits() {
                break;
            }
        }
        if taken > 0 {
            self.schedule.bulk_came();
            socket.came = self.schedule.polls;
            socket.hear_marks();
        }
        if let Some(peer) = peer {
            self.count_call(peer, Lane::Bulk);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
