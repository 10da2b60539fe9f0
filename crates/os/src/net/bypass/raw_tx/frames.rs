//! Small datagrams sent as Ethernet frames. The kernel's path through UDP, IP, routes and local
//! peers takes longer than the rest of their journey.
//!
//! The path to a peer is known from how the peer's own datagrams come ([`ReceivedRoute`]): by which
//! interface and from which card. So frames are only used for peers whose datagrams come by
//! [tcx](crate::net::bypass::tcx), while they do. The kernel must also send from the same address
//! and with the interface's MTU, which it does not over tunnels and IPsec. The interface's queues
//! and egress rules (tc, nftables' egress) are processed. The firewall's output rules have let the
//! handshake pass, which goes through the socket (WIND-10.5), as does a datagram now and then.

use crate::interfaces::{self, Probe};
use crate::net::bypass::tcx::receiver::{ETHERNET_LEN, ReceivedRoute};
use crate::net::datagram::Outgoing;
use crate::net::datagram::is_handshake;
use crate::net::ip;
use crate::net::packet_socket::packet_socket;
use crate::net::udp::send::run_length;
use crate::net::udp::sockets::socket::Socket;
use arrayvec::ArrayVec;
use core::mem::size_of;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sockopt};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Maximum bytes of a frame. The kernel's path is a small part of the cost of longer ones.
const FRAME_BYTES_MAX: usize = 2048;
/// Bytes of the offload header (`struct virtio_net_hdr`, linux/virtio_net.h) before each frame.
const OFFLOAD_LEN: usize = 10;
/// Bytes of all headers.
const HEADERS_MAX: usize = OFFLOAD_LEN + ETHERNET_LEN + ip::HEADERS_MAX;
/// Time without a datagram by tcx after a frame, after which the peer may have moved.
const UNCONFIRMED_TIME_MAX: Duration = Duration::from_millis(5);
/// Number of frames without a datagram by tcx in between, after which the peer may have moved.
const UNCONFIRMED_FRAMES_MAX: u32 = 2 * FRAMES_AT_ONCE_MAX as u32;
/// Maximum number of datagrams to one peer that go sooner as frames than through the sockets: a
/// message of 8 KiB at an MTU of 1500. The kernel joins them on arrival, and the largest record of
/// the peer's ring takes no more.
const FRAMES_AT_ONCE_MAX: usize = 7;
/// Interval of attempts, in datagrams that could be frames, while a peer is not heard. Each attempt
/// goes through the socket to the peer's port for small datagrams, so that the peer may be heard.
const DATAGRAMS_PER_ATTEMPT: u32 = 16;
/// Interval at which the socket is used all the same, because firewalls forget a flow that they do
/// not see. The kernel's route is checked then, too.
const SOCKET_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two checks of a route. A route that keeps changing is not used.
const ROUTE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Interfaces through which frames are sent. Each socket is kept, because closing one takes the
/// kernel milliseconds.
#[derive(Debug)]
pub(super) struct RawSockets {
    sockets: Vec<RawSocket>,
    /// Is `true` if the kernel may cut frames, unless an interface refuses.
    may_cut: bool,
}

#[derive(Debug)]
struct RawSocket {
    /// Index of the interface.
    number: u32,
    /// An AF_PACKET socket that receives nothing.
    socket: OwnedFd,
    /// Bytes of the largest IP packet that the interface takes.
    mtu: usize,
    /// Is `true` if the kernel cuts a frame into several (Linux 6.2).
    cuts: bool,
}

impl RawSockets {
    pub(super) fn new(may_cut: bool) -> RawSockets {
        RawSockets { sockets: Vec::new(), may_cut }
    }

    /// Opens the socket of this interface. Returns `None` if the interface is gone or sending
    /// frames is not permitted.
    fn open(&mut self, number: u32) -> Option<&RawSocket> {
        if !self.sockets.iter().any(|raw| raw.number == number) {
            let name = interfaces::list().ok()?.into_iter().find(|one| one.index == number)?.name;
            self.sockets.push(RawSocket {
                number,
                socket: sending_socket(number)?,
                mtu: Probe::open().ok()?.mtu(&name)?,
                cuts: self.may_cut,
            });
        }
        self.get(number)
    }

    fn get(&self, number: u32) -> Option<&RawSocket> {
        self.sockets.iter().find(|raw| raw.number == number)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut RawSocket> {
        self.sockets.iter_mut().find(|raw| raw.number == number)
    }
}

/// State of sending frames to a peer.
#[derive(Debug)]
pub(super) struct PeerFrames {
    template: Option<FrameTemplate>,
    /// Route that was checked last, and when.
    checked: Option<(ReceivedRoute, Instant)>,
    /// Number of frames since a datagram came by tcx, and when the first was sent.
    unconfirmed: (u32, Instant),
    by_socket: Instant,
    /// Number of datagrams that could have gone as frames, if the peer had been heard.
    asked: u32,
}

/// Beginning of all frames to a peer.
#[derive(Debug)]
struct FrameTemplate {
    interface: u32,
    /// Headers, followed by room for the datagram. The offload header asks for nothing.
    frame: Box<[u8; FRAME_BYTES_MAX]>,
    /// Bytes of the headers.
    headers: usize,
}

impl PeerFrames {
    pub(super) fn new() -> PeerFrames {
        let now = Instant::now();
        PeerFrames {
            template: None,
            checked: None,
            unconfirmed: (0, now),
            by_socket: now,
            asked: 0,
        }
    }

    /// Records the route by which something came from the peer to which `socket` is connected.
    pub(super) fn heard(
        &mut self,
        route: &ReceivedRoute,
        socket: &Socket,
        sockets: &mut RawSockets,
    ) {
        self.unconfirmed.0 = 0;
        let same = self.checked.as_ref().is_some_and(|(checked, _)| checked == route);
        if same && self.template.is_some() {
            return;
        }
        self.template = None;
        if self.checked.is_none_or(|(_, when)| when.elapsed() >= ROUTE_CHECK_INTERVAL) {
            self.checked = Some((*route, Instant::now()));
            self.template = FrameTemplate::new(route, socket, sockets);
        }
    }

    /// Returns `true` if a few datagrams of `len` bytes should be tried as frames.
    pub(super) fn may_take(&mut self, len: usize) -> bool {
        let is_confirmed = self.unconfirmed.0 + FRAMES_AT_ONCE_MAX as u32 <= UNCONFIRMED_FRAMES_MAX;
        match &self.template {
            Some(template) if is_confirmed => template.headers + len <= FRAME_BYTES_MAX,
            // Two peers that have nothing small for each other would otherwise never be heard, or
            // never again.
            _ => {
                self.asked = self.asked.wrapping_add(1);
                self.asked.is_multiple_of(DATAGRAMS_PER_ATTEMPT)
            }
        }
    }

    /// Sends the first of these contiguous datagrams, and those of its size that follow, with one
    /// call. Returns their number, or `None` if the first has to go through the socket.
    pub(super) fn send(
        &mut self,
        datagrams: &[Outgoing<'_>],
        socket: &Socket,
        sockets: &mut RawSockets,
    ) -> Option<usize> {
        let template = self.template.as_mut()?;
        let raw = sockets.get_mut(template.interface)?;
        if datagrams.iter().any(|datagram| is_handshake(datagram.head)) {
            return None;
        }
        let now = Instant::now();
        let (unconfirmed, first) = &mut self.unconfirmed;
        if *unconfirmed == 0 {
            *first = now;
        } else if *unconfirmed >= UNCONFIRMED_FRAMES_MAX || now - *first > UNCONFIRMED_TIME_MAX {
            return None;
        }
        if now - self.by_socket > SOCKET_INTERVAL {
            self.by_socket = now;
            if !is_route_of(socket, raw.mtu) {
                self.template = None;
            }
            return None;
        }
        let count = if raw.cuts { run_length(datagrams, true) } else { 1 };
        let sent = match datagrams.get(..count)? {
            [one] => template.send_one(one.head, raw)?,
            run => match template.send_run(run, raw)? {
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::IO) => {
                    raw.cuts = false;
                    return None;
                }
                sent => sent,
            },
        };
        *unconfirmed += count as u32;
        match sent {
            // Dropped at the interface, which UDP does not report: as good as lost on the path.
            Ok(()) | Err(Errno::NOBUFS) => Some(count),
            Err(Errno::AGAIN | Errno::NOMEM) => None,
            Err(_) => {
                // The interface is down, or its MTU is smaller now. The latter is found out for
                // single frames only, because the kernel does not check a frame that it is to cut.
                (self.template, self.checked) = (None, self.checked.map(|(route, _)| (route, now)));
                None
            }
        }
    }
}

/// Returns `true` if a run is short enough to go as frames.
pub(super) fn is_short_run<T>(run: impl Iterator<Item = T>) -> bool {
    run.take(FRAMES_AT_ONCE_MAX + 1).count() <= FRAMES_AT_ONCE_MAX
}

/// Returns `true` if the kernel would send to the peer of this socket by an interface of this MTU.
/// A tunnel has a smaller MTU, and so has IPsec.
fn is_route_of(socket: &Socket, mtu: usize) -> bool {
    let of_route = if socket.local.is_ipv4() {
        sockopt::ip_mtu(&socket.fd)
    } else {
        sockopt::ipv6_mtu(&socket.fd)
    };
    of_route.is_ok_and(|kernel| kernel as usize == mtu)
}

impl FrameTemplate {
    /// Returns `None` if the kernel would take another route, or if this one is not permitted.
    fn new(
        route: &ReceivedRoute,
        socket: &Socket,
        sockets: &mut RawSockets,
    ) -> Option<FrameTemplate> {
        let peer = socket.peer?;
        if socket.local != route.ours || !is_route_of(socket, sockets.open(route.interface)?.mtu) {
            return None;
        }
        let [addresses @ .., _, _] = route.ethernet.as_slice() else { return None };
        let (ours, theirs) = addresses.split_at_checked(addresses.len() / 2)?;
        let ip = ip::headers(route.ours, peer)?;
        let headers =
            [&[0; OFFLOAD_LEN][..], theirs, ours, route.ethernet.last_chunk::<2>()?, &ip].concat();
        let mut frame = Box::new([0; FRAME_BYTES_MAX]);
        frame.get_mut(..headers.len())?.copy_from_slice(&headers);
        Some(FrameTemplate { interface: route.interface, frame, headers: headers.len() })
    }

    /// Sends one datagram. Returns `None` if it does not fit in a frame.
    fn send_one(&mut self, datagram: &[u8], raw: &RawSocket) -> Option<Result<(), Errno>> {
        let len = self.headers + datagram.len();
        let frame = self.frame.get_mut(..len).filter(|_| len <= raw.longest())?;
        frame.get_mut(self.headers..)?.copy_from_slice(datagram);
        ip::finish(frame.get_mut(OFFLOAD_LEN + ETHERNET_LEN..)?)?;
        Some(call(|| rustix::net::send(&raw.socket, frame, SendFlags::DONTWAIT)))
    }

    /// Sends datagrams of one size, of which the last may be shorter, as one frame that the kernel
    /// or the card cuts. Returns `None` if they do not fit.
    fn send_run(&self, run: &[Outgoing<'_>], raw: &RawSocket) -> Option<Result<(), Errno>> {
        let fits = |size: &usize| self.headers + size <= raw.longest().min(FRAME_BYTES_MAX);
        let size = run.first().map(Outgoing::len).filter(fits)?;
        let mut headers = ArrayVec::<u8, HEADERS_MAX>::try_from(self.frame.get(..self.headers)?);
        let headers = headers.as_mut().ok()?;
        let (offload, frame) = headers.split_at_mut_checked(OFFLOAD_LEN)?;
        let len = run.iter().map(Outgoing::len).sum();
        offload.copy_from_slice(&offload_header(frame.len(), len, size)?);
        ip::finish_headers(frame.get_mut(ETHERNET_LEN..)?, len)?;
        let mut pieces = ArrayVec::<IoSlice<'_>, { FRAMES_AT_ONCE_MAX + 1 }>::new();
        pieces.push(IoSlice::new(headers));
        for datagram in run {
            pieces.try_push(IoSlice::new(datagram.head)).ok()?;
        }
        let mut control = SendAncillaryBuffer::default();
        Some(call(|| rustix::net::sendmsg(&raw.socket, &pieces, &mut control, SendFlags::DONTWAIT)))
    }
}

impl RawSocket {
    /// Returns the length of the longest frame that the interface takes, with its offload header.
    fn longest(&self) -> usize {
        OFFLOAD_LEN + ETHERNET_LEN + self.mtu
    }
}

/// Repeats a call until no signal interrupts it.
fn call(call: impl FnMut() -> Result<usize, Errno>) -> Result<(), Errno> {
    rustix::io::retry_on_intr(call).map(drop)
}

/// Writes the offload header of a frame with this many bytes of headers and `len` bytes of
/// datagrams, which is cut into datagrams of `size` bytes.
fn offload_header(headers: usize, len: usize, size: usize) -> Option<[u8; OFFLOAD_LEN]> {
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: whoever cuts the frame completes the checksums.
    const NEEDS_CHECKSUM: u8 = 1;
    /// `VIRTIO_NET_HDR_GSO_UDP_L4`: the datagrams become packets of their own.
    const CUT_INTO_DATAGRAMS: u8 = 5;
    const UDP: u16 = 8;
    const CHECKSUM_AT: u16 = 6;
    let udp = u16::try_from(headers).ok()?.checked_sub(UDP)?;
    // The kernel keeps these bytes in one piece, and so all bytes of each datagram that it cuts.
    // Otherwise the receiver's program would see no more than the headers.
    let contiguous = headers + len;
    let words = [contiguous.try_into().ok()?, size.try_into().ok()?, udp, CHECKSUM_AT];
    let mut header = [NEEDS_CHECKSUM, CUT_INTO_DATAGRAMS, 0, 0, 0, 0, 0, 0, 0, 0];
    for (place, word) in header.get_mut(2..)?.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *place = word.to_ne_bytes();
    }
    Some(header)
}

/// Opens a socket that sends frames at one interface and receives none. Returns `None` without
/// CAP_NET_RAW.
fn sending_socket(interface: u32) -> Option<OwnedFd> {
    let socket = packet_socket(interface, 0).ok()?;
    has_offload_header(socket.as_fd()).then_some(socket)
}

/// Makes each frame begin with an offload header (`PACKET_VNET_HDR`).
fn has_offload_header(socket: BorrowedFd<'_>) -> bool {
    let yes: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
    // SAFETY: the kernel reads one number of this length.
    (unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const yes).cast(), len) })
        == 0
}
