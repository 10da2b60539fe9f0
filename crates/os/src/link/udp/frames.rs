//! Small datagrams sent as frames: the kernel's way through UDP, IP, routes and neighbours is longer than all the rest of their journey.
//!
//! What is known of the way to a peer is how its own datagrams come ([`Way`]): by which interface, from which card. So it is only used for peers
//! whose datagrams come [early](super::early), while they come, and if the kernel would send from the same address and with the interface's
//! MTU: over tunnels and IPsec it would not. The interface's queues and rules for what leaves (tc, nftables' egress) are heeded; the
//! firewall's rules for output have let the handshake pass, which goes by the socket, as does a datagram now and then.

use super::early::{ETHERNET_LEN, Way};
use super::send::{Sent, uninterrupted};
use super::socket::Socket;
use crate::interfaces;
use crate::link::ip;
use core::mem::size_of;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::net::{SendFlags, sockopt};
use std::time::{Duration, Instant};

/// Bytes of a frame, at most: of longer ones the kernel's way is a small part.
const FRAME_MAX: usize = 2048;
/// Frames sent to a peer of whom nothing came early meanwhile: it may have moved, and each that is sent again then comes later than the one before.
const UNHEARD_MAX: u32 = 8;
/// So often the socket is used all the same: firewalls forget a conversation that they do not see.
const BY_SOCKET: Duration = Duration::from_secs(10);
/// And so many frames are sent between two looks at the clock.
const CLOCK_EVERY: u32 = 64;
/// Ways to one peer that are tried: one that keeps changing is none.
const WAYS_MAX: u32 = 64;

/// How a peer is sent frames to.
#[derive(Debug)]
pub(super) struct Frames {
    way: Option<Open>,
    /// The latest way that was looked at, and how many there were.
    seen: Option<Way>,
    ways: u32,
    /// Sent since something came.
    unheard: u32,
    /// Sent since the clock was looked at.
    unclocked: u32,
    by_socket: Instant,
}

/// A way that can be gone.
#[derive(Debug)]
struct Open {
    /// Of AF_PACKET, for this interface; it hears nothing.
    socket: OwnedFd,
    /// Headers, then room for the datagram.
    frame: Box<[u8; FRAME_MAX]>,
    /// Bytes of the headers.
    headers: usize,
    /// Bytes of the longest frame.
    most: usize,
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames { way: None, seen: None, ways: 0, unheard: 0, unclocked: 0, by_socket: Instant::now() }
    }

    /// Something came from the peer this way; `socket` is connected to it.
    pub(super) fn heard(&mut self, way: &Way, socket: &Socket) {
        self.unheard = 0;
        if self.seen.as_ref() != Some(way) {
            self.ways = self.ways.saturating_add(1);
            self.seen = Some(*way);
            self.way = if self.ways <= WAYS_MAX { Open::new(way, socket) } else { None };
        }
    }

    /// Send a datagram; `None`: it is to go by the socket.
    pub(super) fn send(&mut self, datagram: &[u8]) -> Option<Sent> {
        let open = self.way.as_mut().filter(|_| self.unheard < UNHEARD_MAX)?;
        if self.unclocked >= CLOCK_EVERY {
            self.unclocked = 0;
            if self.by_socket.elapsed() > BY_SOCKET {
                self.by_socket = Instant::now();
                return None;
            }
        }
        let len = open.headers + datagram.len();
        let frame = open.frame.get_mut(..len).filter(|_| len <= open.most)?;
        frame.get_mut(open.headers..)?.copy_from_slice(datagram);
        ip::finish(frame.get_mut(ETHERNET_LEN..)?)?;
        match uninterrupted(|| rustix::net::send(&open.socket, frame, SendFlags::DONTWAIT)) {
            sent @ (Sent::Whole | Sent::NoRoom) => {
                self.unheard += 1;
                self.unclocked += 1;
                Some(sent)
            }
            _ => {
                self.way = None;
                None
            }
        }
    }
}

impl Open {
    /// `None`: the kernel would go another way, or this one is not permitted.
    fn new(way: &Way, socket: &Socket) -> Option<Open> {
        let peer = socket.peer?;
        if socket.local != way.ours {
            return None;
        }
        let name = interfaces::list().ok()?.into_iter().find(|one| one.index == way.interface)?.name;
        let mtu = interfaces::mtu(&name).ok()?;
        let of_route = if peer.is_ipv4() { sockopt::ip_mtu(&socket.fd) } else { sockopt::ipv6_mtu(&socket.fd) };
        if of_route.ok()? as usize != mtu {
            return None;
        }
        let [to @ .., _, _] = way.ethernet.as_slice() else { return None };
        let (to, from) = to.split_at_checked(to.len() / 2)?;
        let headers = [from, to, way.ethernet.last_chunk::<2>()?, &ip::headers(way.ours, peer)?].concat();
        let mut frame = Box::new([0; FRAME_MAX]);
        frame.get_mut(..headers.len())?.copy_from_slice(&headers);
        let most = FRAME_MAX.min(ETHERNET_LEN + mtu);
        Some(Open { socket: packet_socket(way.interface)?, frame, headers: headers.len(), most })
    }
}

/// A socket that sends frames at one interface, and receives none. `None`: it takes CAP_NET_RAW.
fn packet_socket(interface: u32) -> Option<OwnedFd> {
    // No protocol: nothing is heard by it.
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain data for which zeros are valid.
    let mut at: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as libc::c_ushort;
    at.sll_ifindex = interface.cast_signed();
    // SAFETY: the kernel reads one address of this length.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const at).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    (bound == 0).then_some(socket)
}
