//! A link that sends small datagrams as Ethernet frames where that works, and leaves the rest to
//! the link that it wraps.
//!
//! Bench case: `message_lat` of 8 bytes (`bench wind`).

mod frames;

use super::socket_link::SocketLink;
use super::tcx::receiver::ReceivedRoute;
use crate::net::datagram::Outgoing;
use crate::net::link::{Link, PayloadForm};
use crate::net::udp::Bind;
use crate::net::udp::send::{Sent, run_length};
use crate::net::udp::{CONNECTED_MAX, UdpLink};
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use frames::{PeerFrames, RawSockets, is_short_run};
use oikaze_protocol::wind::SendMode;
use oikaze_protocol::wire::Lane;
use std::io;
use std::net::SocketAddr;

/// Wraps a link. Frames go to peers that have a connected socket and are heard by a route past the
/// sockets ([`SocketLink::heard_by_route`]).
#[derive(Debug)]
pub(crate) struct RawTx<L> {
    inner: L,
    is_on: bool,
    sockets: RawSockets,
    /// Frames to single peers, each with the number of the peer's connected socket. They end with
    /// the socket.
    peers: ArrayVec<(u64, PeerFrames), CONNECTED_MAX>,
}

impl<L: SocketLink> RawTx<L> {
    pub(crate) fn new(inner: L, ask: &Bind) -> RawTx<L> {
        let is_on = !ask.without.raw_tx;
        RawTx { inner, is_on, sockets: RawSockets::new(!ask.without.gso), peers: ArrayVec::new() }
    }

    /// Makes room for the frames to one more peer.
    fn forget_closed(&mut self) {
        let connected = &self.inner.udp().sockets.connected.small;
        self.peers.retain(|(number, _)| connected.has_number(*number));
    }

    /// Sends the first of these datagrams as frames, if they are few. Returns their number, or
    /// `None` if the first has to go through the socket.
    fn send_frames(&mut self, batch: &[Outgoing<'_>]) -> Option<usize> {
        let first = batch.first()?;
        let may = |next: &&Outgoing<'_>| next.to == first.to && next.len() == next.head.len();
        let few = batch.iter().take_while(|next| next.to == first.to);
        let contiguous = batch.iter().take_while(may).count();
        if !is_short_run(few) {
            return None;
        }
        let run = batch.get(..contiguous).filter(|run| !run.is_empty())?;
        let udp = self.inner.udp();
        let peer = udp.sockets.of_peer(*first.to, Lane::Small)?;
        let (_, frames) = self.peers.iter_mut().find(|(number, _)| *number == peer.number)?;
        let count = frames.send(run, peer.socket, &mut self.sockets)?;
        peer.count_call();
        udp.statistics.frames_out += count as u64;
        Some(count)
    }
}

/// Returns the frames to a peer with this connected socket.
fn frames_of(
    peers: &mut ArrayVec<(u64, PeerFrames), CONNECTED_MAX>,
    number: u64,
) -> Option<&mut PeerFrames> {
    let at = match peers.iter().position(|(of, _)| *of == number) {
        Some(at) => at,
        None => {
            peers.try_push((number, PeerFrames::new())).ok()?;
            peers.len() - 1
        }
    };
    peers.get_mut(at).map(|(_, frames)| frames)
}

/// Number of first datagrams that may go as frames in no case.
fn socket_len(batch: &[Outgoing<'_>], small: impl Fn(Lane) -> bool) -> usize {
    let may = |next: &&Outgoing<'_>| small(next.lane) && next.mode < SendMode::Plain;
    batch.iter().take_while(|next| !may(next)).count()
}

impl<L: SocketLink> Link for RawTx<L> {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        if self.peers.is_empty() {
            return self.inner.send(batch);
        }
        let mut done = 0;
        while let Some(rest) = batch.get(done..)
            && !rest.is_empty()
        {
            let sockets = &self.inner.udp().sockets;
            let mut by_socket = socket_len(rest, |lane| sockets.lane_of(lane) == Lane::Small);
            if by_socket == 0 {
                if let Some(count) = self.send_frames(rest) {
                    let run = rest.get(..count).unwrap_or_default();
                    match self.inner.udp().settle(run, Sent::Whole)? {
                        ControlFlow::Continue(more) => done += more,
                        ControlFlow::Break(()) => break,
                    }
                    continue;
                }
                by_socket = run_length(rest, true);
            }
            let sent = self.inner.send(rest.get(..by_socket).unwrap_or_default())?;
            done += sent;
            if sent < by_socket {
                break;
            }
        }
        Ok(done)
    }

    /// A few contiguous datagrams are preferred if they are likely to go as frames.
    fn prefers(&mut self, to: SocketAddr, form: PayloadForm) -> bool {
        let PayloadForm::Contiguous(len) = form else { return self.inner.prefers(to, form) };
        if !self.is_on || self.inner.udp().count_call(to, Lane::Small).is_none() {
            return false;
        }
        if self.peers.is_full() {
            self.forget_closed();
        }
        let Some(peer) = self.inner.udp().sockets.of_peer(to, Lane::Small) else { return false };
        frames_of(&mut self.peers, peer.number).is_some_and(|frames| frames.may_take(len))
    }

    forward_link!(self => (self.inner): receive_into receive_again local_addresses properties watch
        next_wakeup poll_too_big report_silence join_group leave_group route_group
        notice statistics);
}

impl<L: SocketLink> SocketLink for RawTx<L> {
    fn udp(&mut self) -> &mut UdpLink {
        self.inner.udp()
    }

    fn heard_by_route(&mut self, peer: SocketAddr, route: &ReceivedRoute) {
        if !self.is_on {
            return;
        }
        if self.peers.is_full() {
            self.forget_closed();
        }
        let Some(peer) = self.inner.udp().sockets.of_peer(peer, Lane::Small) else { return };
        if let Some(frames) = frames_of(&mut self.peers, peer.number) {
            frames.heard(route, peer.socket, &mut self.sockets);
        }
    }
}
