//! Sockets for whole Ethernet frames (packet(7)).

use std::io;

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a socket that sends frames at one interface, and receives those of one protocol there
/// (`ETH_P_…`, linux/if_ether.h). With protocol 0 it receives none. No call on it blocks.
///
/// # Errors
/// The kernel's error: `EPERM` without CAP_NET_RAW, `ENODEV` if the interface is gone.
pub fn packet_socket(interface: u32, protocol: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Receives nothing before it is bound.
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain data for which zeros are valid.
    let mut at: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as libc::c_ushort;
    at.sll_protocol = protocol.to_be();
    at.sll_ifindex = interface.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads one address of this length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
