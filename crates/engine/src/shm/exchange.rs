//! Exchanges pages of a region of this node with pages of a local peer's region (spec/memory.md,
//! MEM-20).
//!
//! The requester sends the file and the pages behind its region through the socket, and the request
//! through the ring. The owner of the other region sends its own pages through the socket, takes
//! the requester's pages, and reports that through the ring. The requester then takes the owner's
//! pages. If either process dies in between, the survivor has one content or the other, whole. Each
//! side gives up its pages only after other pages have taken their place.
//!
//! Bench cases: all cases of `bench exchange`.

#[cfg(test)]
mod tests;

use super::local_peer::LocalPeer;
use super::rings::Rings;
use super::socket::{
    EXCHANGES_MAX, keep_spare, offer_pages, receive_messages, receive_offer, take_offer,
};
use super::socket_messages::{ANSWER, OfferedPages, QUESTION};
use crate::client::completion::{Completion, Value};
use crate::client::submission::Swap;
use crate::failure::Failure;
use oikaze_os::memory::{FilePages, NotTaken, PagesLock, Region, RegionTable};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::time::Time;
use std::sync::Arc;

/// Exchange that this node asked a local peer for.
struct AskedExchange {
    rank: Rank,
    number: u64,
    lock: PagesLock,
    offset: u64,
    len: u64,
    completion: Arc<Completion>,
}

impl AskedExchange {
    /// Returns the pages that came in exchange for this node's pages, if they are not too many.
    fn fitting(&self, answer: Option<OfferedPages>) -> Option<OfferedPages> {
        answer.filter(|offer| offer.pages.len <= self.len)
    }

    /// Takes the pages of the answer, and returns the region. Without an answer nothing changes.
    fn settle(self, answer: Option<OfferedPages>) -> Region {
        let AskedExchange { lock, offset, completion, .. } = self;
        let outcome = answer.map_or(Ok(Value::Done), |offer| take(&lock, offset, offer.pages));
        let region = lock.region().clone();
        drop(lock);
        completion.settle(outcome);
        region
    }
}

/// Exchange that a local peer asked this node for. The exchange waits until no local peer is inside
/// the region.
pub(super) struct WantedExchange {
    rank: Rank,
    lock: PagesLock,
    offer: OfferedPages,
    pub since: Time,
}

/// Exchanges in progress.
#[derive(Default)]
pub(crate) struct PageExchanges {
    last: u64,
    asked: Vec<AskedExchange>,
    wanted: Vec<WantedExchange>,
    /// Regions of settled exchanges. Some of them may be [torn](Region::is_torn).
    settled: Vec<Region>,
}

impl WantedExchange {
    /// Returns the region of this node.
    pub fn region(&self) -> &Region {
        self.lock.region()
    }
}

impl PageExchanges {
    /// Returns `true` if a local peer waits until others have left a region. A peer that leaves
    /// wakes this node, unless it has left just now.
    pub fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Called when the rings to the local peer and its socket have ended (MEM-20.5). Drops the
    /// exchanges that the peer asked for, and settles those that this node asked for.
    ///
    /// Such an exchange is done if the peer's process lives and the peer has named its pages. The
    /// peer then takes this node's pages, however late its process goes on. A peer that has not
    /// named its pages can no longer name them, so the exchange is not done.
    pub fn cut_off(&mut self, rank: Rank, local_peer: &mut LocalPeer) {
        /// Maximum number of polls of the socket. Fewer polls empty the socket of a peer that obeys
        /// the limits.
        const SOCKET_POLLS_MAX: usize = 64;
        self.wanted.retain(|wanted| wanted.rank != rank);
        // A dead process takes no pages any more, so this node keeps its own pages.
        let lives = !local_peer.pair.line.process_has_ended();
        let _ = lives && (0..SOCKET_POLLS_MAX).all(|_| receive_messages(local_peer));
        for asked in self.asked.extract_if(.., |asked| asked.rank == rank) {
            let answer =
                asked.fitting(take_offer(local_peer, true, asked.number).filter(|_| lives));
            self.settled.push(asked.settle(answer));
        }
    }

    /// Asks a local peer to exchange pages. The completion gets the number of exchanged bytes, or
    /// [`Value::Done`] if nothing is exchanged. Returns `true` if the completion is settled now.
    pub fn ask(
        &mut self,
        swap: Swap,
        completion: Arc<Completion>,
        memory: &RegionTable,
        rings: &mut Rings,
    ) -> bool {
        let refused = self.try_to_ask(swap, completion, memory, rings).err();
        refused.inspect(|completion| completion.settle(Ok(Value::Done))).is_some()
    }

    fn try_to_ask(
        &mut self,
        swap: Swap,
        completion: Arc<Completion>,
        memory: &RegionTable,
        rings: &mut Rings,
    ) -> Result<(), Arc<Completion>> {
        let Swap { at, key, offset, own, own_offset, len } = swap;
        // No exchange begins with a region that is being deregistered.
        let Some(own) = memory.region(own).filter(|_| !memory.is_closed(own)) else {
            return Err(completion);
        };
        // The region keeps its pages while a wedged peer may be inside (MEM-18.6).
        if rings.wedged_inside(own).is_some() {
            return Err(completion);
        }
        let Some(local_peer) = rings.get_mut(at) else { return Err(completion) };
        let room = self.asked.iter().filter(|asked| asked.rank == at).count() < EXCHANGES_MAX;
        // This node must take the pages that the peer gives, so check beforehand that it can.
        let Some(mut lock) = own.lock_pages().filter(|_| room) else { return Err(completion) };
        let pages = lock.pages(own_offset).map(|pages| pages.until(len));
        let Some(pages) = pages.filter(|pages| lock.prepare(own_offset, pages.len)) else {
            return Err(completion);
        };
        let number = self.last + 1;
        if keep_spare(local_peer).is_err() {
            return Err(completion);
        }
        if offer_pages(local_peer, QUESTION, [number, key, offset], &pages).is_err() {
            local_peer.spares.pop();
            return Err(completion);
        }
        local_peer.ask_to_swap(number);
        self.last = number;
        self.asked.push(AskedExchange {
            rank: at,
            number,
            lock,
            offset: own_offset,
            len: pages.len,
            completion,
        });
        Ok(())
    }

    /// Settles exchanges that this local peer has answered. Returns their number.
    pub fn take_answers(&mut self, rank: Rank, rings: &mut Rings) -> usize {
        let mut settled = 0;
        while let Some((number, done)) = rings.get_mut(rank).and_then(LocalPeer::next_swapped) {
            rings.doorbell = true;
            let Some(local_peer) = rings.get_mut(rank) else { break };
            let Some(at) =
                self.asked.iter().position(|asked| (asked.rank, asked.number) == (rank, number))
            else {
                continue;
            };
            let asked = self.asked.swap_remove(at);
            // The peer may have sent its pages before the exchange failed, so receive them always.
            let answer = receive_offer(local_peer, true, number);
            if answer.is_none() {
                local_peer.spares.pop();
            }
            let answer = asked.fitting(answer);
            if done && answer.is_none() {
                // The peer has taken this node's pages and has given none for them, so this node no
                // longer trusts the peer.
                local_peer.has_ended();
            }
            self.settled.push(asked.settle(answer.filter(|_| done)));
            settled += 1;
        }
        settled
    }

    /// Admits the exchanges that local peers want, where they are allowed, and refuses all others.
    pub fn admit_wanted(&mut self, rings: &mut Rings, memory: &RegionTable, now: Time) {
        let mut at = 0;
        while let Some(&rank) = rings.ranks.get(at) {
            at += 1;
            while let Some(number) = rings.get_mut(rank).and_then(LocalPeer::next_swap) {
                rings.doorbell = true;
                let offer = rings
                    .get_mut(rank)
                    .and_then(|local_peer| receive_offer(local_peer, false, number));
                match offer.and_then(|offer| admit(rank, offer, rings, memory, now)) {
                    Some(wanted) => self.wanted.push(wanted),
                    None => answer_swap(rank, number, false, rings),
                }
            }
        }
    }

    /// Takes the exchanges that were admitted, to exchange pages or to put them back.
    pub fn take_wanted(&mut self) -> Vec<WantedExchange> {
        std::mem::take(&mut self.wanted)
    }

    /// Puts back an exchange that must wait longer.
    pub fn postpone(&mut self, wanted: WantedExchange) {
        self.wanted.push(wanted);
    }

    /// Exchanges the pages of a region in which no local peer is any more.
    pub fn exchange(&mut self, wanted: WantedExchange, rings: &mut Rings, memory: &RegionTable) {
        let WantedExchange { rank, mut lock, offer, .. } = wanted;
        let number = offer.number;
        // The registration of the region may have ended since the exchange was admitted.
        let done = exchangeable(&offer, memory).is_some_and(|region| region.is_same(lock.region()))
            && rings.wedged_inside(lock.region()).is_none()
            && rings
                .get_mut(rank)
                .and_then(|local_peer| give(local_peer, &mut lock, offer))
                .is_some();
        answer_swap(rank, number, done, rings);
        self.settled.push(lock.region().clone());
    }

    /// Takes a region that an exchange has [torn](Region::is_torn).
    pub fn take_torn(&mut self) -> Option<Region> {
        while let Some(region) = self.settled.pop() {
            if region.is_torn() {
                return Some(region);
            }
        }
        None
    }
}

/// Admits an exchange: the region is closed to local peers until its pages are exchanged.
fn admit(
    rank: Rank,
    offer: OfferedPages,
    rings: &Rings,
    memory: &RegionTable,
    now: Time,
) -> Option<WantedExchange> {
    let region = exchangeable(&offer, memory)?.clone();
    let lock = region.lock_pages()?;
    rings.keep_out(&region);
    Some(WantedExchange { rank, lock, offer, since: now })
}

/// Returns the region, if every page of it may be read and written, and the range consists of whole
/// units (MEM-20.2).
fn exchangeable<'m>(offer: &OfferedPages, memory: &'m RegionTable) -> Option<&'m Region> {
    let (_, region, rights) = memory.mappable(offer.key)?;
    let unit = region.exchange_unit()?;
    let whole = [offer.offset, offer.pages.offset, offer.pages.len]
        .iter()
        .all(|number| number.is_multiple_of(unit));
    let inside =
        offer.offset.checked_add(offer.pages.len).is_some_and(|end| end <= region.len() as u64);
    (whole && inside && rights.contains(Rights(Rights::READ.0 | Rights::WRITE.0))).then_some(region)
}

fn answer_swap(rank: Rank, number: u64, done: bool, rings: &mut Rings) {
    if let Some(local_peer) = rings.get_mut(rank) {
        local_peer.answer_swap(number, done);
    }
}

/// Gives this node's pages to the local peer, and takes the pages that it has offered. Returns
/// `None` if the region is unchanged.
fn give(local_peer: &mut LocalPeer, lock: &mut PagesLock, offer: OfferedPages) -> Option<()> {
    let ours = lock.pages(offer.offset)?.until(offer.pages.len);
    // Once the local peer knows this node's pages, it may take them even if this exchange fails.
    // Check beforehand that this node can take the peer's pages (MEM-20.3).
    if !lock.prepare(offer.offset, ours.len) {
        return None;
    }
    // Name the pages first, then give them up (MEM-20.5).
    offer_pages(local_peer, ANSWER, [offer.number, 0, 0], &ours).ok()?;
    let taken = lock.take(offer.offset, offer.pages.until(ours.len));
    if let Err(NotTaken::Torn(_)) = &taken {
        // The region is no longer the same memory for both nodes, so neither may copy through it.
        local_peer.has_ended();
    }
    taken.ok()
}

fn take(lock: &PagesLock, offset: u64, pages: FilePages) -> Result<Value, Failure> {
    let len = pages.len;
    let failed = |why| {
        Failure::Machine(format!(
            "the pages that have come cannot be mapped, and the peer has those of here: {why}"
        ))
    };
    lock.take(offset, pages).map(|()| Value::Swapped(len)).map_err(failed)
}
