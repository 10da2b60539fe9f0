//! Links: the interface through which datagrams are sent and received.
//!
//! A [`Link`] carries datagrams unreliably. It may lose, repeat or delay what it accepts, and every
//! layer above copes with that. [`UdpLink`] is the link for Ethernet. [`Fault`] wraps any link and
//! loses, repeats, reorders, damages and delays datagrams by a seed. [`Tap`] records what goes
//! through another link.

mod addresses;
pub mod bypass;
mod capture;
#[cfg(test)]
mod conformance;
mod fault;
pub mod floor;
mod sink;
mod statistics;
mod udp;

pub use addresses::{LocalAddress, local_addresses, path_mtu};
pub use capture::{PCAP_LIMIT_VARIABLE, PCAP_VARIABLE};
pub use capture::{Passing, Pcapng, Recorder, TRACE_VARIABLE, Tap, TapSettings, TapSyntax, Trace};
pub use fault::{
    Corruption, FAULT_VARIABLE, Fate, Fault, FaultPlan, FaultSettings, FaultSyntax, Reseal,
    Tampering, Verdict,
};
pub use oikaze_protocol::wind::SendMode;
pub use sink::{Predicted, Scattered, Sink};
pub use statistics::{Offload, Statistics};
pub use udp::{Bind, BindError, Ports, PortsSyntax, UdpLink};

use crate::memory::Gather;
use oikaze_protocol::wire::Lane;
use rustix::fd::BorrowedFd;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// One datagram to be sent: `head`, `payload` and `tag`, concatenated.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Address of the receiver.
    pub to: &'a SocketAddr,
    /// Lane of the datagram. Bulk leaves from a port of its own if the link has one
    /// ([`Link::bulk_port`]).
    pub lane: Lane,
    /// Fast paths that the datagram may take.
    pub mode: SendMode,
    /// First bytes of the datagram: header and frames.
    pub head: &'a [u8],
    /// Bytes after the head, sent from where they lie in memory; may be empty.
    pub payload: &'a Gather,
    /// Bytes after the payload.
    pub tag: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A datagram of these bytes alone, which may take every fast path.
    #[must_use]
    pub const fn new(to: &'a SocketAddr, lane: Lane, head: &'a [u8]) -> Outgoing<'a> {
        Outgoing { to, lane, mode: SendMode::Any, head, payload: &Gather::EMPTY, tag: &[] }
    }

    /// Bytes of the datagram.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len() + self.tag.len()
    }

    /// Returns `true` if the datagram has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Address of the sender.
    pub from: SocketAddr,
    /// All bytes of the datagram.
    pub bytes: &'a [u8],
    /// Congestion Experienced (RFC 3168): a queue on the path was filling.
    pub congested: bool,
}

impl<'a> Arrival<'a> {
    /// An arrival without a congestion mark.
    #[must_use]
    pub const fn new(from: SocketAddr, bytes: &'a [u8]) -> Arrival<'a> {
        Arrival { from, bytes, congested: false }
    }
}

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

    /// Receives one bounded burst, calls `take` for each datagram, and returns how many there were.
    /// More may be waiting, even if the burst was empty, because a link may poll its sockets in
    /// turn. A thread that sleeps is woken up through [`Link::fd`].
    ///
    /// # Errors
    /// Only errors that make the link useless.
    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize>;

    /// Receives like [`Link::receive`]. The link may receive bulk directly into its place, if the
    /// sink predicts it.
    ///
    /// # Errors
    /// As for [`Link::receive`].
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.receive(&mut |arrival| sink.take(arrival))
    }

    /// Polls again after an empty poll, on behalf of a waiting thread. The link polls a few times,
    /// until something comes, where a datagram is most likely and as fast as possible. The result
    /// says nothing about the other sockets, for which [`Link::receive_into`] must be called again
    /// soon.
    ///
    /// # Errors
    /// As for [`Link::receive`].
    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.receive_into(sink)
    }

    /// Addresses at which this link can be reached: one entry for each usable interface address it
    /// is bound to.
    ///
    /// # Errors
    /// The interfaces could not be listed.
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>>;

    /// Port, at all addresses of the link, to which peers send bulk and from which the link sends
    /// bulk. Bulk thus never delays small datagrams. `None` means one port for all.
    fn bulk_port(&self) -> Option<u16> {
        None
    }

    /// Bytes of the largest datagram the link carries at all.
    fn datagram_max(&self) -> usize;

    /// Bytes of the largest datagram that the path to this peer carries, as far as the link knows.
    fn datagram_max_to(&self, to: SocketAddr) -> usize {
        let _ = to;
        self.datagram_max()
    }

    /// Returns `true` if sending bulk to this host costs less when each payload consists of whole
    /// memory pages.
    fn prefers_pages(&self, to: IpAddr) -> bool {
        let _ = to;
        false
    }

    /// Returns `true` if a few datagrams of `len` bytes reach this peer sooner when each is
    /// contiguous in memory and goes to the port for small datagrams.
    fn has_short_way(&mut self, to: SocketAddr, len: usize) -> bool {
        let _ = (to, len);
        false
    }

    /// Bytes of datagrams of `len` bytes each that may wait to be received before some are lost.
    fn receive_buffer(&self, len: usize) -> usize;

    /// Descriptor that becomes readable when something has arrived (level-triggered), while the
    /// link is [watched](Link::watch).
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Announces that a thread is about to sleep on [`Link::fd`] (`true`), or no longer sleeps
    /// (`false`). Each sleeper makes one call of either kind. Watching costs half a microsecond for
    /// each datagram that arrives.
    ///
    /// # Errors
    /// The link cannot be watched; the caller must poll it instead.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        let _ = yes;
        Ok(())
    }

    /// Time at which the link should be called again although [`Link::fd`] announces nothing.
    /// [`Link::receive`] then has something to deliver, or [`Link::send`], which had no room, may
    /// have some.
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
    fn unheard(&mut self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Returns a message for the user, once: for example that a mechanism does not work, or that a
    /// buffer is too small.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// Counters since the link was made.
    fn statistics(&self) -> Statistics;
}

/// Writes the methods of [`Link`] that a wrapper forwards to the link inside.
macro_rules! forward_link {
    ($self:ident => $inner:expr) => {
        fn local_addresses(&$self) -> std::io::Result<Vec<$crate::net::LocalAddress>> {
            $inner.local_addresses()
        }
        fn bulk_port(&$self) -> Option<u16> {
            $inner.bulk_port()
        }
        fn datagram_max(&$self) -> usize {
            $inner.datagram_max()
        }
        fn datagram_max_to(&$self, to: std::net::SocketAddr) -> usize {
            $inner.datagram_max_to(to)
        }
        fn prefers_pages(&$self, to: std::net::IpAddr) -> bool {
            $inner.prefers_pages(to)
        }
        fn has_short_way(&mut $self, to: std::net::SocketAddr, len: usize) -> bool {
            $inner.has_short_way(to, len)
        }
        fn receive_buffer(&$self, len: usize) -> usize {
            $inner.receive_buffer(len)
        }
        fn fd(&$self) -> Option<rustix::fd::BorrowedFd<'_>> {
            $inner.fd()
        }
        fn watch(&mut $self, yes: bool) -> std::io::Result<()> {
            $inner.watch(yes)
        }
        fn poll_too_big(&mut $self) -> Option<$crate::net::TooBig> {
            $inner.poll_too_big()
        }
        fn unheard(&mut $self, peer: std::net::SocketAddr) {
            $inner.unheard(peer);
        }
        fn statistics(&$self) -> $crate::net::Statistics {
            $inner.statistics()
        }
    };
}
use forward_link;

impl<L: Link + ?Sized> Link for Box<L> {
    forward_link!(self => (**self));

    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        (**self).send(batch)
    }
    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        (**self).receive(take)
    }
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        (**self).receive_into(sink)
    }
    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        (**self).receive_again(sink)
    }
    fn next_wakeup(&self) -> Option<Instant> {
        (**self).next_wakeup()
    }
    fn notice(&mut self) -> Option<String> {
        (**self).notice()
    }
}
