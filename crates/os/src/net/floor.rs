//! Socket options with which `bench` measures how fast bare UDP is on a machine, without Oikaze's
//! own path.
//!
//! The two options below have no safe interface elsewhere. Everything else that the measurements
//! need (`sendmsg`, `recvmsg`) has one.

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd};

/// Makes the kernel cut every buffer sent through `socket` into datagrams of `bytes`
/// (`UDP_SEGMENT`, Linux 4.18).
///
/// # Errors
/// The kernel's error: `ENOPROTOOPT` where it lacks the option.
pub fn send_in_segments(socket: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    set_udp_option(socket, libc::UDP_SEGMENT, bytes.into())
}

/// Makes the kernel deliver consecutive datagrams of one size as one buffer (`UDP_GRO`, Linux 5.0).
///
/// # Errors
/// The kernel's error: `ENOPROTOOPT` where it lacks the option.
pub fn receive_joined(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_udp_option(socket, libc::UDP_GRO, 1)
}

fn set_udp_option(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads `size` bytes
    // at `value`, which is a local of that size and outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
