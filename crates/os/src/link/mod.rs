//! Datagrams in and out.
//!
//! A [`Link`] carries datagrams, unreliably: what it accepts may be lost, repeated or late, and
//! everything above copes with that. [`UdpLink`] is the one for Ethernet; [`Fault`] wraps any link
//! and loses, repeats, reorders, damages and delays by a seed; [`Tap`] writes down what goes
//! through another.

mod addresses;
#[cfg(test)]
mod conformance;
mod fault;
pub mod floor;
pub mod ip;
mod sink;
mod statistics;
mod tap;
mod udp;

pub use addresses::{LocalAddress, local_addresses, path_mtu};
pub use fault::{
    Corruption, FAULT_VARIABLE, Fate, Fault, FaultPlan, FaultSettings, FaultSyntax, Reseal,
    Tampering, Verdict,
};
pub use oikaze_protocol::wind::SendMode;
pub use sink::{Predicted, Scattered, Sink};
pub use statistics::{Offload, Statistics};
pub use tap::{PCAP_LIMIT_VARIABLE, PCAP_VARIABLE};
pub use tap::{Passing, Pcapng, Recorder, TRACE_VARIABLE, Tap, TapSettings, TapSyntax, Trace};
pub use udp::{Bind, BindError, Ports, PortsSyntax, UdpLink};

use crate::memory::Gather;
use oikaze_protocol::wire::Lane;
use rustix::fd::BorrowedFd;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// One datagram to be sent: `head`, `payload` and `tag` one behind the other.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Whereto.
    pub to: &'a SocketAddr,
    /// From where: bulk has a socket of its own, if the link has one ([`Link::bulk_port`]).
    pub lane: Lane,
    /// Which fast paths it may take.
    pub mode: SendMode,
    /// First bytes: header and frames.
    pub head: &'a [u8],
    /// Then these, directly from where they lie; may be empty.
    pub payload: &'a Gather,
    /// Then these.
    pub tag: &'a [u8],
}

impl Outgoing<'_> {
    /// Bytes of the datagram.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len() + self.tag.len()
    }

    /// A datagram of no bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Whence.
    pub from: SocketAddr,
    /// All of it.
    pub bytes: &'a [u8],
    /// A queue on its way was filling: Congestion Experienced (RFC 3168).
    pub congested: bool,
}

impl<'a> Arrival<'a> {
    /// One that met no congestion.
    #[must_use]
    pub const fn new(from: SocketAddr, bytes: &'a [u8]) -> Arrival<'a> {
        Arrival { from, bytes, congested: false }
    }
}

/// A datagram that did not fit its path, and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Where it should have gone.
    pub to: SocketAddr,
    /// Its bytes.
    pub tried: usize,
    /// Bytes of a datagram that the path is now said to carry: less than `tried`.
    pub fits: usize,
}

/// Carries datagrams. One owner at a time; nothing here blocks.
pub trait Link: Send {
    /// Send datagrams, in order; how many were taken. Fewer than all: there is no room now, try the
    /// rest later. A datagram that cannot reach its peer (no route, too big for the path) counts as
    /// taken and is lost; see [`Link::statistics`] and [`Link::poll_too_big`].
    ///
    /// # Errors
    /// Only what makes the link useless.
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize>;

    /// Take what has arrived, one bounded burst: `take` is called for each datagram. How many; more
    /// may be waiting, also if none came: a link may look at its parts in turn, and [`Link::fd`]
    /// tells who sleeps.
    ///
    /// # Errors
    /// Only what makes the link useless.
    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize>;

    /// As [`Link::receive`]; bulk may be received directly into its place, if the sink predicts it.
    ///
    /// # Errors
    /// As there.
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.receive(&mut |arrival| sink.take(arrival))
    }

    /// Look again, for who waits and has found nothing a moment ago: a few times, until something
    /// comes, where that is most likely, as quickly as can be. It says nothing of the rest, for
    /// which [`Link::receive_into`] must be called again soon.
    ///
    /// # Errors
    /// As there.
    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.receive_into(sink)
    }

    /// Where this link can be reached: one entry for each usable interface address it is bound to.
    ///
    /// # Errors
    /// The interfaces could not be listed.
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>>;

    /// The port, at all addresses of the link, at which peers shall send bulk and from which bulk
    /// is sent: so it never stands in front of what is small. `None`: one port for all.
    fn bulk_port(&self) -> Option<u16> {
        None
    }

    /// Bytes of the largest datagram the link carries at all.
    fn datagram_max(&self) -> usize;

    /// Bytes of the largest datagram that the path to this peer carries, as far as is known here.
    fn datagram_max_to(&self, to: SocketAddr) -> usize {
        let _ = to;
        self.datagram_max()
    }

    /// Is bulk to this host sent for less where each payload is whole pages of memory?
    fn prefers_pages(&self, to: IpAddr) -> bool {
        let _ = to;
        false
    }

    /// Do a few datagrams of so many bytes get to this peer sooner if each is in one piece here,
    /// and goes to the port for what is small?
    fn has_short_way(&mut self, to: SocketAddr, len: usize) -> bool {
        let _ = (to, len);
        false
    }

    /// Bytes of datagrams of `len` bytes that may wait to be received before some are lost.
    fn receive_buffer(&self, len: usize) -> usize;

    /// Becomes readable when something has arrived (level-triggered), while the link is
    /// [watched](Link::watch).
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Somebody is about to sleep on [`Link::fd`] (`true`), or does so no more (`false`): one call
    /// of either kind for each sleeper. To be watched costs each datagram that arrives half a
    /// microsecond.
    ///
    /// # Errors
    /// The link cannot be watched; it must be asked again and again instead.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        let _ = yes;
        Ok(())
    }

    /// When the link should be called again though [`Link::fd`] announces nothing:
    /// [`Link::receive`] has something to give then, or [`Link::send`], which had no room, may have
    /// some.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// A datagram that was too big for its path, so that smaller ones are made. At most one is kept
    /// for each peer.
    fn poll_too_big(&mut self) -> Option<TooBig> {
        None
    }

    /// Nothing was heard of this peer for long, though it was asked. The link receives from it by
    /// the plainest way until it is heard, and for good if only that way brings something again and
    /// again (WIND-8.13).
    fn unheard(&mut self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Something a person should be told, once: a mechanism that turned out not to work, a buffer
    /// that is too small.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// What happened so far.
    fn statistics(&self) -> Statistics;
}

impl<L: Link + ?Sized> Link for Box<L> {
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
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        (**self).local_addresses()
    }
    fn bulk_port(&self) -> Option<u16> {
        (**self).bulk_port()
    }
    fn datagram_max(&self) -> usize {
        (**self).datagram_max()
    }
    fn datagram_max_to(&self, to: SocketAddr) -> usize {
        (**self).datagram_max_to(to)
    }
    fn prefers_pages(&self, to: IpAddr) -> bool {
        (**self).prefers_pages(to)
    }
    fn has_short_way(&mut self, to: SocketAddr, len: usize) -> bool {
        (**self).has_short_way(to, len)
    }
    fn receive_buffer(&self, len: usize) -> usize {
        (**self).receive_buffer(len)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).fd()
    }
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        (**self).watch(yes)
    }
    fn next_wakeup(&self) -> Option<Instant> {
        (**self).next_wakeup()
    }
    fn poll_too_big(&mut self) -> Option<TooBig> {
        (**self).poll_too_big()
    }
    fn unheard(&mut self, peer: SocketAddr) {
        (**self).unheard(peer);
    }
    fn notice(&mut self) -> Option<String> {
        (**self).notice()
    }
    fn statistics(&self) -> Statistics {
        (**self).statistics()
    }
}
