//! Link that receives small datagrams before the kernel's IP layer, where the kernel permits that.
//! All other datagrams come from the link that it wraps.
//!
//! Bench case: `message_lat` of 8 bytes (`bench wind`).

mod program;
pub(crate) mod receiver;
mod ring;
#[cfg(test)]
mod tests;

pub(crate) use receiver::ReceivedRoute;

use super::socket_link::SocketLink;
use crate::net::link::{Link, PayloadForm};
use crate::net::sink::Sink;
use crate::net::statistics::{Offload, Statistics};
use crate::net::udp::Bind;
use crate::net::udp::{SMALL_POLL_DATAGRAMS, SmallPoll, UdpLink, WAITING_POLLS};
use receiver::{InterfaceFilter, RingBurst, TcxReceiver};
use std::io;
use std::net::SocketAddr;

/// Maximum number of links on one machine that attach programs to its interfaces. Each program runs
/// for every incoming packet, and so slows all of them.
const SHARERS_MAX: usize = 8;
/// Number of ring checks that replace one poll of a socket for a waiting thread. A check is a load,
/// and a poll is a system call.
const RING_CHECKS_PER_POLL: usize = 16;

/// Wraps a link, and polls the ring of the tcx programs before the link's sockets.
#[derive(Debug)]
pub(crate) struct TcxRx<L> {
    inner: L,
    /// `None` if tcx is switched off or not permitted.
    receiver: Option<TcxReceiver>,
    state: Offload,
    /// Is `true` while small datagrams come by the ring and all small sockets are idle.
    is_ring_hot: bool,
    /// Number of datagrams that came by the ring.
    received: u64,
}

impl<L: SocketLink> TcxRx<L> {
    /// Wraps `inner`, and attaches programs for its port at its addresses.
    pub(crate) fn open(inner: L, ask: &Bind) -> TcxRx<L> {
        TcxRx::open_at(inner, ask, receiver::is_ethernet)
    }

    /// Attaches programs to the loopback interface, too.
    #[cfg(test)]
    pub(in crate::net) fn open_at_loopback(inner: L, ask: &Bind) -> TcxRx<L> {
        TcxRx::open_at(inner, ask, |_, _| true)
    }

    fn open_at(mut inner: L, ask: &Bind, at: InterfaceFilter) -> TcxRx<L> {
        let off = ask.without.tcx || ask.sharers > SHARERS_MAX;
        let udp = inner.udp();
        let served = |ip| udp.sockets.serves(ip);
        let receiver = if off {
            None
        } else {
            TcxReceiver::open(udp.port(), served, at, ask.checked_by_udp).ok()
        };
        let state = Offload::of(off, receiver.is_some());
        TcxRx { inner, receiver, state, is_ring_hot: false, received: 0 }
    }

    /// Returns the ring and its programs, if they are in use.
    #[cfg(test)]
    pub(in crate::net) fn receiver_mut(&mut self) -> &mut TcxReceiver {
        self.receiver.as_mut().unwrap()
    }

    /// Polls once: the ring, then the sockets.
    fn poll(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.inner.udp().schedule.begin_poll();
        let mut small = self.poll_ring(sink);
        if small == 0 && !self.is_ring_hot {
            small = self.inner.udp().poll_hot_small(sink)?;
            if small == 0 {
                self.reopen();
            }
        }
        let udp = self.inner.udp();
        let first = SmallPoll { came: small > 0, by_bypass: self.is_ring_hot };
        let ring_waits = || self.receiver.as_ref().is_some_and(|receiver| !receiver.is_empty());
        let others = udp.poll_others(first, sink, ring_waits)?;
        self.is_ring_hot &= !udp.schedule.has_small_come_by_socket();
        Ok(small + others)
    }

    /// Takes the datagrams that are in the ring. Returns their number.
    fn poll_ring(&mut self, sink: &mut dyn Sink) -> usize {
        let TcxRx { inner, receiver: Some(receiver), is_ring_hot, received, .. } = self else {
            return 0;
        };
        if receiver.is_empty() {
            return 0;
        }
        let burst = receiver.take(SMALL_POLL_DATAGRAMS, &mut |arrival, route| {
            let from = arrival.from;
            sink.take(arrival);
            let plain_only = &mut inner.udp().plain_only;
            if !plain_only.is_empty() {
                plain_only.heard_fast(from);
            }
            if sink.was_a_peers() {
                inner.heard_by_route(from, route);
            }
        });
        let RingBurst { datagrams, bytes, malformed } = burst;
        let udp = inner.udp();
        udp.statistics.datagrams_in += datagrams as u64;
        udp.statistics.bytes_in += bytes as u64;
        udp.statistics.truncated += malformed as u64;
        *received += datagrams as u64;
        if udp.watch.has_sleepers() {
            receiver.settle();
        }
        if datagrams > 0 {
            udp.schedule.small_came();
            *is_ring_hot |= udp.schedule.are_small_sockets_idle();
        }
        *is_ring_hot &= receiver.is_open();
        datagrams
    }

    /// Reopens the gate, unless a sleeping thread or a silent peer requires that all datagrams come
    /// by the sockets. After the ring was full, the caller must have found the ring and the hot
    /// socket empty, so that no datagram overtakes an earlier one.
    fn reopen(&mut self) {
        if let Some(receiver) = &mut self.receiver
            && !receiver.is_open()
            && self.inner.udp().may_bypass_sockets()
        {
            receiver.open_gate();
        }
    }

    /// Spins on the ring for as long as a poll of a socket takes, unless something comes.
    fn wait_for_ring(&self) {
        let Some(receiver) = &self.receiver else { return };
        for _ in 0..RING_CHECKS_PER_POLL {
            if !receiver.is_empty() {
                break;
            }
            core::hint::spin_loop();
        }
    }
}

impl<L: SocketLink> Link for TcxRx<L> {
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.receiver.is_none() {
            return self.inner.receive_into(sink);
        }
        self.inner.udp().begin_receive();
        self.poll(sink)
    }

    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if self.receiver.is_none() {
            return self.inner.receive_again(sink);
        }
        if self.inner.udp().schedule.is_bulk_recent() {
            return self.poll(sink);
        }
        for _ in 0..WAITING_POLLS {
            self.inner.udp().schedule.begin_poll();
            if self.is_ring_hot {
                self.wait_for_ring();
            }
            let mut taken = self.poll_ring(sink);
            if taken == 0 && !self.is_ring_hot {
                taken = self.inner.udp().poll_hot_small(sink)?;
            }
            if taken > 0 {
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Shuts the gate while a thread sleeps, because only sockets can wake the thread.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        let TcxRx { inner, receiver: Some(receiver), is_ring_hot, .. } = self else {
            return self.inner.watch(yes);
        };
        let watched = if yes {
            *is_ring_hot = false;
            let fd = receiver.shut_gate();
            inner.udp().watch.add(fd).map_err(io::Error::from).and_then(|()| inner.watch(true))
        } else {
            inner.watch(false)
        };
        if !inner.udp().watch.has_sleepers() {
            inner.udp().watch.remove(receiver.fd());
            self.reopen();
        }
        watched
    }

    /// Shuts the gate for all peers, because the programs cannot tell peers apart. The sockets then
    /// receive all datagrams.
    fn report_silence(&mut self, peer: SocketAddr) {
        self.inner.report_silence(peer);
        self.is_ring_hot = false;
        if let Some(receiver) = self.receiver.as_mut().filter(|receiver| receiver.is_open()) {
            self.inner.udp().plain_only.report_silence(peer);
            receiver.shut_gate();
        }
    }

    /// Prefers no contiguous payload without a receiver. Only a contiguous datagram can go as an
    /// Ethernet frame, and only the receiver learns the route that a frame needs.
    fn prefers(&mut self, to: SocketAddr, form: PayloadForm) -> bool {
        let needs_route = matches!(form, PayloadForm::Contiguous(_));
        !(needs_route && self.receiver.is_none()) && self.inner.prefers(to, form)
    }

    fn statistics(&self) -> Statistics {
        Statistics { by_tcx: self.received, tcx_receive: self.state, ..self.inner.statistics() }
    }

    forward_link!(self => (self.inner): send local_addresses properties next_wakeup poll_too_big notice);
    forward_link!(self => (self.inner): join_group leave_group route_group);
}

impl<L: SocketLink> SocketLink for TcxRx<L> {
    fn udp(&mut self) -> &mut UdpLink {
        self.inner.udp()
    }

    fn heard_by_route(&mut self, peer: SocketAddr, route: &ReceivedRoute) {
        self.inner.heard_by_route(peer, route);
    }
}
