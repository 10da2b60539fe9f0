//! Sending datagrams: as many as one call takes.
//!
//! `UDP_SEGMENT` cuts one long message into datagrams of equal size, of which the last may be
//! shorter. The header, payload and tag of each datagram are gathered from where they lie.

use super::sockets::group::GroupRoute;
use super::sockets::socket::Socket;
use crate::net::datagram::Outgoing;
use crate::net::udp::recv::last_error;
use crate::net::udp::sockets::address::SocketName;
use core::mem::{MaybeUninit, align_of, size_of};
use oikaze_protocol::limits::DATAGRAM_MAX;
use oikaze_protocol::wind::SendMode;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::net::IpAddr;

/// Maximum number of datagrams in one call (`UDP_MAX_SEGMENTS`; newer kernels take more).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Maximum number of pieces of one datagram.
const PIECES: usize = 3;

const _: () = assert!(SEGMENTS_MAX * PIECES <= 1024, "IOV_MAX");

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The kernel has accepted all of it.
    Whole,
    /// There is no room now.
    NoRoom,
    /// The datagram is larger than the path carries.
    TooBig,
    /// The kernel refuses either `UDP_SEGMENT` or the datagram.
    Unfit,
    /// The datagram never arrives; others may.
    Unreachable,
    /// The socket is of no use any more.
    Broken(io::Error),
}

/// Number of first datagrams that can go in one call: in the same lane and flow to the same peer,
/// of equal size except for a shorter last one.
pub(crate) fn run_length(batch: &[Outgoing<'_>], gso: bool) -> usize {
    let Some(first) = batch.first() else { return 0 };
    let size = first.len();
    if !gso || size == 0 || first.mode > SendMode::Any {
        return 1;
    }
    let mut count = 0;
    let mut total = 0;
    for datagram in batch.iter().take(SEGMENTS_MAX) {
        let len = datagram.len();
        if datagram.to != first.to
            || datagram.lane != first.lane
            || datagram.flow != first.flow
            || datagram.mode > SendMode::Any
            || len > size
            || len == 0
            || total + len > DATAGRAM_MAX
        {
            break;
        }
        count += 1;
        total += len;
        if len < size {
            break;
        }
    }
    count.max(1)
}

/// Sends one run with one call, to a group if there is a route to one.
pub(crate) fn send(
    socket: &mut Socket,
    run: &[Outgoing<'_>],
    to_group: Option<&GroupRoute>,
) -> Sent {
    // A lone datagram must not be cut, whatever was sent before. A run passes its segment size
    // itself.
    if run.len() == 1 && socket.segment(0).is_err() {
        return Sent::Unfit;
    }
    match run {
        // Takes a quarter of a microsecond less than with a message header, which the kernel would
        // have to fetch and parse.
        [one] if socket.peer.is_some() && one.len() == one.head.len() => uninterrupted(|| {
            rustix::net::send(&socket.fd, one.head, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        }),
        _ => send_gathered(socket, run, to_group),
    }
}

/// The call never blocks, and a peer that is gone raises no signal.
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn send_gathered(socket: &Socket, run: &[Outgoing<'_>], to_group: Option<&GroupRoute>) -> Sent {
    let Some(first) = run.first() else { return Sent::Whole };
    let mut pieces = Pieces::new();
    for datagram in run.iter().take(SEGMENTS_MAX) {
        pieces.push(datagram.head.as_ptr(), datagram.head.len());
        pieces.push(datagram.payload.as_ptr(), datagram.payload.len());
        pieces.push(datagram.tag.as_ptr(), datagram.tag.len());
    }
    // SAFETY: `msghdr` is plain data for which zeros are valid (its padding differs between C
    // libraries).
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    let name = SocketName::of(to_group.map_or(*first.to, |route| route.address), socket.both);
    if socket.peer.is_none() {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.len();
    }
    message.msg_iov = pieces.slots.as_mut_ptr().cast();
    message.msg_iovlen = pieces.count as _;
    let mut control = Control::new();
    if run.len() > 1 {
        control.segment(first.len() as u16, &mut message);
    }
    let mut of_group = to_group.map(|route| GroupControl::new(route, &control));
    if let Some(of_group) = &mut of_group {
        of_group.put_into(&mut message, run.len() > 1);
    }
    uninterrupted(|| {
        // SAFETY: the name, the pieces and the control message live until the call returns; the
        // pieces lead to slices that `run` borrows and to bytes that its gathers keep in place; the
        // kernel only reads them.
        let sent = unsafe { libc::sendmsg(socket.fd.as_raw_fd(), &raw const message, FLAGS) };
        usize::try_from(sent).map_err(|_| last_error())
    })
}

/// Repeats the call until no signal interrupts it, and interprets the result.
pub(crate) fn uninterrupted(call: impl Fn() -> Result<usize, Errno>) -> Sent {
    loop {
        return match call() {
            Ok(_) => Sent::Whole,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Sent::NoRoom,
            Err(Errno::MSGSIZE) => Sent::TooBig,
            Err(Errno::INVAL | Errno::IO | Errno::NOPROTOOPT | Errno::OPNOTSUPP) => Sent::Unfit,
            Err(error @ (Errno::BADF | Errno::NOTSOCK | Errno::PIPE)) => Sent::Broken(error.into()),
            // No route, refused by a firewall or by the peer (reported by ICMP), or interface gone:
            // as good as lost on the path.
            Err(_) => Sent::Unreachable,
        };
    }
}

/// Addresses and lengths of the pieces for one call.
pub(crate) struct Pieces {
    slots: [MaybeUninit<libc::iovec>; SEGMENTS_MAX * PIECES],
    count: usize,
    /// Address of the latest piece.
    at: *const u8,
    len: usize,
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        Pieces {
            slots: [const { MaybeUninit::uninit() }; SEGMENTS_MAX * PIECES],
            count: 0,
            at: core::ptr::null(),
            len: 0,
        }
    }

    /// Pointer to [`Pieces::count`] pieces, for a system call.
    pub(crate) fn as_ptr(&self) -> *const libc::iovec {
        self.slots.as_ptr().cast()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends a piece. Bytes right behind the latest piece extend it, because the kernel processes
    /// each piece by itself.
    pub(crate) fn push(&mut self, at: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let joins = self.count > 0 && self.at.wrapping_add(self.len) == at;
        (self.at, self.len) = if joins { (self.at, self.len + len) } else { (at, len) };
        self.count += usize::from(!joins);
        if let Some(slot) = self.count.checked_sub(1).and_then(|latest| self.slots.get_mut(latest))
        {
            slot.write(libc::iovec { iov_base: self.at.cast_mut().cast(), iov_len: self.len });
        }
    }
}

/// Room for one control message of two bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    segment: u16,
    padding: [u16; 3],
}

// The layout that CMSG_DATA and CMSG_SPACE compute.
const _: () = {
    // SAFETY: these compute numbers only.
    unsafe {
        assert!(core::mem::offset_of!(Control, segment) == libc::CMSG_LEN(0) as usize);
        assert!(size_of::<Control>() == libc::CMSG_SPACE(size_of::<u16>() as u32) as usize);
    }
};

impl Control {
    fn new() -> Control {
        // SAFETY: plain data for which zeros are valid.
        unsafe { core::mem::zeroed() }
    }

    /// Requests segments of `bytes` bytes.
    fn segment(&mut self, bytes: u16, message: &mut libc::msghdr) {
        self.header.cmsg_level = libc::SOL_UDP;
        self.header.cmsg_type = libc::UDP_SEGMENT;
        // SAFETY: computes a number.
        self.header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as _;
        self.segment = bytes;
        message.msg_control = (&raw mut *self).cast();
        message.msg_controllen = size_of::<Control>() as _;
    }
}

/// Maximum length of the content of [`PacketInfo`], that for IPv6.
const INFO_MAX: usize = size_of::<libc::in6_pktinfo>();

/// Control message with the interface of a datagram and the address from which it goes (ip(7),
/// ipv6(7)).
#[repr(C)]
struct PacketInfo {
    header: libc::cmsghdr,
    info: [u8; INFO_MAX],
    padding: [u8; INFO_MAX.next_multiple_of(align_of::<libc::cmsghdr>()) - INFO_MAX],
}

/// Control messages of a run to a group. That with the interface comes last, because its length
/// depends on the family.
#[repr(C)]
struct GroupControl {
    segment: Control,
    at: PacketInfo,
    /// Length of the message with the interface.
    at_len: usize,
}

// The layout that CMSG_DATA and CMSG_NXTHDR compute.
const _: () = {
    // SAFETY: these compute numbers only.
    unsafe {
        assert!(core::mem::offset_of!(PacketInfo, info) == libc::CMSG_LEN(0) as usize);
        assert!(size_of::<PacketInfo>() == libc::CMSG_SPACE(INFO_MAX as u32) as usize);
        assert!(core::mem::offset_of!(GroupControl, at) == libc::CMSG_SPACE(2) as usize);
    }
};

impl GroupControl {
    fn new(route: &GroupRoute, segment: &Control) -> GroupControl {
        let index = route.interface.to_ne_bytes();
        // SAFETY: plain data for which zeros are valid.
        let mut at: PacketInfo = unsafe { core::mem::zeroed() };
        let fill = |info: &mut [u8], parts: [&[u8]; 2]| {
            let bytes = parts.into_iter().flatten();
            info.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        };
        let len = match route.source {
            // struct in_pktinfo: the interface, the source, and an address that sending ignores.
            IpAddr::V4(source) => {
                fill(&mut at.info, [&index, &source.octets()]);
                (at.header.cmsg_level, at.header.cmsg_type) = (libc::SOL_IP, libc::IP_PKTINFO);
                size_of::<libc::in_pktinfo>()
            }
            // struct in6_pktinfo: the source and the interface.
            IpAddr::V6(source) => {
                fill(&mut at.info, [&source.octets(), &index]);
                (at.header.cmsg_level, at.header.cmsg_type) = (libc::SOL_IPV6, libc::IPV6_PKTINFO);
                size_of::<libc::in6_pktinfo>()
            }
        };
        // SAFETY: computes a number.
        let len = unsafe { libc::CMSG_LEN(len as u32) };
        at.header.cmsg_len = len as _;
        GroupControl { segment: *segment, at, at_len: len as usize }
    }

    /// Puts the messages into a header, without that of segments unless the run `is_cut`.
    fn put_into(&mut self, message: &mut libc::msghdr, is_cut: bool) {
        if is_cut {
            message.msg_control = (&raw mut *self).cast();
            message.msg_controllen = (size_of::<Control>() + self.at_len) as _;
        } else {
            message.msg_control = (&raw mut self.at).cast();
            message.msg_controllen = self.at_len as _;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use oikaze_protocol::wire::Lane;
    use std::net::SocketAddr;

    fn lengths(sizes: &[(u8, usize)], gso: bool) -> usize {
        let bytes = vec![0; 70_000];
        let peers: Vec<SocketAddr> =
            sizes.iter().map(|(peer, _)| ([127, 0, 0, *peer], 1).into()).collect();
        let batch: Vec<Outgoing<'_>> = sizes
            .iter()
            .zip(&peers)
            .map(|((_, len), to)| Outgoing::new(to, Lane::Small, bytes.get(..*len).unwrap()))
            .collect();
        run_length(&batch, gso)
    }

    #[test]
    fn a_run_is_equal_datagrams_to_one_peer_and_a_shorter_one() {
        assert_eq!(lengths(&[], true), 0);
        assert_eq!(lengths(&[(1, 100); 5], true), 5);
        assert_eq!(lengths(&[(1, 100); 5], false), 1);
        assert_eq!(lengths(&[(1, 100), (1, 100), (1, 60), (1, 60)], true), 3);
        assert_eq!(lengths(&[(1, 100), (1, 101)], true), 1);
        assert_eq!(lengths(&[(1, 100), (2, 100)], true), 1);
        assert_eq!(lengths(&[(1, 100), (1, 0)], true), 1);
        assert_eq!(lengths(&[(1, 0), (1, 0)], true), 1);
        assert_eq!(lengths(&[(1, 10); 100], true), SEGMENTS_MAX);
        assert_eq!(lengths(&[(1, 8248); 20], true), 7);
        assert_eq!(lengths(&[(1, 65_507), (1, 1)], true), 1);
        assert_eq!(lengths(&[(1, 65_508)], true), 1);
    }
}
