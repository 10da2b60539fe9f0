//! UDP over IPv4 and IPv6.
//!
//! [`bind`] opens the sockets. [`send`] gathers datagrams into as few calls as the kernel permits
//! (GSO). [`recv`] takes bursts and cuts what the kernel has joined (GRO). [`poll`] decides
//! which sockets are polled. Bulk has sockets of its own on a second port, so that bulk fills no
//! buffer that small messages need, and small messages pass it.

mod address;
mod bind;
#[cfg(test)]
mod cable;
mod connected;
mod doubts;
mod poll;
pub(crate) mod recv;
mod recv_direct;
mod refusals;
pub(crate) mod send;
pub(crate) mod socket;
#[cfg(test)]
mod tests;
mod watch;

pub use bind::{Bind, BindError, Ports, PortsSyntax};

use super::addresses::{path_mtu, payload_of};
use super::sink::{Plain, Sink};
use super::{Arrival, Link, LocalAddress, Offload, Outgoing, Statistics, TooBig, local_addresses};
use crate::features::Without;
use crate::net::bypass::raw_tx::Outlets;
use crate::net::bypass::splice::Splice;
use crate::net::bypass::tcx::Early;
use connected::ConnectedSet;
use core::ops::ControlFlow;
use doubts::Doubts;
use oikaze_protocol::limits::{DATAGRAM_MAX, DATAGRAM_MIN};
use oikaze_protocol::wind::{PerLane, SendMode};
use oikaze_protocol::wire::Lane;
use poll::Looks;
use recv::Pool;
use recv_direct::Patience;
use refusals::Refusals;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use send::Sent;
use socket::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use watch::watch_one;

/// Time after which a full send buffer is tried again: about what a gigabit interface takes to send
/// a tenth of a small buffer.
const FULL_TIME: Duration = Duration::from_micros(200);
/// Maximum number of paths with too big datagrams that are remembered until [`Link::poll_too_big`]
/// is called.
const TOO_BIG_MAX: usize = 256;

/// UDP sockets: one for each requested address, or one for all addresses of both families, and as
/// many again on a second port for bulk.
#[derive(Debug)]
pub struct UdpLink {
    /// Sockets on the link's port.
    pub(in crate::net) sockets: Vec<Socket>,
    /// Sockets on the port for bulk, at the same addresses; may be empty.
    pub(in crate::net) bulk: Vec<Socket>,
    /// Sockets connected to single peers, on either port.
    pub(in crate::net) connected: PerLane<ConnectedSet>,
    /// Early receive path, which comes before the small sockets, if it is permitted.
    pub(in crate::net) early: Option<Early>,
    /// Interfaces through which frames are sent.
    pub(in crate::net) outlets: Outlets,
    /// Becomes readable when any socket is, while a thread sleeps on it. All sockets are in this
    /// epoll set then.
    pub(in crate::net) watch: OwnedFd,
    /// Number of threads that sleep on `watch`.
    pub(in crate::net) sleepers: u32,
    pub(in crate::net) pool: Pool,
    pub(in crate::net) looks: Looks,
    /// Peers from which fast paths may deliver nothing.
    doubts: Doubts,
    pub(in crate::net) patience: Patience,
    /// Buffer size in bytes for sockets that are opened later.
    pub(in crate::net) buffer: usize,
    pub(in crate::net) without: Without,
    /// Zero-copy sending of bulk, where that works.
    pub(in crate::net) splice: Option<Splice>,
    /// Destinations for which `UDP_SEGMENT` does not work.
    refusals: Refusals,
    pub(in crate::net) too_big: VecDeque<TooBig>,
    pub(in crate::net) notices: VecDeque<String>,
    /// Lane in which the last send found no room, and when.
    pub(in crate::net) full_since: Option<(Lane, Instant)>,
    pub(in crate::net) statistics: Statistics,
}

impl UdpLink {
    /// Opens the requested sockets.
    ///
    /// # Errors
    /// [`BindError`]: says that the port is in use or the address is not ours, and what to do about
    /// it.
    pub fn bind(ask: &Bind) -> Result<UdpLink, BindError> {
        let bind::Opened { small: sockets, bulk, mut notices } = bind::open(ask)?;
        let all = || sockets.iter().chain(&bulk);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|why| BindError::System { what: "watch sockets (epoll)", why })?;
        let served = |ip| sockets.iter().any(|socket| socket.serves(ip));
        let wanted = !ask.without.early && ask.sharers <= crate::net::bypass::tcx::SHARERS_MAX;
        let port = sockets.first().map_or(0, |socket| socket.local.port());
        let early = if wanted { Early::open(port, served, ask.checked_by_udp).ok() } else { None };
        let may_splice = !ask.without.splice && !ask.without.gso && !ask.without.connect;
        let splice = if may_splice { Splice::open().ok() } else { None };
        let offload = |off: bool, works: bool| match (off, works) {
            (true, _) => Offload::Off,
            (false, true) => Offload::On,
            (false, false) => Offload::Refused,
        };
        let statistics = Statistics {
            gso: offload(ask.without.gso, all().all(|socket| socket.gso)),
            gro: offload(ask.without.gro, all().all(|socket| socket.gro)),
            early_receive: offload(!wanted, early.is_some()),
            splice: offload(!may_splice, splice.is_some()),
            send_buffer: all().map(|socket| socket.send_buffer).min().unwrap_or(0),
            receive_buffer: all().map(|socket| socket.receive_buffer).min().unwrap_or(0),
            ..Statistics::default()
        };
        for (mechanism, state) in [("UDP_SEGMENT", statistics.gso), ("UDP_GRO", statistics.gro)] {
            if state == Offload::Refused {
                notices.push(format!("the kernel has no {mechanism}: datagrams go one by one, at less than half the speed"));
            }
        }
        let notices = notices.into();
        Ok(UdpLink {
            sockets,
            bulk,
            connected: PerLane::default(),
            early,
            outlets: Outlets::default(),
            watch,
            sleepers: 0,
            pool: Pool::new(),
            looks: Looks::new(),
            doubts: Doubts::default(),
            patience: Patience::default(),
            buffer: ask.buffer,
            without: ask.without,
            splice,
            refusals: Refusals::default(),
            too_big: VecDeque::new(),
            notices,
            full_since: None,
            statistics,
        })
    }

    /// Returns the port at which the link is reached.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.sockets.first().map_or(0, |socket| socket.local.port())
    }

    /// Returns the addresses that the sockets are bound to; these may be wildcards.
    #[must_use]
    pub fn bound(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.local).collect()
    }

    fn all_sockets(&self) -> impl Iterator<Item = &Socket> {
        let connected = self.connected.both().into_iter().flat_map(|set| &set.sockets);
        connected.map(|connected| &connected.socket).chain(&self.sockets).chain(&self.bulk)
    }

    /// Returns the link's own sockets for a lane.
    fn own(&self, lane: Lane) -> &[Socket] {
        if lane == Lane::Bulk { &self.bulk } else { &self.sockets }
    }

    /// Chooses the socket that sends to this peer in this lane. Without sockets of its own, bulk
    /// goes through the small ones.
    fn route(&mut self, to: SocketAddr, lane: Lane) -> Route {
        let lane = if self.bulk.is_empty() { Lane::Small } else { lane };
        let own = self.note(to, lane);
        match own {
            Some(own) => Route::Connected(lane, own),
            None => {
                poll::reaching(self.own(lane), to).map_or(Route::None, |own| Route::Own(lane, own))
            }
        }
    }

    /// Counts a call for this peer in this lane, made or about to be made. Returns the index of the
    /// peer's connected socket, if it has one. The peer may earn a connected socket by this call.
    pub(in crate::net) fn note(&mut self, peer: SocketAddr, lane: Lane) -> Option<usize> {
        let (own, worth_it) = self.connected[lane].note(peer);
        if worth_it && !self.without.connect && !self.doubts.closes(peer) {
            self.connect(peer, lane);
        }
        own
    }

    /// Sends the beginning of `batch`. Returns how many datagrams are done with, or breaks if there
    /// is no room.
    fn send_run(&mut self, batch: &[Outgoing<'_>]) -> io::Result<ControlFlow<(), usize>> {
        let Some(first) = batch.first() else { return Ok(ControlFlow::Continue(0)) };
        let route = self.route(*first.to, first.lane);
        if let Route::Connected(Lane::Small, own) = route
            && first.mode < SendMode::Plain
            && crate::net::bypass::raw_tx::are_few(
                batch.iter().take_while(|next| next.to == first.to),
            )
            && let Some(sent) = self.send_frame(own, first)
        {
            return self.settle(core::slice::from_ref(first), sent);
        }
        let socket = match route {
            Route::Connected(lane, own) => {
                self.connected[lane].sockets.get_mut(own).map(|connected| &mut connected.socket)
            }
            Route::Own(Lane::Small, own) => self.sockets.get_mut(own),
            Route::Own(Lane::Bulk, own) => self.bulk.get_mut(own),
            Route::None => None,
        };
        let Some(socket) = socket else {
            self.statistics.unreachable += 1;
            return Ok(ControlFlow::Continue(1));
        };
        let cut = socket.gso && self.refusals.allow(first.to.ip());
        let run = batch.get(..send::run_length(batch, cut)).unwrap_or_default();
        let (mut run, mut sent, was_spliced) =
            crate::net::bypass::splice::send_or_copy(self.splice.as_mut(), socket, run);
        if run.len() > 1 && matches!(sent, Sent::Unfit | Sent::TooBig) {
            // Either the kernel refuses `UDP_SEGMENT`, or the segments are too big for the path.
            // Sending the first datagram alone tells which.
            let doubt = matches!(sent, Sent::Unfit);
            run = run.get(..1).unwrap_or_default();
            sent = send::send(socket, run);
            if let (Sent::Whole, true, Some(splice)) = (&sent, was_spliced, &mut self.splice) {
                // For example, there were more pieces than the network takes.
                splice.failed();
            }
            if doubt && matches!(sent, Sent::Whole) && self.refusals.refused(first.to.ip()) {
                self.statistics.gso = Offload::Refused;
                self.notices.push_back(format!(
                    "the network device refused to cut datagrams (UDP_SEGMENT) towards {}: they go one by one, at less than \
                     half the speed; is checksum offload switched off (ethtool -K DEVICE tx on)?",
                    first.to.ip()
                ));
            }
        } else if run.len() > 1 && matches!(sent, Sent::Whole) && !self.refusals.is_empty() {
            self.refusals.worked(first.to.ip());
            self.statistics.gso =
                if self.refusals.is_empty() { Offload::On } else { Offload::Refused };
        }
        if matches!(sent, Sent::TooBig) && first.len() <= DATAGRAM_MIN && socket.distrust_routers()
        {
            sent = send::send(socket, run);
        }
        if let (Sent::Unreachable | Sent::Unfit, Route::Connected(lane, own)) = (&sent, route) {
            self.connected[lane].give_up(own);
            // The kernel's error may belong to an earlier datagram. Then the kernel has not tried
            // this one, which now goes through the link's own socket.
            return Ok(ControlFlow::Continue(0));
        }
        self.settle(run, sent)
    }

    /// Gives a peer a connected socket in this lane, if that works.
    fn connect(&mut self, to: SocketAddr, lane: Lane) {
        let own = if lane == Lane::Bulk { &self.bulk } else { &self.sockets };
        let Some(own) = poll::reaching(own, to).and_then(|index| own.get(index)) else { return };
        // Small datagrams are seldom joined, and a socket without GRO needs no control message.
        let joined = lane == Lane::Bulk || self.bulk.is_empty();
        let without = Without { gro: self.without.gro || !joined, ..self.without };
        let set = &mut self.connected[lane];
        let before = set.sockets.len();
        let connected = set.connect(to, own, self.buffer, &without);
        if self.sleepers > 0
            && connected.is_some_and(|socket| watch_one(&self.watch, socket.fd.as_fd()).is_err())
        {
            set.give_up(before);
        }
        if lane == Lane::Bulk {
            self.looks.more_bulk(before, set.sockets.len() - before);
        }
    }

    fn settle(&mut self, run: &[Outgoing<'_>], sent: Sent) -> io::Result<ControlFlow<(), usize>> {
        match sent {
            Sent::Whole => {
                self.statistics.calls_out += 1;
                self.statistics.datagrams_out += run.len() as u64;
                self.statistics.bytes_out +=
                    run.iter().map(|datagram| datagram.len() as u64).sum::<u64>();
            }
            Sent::NoRoom => {
                self.statistics.would_block += 1;
                self.full_since = run.first().map(|first| (first.lane, Instant::now()));
                return Ok(ControlFlow::Break(()));
            }
            Sent::TooBig => {
                self.statistics.too_big += run.len() as u64;
                run.iter().for_each(|datagram| self.tell_too_big(*datagram.to, datagram.len()));
            }
            Sent::Unfit | Sent::Unreachable => self.statistics.unreachable += run.len() as u64,
            Sent::Broken(error) => return Err(error),
        }
        Ok(ControlFlow::Continue(run.len()))
    }

    fn tell_too_big(&mut self, to: SocketAddr, tried: usize) {
        if self.too_big.len() < TOO_BIG_MAX && self.too_big.iter().all(|told| told.to != to) {
            // The kernel's path MTU may be larger than the path takes. Then the sender tries half,
            // down to what every path must carry.
            let fits = match self.datagram_max_to(to) {
                known if known < tried => known,
                _ => (tried / 2).max(DATAGRAM_MIN).min(tried.saturating_sub(1)),
            };
            self.too_big.push_back(TooBig { to, tried, fits });
        }
    }
}

/// Socket to send from.
#[derive(Clone, Copy, Debug)]
enum Route {
    /// The peer's connected socket for this lane.
    Connected(Lane, usize),
    /// The link's own socket for this lane.
    Own(Lane, usize),
    /// None: the link has no address of the peer's family.
    None,
}

impl Link for UdpLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut done = 0;
        // A batch of one lane says nothing about the socket of the other.
        self.full_since.take_if(|(lane, _)| batch.first().is_some_and(|first| first.lane == *lane));
        while let Some(rest) = batch.get(done..).filter(|rest| !rest.is_empty()) {
            match self.send_run(rest)? {
                ControlFlow::Continue(more) => done += more,
                ControlFlow::Break(()) => break,
            }
        }
        Ok(done)
    }

    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        self.receive_into(&mut Plain(take))
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        // The caller sends next after it receives, if there is still something to send.
        self.full_since = None;
        self.look(sink)
    }

    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.look_again(sink)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let mut all = local_addresses()?;
        all.retain_mut(|local| {
            local.address.set_port(self.port());
            self.sockets.iter().any(|socket| socket.serves(local.address.ip()))
        });
        Ok(all)
    }

    fn bulk_port(&self) -> Option<u16> {
        self.bulk.first().map(|socket| socket.local.port())
    }

    fn datagram_max(&self) -> usize {
        DATAGRAM_MAX
    }

    fn datagram_max_to(&self, to: SocketAddr) -> usize {
        path_mtu(to).map_or(DATAGRAM_MIN, |mtu| payload_of(mtu, to))
    }

    fn prefers_pages(&self, to: IpAddr) -> bool {
        self.splice.as_ref().is_some_and(|splice| splice.state() == Offload::On)
            && self.connected.bulk.may_have(to)
    }

    fn has_short_way(&mut self, to: SocketAddr, len: usize) -> bool {
        self.may_send_frames(to, len)
    }

    fn receive_buffer(&self, len: usize) -> usize {
        /// Bytes that the kernel counts for each datagram in addition to its payload (socket(7)).
        const OVERHEAD: usize = 768;
        self.statistics.receive_buffer / (len + OVERHEAD) * len
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    /// Watching costs half a microsecond for each datagram: the sender pays on the same machine,
    /// otherwise the interrupt.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        self.watch_for_sleepers(yes)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.full_since.map(|(_, since)| since + FULL_TIME)
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        self.too_big.pop_front()
    }

    fn unheard(&mut self, peer: SocketAddr) {
        self.doubt(peer);
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    fn statistics(&self) -> Statistics {
        let overflowed = self.all_sockets().map(Socket::overflowed).sum();
        let (spliced, splice) =
            self.splice.as_ref().map_or((0, self.statistics.splice), Splice::statistics);
        Statistics { overflowed, spliced, splice, ..self.statistics }
    }
}
