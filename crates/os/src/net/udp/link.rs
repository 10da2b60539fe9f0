//! The link of UDP sockets.

use super::plain_only::PlainOnlyPeers;
use super::recv::ReceivePool;
use super::recv_direct::PredictionBackoff;
use super::refusals::Refusals;
use super::schedule::PollSchedule;
use super::sockets::Sockets;
use super::sockets::bind::{self, Bind, BindError};
use super::sockets::socket::Socket;
use super::watch::SleeperWatch;
use crate::features::DisabledFeatures;
use crate::net::addresses::{LocalAddress, local_addresses};
use crate::net::datagram::Outgoing;
use crate::net::link::{Group, Link, LinkProperties, TooBig};
use crate::net::sink::Sink;
use crate::net::statistics::{Offload, Statistics};
use core::ops::ControlFlow;
use oikaze_protocol::limits::{DATAGRAM_MAX, FLOWS_MAX};
use oikaze_protocol::wind::PerLane;
use oikaze_protocol::wire::Lane;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time after which a full send buffer is tried again: about what a gigabit interface takes to send
/// a tenth of a small buffer.
const FULL_BUFFER_RETRY_TIME: Duration = Duration::from_micros(200);

/// Bytes that the kernel counts for each datagram in addition to its payload (socket(7)).
const RECEIVE_OVERHEAD_BYTES: usize = 768;

/// UDP sockets: one for each requested address, or one for all addresses of both families, and as
/// many again on a second port for bulk.
#[derive(Debug)]
pub struct UdpLink {
    pub(in crate::net) sockets: Sockets,
    pub(in crate::net) watch: SleeperWatch,
    pub(in crate::net) schedule: PollSchedule,
    /// Peers from which fast paths may deliver nothing.
    pub(in crate::net) plain_only: PlainOnlyPeers,
    pub(in crate::net) statistics: Statistics,
    pub(super) pool: ReceivePool,
    pub(super) options: SocketOptions,
    /// Destinations for which `UDP_SEGMENT` does not work.
    pub(super) refusals: Refusals,
    pub(super) reports: Reports,
    /// Lane in which the last send found no room, and when.
    pub(super) full_since: Option<(Lane, Instant)>,
}

/// Options of sockets that are opened later.
#[derive(Debug)]
pub(super) struct SocketOptions {
    /// Buffer size in bytes.
    pub(super) buffer: usize,
    pub(super) without: DisabledFeatures,
}

/// Reports that wait for the caller.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) too_big: VecDeque<TooBig>,
    pub(super) notices: VecDeque<String>,
}

impl UdpLink {
    /// Opens the requested sockets.
    ///
    /// # Errors
    /// [`BindError`]: says that the port is in use or the address is not ours, and what to do about
    /// it.
    pub fn bind(ask: &Bind) -> Result<UdpLink, BindError> {
        let bind::Opened { small, bulk, mut notices } = bind::open(ask)?;
        let sockets = Sockets {
            own: PerLane { small, bulk },
            connected: PerLane::default(),
            flows: Vec::new(),
            flow_failures: 0,
            joined: Vec::new(),
            group_routes: Vec::new(),
            loops_groups: false,
        };
        let all = || sockets.all();
        let statistics = Statistics {
            gso: Offload::of(ask.without.gso, all().all(|socket| socket.gso)),
            gro: Offload::of(ask.without.gro, all().all(|socket| socket.gro)),
            send_buffer: all().map(|socket| socket.send_buffer).min().unwrap_or(0),
            receive_buffer: all().map(|socket| socket.receive_buffer).min().unwrap_or(0),
            ..Statistics::default()
        };
        for (mechanism, state) in [("UDP_SEGMENT", statistics.gso), ("UDP_GRO", statistics.gro)] {
            if state == Offload::Refused {
                notices.push(format!("the kernel has no {mechanism}: datagrams go one by one, at less than half the speed"));
            }
        }
        Ok(UdpLink {
            sockets,
            watch: SleeperWatch::new()?,
            schedule: PollSchedule::new(),
            plain_only: PlainOnlyPeers::default(),
            statistics,
            pool: ReceivePool::new(PredictionBackoff::new(ask.without.direct_placement)),
            options: SocketOptions { buffer: ask.buffer, without: ask.without },
            refusals: Refusals::default(),
            reports: Reports { too_big: VecDeque::new(), notices: notices.into() },
            full_since: None,
        })
    }

    /// Returns the port at which the link is reached.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.sockets.own.small.first().map_or(0, |socket| socket.local.port())
    }

    /// Returns the addresses that the sockets are bound to; these may be wildcards.
    #[must_use]
    pub fn bound(&self) -> Vec<SocketAddr> {
        self.sockets.own.small.iter().map(|socket| socket.local).collect()
    }

    /// Begins to receive on behalf of [`Link::receive_into`]. The caller sends next after it
    /// receives, if there is still something to send.
    pub(in crate::net) fn begin_receive(&mut self) {
        self.full_since = None;
    }

    /// Returns `true` if datagrams may bypass all sockets on their way here. They may not while a
    /// thread sleeps, nor while a peer is silent that the sockets may hear.
    pub(in crate::net) fn may_bypass_sockets(&mut self) -> bool {
        !self.watch.has_sleepers()
            && (self.plain_only.is_empty() || !self.plain_only.contains_any(Instant::now()))
    }
}

impl Link for UdpLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = batch.get(done..).filter(|rest| !rest.is_empty()) {
            match self.send_run(rest)? {
                ControlFlow::Continue(more) => done += more,
                ControlFlow::Break(()) => break,
            }
        }
        Ok(done)
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.begin_receive();
        self.poll(sink)
    }

    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.poll_again(sink)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let mut all = local_addresses()?;
        all.retain_mut(|local| {
            local.address.set_port(self.port());
            self.sockets.serves(local.address.ip())
        });
        Ok(all)
    }

    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties {
            port: self.port(),
            bulk_port: self.sockets.own.bulk.first().map(|socket| socket.local.port()),
            flows: if self.sockets.own.bulk.is_empty() { 1 } else { FLOWS_MAX },
            datagram_max: DATAGRAM_MAX,
            receive_buffer: self.statistics.receive_buffer,
            receive_overhead: RECEIVE_OVERHEAD_BYTES,
            fd: Some(self.watch.fd()),
        }
    }

    /// Watching costs half a microsecond for each datagram: the sender pays on the same machine,
    /// otherwise the interrupt.
    fn watch(&mut self, yes: bool) -> io::Result<()> {
        self.watch_for_sleepers(yes)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.full_since.map(|(_, since)| since + FULL_BUFFER_RETRY_TIME)
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        self.reports.too_big.pop_front()
    }

    fn report_silence(&mut self, peer: SocketAddr) {
        let small = &mut self.sockets.connected.small;
        if let Some(index) = small.sockets.iter().position(|connected| connected.to == peer) {
            small.close(index);
            self.plain_only.report_silence(peer);
        }
    }

    fn join_group(&mut self, group: &Group) -> io::Result<()> {
        self.join(group)
    }

    fn leave_group(&mut self, address: SocketAddr) {
        self.leave(address);
    }

    fn route_group(&mut self, group: &Group) -> io::Result<SocketAddr> {
        self.route_to_group(group)
    }

    fn notice(&mut self) -> Option<String> {
        self.reports.notices.pop_front()
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            overflowed: self.sockets.all().map(Socket::overflowed).sum(),
            ..self.statistics
        }
    }
}
