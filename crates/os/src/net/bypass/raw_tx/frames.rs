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
use crate::net::bypass::ip;
use crate::net::bypass::tcx::{ETHERNET_LEN, ReceivedRoute};
use crate::net::udp::send::Sent;
use crate::net::udp::socket::Socket;
use core::mem::size_of;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Maximum bytes of a frame. The kernel's path is a small part of the cost of longer ones.
const FRAME_BYTES_MAX: usize = 2048;
/// Time without a datagram by tcx after a frame, after which the peer may have moved.
const UNHEARD_TIME: Duration = Duration::from_millis(5);
/// Number of frames without a datagram by tcx in between, after which the peer may have moved.
const UNHEARD_FRAMES_MAX: u32 = 8;
/// Maximum number of datagrams to one peer that go sooner one by one than cut by the kernel and
/// joined again: a message of 5 KiB at an MTU of 1500.
const FRAMES_AT_ONCE_MAX: usize = 4;
/// Interval of attempts, in datagrams that could be frames, while a peer is not heard. Each attempt
/// goes through the socket to the peer's port for small datagrams, so that the peer may be heard.
const UNHEARD_ATTEMPT_DATAGRAMS: u32 = 16;
/// Interval at which the socket is used all the same, because firewalls forget a flow that they do
/// not see. The kernel's route is checked then, too.
const SOCKET_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two checks of a route. A route that keeps changing is not used.
const ROUTE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Interfaces through which frames are sent. Each socket is kept, because closing one takes the
/// kernel milliseconds.
#[derive(Debug, Default)]
pub(super) struct RawSockets(Vec<RawSocket>);

#[derive(Debug)]
struct RawSocket {
    /// Index of the interface.
    number: u32,
    /// An AF_PACKET socket that receives nothing.
    socket: OwnedFd,
    /// Bytes of the largest IP packet that the interface takes.
    mtu: usize,
}

impl RawSockets {
    /// Opens the socket of this interface. Returns `None` if the interface is gone or sending
    /// frames is not permitted.
    fn open(&mut self, number: u32) -> Option<&RawSocket> {
        if !self.0.iter().any(|raw| raw.number == number) {
            let name = interfaces::list().ok()?.into_iter().find(|one| one.index == number)?.name;
            self.0.push(RawSocket {
                number,
                socket: packet_socket(number)?,
                mtu: Probe::open().ok()?.mtu(&name)?,
            });
        }
        self.get(number)
    }

    fn get(&self, number: u32) -> Option<&RawSocket> {
        self.0.iter().find(|raw| raw.number == number)
    }
}

/// State of sending frames to a peer.
#[derive(Debug)]
pub(super) struct PeerFrames {
    template: Option<FrameTemplate>,
    /// Route that was checked last, and when.
    checked: Option<(ReceivedRoute, Instant)>,
    /// Number of frames since a datagram came by tcx, and when the first was sent.
    unheard: (u32, Instant),
    by_socket: Instant,
    /// Number of datagrams that could have gone as frames, if a route had been known.
    asked: u32,
}

/// Beginning of all frames to a peer.
#[derive(Debug)]
struct FrameTemplate {
    interface: u32,
    /// Headers, followed by room for the datagram.
    frame: Box<[u8; FRAME_BYTES_MAX]>,
    /// Bytes of the headers.
    headers: usize,
}

impl PeerFrames {
    pub(super) fn new() -> PeerFrames {
        let now = Instant::now();
        PeerFrames { template: None, checked: None, unheard: (0, now), by_socket: now, asked: 0 }
    }

    /// Records the route by which something came from the peer to which `socket` is connected.
    pub(super) fn heard(
        &mut self,
        route: &ReceivedRoute,
        socket: &Socket,
        sockets: &mut RawSockets,
    ) {
        self.unheard.0 = 0;
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
        match &self.template {
            Some(template) => {
                template.headers + len <= FRAME_BYTES_MAX
                    && self.unheard.0 + FRAMES_AT_ONCE_MAX as u32 <= UNHEARD_FRAMES_MAX
            }
            // Two peers that have nothing small for each other would otherwise never be heard.
            None => {
                self.asked = self.asked.wrapping_add(1);
                self.asked.is_multiple_of(UNHEARD_ATTEMPT_DATAGRAMS)
            }
        }
    }

    /// Sends a datagram as a frame. Returns `None` if it has to go through the socket.
    pub(super) fn send(
        &mut self,
        datagram: &[u8],
        socket: &Socket,
        sockets: &RawSockets,
    ) -> Option<Sent> {
        let template = self.template.as_mut()?;
        let raw = sockets.get(template.interface)?;
        // A handshake's connection is 0 (WIRE-2.1).
        if datagram.first_chunk::<8>().is_none_or(|connection| *connection == [0; 8]) {
            return None;
        }
        let now = Instant::now();
        let (count, first) = &mut self.unheard;
        if *count == 0 {
            *first = now;
        } else if *count >= UNHEARD_FRAMES_MAX || now - *first > UNHEARD_TIME {
            return None;
        }
        if now - self.by_socket > SOCKET_INTERVAL {
            self.by_socket = now;
            if !is_route_of(socket, raw.mtu) {
                self.template = None;
            }
            return None;
        }
        let len = template.headers + datagram.len();
        let frame = template.frame.get_mut(..len).filter(|_| len <= ETHERNET_LEN + raw.mtu)?;
        frame.get_mut(template.headers..)?.copy_from_slice(datagram);
        ip::finish(frame.get_mut(ETHERNET_LEN..)?)?;
        *count += 1;
        match rustix::io::retry_on_intr(|| {
            rustix::net::send(&raw.socket, frame, SendFlags::DONTWAIT)
        }) {
            // Dropped at the interface, which UDP does not report: as good as lost on the path.
            Ok(_) | Err(Errno::NOBUFS) => Some(Sent::Whole),
            Err(Errno::AGAIN | Errno::NOMEM) => None,
            Err(_) => {
                // The interface is down, or its MTU is smaller now.
                (self.template, self.checked) = (None, self.checked.map(|(route, _)| (route, now)));
                None
            }
        }
    }
}

/// Returns `true` if a run is short enough to go one by one.
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
        let headers =
            [theirs, ours, route.ethernet.last_chunk::<2>()?, &ip::headers(route.ours, peer)?]
                .concat();
        let mut frame = Box::new([0; FRAME_BYTES_MAX]);
        frame.get_mut(..headers.len())?.copy_from_slice(&headers);
        Some(FrameTemplate { interface: route.interface, frame, headers: headers.len() })
    }
}

/// Opens a socket that sends frames at one interface and receives none. Returns `None` without
/// CAP_NET_RAW.
fn packet_socket(interface: u32) -> Option<OwnedFd> {
    // Without a protocol the socket receives nothing.
    // SAFETY: plain numbers.
    let fd = unsafe {
        libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    bind_to(socket.as_fd(), interface).then_some(socket)
}

fn bind_to(socket: BorrowedFd<'_>, interface: u32) -> bool {
    // SAFETY: plain data for which zeros are valid.
    let mut at: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as libc::c_ushort;
    at.sll_ifindex = interface.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads one address of this length.
    (unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len) }) == 0
}
