//! A UDP socket and its options.

use super::bind::BindError;
use crate::descriptor::not_standard;
use crate::features::DisabledFeatures;
use crate::net::ip::ECT_0;
use core::ffi::c_int;
use core::mem::size_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Option of linux/in6.h (Linux 4.20), which the `libc` crate lacks for some targets.
const IPV6_MULTICAST_ALL: c_int = 29;

/// A bound, non-blocking UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) local: SocketAddr,
    /// Peer to which the socket is connected, if any. A connected socket sends nowhere else.
    pub(crate) peer: Option<SocketAddr>,
    /// Bound to the IPv6 wildcard and open to IPv4, too: one socket to poll, and one system call
    /// for each poll.
    pub(crate) both: bool,
    /// One call may send several datagrams.
    pub(crate) gso: bool,
    /// One buffer may bring several datagrams.
    pub(crate) gro: bool,
    /// Buffer sizes in bytes, as the kernel counts them.
    pub(crate) send_buffer: usize,
    pub(crate) receive_buffer: usize,
    /// The last poll found something, so the next one asks for several buffers at once.
    pub(crate) busy: bool,
    /// Number of the poll that last found bulk here.
    pub(crate) came: usize,
    /// Size in bytes of the datagrams into which longer messages are cut; 0 if nothing is cut.
    segment: usize,
    /// The kernel reports the ECN mark of each arrival.
    hears_marks: bool,
    /// Path sizes that routers report are believed.
    believes_routers: bool,
    /// Bound to a multicast group. What comes there is not predicted.
    pub(crate) hears_group: bool,
}

impl Socket {
    /// Binds to `local` (port 0: one of the kernel's choice). The IPv6 wildcard includes IPv4 if
    /// `both`.
    pub(crate) fn open(
        local: SocketAddr,
        both: bool,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Socket, BindError> {
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(family, SocketType::DGRAM, flags, None);
        let fd = fd.and_then(not_standard).map_err(|why| BindError::System {
            what: if local.is_ipv4() { "open an IPv4 socket" } else { "open an IPv6 socket" },
            why,
        })?;
        if local.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, !both).map_err(|why| BindError::System {
                what: "choose the families of an IPv6 socket",
                why,
            })?;
        }
        forbid_fragments(fd.as_fd(), local.is_ipv4() || both, local.is_ipv6());
        may_be_marked(fd.as_fd(), local.is_ipv4() || both, local.is_ipv6());
        bind(&fd, &local).map_err(|why| BindError::of(local, why))?;
        let local = getsockname(&fd)
            .and_then(SocketAddr::try_from)
            .map_err(|why| BindError::System { what: "ask for a socket's own address", why })?;
        let mut socket = Socket::with_options(fd, local, None, both, buffer, without);
        socket.hear_marks();
        Ok(socket)
    }

    /// Binds to the port of `own`, which must [allow it](Socket::share), and connects to `to`.
    pub(crate) fn connect(
        own: &Socket,
        to: SocketAddr,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Socket, Errno> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(
            family,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .and_then(not_standard)?;
        let everywhere: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let ip = if own.local.ip().is_unspecified() { everywhere } else { own.local.ip() };
        if to.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        forbid_fragments(fd.as_fd(), to.is_ipv4(), to.is_ipv6());
        may_be_marked(fd.as_fd(), to.is_ipv4(), to.is_ipv6());
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &SocketAddr::new(ip, own.local.port()))?;
        sockopt::set_socket_reuseaddr(&fd, false)?;
        connect(&fd, &to)?;
        // Datagrams that came from anybody between the two calls are lost, as on a bad wire. From
        // here on everything is the peer's.
        while rustix::net::recv(&fd, &mut [0; 0], RecvFlags::TRUNC).is_ok() {}
        let local = SocketAddr::try_from(getsockname(&fd)?)?;
        let mut socket = Socket::with_options(fd, local, Some(to), false, buffer, without);
        if socket.gro {
            socket.hear_marks();
        }
        Ok(socket)
    }

    /// Opens a socket at the same address and another port, of the kernel's choice, that only
    /// sends. What anybody sends to that port finds no room, and nobody reads it.
    pub(crate) fn open_flow(
        &self,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Socket, BindError> {
        let local = SocketAddr::new(self.local.ip(), 0);
        let without = DisabledFeatures { gro: true, ..*without };
        let mut socket = Socket::open(local, self.both, buffer, &without)?;
        let _ = sockopt::set_socket_recv_buffer_size(&socket.fd, 0);
        socket.receive_buffer = 0;
        Ok(socket)
    }

    /// Binds to a multicast group, whose address names the interface if its family has scopes.
    /// Other nodes of this host may be bound to it, too.
    pub(crate) fn open_for_group(
        group: SocketAddr,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Socket, Errno> {
        let family = if group.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(family, SocketType::DGRAM, flags, None).and_then(not_standard)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        // Without this, a socket hears what other sockets of the host have joined (ip(7)).
        if group.is_ipv4() {
            set(fd.as_fd(), libc::SOL_IP, libc::IP_MULTICAST_ALL, 0)?;
        } else {
            sockopt::set_ipv6_v6only(&fd, true)?;
            set(fd.as_fd(), libc::SOL_IPV6, IPV6_MULTICAST_ALL, 0)?;
        }
        bind(&fd, &group)?;
        let mut socket = Socket::with_options(fd, group, None, false, buffer, without);
        socket.hears_group = true;
        socket.hear_marks();
        Ok(socket)
    }

    /// Prepares for sending to groups of a family. Datagrams pass as many routers as `hops` says,
    /// less one. They come back to this host if `loops`.
    pub(crate) fn send_to_groups(&self, ipv4: bool, hops: u32, loops: bool) -> Result<(), Errno> {
        if ipv4 {
            sockopt::set_ip_multicast_ttl(&self.fd, hops)?;
            sockopt::set_ip_multicast_loop(&self.fd, loops)?;
        } else {
            sockopt::set_ipv6_multicast_hops(&self.fd, hops)?;
        }
        // In an IPv6 socket, this option rules datagrams of both families.
        match self.local.is_ipv6() {
            true => sockopt::set_ipv6_multicast_loop(&self.fd, loops),
            false => Ok(()),
        }
    }

    /// Requests the ECN mark of every arrival. A system that refuses has no marks, and missing
    /// marks have no effect. Each arrival costs 40 ns more, even if nobody reads its mark.
    pub(crate) fn hear_marks(&mut self) {
        if !std::mem::replace(&mut self.hears_marks, true) {
            let (v4, v6) = (self.local.is_ipv4() || self.both, self.local.is_ipv6());
            let _ = v4.then(|| sockopt::set_ip_recvtos(&self.fd, true));
            let _ = v6.then(|| sockopt::set_ipv6_recvtclass(&self.fd, true));
        }
    }

    /// Allows other sockets of this process on the same port, while one is being bound.
    pub(crate) fn share(&self, yes: bool) -> Result<(), Errno> {
        sockopt::set_socket_reuseaddr(&self.fd, yes)
    }

    fn with_options(
        fd: OwnedFd,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        both: bool,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Socket {
        let (send_buffer, receive_buffer) = enlarge_buffers(fd.as_fd(), buffer);
        // Requesting segments of 0 bytes changes nothing, and tells whether the kernel has the
        // option.
        let gso = !without.gso && set(fd.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let gro = !without.gro && set(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let (busy, came, hears_marks, believes_routers) = (false, 0, false, true);
        Socket {
            fd,
            local,
            peer,
            both,
            gso,
            gro,
            send_buffer,
            receive_buffer,
            busy,
            came,
            segment: 0,
            hears_marks,
            believes_routers,
            hears_group: false,
        }
    }

    /// Cuts longer messages into datagrams of `bytes` bytes, where a call gives no size; 0 cuts
    /// nothing.
    pub(crate) fn segment(&mut self, bytes: usize) -> Result<(), Errno> {
        if self.segment != bytes {
            set(
                self.fd.as_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                c_int::try_from(bytes).map_err(|_| Errno::INVAL)?,
            )?;
            self.segment = bytes;
        }
        Ok(())
    }

    /// Stops believing reports of path sizes. Somebody (ICMP can be forged) has told the system
    /// that a path carries less than every path must. From now on only the interface's own size
    /// counts here, and Wind finds out the rest (RFC 8899, section 4.6.1). Returns `false` if that
    /// was so already.
    pub(crate) fn distrust_routers(&mut self) -> bool {
        let believed = core::mem::replace(&mut self.believes_routers, false);
        if believed {
            let (v4, v6) = (self.local.is_ipv4() || self.both, self.local.is_ipv6());
            let _ = v4.then(|| {
                sockopt::set_ip_mtu_discover(&self.fd, sockopt::Ipv4PathMtuDiscovery::PROBE)
            });
            let _ = v6.then(|| {
                sockopt::set_ipv6_mtu_discover(&self.fd, sockopt::Ipv6PathMtuDiscovery::PROBE)
            });
        }
        believed
    }

    /// Returns `true` if a datagram to this local address comes to this socket.
    pub(crate) fn serves(&self, ip: IpAddr) -> bool {
        let own = self.local.ip();
        own == ip || (own.is_unspecified() && (self.both || own.is_ipv4() == ip.is_ipv4()))
    }

    /// Datagrams that the kernel dropped for want of room.
    pub(crate) fn overflowed(&self) -> u64 {
        // linux/sock_diag.h: SO_MEMINFO answers an array of counters, SK_MEMINFO_DROPS is the
        // ninth.
        const SK_MEMINFO_VARS: usize = 9;
        const SK_MEMINFO_DROPS: usize = 8;
        let mut counters = [0_u32; SK_MEMINFO_VARS];
        let mut len = size_of::<[u32; SK_MEMINFO_VARS]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into the array.
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                counters.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if answer == 0 { counters.get(SK_MEMINFO_DROPS).copied().unwrap_or(0).into() } else { 0 }
    }
}

/// Forbids fragmentation, so that a too big datagram is an error at once, instead of fragments that
/// are lost one by one. A kernel without the option (there is none we know of) sends fragments,
/// which still works.
fn forbid_fragments(fd: BorrowedFd<'_>, ipv4: bool, ipv6: bool) {
    if ipv4 {
        let _ = sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::DO);
    }
    if ipv6 {
        let _ = sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::DO);
    }
}

/// Permits marking instead of dropping (ECT(0), RFC 3168). A system that refuses sends datagrams as
/// before.
fn may_be_marked(fd: BorrowedFd<'_>, ipv4: bool, ipv6: bool) {
    let _ = ipv4.then(|| sockopt::set_ip_tos(fd, ECT_0));
    let _ = ipv6.then(|| sockopt::set_ipv6_tclass(fd, ECT_0.into()));
}

/// Makes the buffers as large as allowed: past the limit if privileged, otherwise up to
/// net.core.{w,r}mem_max. Returns the resulting sizes as the kernel counts them (twice the
/// requested bytes, because its own bookkeeping is included).
fn enlarge_buffers(fd: BorrowedFd<'_>, bytes: usize) -> (usize, usize) {
    let send = sockopt::set_socket_send_buffer_size_force(fd, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, bytes));
    let receive = sockopt::set_socket_recv_buffer_size_force(fd, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, bytes));
    // After a refusal the default stays, which the calls below report.
    let _ = (send, receive);
    (
        sockopt::socket_send_buffer_size(fd).unwrap_or(0),
        sockopt::socket_recv_buffer_size(fd).unwrap_or(0),
    )
}

fn set(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel reads one int.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
