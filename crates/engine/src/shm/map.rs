//! Regions that local peers map: handed over by their owner, reached by whoever has mapped them,
//! and taken back (spec/memory.md, MEM-18).

use crate::shm::{Handed, LocalPeer};
use crate::{Completion, Engine, Value};
use oikaze_os::memory::{Region, RegionTable};
use oikaze_os::net::Link;
use oikaze_os::shm::{Gift, Grants, Mapped, Said, to_give};
use oikaze_os::sync::{make_fences, makes_fences};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Death;
use rustix::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Format of the socket message with a region's memory: this word, key u64, length u64, line u32,
/// rights u8, whether the owner makes fences u8.
const GIFT: &[u8; 4] = b"give";
const GIFT_LEN: usize = 4 + 8 + 8 + 4 + 1 + 1;

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

    /// Those who asked for this, with what came of it.
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

    /// This local peer is none any more: what is mapped of it is reached no more.
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
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Ask a local peer for the memory of a region; the completion has it, or says that it is done
    /// without.
    pub(crate) fn ask_for_memory(
        &mut self,
        at: Rank,
        key: u64,
        completion: Option<Arc<Completion>>,
    ) {
        let Some(completion) = completion else { return };
        let Self { peers, local_peers, news, .. } = self;
        let local_peer = peers.local_peer_mut(at);
        match (local_peers.maps.find(at, key), local_peer) {
            (Some(mapped), _) => completion.settle(Ok(Value::Mapped(mapped))),
            (None, Some(local_peer)) => {
                local_peer.ask(key);
                local_peers.maps.asking.push((at, key, completion));
                return;
            }
            (None, None) => completion.settle(Ok(Value::Done)),
        }
        *news += 1;
    }

    /// Map what a local peer has given.
    pub(crate) fn map_given(&mut self, rank: Rank) {
        let Self { peers, local_peers, news, .. } = self;
        let Some(local_peer) = peers.local_peer_mut(rank) else { return };
        while let Some(given) = local_peer.next_given() {
            // Somebody's bell may be heard with it.
            local_peers.rung = true;
            let mapped = if given.is_there { map(local_peer, given.key) } else { None };
            let outcome = mapped.map_or(Value::Done, |mapped| {
                local_peers.maps.mapped.push((rank, given.key, Arc::downgrade(&mapped)));
                Value::Mapped(mapped)
            });
            *news += local_peers.maps.settle(rank, given.key, &outcome);
        }
    }

    /// No local peer is let into this region any more; those inside are for the caller to wait for
    /// (MEM-18.3).
    pub(crate) fn take_back(&mut self, slot: u32) {
        self.take_back_from_all(|grants| grants.take_back(slot));
    }

    /// The memory is not handed to local peers any more, and those who have mapped it are let in no
    /// more; those inside are to be waited for ([`Engine::is_reached`]).
    pub fn keep_local_peers_out(&mut self, region: &Region) {
        region.leave_file();
        self.take_back_from_all(|grants| grants.take_back_all_of(region));
    }

    fn take_back_from_all(&mut self, take_back: impl Fn(&Grants) -> bool) {
        let mut given = false;
        for &rank in &self.local_peers.ranks {
            if let Some(local_peer) = self.peers.local_peer(rank) {
                given |= take_back(&local_peer.pair.grants);
            }
        }
        if given {
            make_fences();
        }
    }

    /// Is a local peer in the middle of reaching this memory that is let in no more, under whatever
    /// number, one that means nothing any more too?
    #[must_use]
    pub fn is_reached(&self, region: &Region) -> bool {
        self.local_peers.ranks.iter().any(|rank| self.is_inside(*rank, region))
    }

    fn is_inside(&self, rank: Rank, region: &Region) -> bool {
        self.peers
            .local_peer(rank)
            .is_some_and(|local_peer| local_peer.pair.grants.is_inside(region))
    }

    /// How long those whom [`Engine::is_reached`] means are waited for: no copy takes longer
    /// (MEM-18.6).
    #[must_use]
    pub fn leave_time(&self, region: &Region) -> Duration {
        /// Nanoseconds for a byte, at most: a tenth of what the slowest memory does.
        const SLOWEST: u64 = 10;
        self.failure_time + Duration::from_nanos((region.len() as u64).saturating_mul(SLOWEST))
    }

    /// Give up whom [`Engine::is_reached`] means.
    pub fn give_up_who_reaches(&mut self, region: &Region, now: Time) {
        for rank in self.local_peers.ranks.clone() {
            if self.is_inside(rank, region) {
                self.end_local_peer(rank, Death::Stuck, now);
            }
        }
    }

    /// Returns a peer that is not waited for and is in the middle of an access to this memory
    /// (MEM-18.6).
    pub fn wedged_inside(&mut self, region: &Region) -> Option<Rank> {
        self.local_peers.wedged_inside(region)
    }
}

/// Hand over what the local peer has asked for, where that may be.
pub(crate) fn hand_over(local_peer: &mut LocalPeer, memory: &RegionTable) {
    while let Some(key) = local_peer.next_asked() {
        let given = give(local_peer, memory, key).is_some();
        local_peer.answer(key, given);
    }
}

fn give(local_peer: &mut LocalPeer, memory: &RegionTable, key: u64) -> Option<()> {
    let (slot, region, rights) = memory.mappable(key)?;
    let file = to_give(region.file()?, rights).ok()?;
    let index = local_peer.pair.grants.give(slot, region)?;
    let mut said = Vec::with_capacity(GIFT_LEN);
    said.extend_from_slice(GIFT);
    said.extend_from_slice(&key.to_le_bytes());
    said.extend_from_slice(&(region.len() as u64).to_le_bytes());
    said.extend_from_slice(&u32::try_from(index).ok()?.to_le_bytes());
    said.extend_from_slice(&[rights.0, makes_fences().into()]);
    if local_peer.pair.line.say(&said, Some(file.as_fd())).is_err() {
        local_peer.pair.grants.withdraw(index);
        return None;
    }
    Some(())
}

fn map(local_peer: &mut LocalPeer, key: u64) -> Option<Arc<Mapped>> {
    // It was said before the ring told of it.
    if !super::local_peers::hear(local_peer) {
        local_peer.has_ended();
    }
    let at = local_peer.handed.iter().position(|handed| handed.key == key)?;
    let Handed { gift, .. } = local_peer.handed.swap_remove(at);
    local_peer.pair.map(&gift).ok().map(Arc::new)
}

/// Frees the line of a region's memory that came without its descriptor and is not mapped. Returns
/// `false` if the message carried no region's memory.
pub(crate) fn forgo(local_peer: &LocalPeer, said: &Said) -> bool {
    let line = gift_of(said).and_then(line_of);
    line.inspect(|line| local_peer.pair.forgo(*line)).is_some()
}

fn gift_of(said: &Said) -> Option<&[u8; GIFT_LEN]> {
    said.bytes().try_into().ok().filter(|bytes: &&[u8; GIFT_LEN]| bytes.starts_with(GIFT))
}

fn line_of(gift: &[u8; GIFT_LEN]) -> Option<usize> {
    gift.get(20..24)
        .and_then(|word| word.try_into().ok())
        .map(|line| u32::from_le_bytes(line) as usize)
}

impl Handed {
    /// Converts a message that carries a descriptor; returns `None` for any other message.
    pub fn from_said(mut said: Said) -> Option<Handed> {
        let file = said.descriptor.take()?;
        let bytes = gift_of(&said)?;
        let word = |at: usize| {
            bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes)
        };
        let &[rights, makes_fences @ (0 | 1)] = bytes.get(24..)? else { return None };
        let rights = Some(Rights(rights)).filter(|rights| Rights::ALL.contains(*rights))?;
        let (key, len, index) = (word(4)?, usize::try_from(word(12)?).ok()?, line_of(bytes)?);
        let gift = Gift { file, len, rights, index, makes_fences: makes_fences == 1 };
        Some(Handed { key, gift })
    }
}
