//! One socket's share of a poll.

use super::link::UdpLink;
use super::recv::{BUFFER_LEN, BUFFERS};
use super::recv_direct::Guess;
use crate::net::sink::Sink;
use oikaze_protocol::wire::Lane;
use std::io;
use std::time::Instant;

/// Datagrams after which a poll for small datagrams ends.
pub(in crate::net) const SMALL_POLL_DATAGRAMS: usize = 64;
/// Bytes of bulk between two polls of the small sockets while small messages are recent. They take
/// less time than an unloaded round trip.
const BULK_POLL_BYTES_AMONG_SMALL: usize = BUFFER_LEN / 2;
/// Bytes of bulk between two polls otherwise. The cost of a turn is negligible against these.
pub(super) const BULK_POLL_BYTES: usize = 4 * BUFFER_LEN;
/// Average buffer length in bytes up to which several buffers are requested together.
const SMALL_BUFFER_BYTES: usize = 3 * BUFFER_LEN / (2 * BUFFERS);
/// Bytes that a datagram counts for at least, however short, so that a poll of bulk ends.
pub(super) const DATAGRAM_BYTES_MIN: usize = 1024;

impl UdpLink {
    /// Polls a small socket and returns how many datagrams it had.
    ///
    /// An idle socket is asked for one buffer, which is what a lone small message takes and the
    /// quickest way to learn that nothing is there. A busy socket is asked for several.
    pub(super) fn poll_small(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<usize> {
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
    pub(super) fn poll_bulk(
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
            if let Guess::Right(from) = guess
                && sink.is_first_flow(from)
            {
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
