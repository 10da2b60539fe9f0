//! Memory that local peers share: regions mapped, taken back and exchanged (spec/memory.md, MEM-18
//! and MEM-20).

use super::local_peer::LocalPeer;
use super::table::ShmPeers;
use crate::client::completion::Completion;
use crate::client::submission::Swap;
use crate::inbox::Inbox;
use crate::ops::Ops;
use oikaze_os::memory::{Region, RegionTable};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Death;
use std::sync::Arc;
use std::time::Duration;

impl ShmPeers {
    /// Exchanges pages with the local peers that want it, where no local peer is inside the region.
    pub(super) fn serve_swaps(
        &mut self,
        memory: &RegionTable,
        now: Time,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) {
        self.swaps.admit_wanted(&mut self.rings, memory, now);
        if !self.swaps.are_wanted() {
            return;
        }
        for wanted in self.swaps.take_wanted() {
            if self.rings.is_reached(wanted.region()) {
                if now - wanted.since <= self.leave_time(wanted.region()) {
                    self.swaps.postpone(wanted);
                    continue;
                }
                self.end_inside(wanted.region(), ops, inbox);
            }
            self.swaps.exchange(wanted, &mut self.rings, memory);
        }
    }

    /// Takes a region that an exchange has torn. The caller lets no peer reach it any more
    /// (MEM-20.3).
    pub(crate) fn take_torn(&mut self) -> Option<Region> {
        self.swaps.take_torn()
    }

    /// Asks a local peer to exchange pages.
    pub(crate) fn ask_to_swap(
        &mut self,
        swap: Swap,
        completion: Arc<Completion>,
        memory: &RegionTable,
        inbox: &mut Inbox,
    ) {
        inbox.add_settled(self.swaps.ask(swap, completion, memory, &mut self.rings).into());
    }

    /// Asks a local peer for the memory of a region.
    pub(crate) fn ask_for_memory(
        &mut self,
        at: Rank,
        key: u64,
        completion: Arc<Completion>,
        inbox: &mut Inbox,
    ) {
        inbox.add_settled(self.maps.ask(at, key, completion, &mut self.rings).into());
    }

    /// Takes back the region of this slot from all local peers. The caller waits for peers that are
    /// still inside it (MEM-18.3).
    pub(crate) fn take_back(&self, slot: u32) {
        self.rings.take_back(|grants| grants.take_back(slot));
    }

    /// Closes a region to local peers. The region is no longer handed over, and peers that have
    /// mapped it begin no further access. The caller waits for peers that are still inside
    /// ([`ShmPeers::is_reached`]).
    pub fn keep_out(&self, region: &Region) {
        self.rings.keep_out(region);
    }

    /// Returns `true` if a local peer is still in the middle of an access to this memory, which was
    /// taken back. The slot number of the memory does not matter, and may have been reused.
    #[must_use]
    pub fn is_reached(&self, region: &Region) -> bool {
        self.rings.is_reached(region)
    }

    /// Returns the maximum time to wait for local peers inside the region
    /// ([`ShmPeers::is_reached`]). No copy takes longer (MEM-18.6).
    #[must_use]
    pub fn leave_time(&self, region: &Region) -> Duration {
        /// Maximum time to copy a byte, ten times as long as with the slowest memory.
        const NANOSECONDS_PER_BYTE: u64 = 10;
        let copy = (region.len() as u64).saturating_mul(NANOSECONDS_PER_BYTE);
        self.failure_time + Duration::from_nanos(copy)
    }

    /// Ends the local peers that are still inside the region ([`ShmPeers::is_reached`]).
    pub(crate) fn end_inside(&mut self, region: &Region, ops: &mut Ops, inbox: &mut Inbox) {
        for rank in self.rings.ranks.clone() {
            let is_inside = |local_peer: &LocalPeer| local_peer.pair.grants.is_inside(region);
            if self.rings.get(rank).is_some_and(is_inside) {
                self.end(rank, Death::Stuck, ops, inbox);
            }
        }
    }

    /// Returns a peer that was given up in the middle of an access to this memory (MEM-18.6).
    pub fn wedged_inside(&mut self, region: &Region) -> Option<Rank> {
        self.rings.wedged_inside(region)
    }
}
