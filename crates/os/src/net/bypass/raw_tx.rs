//! Small datagrams sent as Ethernet frames. The kernel's path through UDP, IP, routes and local
//! peers takes longer than the rest of their journey.
//!
//! The way to a peer is known from how the peer's own datagrams come ([`Way`]): by which interface
//! and from which card. So frames are only used for peers whose datagrams come
//! [early](crate::net::bypass::tcx), while they do. The kernel must also send from the same address
//! and with the interface's MTU, which it does not over tunnels and IPsec. The interface's queues
//! and egress rules (tc, nftables' egress) are processed. The firewall's output rules have let the
//! handshake pass, which goes through the socket (WIND-10.5), as does a datagram now and then.

use crate::interfaces::{self, Probe};
use crate::net::Outgoing;
use crate::net::bypass::ip;
use crate::net::bypass::tcx::{ETHERNET_LEN, Way};
use crate::net::udp::UdpLink;
use crate::net::udp::send::Sent;
use crate::net::udp::socket::Socket;
use core::mem::size_of;
use oikaze_protocol::wire::Lane;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Maximum bytes of a frame. The kernel's path is a small part of the cost of longer ones.
const FRAME_MAX: usize = 2048;
/// Time without an early datagram after a frame, after which the peer may have moved.
const UNHEARD_TIME: Duration = Duration::from_millis(5);
const UNHEARD_MAX: u32 = 8;
/// Maximum number of datagrams to one peer that go sooner one by one than cut by the kernel and
/// joined again: a message of 5 KiB at an MTU of 1500.
const FEW: usize = 4;
/// Interval of attempts, in datagrams that could be frames, while a peer is not heard. Each attempt
/// goes through the socket to the peer's port for small datagrams, so that the peer may be heard.
const TRIED: u32 = 16;
/// Interval at which the socket is used all the same, because firewalls forget a flow that they do
/// not see. The kernel's route is checked then, too.
const BY_SOCKET: Duration = Duration::from_secs(5);
/// Minimum time between two checks of a way. A way that keeps changing is not used.
const CHANGE: Duration = Duration::from_millis(100);

/// Interfaces through which frames are sent. Each socket is kept, because closing one takes the
/// kernel milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Outlets(Vec<Outlet>);

#[derive(Debug)]
struct Outlet {
    /// Index of the interface.
    number: u32,
    /// An AF_PACKET socket that receives nothing.
    socket: OwnedFd,
    /// Bytes of the largest IP packet that the interface takes.
    mtu: usize,
}

impl Outlets {
    /// Opens the outlet of this interface. Returns `None` if the interface is gone or sending
    /// frames is not permitted.
    fn open(&mut self, number: u32) -> Option<&Outlet> {
        if !self.0.iter().any(|outlet| outlet.number == number) {
            let name = interfaces::list().ok()?.into_iter().find(|one| one.index == number)?.name;
            self.0.push(Outlet {
                number,
                socket: packet_socket(number)?,
                mtu: Probe::open().ok()?.mtu(&name)?,
            });
        }
        self.get(number)
    }

    fn get(&self, number: u32) -> Option<&Outlet> {
        self.0.iter().find(|outlet| outlet.number == number)
    }
}

/// State of sending frames to a peer.
#[derive(Debug)]
pub(crate) struct Frames {
    open: Option<Open>,
    /// Way that was checked last, and when.
    seen: Option<(Way, Instant)>,
    /// Number of frames since a datagram came early, and when the first was sent.
    unheard: (u32, Instant),
    by_socket: Instant,
    /// Number of datagrams that could have gone as frames, if a way had been known.
    asked: u32,
}

/// A way that frames can take.
#[derive(Debug)]
struct Open {
    interface: u32,
    /// Headers, followed by room for the datagram.
    frame: Box<[u8; FRAME_MAX]>,
    /// Bytes of the headers.
    headers: usize,
}

impl UdpLink {
    /// Sends one of few small datagrams as a frame, past the socket of its peer. Returns `None` if
    /// it has to go through the socket.
    pub(crate) fn send_frame(&mut self, own: usize, one: &Outgoing<'_>) -> Option<Sent> {
        let connected =
            self.connected.small.sockets.get_mut(own).filter(|_| one.len() == one.head.len())?;
        let sent = connected.frames.send(one.head, &connected.socket, &self.outlets)?;
        self.statistics.frames_out += u64::from(matches!(sent, Sent::Whole));
        Some(sent)
    }

    /// Returns `true` if a few datagrams of `len` bytes are likely to go as frames to this peer.
    pub(crate) fn may_send_frames(&mut self, to: SocketAddr, len: usize) -> bool {
        if self.early.is_none() || self.without.frames {
            return false;
        }
        let own =
            self.note(to, Lane::Small).and_then(|own| self.connected.small.sockets.get_mut(own));
        own.is_some_and(|connected| connected.frames.may_take(len))
    }
}

impl Frames {
    pub(crate) fn new() -> Frames {
        let now = Instant::now();
        Frames { open: None, seen: None, unheard: (0, now), by_socket: now, asked: 0 }
    }

    /// Records the way by which something came from the peer to which `socket` is connected.
    pub(crate) fn heard(&mut self, way: &Way, socket: &Socket, outlets: &mut Outlets) {
        self.unheard.0 = 0;
        let same = self.seen.as_ref().is_some_and(|(seen, _)| seen == way);
        if same && self.open.is_some() {
            return;
        }
        self.open = None;
        if self.seen.is_none_or(|(_, when)| when.elapsed() >= CHANGE) {
            self.seen = Some((*way, Instant::now()));
            self.open = Open::new(way, socket, outlets);
        }
    }

    /// Returns `true` if a few datagrams of `len` bytes should be tried as frames.
    pub(crate) fn may_take(&mut self, len: usize) -> bool {
        match &self.open {
            Some(open) => {
                open.headers + len <= FRAME_MAX && self.unheard.0 + FEW as u32 <= UNHEARD_MAX
            }
            // Two peers that have nothing small for each other would otherwise never be heard.
            None => {
                self.asked = self.asked.wrapping_add(1);
                self.asked.is_multiple_of(TRIED)
            }
        }
    }

    /// Sends a datagram as a frame. Returns `None` if it has to go through the socket.
    pub(crate) fn send(
        &mut self,
        datagram: &[u8],
        socket: &Socket,
        outlets: &Outlets,
    ) -> Option<Sent> {
        let open = self.open.as_mut()?;
        let outlet = outlets.get(open.interface)?;
        // A handshake's connection is 0 (WIRE-2.1).
        if datagram.first_chunk::<8>().is_none_or(|connection| *connection == [0; 8]) {
            return None;
        }
        let now = Instant::now();
        let (count, first) = &mut self.unheard;
        if *count == 0 {
            *first = now;
        } else if *count >= UNHEARD_MAX || now - *first > UNHEARD_TIME {
            return None;
        }
        if now - self.by_socket > BY_SOCKET {
            self.by_socket = now;
            if !is_way_of(socket, outlet.mtu) {
                self.open = None;
            }
            return None;
        }
        let len = open.headers + datagram.len();
        let frame = open.frame.get_mut(..len).filter(|_| len <= ETHERNET_LEN + outlet.mtu)?;
        frame.get_mut(open.headers..)?.copy_from_slice(datagram);
        ip::finish(frame.get_mut(ETHERNET_LEN..)?)?;
        *count += 1;
        match rustix::io::retry_on_intr(|| {
            rustix::net::send(&outlet.socket, frame, SendFlags::DONTWAIT)
        }) {
            // Dropped at the interface, which UDP does not report: as good as lost on the path.
            Ok(_) | Err(Errno::NOBUFS) => Some(Sent::Whole),
            Err(Errno::AGAIN | Errno::NOMEM) => None,
            Err(_) => {
                // The interface is down, or its MTU is smaller now.
                (self.open, self.seen) = (None, self.seen.map(|(way, _)| (way, now)));
                None
            }
        }
    }
}

/// Returns `true` if these are few enough to go one by one.
pub(crate) fn are_few<T>(run: impl Iterator<Item = T>) -> bool {
    run.take(FEW + 1).count() <= FEW
}

/// Returns `true` if the kernel would send to the peer of this socket by an interface of this MTU.
/// A tunnel has a smaller MTU, and so has IPsec.
fn is_way_of(socket: &Socket, mtu: usize) -> bool {
    let of_route = if socket.local.is_ipv4() {
        sockopt::ip_mtu(&socket.fd)
    } else {
        sockopt::ipv6_mtu(&socket.fd)
    };
    of_route.is_ok_and(|route| route as usize == mtu)
}

impl Open {
    /// Returns `None` if the kernel would take another way, or if this one is not permitted.
    fn new(way: &Way, socket: &Socket, outlets: &mut Outlets) -> Option<Open> {
        let peer = socket.peer?;
        if socket.local != way.ours || !is_way_of(socket, outlets.open(way.interface)?.mtu) {
            return None;
        }
        let [addresses @ .., _, _] = way.ethernet.as_slice() else { return None };
        let (ours, theirs) = addresses.split_at_checked(addresses.len() / 2)?;
        let headers =
            [theirs, ours, way.ethernet.last_chunk::<2>()?, &ip::headers(way.ours, peer)?].concat();
        let mut frame = Box::new([0; FRAME_MAX]);
        frame.get_mut(..headers.len())?.copy_from_slice(&headers);
        Some(Open { interface: way.interface, frame, headers: headers.len() })
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
