//! Peers that may be heard by the link's own socket only (WIND-8.13).
//!
//! A tcx program, or a socket connected to a peer, may take the peer's datagrams and deliver none.
//! No system call fails then. The connection notices that the peer is silent. The link closes both
//! fast paths until the peer is heard. A fast path that works brings something when it is open
//! again. One that does not leaves the peer silent anew.

use super::link::UdpLink;
use arrayvec::ArrayVec;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum number of silent peers at a time. If more are silent together, the fast paths are not
/// the cause.
const SILENT_PEERS_MAX: usize = 16;
/// Silences in a row that only the link's own socket has ended, before the fast paths are given up.
pub(in crate::net) const SILENCES_MAX: u8 = 3;
/// Time from the first datagram that ends a silence until the fast paths are open again. Datagrams
/// that were under way to the socket have come by then.
pub(in crate::net) const REOPEN_TIME: Duration = Duration::from_millis(100);

/// Peers of which nothing was heard while a fast path was open to them.
#[derive(Debug, Default)]
pub(in crate::net) struct PlainOnlyPeers(ArrayVec<SilentPeer, SILENT_PEERS_MAX>);

#[derive(Clone, Copy, Debug)]
struct SilentPeer {
    peer: SocketAddr,
    /// Silences in a row that the link's own socket has ended.
    silences: u8,
    stage: SilenceStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SilenceStage {
    /// The fast paths are closed, and the peer is silent.
    Silent,
    /// The peer was heard. The fast paths are closed until then.
    Heard(Instant),
    /// The fast paths are open again, and nothing has come since.
    Open,
    /// The fast paths are closed for good.
    Avoided,
}

impl PlainOnlyPeers {
    pub(in crate::net) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, peer: SocketAddr) -> Option<usize> {
        self.0.iter().position(|silent| silent.peer == peer)
    }

    /// Records that the peer was silent for long while a fast path was open to it.
    pub(in crate::net) fn report_silence(&mut self, peer: SocketAddr) {
        match self.position(peer).and_then(|at| self.0.get_mut(at)) {
            Some(silent) if silent.stage != SilenceStage::Avoided => {
                silent.stage = SilenceStage::Silent;
            }
            Some(_) => {}
            None => {
                let _ =
                    self.0.try_push(SilentPeer { peer, silences: 0, stage: SilenceStage::Silent });
            }
        }
    }

    /// Records that the link's own socket has brought a datagram of this peer. Returns `true` if
    /// the fast paths are given up now.
    pub(super) fn heard_plain(&mut self, peer: SocketAddr, now: Instant) -> bool {
        let Some(at) = self.position(peer) else { return false };
        let Some(silent) = self.0.get_mut(at) else { return false };
        match silent.stage {
            SilenceStage::Silent => {
                silent.silences += 1;
                silent.stage = if silent.silences >= SILENCES_MAX {
                    SilenceStage::Avoided
                } else {
                    SilenceStage::Heard(now + REOPEN_TIME)
                };
                return silent.stage == SilenceStage::Avoided;
            }
            // The peer has another path here than the fast ones.
            SilenceStage::Open => drop(self.0.swap_remove(at)),
            SilenceStage::Heard(_) | SilenceStage::Avoided => {}
        }
        false
    }

    /// Records that a fast path has brought a datagram of this peer.
    pub(in crate::net) fn heard_fast(&mut self, peer: SocketAddr) {
        self.0.retain(|silent| silent.peer != peer || silent.stage == SilenceStage::Avoided);
    }

    /// Returns `true` if this peer must have no fast path of its own.
    pub(super) fn contains(&self, peer: SocketAddr) -> bool {
        self.0.iter().any(|silent| silent.peer == peer && silent.stage != SilenceStage::Open)
    }

    /// Returns `true` if a fast path must be closed that cannot tell peers apart. The tcx programs
    /// know no peers.
    pub(in crate::net) fn contains_any(&mut self, now: Instant) -> bool {
        for silent in &mut self.0 {
            if matches!(silent.stage, SilenceStage::Heard(until) if now >= until) {
                silent.stage = SilenceStage::Open;
            }
        }
        self.0.iter().any(|silent| silent.stage != SilenceStage::Open)
    }
}

impl UdpLink {
    /// Notifies the user that the fast paths to this peer are given up, once for each peer.
    pub(super) fn report_plain_only(&mut self, peer: SocketAddr) {
        self.statistics.receive_paths_avoided += 1;
        self.reports.notices.push_back(format!(
            "{peer} is heard by the plain socket only: datagrams to its connected socket, or early ones (tcx), do not arrive; small \
             messages are received by the plain socket, more slowly; does another program filter sockets or packets here \
             (bpftool net)? (OIKAZE_WITHOUT=tcx,connect never tries)"
        ));
    }
}

#[cfg(test)]
mod tests;
