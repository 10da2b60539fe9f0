//! Sending: the socket of each run of datagrams, and the kernel's answers.

use super::link::{Reports, SocketOptions, UdpLink};
use super::send::{self, Sent};
use super::sockets::{Route, reaching};
use crate::features::DisabledFeatures;
use crate::net::datagram::Outgoing;
use crate::net::link::TooBig;
use crate::net::{Offload, datagram_max_to};
use core::ops::ControlFlow;
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::wire::Lane;
use rustix::fd::AsFd;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// Maximum number of paths with too big datagrams that are remembered until
/// [`poll_too_big`](crate::net::Link::poll_too_big) is called.
const TOO_BIG_MAX: usize = 256;

impl UdpLink {
    /// Chooses the socket that sends to this peer in this lane, by this flow.
    fn route(&mut self, to: SocketAddr, lane: Lane, flow: u8) -> Route {
        if let Some(route) = self.sockets.group_route(to) {
            return route;
        }
        let lane = self.sockets.lane_of(lane);
        if flow > 0 && lane == Lane::Bulk {
            let SocketOptions { buffer, without } = &self.options;
            return self.sockets.flow_route(to, flow, *buffer, without);
        }
        match self.count_call(to, lane) {
            Some(index) => Route::Connected(lane, index),
            None => self.sockets.own_route(to, lane),
        }
    }

    /// Counts a call for this peer in this lane, made or about to be made. Returns the index of the
    /// peer's connected socket, if it has one. The peer may earn a connected socket by this call.
    pub(in crate::net) fn count_call(&mut self, peer: SocketAddr, lane: Lane) -> Option<usize> {
        let (index, is_worth_one) = self.sockets.connected[lane].count_call(peer);
        if is_worth_one && !self.options.without.connect && !self.plain_only.contains(peer) {
            self.connect(peer, lane);
        }
        index
    }

    /// Returns `true` if the kernel cuts datagrams for this peer (`UDP_SEGMENT`), as far as is
    /// known.
    pub(in crate::net) fn is_cut_for(&self, to: SocketAddr) -> bool {
        !self.refusals.contains(to.ip())
    }

    /// Sends the beginning of `batch`. Returns how many datagrams are done with, or breaks if there
    /// is no room.
    pub(super) fn send_run(
        &mut self,
        batch: &[Outgoing<'_>],
    ) -> io::Result<ControlFlow<(), usize>> {
        let Some(first) = batch.first() else { return Ok(ControlFlow::Continue(0)) };
        let route = self.route(*first.to, first.lane, first.flow);
        let Some(socket) = self.sockets.at_route(route) else {
            return self.settle(core::slice::from_ref(first), Sent::Unreachable);
        };
        let cut = socket.gso && self.refusals.allow(first.to.ip());
        let mut run = batch.get(..send::run_length(batch, cut)).unwrap_or_default();
        let mut sent = send::send(socket, run, route.of_group());
        if run.len() > 1 && matches!(sent, Sent::Unfit | Sent::TooBig) {
            // Either the kernel refuses `UDP_SEGMENT`, or the segments are too big for the path.
            // Sending the first datagram alone tells which.
            let may_be_refusal = matches!(sent, Sent::Unfit);
            run = run.get(..1).unwrap_or_default();
            sent = send::send(socket, run, route.of_group());
            if may_be_refusal && matches!(sent, Sent::Whole) && self.refusals.refused(first.to.ip())
            {
                self.statistics.gso = Offload::Refused;
                self.reports.notices.push_back(format!(
                    "the network device refused to cut datagrams (UDP_SEGMENT) towards {}: they go one by one, at less than \
                     half the speed; is checksum offload switched off (ethtool -K DEVICE tx on)?",
                    first.to.ip()
                ));
            }
        } else if run.len() > 1 && matches!(sent, Sent::Whole) && !self.refusals.is_empty() {
            self.refusals.worked(first.to.ip());
            self.statistics.gso =
                if self.refusals.is_empty() { Offload::On } else { Offload::Refused };
        }
        if matches!(sent, Sent::TooBig) && first.len() <= DATAGRAM_MIN && socket.distrust_routers()
        {
            sent = send::send(socket, run, route.of_group());
        }
        if let (Sent::Unreachable | Sent::Unfit, Route::Connected(lane, index)) = (&sent, route) {
            self.sockets.connected[lane].give_up(index);
            // The kernel's error may belong to an earlier datagram. Then the kernel has not tried
            // this one, which now goes through the link's own socket.
            return Ok(ControlFlow::Continue(0));
        }
        self.settle(run, sent)
    }

    /// Gives a peer a connected socket in this lane, if that works.
    fn connect(&mut self, to: SocketAddr, lane: Lane) {
        let own = &self.sockets.own[lane];
        let Some(own) = reaching(own, to).and_then(|index| own.get(index)) else { return };
        // Small datagrams are seldom joined, and a socket without GRO needs no control message.
        let joined = lane == Lane::Bulk || self.sockets.own.bulk.is_empty();
        let all = self.options.without;
        let without = DisabledFeatures { gro: all.gro || !joined, ..all };
        let set = &mut self.sockets.connected[lane];
        let before = set.sockets.len();
        let connected = set.connect(to, own, self.options.buffer, &without);
        if self.watch.has_sleepers()
            && connected.is_some_and(|socket| self.watch.add(socket.fd.as_fd()).is_err())
        {
            set.give_up(before);
        }
        if lane == Lane::Bulk {
            self.schedule.bulk_sockets_inserted(before, set.sockets.len() - before);
        }
    }

    /// Accounts for the outcome of a call that sent a run. Returns how many datagrams are done
    /// with, or breaks if there was no room. A wrapper that sends by itself calls this, too.
    pub(in crate::net) fn settle(
        &mut self,
        run: &[Outgoing<'_>],
        sent: Sent,
    ) -> io::Result<ControlFlow<(), usize>> {
        // A run of one lane says nothing about the socket of the other.
        self.full_since.take_if(|(lane, _)| run.first().is_some_and(|first| first.lane == *lane));
        match sent {
            Sent::Whole => {
                self.statistics.calls_out += 1;
                self.statistics.datagrams_out += run.len() as u64;
                self.statistics.bytes_out +=
                    run.iter().map(|datagram| datagram.len() as u64).sum::<u64>();
            }
            Sent::NoRoom => {
                self.statistics.would_block += 1;
                self.full_since = run.first().map(|first| (first.lane, Instant::now()));
                return Ok(ControlFlow::Break(()));
            }
            Sent::TooBig => {
                self.statistics.too_big += run.len() as u64;
                run.iter().for_each(|datagram| self.reports.too_big(*datagram.to, datagram.len()));
            }
            Sent::Unfit | Sent::Unreachable => self.statistics.unreachable += run.len() as u64,
            Sent::Broken(error) => return Err(error),
        }
        Ok(ControlFlow::Continue(run.len()))
    }
}

impl Reports {
    fn too_big(&mut self, to: SocketAddr, tried: usize) {
        if self.too_big.len() < TOO_BIG_MAX && self.too_big.iter().all(|earlier| earlier.to != to) {
            // The kernel's path MTU may be larger than the path takes. Then the sender tries half,
            // down to what every path must carry.
            let fits = match datagram_max_to(to) {
                known if known < tried => known,
                _ => (tried / 2).max(DATAGRAM_MIN).min(tried.saturating_sub(1)),
            };
            self.too_big.push_back(TooBig { to, tried, fits });
        }
    }
}
