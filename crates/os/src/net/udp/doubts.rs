//! Peers that may be heard by the link's own socket only (WIND-8.13).
//!
//! A tcx program, or a socket connected to a peer, may take the peer's datagrams and deliver none.
//! No system call fails then. The connection notices that the peer is silent. The link closes both
//! fast paths until the peer is heard. A fast path that works brings something when it is open
//! again. One that does not leaves the peer silent anew.

use super::UdpLink;
use arrayvec::ArrayVec;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum number of doubted peers at a time. If more are silent together, the fast paths are not
/// the cause.
const DOUBTED_MAX: usize = 16;
/// Silences in a row that only the link's own socket has ended, before the fast paths are given up.
const ROUNDS: u8 = 3;
/// Time from the first datagram that ends a silence until the fast paths are open again. Datagrams
/// that were under way to the socket have come by then.
const REOPEN_TIME: Duration = Duration::from_millis(100);

/// Peers of which nothing was heard while a fast path was open to them.
#[derive(Debug, Default)]
pub(super) struct Doubts(ArrayVec<Doubt, DOUBTED_MAX>);

#[derive(Clone, Copy, Debug)]
struct Doubt {
    peer: SocketAddr,
    /// Silences in a row that the link's own socket has ended.
    rounds: u8,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The fast paths are closed, and the peer is silent.
    Silent,
    /// The peer was heard. The fast paths are closed until then.
    Heard(Instant),
    /// The fast paths are open again, and nothing has come since.
    Open,
    /// The fast paths are closed for good.
    Avoided,
}

impl Doubts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, peer: SocketAddr) -> Option<usize> {
        self.0.iter().position(|doubt| doubt.peer == peer)
    }

    /// The peer was silent for long while a fast path was open to it.
    fn unheard(&mut self, peer: SocketAddr) {
        match self.position(peer).and_then(|at| self.0.get_mut(at)) {
            Some(doubt) if doubt.stage != Stage::Avoided => doubt.stage = Stage::Silent,
            Some(_) => {}
            None => {
                let _ = self.0.try_push(Doubt { peer, rounds: 0, stage: Stage::Silent });
            }
        }
    }

    /// The link's own socket has brought a datagram of this peer. Says whether the fast paths are
    /// given up now.
    pub(super) fn heard_plain(&mut self, peer: SocketAddr, now: Instant) -> bool {
        let Some(at) = self.position(peer) else { return false };
        let Some(doubt) = self.0.get_mut(at) else { return false };
        match doubt.stage {
            Stage::Silent => {
                doubt.rounds += 1;
                doubt.stage = if doubt.rounds >= ROUNDS {
                    Stage::Avoided
                } else {
                    Stage::Heard(now + REOPEN_TIME)
                };
                return doubt.stage == Stage::Avoided;
            }
            // The peer has another way here than the fast paths.
            Stage::Open => drop(self.0.swap_remove(at)),
            Stage::Heard(_) | Stage::Avoided => {}
        }
        false
    }

    /// A fast path has brought a datagram of this peer.
    pub(super) fn heard_fast(&mut self, peer: SocketAddr) {
        self.0.retain(|doubt| doubt.peer != peer || doubt.stage == Stage::Avoided);
    }

    /// Returns `true` if this peer must have no connected socket.
    pub(super) fn closes(&self, peer: SocketAddr) -> bool {
        self.0.iter().any(|doubt| doubt.peer == peer && doubt.stage != Stage::Open)
    }

    /// Returns `true` if nothing may be received early. The tcx programs know no peers.
    pub(super) fn close_early(&mut self, now: Instant) -> bool {
        for doubt in &mut self.0 {
            if matches!(doubt.stage, Stage::Heard(until) if now >= until) {
                doubt.stage = Stage::Open;
            }
        }
        self.0.iter().any(|doubt| doubt.stage != Stage::Open)
    }
}

impl UdpLink {
    /// Closes the fast paths of a peer that was silent for long.
    pub(super) fn doubt(&mut self, peer: SocketAddr) {
        let own = self.connected.small.sockets.iter().position(|connected| connected.to == peer);
        let is_early = self.early.as_ref().is_some_and(crate::net::bypass::tcx::Early::is_open);
        if own.is_none() && !is_early {
            return;
        }
        self.doubts.unheard(peer);
        if let Some(own) = own {
            self.connected.small.close(own);
        }
        if let Some(early) = &mut self.early {
            early.shut_gate();
        }
        self.looks.not_early();
    }

    /// Returns `true` if datagrams may be received early again, after the ring was full, a sleep or
    /// a doubt.
    pub(super) fn may_receive_early(&mut self) -> bool {
        self.sleepers == 0 && (self.doubts.is_empty() || !self.doubts.close_early(Instant::now()))
    }

    /// Notifies the user, once for each peer.
    pub(super) fn tell_of_avoided(&mut self, peer: SocketAddr) {
        self.statistics.receive_paths_avoided += 1;
        self.notices.push_back(format!(
            "{peer} is heard by the plain socket only: datagrams to its connected socket, or early ones (tcx), do not arrive; small \
             messages are received by the plain socket, more slowly; does another program filter sockets or packets here \
             (bpftool net)? (OIKAZE_WITHOUT=early,connect never tries)"
        ));
    }
}

#[cfg(test)]
mod tests;
