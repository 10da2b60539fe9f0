//! Poll schedule of the sockets: small datagrams come before bulk, and idle sockets cost little.

use super::super::sink::Sink;
use super::connected::ConnectedSet;
use super::{Socket, UdpLink};
use crate::net::udp::recv::{BUFFER_LEN, BUFFERS};
use crate::net::udp::recv_direct::Guess;
use oikaze_protocol::wire::Lane;
use std::io;

/// Datagrams after which a poll of a small socket ends.
const BURST: usize = 64;
/// Polls in a row on behalf of a waiting thread before any other work. On average a datagram is
/// noticed half a poll interval after it arrives, and other work between two polls lengthens the
/// interval.
const LOOKS_AT_ONCE: usize = 4;
/// Checks of the early ring in place of each of those polls: such a check is a load and not a
/// system call.
const LOOKS_AT_RING: usize = 16;
/// Polls after which one of the idle sockets is polled.
const LOOK_ASIDE: usize = 12;
/// Maximum number of polls by which idle sockets are deferred in favour of the hot one, which has
/// or may have datagrams at any moment.
const PUT_OFF: usize = 24;
/// Polls for which another small datagram is expected after one came: the sender's next, or its
/// answer to ours.
const EXPECTED: usize = 24;
/// Polls for which the bulk socket is polled each time after it had something.
const BULK_LATELY: usize = 64;
/// Polls for which small messages count as recent. Others may follow them, and bulk leaves room for
/// those.
const SMALL_LATELY: usize = 512;
/// Polls without a datagram through a socket, after which the sockets count as idle and only the
/// early ring is polled.
const SOCKET_LATELY: usize = 64;
/// Bytes of bulk between two polls of the small sockets while small messages are recent. They take
/// less time than an unloaded round trip.
const TAKEN_AMONG_SMALL: usize = BUFFER_LEN / 2;
/// Bytes of bulk between two polls otherwise. The cost of a turn is negligible against these.
const TAKEN_ALONE: usize = 4 * BUFFER_LEN;
/// Average buffer length in bytes up to which several buffers are requested together.
const SMALL_BUFFER: usize = 3 * BUFFER_LEN / (2 * BUFFERS);

/// State of the poll schedule.
#[derive(Debug)]
pub(crate) struct Looks {
    /// Number of polls so far.
    count: usize,
    /// Number of polls of other sockets than the hot ones.
    aside: usize,
    /// Poll at which an idle socket was polled last.
    aside_at: usize,
    /// Index of the small socket that had something last.
    hot: usize,
    /// Index of the bulk socket that had something last.
    hot_bulk: usize,
    /// Poll at which small datagrams came last.
    small: usize,
    /// Poll at which small datagrams came last through a socket, and not early.
    by_socket: usize,
    /// Small datagrams come early, and all small sockets are idle.
    early: bool,
    /// Poll at which bulk came last.
    bulk: usize,
    /// The latest poll left bulk to the next one.
    bulk_waits: bool,
}

impl Looks {
    pub(crate) fn new() -> Looks {
        // Nothing counts as recent at first.
        let count = BULK_LATELY.max(SMALL_LATELY).max(SOCKET_LATELY + 1);
        Looks {
            count,
            aside: 0,
            aside_at: count,
            hot: 0,
            hot_bulk: 0,
            small: 0,
            by_socket: 0,
            early: false,
            bulk: 0,
            bulk_waits: false,
        }
    }

    /// Accounts for new bulk sockets from this index on. The hot socket stays hot, because what is
    /// still in it came before anything in the new ones.
    pub(crate) fn more_bulk(&mut self, at: usize, more: usize) {
        if self.hot_bulk >= at {
            self.hot_bulk += more;
        }
    }

    /// Called when datagrams go to the sockets from now on.
    pub(crate) fn not_early(&mut self) {
        self.early = false;
    }

    fn is_bulk_lately(&self) -> bool {
        self.count.wrapping_sub(self.bulk) < BULK_LATELY
    }

    /// Returns `true` if an idle socket should be polled. Idle sockets cost more than the hot one,
    /// for which a thread waits. The best time is the first empty poll after a datagram, when the
    /// next datagram is least likely to be imminent.
    fn may_look_aside(&self) -> bool {
        let since = self.count.wrapping_sub(self.aside_at);
        let lull = self.count.wrapping_sub(self.small);
        since >= LOOK_ASIDE && (lull == 1 || lull > EXPECTED || since >= LOOK_ASIDE + PUT_OFF)
    }
}
/// Bytes that a datagram counts for at least, however short, so that a poll of bulk ends.
const COUNTED_LEAST: usize = 1024;

impl UdpLink {
    /// Polls once: the hot small socket, then the hot bulk socket if bulk is recent, and every few
    /// polls one of the others.
    pub(crate) fn look(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.looks.count = self.looks.count.wrapping_add(1);
        let now = self.looks.count;
        let mut small = self.look_at_early(sink);
        if small == 0 && !self.looks.early {
            small = self.look_at_small(self.looks.hot, sink)?;
            if small == 0 {
                self.reopen();
            }
        }
        let mut taken = small;
        // A thread may wait for small messages; bulk can wait for one poll.
        self.looks.bulk_waits = small > 0 && !self.looks.bulk_waits;
        let aside = self.looks.may_look_aside();
        if !self.bulk.is_empty()
            && (aside || (self.looks.is_bulk_lately() && !self.looks.bulk_waits))
        {
            taken += self.look_at_bulk(self.looks.hot_bulk, sink)?;
            self.looks.hot_bulk = self.next_bulk();
        }
        if aside {
            self.looks.aside_at = now;
            taken += self.look_aside(small > 0, sink)?;
        }
        Ok(taken)
    }

    /// Polls a few more times on behalf of a waiting thread, until something comes. Only the hot
    /// socket is polled, unless bulk is recent.
    pub(crate) fn look_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.looks.is_bulk_lately() {
            return self.look(sink);
        }
        for _ in 0..LOOKS_AT_ONCE {
            self.looks.count = self.looks.count.wrapping_add(1);
            if self.looks.early {
                self.wait_for_early();
            }
            let mut taken = self.look_at_early(sink);
            if taken == 0 && !self.looks.early {
                taken = self.look_at_small(self.looks.hot, sink)?;
            }
            if taken > 0 {
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Takes the datagrams in the early ring.
    fn look_at_early(&mut self, sink: &mut dyn Sink) -> usize {
        let Some(early) = self.early.as_mut().filter(|early| !early.is_empty()) else { return 0 };
        let (peers, outlets, frames) =
            (&mut self.connected.small, &mut self.outlets, !self.without.frames);
        let doubts = &mut self.doubts;
        let taken = early.take(BURST, &mut self.statistics, &mut |arrival, way| {
            let from = arrival.from;
            sink.take(arrival);
            if !doubts.is_empty() {
                doubts.heard_fast(from);
            }
            if frames && sink.was_a_peers() {
                peers.heard(from, way, outlets);
            }
        });
        if self.sleepers > 0 {
            early.settle();
        }
        if taken > 0 {
            self.looks.small = self.looks.count;
            self.looks.early |= self.looks.count.wrapping_sub(self.looks.by_socket) > SOCKET_LATELY;
        }
        if !early.is_open() {
            self.looks.not_early();
        }
        taken
    }

    /// Reopens the gate after the ring was full. The ring is empty by now, and so is the hot
    /// socket.
    fn reopen(&mut self) {
        let is_shut = self.early.as_ref().is_some_and(|early| !early.is_open());
        if is_shut
            && self.may_receive_early()
            && let Some(early) = &mut self.early
        {
            early.open_gate();
        }
    }

    /// Spins on the ring for as long as a poll of a socket takes, unless something comes.
    fn wait_for_early(&self) {
        let Some(early) = &self.early else { return };
        for _ in 0..LOOKS_AT_RING {
            if !early.is_empty() {
                break;
            }
            core::hint::spin_loop();
        }
    }

    /// Chooses the next hot bulk socket. Recently active bulk sockets take turns, because several
    /// peers may send bulk, each to a socket of its own.
    fn next_bulk(&self) -> usize {
        let (connected, hot) = (&self.connected.bulk.sockets, self.looks.hot_bulk);
        let came = connected
            .iter()
            .map(|connected| connected.socket.came)
            .chain(self.bulk.iter().map(|own| own.came));
        let mut lately = came
            .enumerate()
            .filter(|(_, came)| self.looks.count.wrapping_sub(*came) < BULK_LATELY)
            .map(|(index, _)| index);
        let first = lately.next();
        let next = first.filter(|first| *first > hot).or_else(|| lately.find(|index| *index > hot));
        next.or(first).unwrap_or(hot)
    }

    /// Polls one socket that is not hot, in turn. It becomes hot if the hot one had nothing.
    fn look_aside(&mut self, was_hot: bool, sink: &mut dyn Sink) -> io::Result<usize> {
        let small = self.connected.small.sockets.len() + self.sockets.len();
        let bulk = self.connected.bulk.sockets.len() + self.bulk.len();
        // No small socket is hot where small datagrams come early.
        let hot = usize::from(!self.looks.early);
        let (others, other_bulk) = (small.saturating_sub(hot), bulk.saturating_sub(1));
        if others + other_bulk == 0 {
            return Ok(0);
        }
        let turn = self.looks.aside % (others + other_bulk);
        self.looks.aside = self.looks.aside.wrapping_add(1);
        if let Some(turn) = turn.checked_sub(others) {
            let index = (self.looks.hot_bulk + 1 + turn) % bulk;
            let taken = self.look_at_bulk(index, sink)?;
            if taken > 0 {
                self.looks.hot_bulk = index;
            }
            return Ok(taken);
        }
        let index = (self.looks.hot + hot + turn) % small;
        let taken = self.look_at_small(index, sink)?;
        if taken > 0 && !was_hot {
            self.looks.hot = index;
        }
        Ok(taken)
    }

    /// Polls a small socket and returns how many datagrams it had.
    ///
    /// An idle socket is asked for one buffer, which is what a lone small message takes and the
    /// quickest way to learn that nothing is there. A busy socket is asked for several.
    fn look_at_small(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<usize> {
        let Some(socket) = at(&mut self.connected.small, &mut self.sockets, index) else {
            // There were more sockets when this index became hot.
            self.looks.hot = 0;
            return Ok(0);
        };
        let (mut taken, mut avoided) = (0, None);
        while taken < BURST {
            let was_busy = socket.busy;
            let burst = match &mut self.doubts {
                doubts if doubts.is_empty() => {
                    self.pool.receive(socket, was_busy, &mut self.statistics, &mut |arrival| {
                        sink.take(arrival)
                    })?
                }
                doubts => {
                    let (now, is_fast) = (std::time::Instant::now(), socket.peer.is_some());
                    self.pool.receive(socket, was_busy, &mut self.statistics, &mut |arrival| {
                        if is_fast {
                            doubts.heard_fast(arrival.from);
                        } else if doubts.heard_plain(arrival.from, now) {
                            avoided = Some(arrival.from);
                        }
                        sink.take(arrival);
                    })?
                }
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
            self.tell_of_avoided(peer);
        }
        if taken > 0 {
            self.looks.small = self.looks.count;
            (self.looks.by_socket, self.looks.early) = (self.looks.count, false);
        }
        Ok(taken)
    }

    /// Polls a bulk socket, up to a number of bytes. Several buffers are requested only while
    /// buffers are small: partial batches, or single datagrams where the kernel does not join them.
    fn look_at_bulk(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<usize> {
        let Some(socket) = at(&mut self.connected.bulk, &mut self.bulk, index) else {
            self.looks.hot_bulk = 0;
            return Ok(0);
        };
        let mut peer = None;
        let among_small = self.looks.count.wrapping_sub(self.looks.small) < SMALL_LATELY;
        let share = if among_small { TAKEN_AMONG_SMALL } else { TAKEN_ALONE };
        let (mut taken, mut bytes) = (0, 0);
        while bytes < share {
            let guess = if !socket.busy && !self.without.predict && self.patience.allows() {
                sink.predict()
            } else {
                None
            };
            let burst = if let Some(predicted) = guess {
                let (burst, outcome) =
                    self.pool.receive_predicted(socket, predicted, &mut self.statistics, sink)?;
                match outcome {
                    Guess::Untried => {}
                    Guess::Wrong => self.patience.learn(false),
                    Guess::Right(from) => {
                        self.patience.learn(true);
                        peer = Some(from);
                    }
                }
                burst
            } else {
                self.pool.receive(socket, socket.busy, &mut self.statistics, &mut |arrival| {
                    sink.take(arrival)
                })?
            };
            taken += burst.datagrams;
            bytes += burst.bytes.max(burst.datagrams * COUNTED_LEAST);
            socket.busy = burst.buffers > 0 && burst.bytes <= burst.buffers * SMALL_BUFFER;
            // Small datagrams do not wait for the rest of the bulk.
            if !burst.full || self.early.as_ref().is_some_and(|early| !early.is_empty()) {
                break;
            }
        }
        if taken > 0 {
            (self.looks.bulk, socket.came) = (self.looks.count, self.looks.count);
            socket.hear_marks();
        }
        if let Some(peer) = peer {
            self.note(peer, Lane::Bulk);
        }
        Ok(taken)
    }
}

/// Returns a lane's socket with this index: the connected ones come first, then the link's own.
fn at<'s>(
    connected: &'s mut ConnectedSet,
    own: &'s mut [Socket],
    index: usize,
) -> Option<&'s mut Socket> {
    match index.checked_sub(connected.sockets.len()) {
        None => connected.sockets.get_mut(index).map(|connected| &mut connected.socket),
        Some(index) => own.get_mut(index),
    }
}

/// Chooses the socket to send from, of several that differ by address: one of the peer's family, on
/// loopback if the peer is.
pub(crate) fn reaching(sockets: &[Socket], to: std::net::SocketAddr) -> Option<usize> {
    let fits = |socket: &Socket| socket.both || socket.local.is_ipv4() == to.is_ipv4();
    let best = |socket: &Socket| {
        fits(socket)
            && (socket.local.ip().is_unspecified()
                || socket.local.ip().is_loopback() == to.ip().is_loopback())
    };
    sockets.iter().position(best).or_else(|| sockets.iter().position(fits))
}

#[cfg(test)]
mod tests;
