//! Poll schedule of the sockets: small datagrams come before bulk, and idle sockets cost little.

use super::super::sink::Sink;
use super::connected::ConnectedSet;
use super::predicted::Guess;
use super::receive::{BUFFER_LEN, BUFFERS};
use super::{Socket, UdpLink};
use oikaze_protocol::wire::Lane;
use std::io;

/// Datagrams after which a look at a socket of small ones ends.
const BURST: usize = 64;
/// Who waits looks so often before anything else: what comes is seen half a look after it came, on
/// the average, and whatever is done between two looks makes them longer.
const LOOKS_AT_ONCE: usize = 4;
/// And in what comes early, where a look is a load and not a system call, so often in place of each
/// of those.
const LOOKS_AT_RING: usize = 16;
/// Quiet sockets are looked at every so many times.
const LOOK_ASIDE: usize = 12;
/// So often at most a look at quiet ones is put off, because of what the hot one has or may have at
/// any moment.
const PUT_OFF: usize = 24;
/// After something small came, its sender's next, or its answer to ours, is expected for so many
/// looks.
const EXPECTED: usize = 24;
/// Bulk is looked at each time for so many looks after it had something.
const BULK_LATELY: usize = 64;
/// Small messages that came within so many looks may be followed by others, for which bulk leaves
/// room.
const SMALL_LATELY: usize = 512;
/// Sockets are quiet when for so many looks all that came was early.
const SOCKET_LATELY: usize = 64;
/// Bytes of bulk between two looks at what is small, when such came lately: less than an unloaded
/// round trip.
const TAKEN_AMONG_SMALL: usize = BUFFER_LEN / 2;
/// And when none did: a turn's own cost is nothing against these.
const TAKEN_ALONE: usize = 4 * BUFFER_LEN;
/// Buffers that are no longer than this on the average are asked for together.
const SMALL_BUFFER: usize = 3 * BUFFER_LEN / (2 * BUFFERS);

/// What was looked at, and found where.
#[derive(Debug)]
pub(super) struct Looks {
    /// Looks so far.
    count: usize,
    /// Those at others than the hot ones.
    aside: usize,
    /// When quiet ones were looked at last.
    aside_at: usize,
    /// The socket of small datagrams that had something last.
    hot: usize,
    /// Likewise of bulk.
    hot_bulk: usize,
    /// When small datagrams came last.
    small: usize,
    /// When they came to a socket last, and not early.
    by_socket: usize,
    /// They come early: all sockets are quiet.
    early: bool,
    /// When bulk did.
    bulk: usize,
    /// The latest look left bulk to the next one.
    bulk_waits: bool,
}

impl Looks {
    pub(super) fn new() -> Looks {
        // Nothing has come lately.
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

    /// There are more sockets of bulk from this index on: the hot one stays, for what it still has
    /// came before what they will have.
    pub(super) fn more_bulk(&mut self, at: usize, more: usize) {
        if self.hot_bulk >= at {
            self.hot_bulk += more;
        }
    }

    /// What comes from now on comes to the sockets.
    pub(super) fn not_early(&mut self) {
        self.early = false;
    }

    fn is_bulk_lately(&self) -> bool {
        self.count.wrapping_sub(self.bulk) < BULK_LATELY
    }

    /// Is it time for the quiet ones? They cost more than the hot one, for which somebody waits:
    /// best is the first look that finds nothing there after something, when the next is least
    /// likely to be just about to come.
    fn may_look_aside(&self) -> bool {
        let since = self.count.wrapping_sub(self.aside_at);
        let lull = self.count.wrapping_sub(self.small);
        since >= LOOK_ASIDE && (lull == 1 || lull > EXPECTED || since >= LOOK_ASIDE + PUT_OFF)
    }
}
/// What a datagram counts for at least, however short: a look at bulk ends whatever comes.
const COUNTED_LEAST: usize = 1024;

impl UdpLink {
    /// One look: at the socket of small datagrams that had something last; at that of bulk, if it
    /// had something lately; every few times at one of the others.
    pub(super) fn look(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
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
        // Somebody may wait for what is small; bulk can wait once.
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

    /// Some more looks for who waits, until something comes: at the hot socket alone, unless bulk
    /// comes.
    pub(super) fn look_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
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

    /// What has come before the sockets got it.
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

    /// After there was no room in the ring: it is empty by now, and so is the hot socket.
    fn reopen(&mut self) {
        let is_shut = self.early.as_ref().is_some_and(|early| !early.is_open());
        if is_shut
            && self.may_receive_early()
            && let Some(early) = &mut self.early
        {
            early.open_gate();
        }
    }

    /// As long as a look at a socket takes, unless something comes.
    fn wait_for_early(&self) {
        let Some(early) = &self.early else { return };
        for _ in 0..LOOKS_AT_RING {
            if !early.is_empty() {
                break;
            }
            core::hint::spin_loop();
        }
    }

    /// Sockets that bulk came to lately take turns: several peers send it, each to one of its own.
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

    /// At one that is not hot, in turn; it becomes hot if the hot one had nothing.
    fn look_aside(&mut self, was_hot: bool, sink: &mut dyn Sink) -> io::Result<usize> {
        let small = self.connected.small.sockets.len() + self.sockets.len();
        let bulk = self.connected.bulk.sockets.len() + self.bulk.len();
        // No socket of small ones is hot where they come early.
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

    /// How many datagrams a socket had.
    ///
    /// A quiet socket is asked for one buffer, which is what a lone small message takes and the
    /// quickest way to hear that nothing is there; one that had something, for several.
    fn look_at_small(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<usize> {
        let Some(socket) = at(&mut self.connected.small, &mut self.sockets, index) else {
            // There were more when it became hot.
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
                // Those that come one by one find no queue that fills.
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

    /// Likewise of bulk, up to a number of bytes. Several buffers are asked for only as long as
    /// they are small: partial batches, or single datagrams where the kernel does not join them.
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
            // What is small does not wait for what is left of bulk.
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

/// A lane's socket with this index: the connected ones come first, then the link's own.
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

/// The socket to send from, of several that differ by address: one of the peer's family, on
/// loopback if the peer is.
pub(super) fn reaching(sockets: &[Socket], to: std::net::SocketAddr) -> Option<usize> {
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
