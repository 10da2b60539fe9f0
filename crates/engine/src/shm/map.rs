//! Regions that local peers map (spec/memory.md, MEM-18). The owner hands them over, the peer that
//! has mapped them accesses them, and the owner takes them back.
//!
//! Bench cases: `put_lat` and `put_bw` (`bench shm`).

use super::local_peer::LocalPeer;
use super::rings::Rings;
use super::socket::receive_messages;
use super::socket_messages::{HandedRegion, grant_message};
use crate::client::completion::{Completion, Value};
use oikaze_os::memory::RegionTable;
use oikaze_os::shm::{Mapped, to_give};
use oikaze_os::sync::makes_fences;
use oikaze_protocol::Rank;
use rustix::fd::AsFd;
use std::sync::{Arc, Weak};

/// Regions of local peers, mapped here or asked for.
#[derive(Default)]
pub(crate) struct Maps {
    asking: Vec<(Rank, u64, Arc<Completion>)>,
    mapped: Vec<(Rank, u64, Weak<Mapped>)>,
}

impl Maps {
    fn find(&mut self, rank: Rank, key: u64) -> Option<Arc<Mapped>> {
        self.mapped.retain(|(_, _, mapped)| mapped.strong_count() > 0);
        self.mapped
            .iter()
            .find(|(at, known, _)| (*at, *known) == (rank, key))
            .and_then(|(_, _, mapped)| mapped.upgrade())
    }

    /// Settles the requests for this region. Returns their number.
    fn settle(&mut self, rank: Rank, key: u64, outcome: &Value) -> usize {
        let before = self.asking.len();
        self.asking.retain(|(at, asked, completion)| {
            let waits = (*at, *asked) == (rank, key);
            if waits {
                completion.settle(Ok(outcome.clone()));
            }
            !waits
        });
        before - self.asking.len()
    }

    /// Called when the local peer has ended. This node no longer accesses the peer's regions.
    pub fn cut_off(&mut self, rank: Rank) {
        self.mapped
            .iter()
            .filter(|(at, ..)| *at == rank)
            .filter_map(|(.., mapped)| mapped.upgrade())
            .for_each(|mapped| mapped.cut_off());
        self.mapped.retain(|(at, ..)| *at != rank);
        self.asking.retain(|(at, _, completion)| {
            if *at == rank {
                completion.settle(Ok(Value::Done));
            }
            *at != rank
        });
    }

    /// Asks a local peer for the memory of a region. The completion gets the memory, or is done
    /// without it. Returns `true` if the completion is settled.
    pub fn ask(
        &mut self,
        at: Rank,
        key: u64,
        completion: Arc<Completion>,
        rings: &mut Rings,
    ) -> bool {
        match (self.find(at, key), rings.get_mut(at)) {
            (Some(mapped), _) => completion.settle(Ok(Value::Mapped(mapped))),
            (None, Some(local_peer)) => {
                local_peer.ask(key);
                self.asking.push((at, key, completion));
                return false;
            }
            (None, None) => completion.settle(Ok(Value::Done)),
        }
        true
    }

    /// Maps the regions that a local peer has given. Returns the number of requests settled.
    pub fn map_given(&mut self, rank: Rank, rings: &mut Rings) -> usize {
        let mut settled = 0;
        while let Some(given) = rings.get_mut(rank).and_then(LocalPeer::next_given) {
            // This node may have received a wakeup together with the answer.
            rings.doorbell = true;
            let Some(local_peer) = rings.get_mut(rank) else { break };
            let mapped = if given.is_there { map(local_peer, given.key) } else { None };
            let outcome = mapped.map_or(Value::Done, |mapped| {
                self.mapped.push((rank, given.key, Arc::downgrade(&mapped)));
                Value::Mapped(mapped)
            });
            settled += self.settle(rank, given.key, &outcome);
        }
        settled
    }
}

/// Hands over the regions that the local peer has asked for, where that is allowed.
pub(super) fn hand_over(local_peer: &mut LocalPeer, memory: &RegionTable) {
    while let Some(key) = local_peer.next_asked() {
        let given = give(local_peer, memory, key).is_some();
        local_peer.answer(key, given);
    }
}

fn give(local_peer: &mut LocalPeer, memory: &RegionTable, key: u64) -> Option<()> {
    let (slot, region, rights) = memory.mappable(key)?;
    let file = to_give(region.file()?, rights).ok()?;
    let index = local_peer.pair.grants.give(slot, region)?;
    let line = u32::try_from(index).ok()?;
    let message = grant_message(key, region.len() as u64, line, rights, makes_fences());
    if local_peer.pair.line.say(&message, Some(file.as_fd())).is_err() {
        local_peer.pair.grants.withdraw(index);
        return None;
    }
    Some(())
}

fn map(local_peer: &mut LocalPeer, key: u64) -> Option<Arc<Mapped>> {
    // The peer sent the memory through the socket before the ring announced it.
    if !receive_messages(local_peer) {
        local_peer.has_ended();
    }
    let at = local_peer.handed.iter().position(|handed| handed.key == key)?;
    let HandedRegion { grant, .. } = local_peer.handed.swap_remove(at);
    local_peer.pair.map(&grant).ok().map(Arc::new)
}
