//! A local peer that was given up while its process lives, because it was stopped or silent for too
//! long. When its process continues, it finishes the operations that it was in (spec/memory.md,
//! MEM-18.6).

use super::pair::Pair;
use crate::memory::{Region, WeakRegion};
use crate::shm::control_socket::ControlSocket;
use crate::shm::lease_marks::Marks;
use std::sync::Arc;

/// Tracks a local peer some of whose threads were inside regions when it was given up.
#[derive(Debug)]
pub struct WedgedPeer {
    marks: Marks,
    /// Lines and regions that the local peer is inside. The region counts, even if its number was
    /// reused since.
    inside: Vec<(usize, WeakRegion)>,
    line: Arc<ControlSocket>,
}

impl WedgedPeer {
    /// Creates the record of a local peer whose grants were all taken back, with fences made.
    /// Returns `None` if no thread of it can still access a region.
    #[must_use]
    pub fn of(pair: &Pair) -> Option<WedgedPeer> {
        let (marks, given) = pair.grants.all();
        let mut wedged_peer = WedgedPeer {
            marks: marks.clone(),
            inside: given.map(|(_, index, region)| (index, region.clone())).collect(),
            line: Arc::clone(&pair.line),
        };
        (!wedged_peer.is_gone()).then_some(wedged_peer)
    }

    /// Returns `true` if the local peer can do no more harm. Then its process has ended, or it has
    /// left every region, or nobody uses the memory that it is inside.
    pub fn is_gone(&mut self) -> bool {
        let WedgedPeer { marks, inside, line } = self;
        inside.retain(|(line, region)| {
            marks.is_inside(*line)
                && region.upgrade().is_some_and(|region| !region.has_left_memory())
        });
        inside.is_empty() || line.process_has_ended()
    }

    /// Returns `true` if the local peer is inside this region.
    #[must_use]
    pub fn is_inside(&self, region: &Region) -> bool {
        self.inside.iter().any(|(_, inside)| inside.is(region))
    }
}
