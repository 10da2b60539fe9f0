//! The interface of links.

use super::addresses::LocalAddress;
use super::datagram::{Arrival, Outgoing};
use super::sink::{Plain, Sink};
use super::statistics::Statistics;
use rustix::fd::BorrowedFd;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// A datagram that did not fit its path, and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Address of the receiver.
    pub to: SocketAddr,
    /// Length of the datagram in bytes.
    pub tried: usize,
    /// Bytes of the largest datagram that the path is now reported to carry: less than `tried`.
    pub fits: usize,
}

/// Stall of the process that sends and receives for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStall {
    /// Name of the process, delay, cause and remedy.
    pub text: String,
    /// Nobody has asked since the stall began.
    pub is_new: bool,
}

/// Values that do not change during the life of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkProperties<'l> {
    /// Port at which the link is reached.
    pub port: u16,
    /// Port, at all addresses of the link, to which peers send bulk and from which the link sends
    /// bulk. Bulk thus never delays small datagrams. `None` means one port for all.
    pub bulk_port: Option<u16>,
    /// Number of flows of bulk, each from a port of its own (WIND-14.1). 1 means that all bulk
    /// leaves from one port.
    pub flows: u8,
    /// Bytes of the largest datagram the link carries at all.
    pub datagram_max: usize,
    /// Bytes that may wait to be received before some are lost, as the kernel counts them.
    pub receive_buffer: usize,
    /// Bytes that a waiting datagram counts for in addition to its own.
    pub receive_overhead: usize,
    /// Descriptor that becomes readable when something has arrived (level-triggered), while the
    /// link is [watched](Link::watch).
    pub fd: Option<BorrowedFd<'l>>,
}

impl LinkProperties<'_> {
    /// Properties of a link within one process, which has neither ports nor a descriptor.
    #[must_use]
    pub const fn within_process(datagram_max: usize, receive_buffer: usize) -> Self {
        LinkProperties {
            port: 0,
            bulk_port: None,
            flows: 1,
            datagram_max,
            receive_buffer,
            receive_overhead: 0,
            fd: None,
        }
    }

    /// Bytes of datagrams of `len` bytes each that may wait to be received before some are lost.
    #[must_use]
    pub fn receive_room(&self, len: usize) -> usize {
        match self.receive_overhead {
            0 => self.receive_buffer,
            overhead => self.receive_buffer / (len + overhead) * len,
        }
    }
}

/// Multicast group, at the interface by which a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Address and port of the group.
    pub address: SocketAddr,
    /// Address of a peer, of the same family.
    pub peer: SocketAddr,
}

/// Form in which datagrams are handed to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadForm {
    /// Bulk of which each payload consists of whole memory pages.
    WholePages,
    /// A few datagrams of this many bytes, each contiguous in memory, to the port for small
    /// datagrams.
    Contiguous(usize),
}

/// Carries datagrams. A link has one owner at a time, and no method blocks.
pub trait Link: Send {
    /// Sends datagrams in order and returns how many the link took. Fewer than all means that there
    /// is no room now, and the caller tries the rest later. A datagram that cannot reach its peer
    /// (no route, too big for the path) counts as taken and is lost. See [`Link::statistics`] and
    /// [`Link::poll_too_big`].
    ///
    /// # Errors
    /// Only errors that make the link useless.
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize>;

    /// Receives one bounded burst, hands each datagram to the sink, and returns how many there
    /// were. More may be waiting, even if the burst was empty, because a link may poll its sockets
    /// in turn. The link may receive bulk directly into its place, if the sink predicts it. A
    /// thread that sleeps is woken up through [`LinkProperties::fd`].
    ///
    /// # Errors
    /// Only errors that make the link useless. `BrokenPipe` says that its other end has gone, and
    /// ends the node.
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize>;

    /// Polls again after an empty poll, on behalf of a waiting thread. The link polls a few times,
    /// until something comes, where a datagram is most likely and as fast as possible. The result
    /// says nothing about the other sockets, for which [`Link::receive_into`] must be called again
    /// soon.
    ///
    /// # Errors
    /// As for [`Link::receive_into`].
    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.receive_into(sink)
    }

    /// Addresses at which this link can be reached: one entry for each usable interface address it
    /// is bound to.
    ///
    /// # Errors
    /// The interfaces could not be listed.
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>>;

    /// Returns what does not change during the life of the link.
    fn properties(&self) -> LinkProperties<'_>;

    /// Returns `true` if sending to this peer costs less in this form.
    fn prefers(&mut self, to: SocketAddr, form: PayloadForm) -> bool {
        let _ = (to, form);
        false
    }

    /// Announces that a thread is about to sleep on [`LinkProperties::fd`] (`true`), or no longer
    /// sleeps (`false`). Each sleeper makes one call of either kind. Watching costs half a
    /// microsecond for each datagram that arrives.
    ///
    /// # Errors
    /// The link cannot be watched; the caller must poll it instead.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        let _ = yes;
        Ok(())
    }

    /// Time at which the link should be called again although [`LinkProperties::fd`] announces
    /// nothing. [`Link::receive_into`] then has something to deliver, or [`Link::send`], which had
    /// no room, may have some.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Returns a datagram that was too big for its path, so that the caller makes smaller ones. The
    /// link keeps at most one for each peer.
    fn poll_too_big(&mut self) -> Option<TooBig> {
        None
    }

    /// Reports that this peer was silent for long although it was asked. The link receives from the
    /// peer by the plainest path until the peer is heard. It does so for good if only that path
    /// delivers again and again (WIND-8.13).
    fn report_silence(&mut self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Returns why nothing may have come for long, if the cause lies on this machine: the process
    /// that sends and receives for the link does not run.
    fn stall(&mut self) -> Option<LinkStall> {
        None
    }

    /// Joins a multicast group: what comes to the group from now on is received as bulk. A group
    /// that is joined twice at an interface is joined once.
    ///
    /// # Errors
    /// The link has no groups (`Unsupported`); the address is not a group's; the peer's family or
    /// interface cannot be used; or the system refuses.
    fn join_group(&mut self, group: &Group) -> io::Result<()> {
        let _ = group;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Leaves a group at all interfaces.
    fn leave_group(&mut self, address: SocketAddr) {
        let _ = address;
    }

    /// Prepares for sending to a group at the interface by which the peer is reached, and returns
    /// the address for [`Outgoing::to`], which means this group at this interface. Joining is not
    /// needed for that.
    ///
    /// # Errors
    /// As for [`Link::join_group`].
    fn route_group(&mut self, group: &Group) -> io::Result<SocketAddr> {
        let _ = group;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns a message for the user, once: for example that a mechanism does not work, or that a
    /// buffer is too small.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// Counters since the link was made.
    fn statistics(&self) -> Statistics;
}

/// Receives datagrams by a closure.
pub trait ReceiveEach: Link {
    /// Receives like [`Link::receive_into`], and calls `take` for each datagram.
    ///
    /// # Errors
    /// As for [`Link::receive_into`].
    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        self.receive_into(&mut Plain(take))
    }
}

impl<L: Link + ?Sized> ReceiveEach for L {}

impl<L: Link + ?Sized> Link for Box<L> {
    forward_link!(self => (**self): send stall receive_into receive_again local_addresses properties prefers
        watch next_wakeup poll_too_big report_silence join_group leave_group route_group notice statistics);
}
