//! Exchanges pages of a region of this node with pages of a local peer's region (spec/memory.md,
//! MEM-20).
//!
//! The requester sends the file and the pages behind its region through the socket, and the request
//! through the ring. The owner of the other region sends its own pages through the socket, takes
//! the requester's pages, and reports that through the ring. The requester then takes the owner's
//! pages. If either process dies in between, the survivor has one content or the other, whole. Each
//! side gives up its pages only after other pages have taken their place.

#[cfg(test)]
mod tests;

use crate::shm::LocalPeer;
use crate::{Completion, Engine, Failure, Value};
use oikaze_os::memory::{FilePages, MemoryError, NotTaken, PagesLock, Region};
use oikaze_os::net::Link;
use oikaze_os::shm::Said;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::time::Time;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Questions that a local peer is asked at a time. As many of its own may lie here, beside its
/// answers.
pub(crate) const OFFERS: usize = 64;

/// Format of a socket message: one of these words, then number, key, offset, offset in the file,
/// and length, each u64. An answer has no key or offset.
const QUESTION: &[u8; 4] = b"swap";
const ANSWER: &[u8; 4] = b"took";
const WORDS: usize = 5;
const OFFER_LEN: usize = 4 + 8 * WORDS;

/// Request for an exchange: `len` bytes, in whole units at both ends.
pub struct Swap {
    /// Rank of the local peer.
    pub at: Rank,
    /// Key of its region.
    pub key: u64,
    /// Offset in bytes from the start of that region.
    pub offset: u64,
    /// The slot of a region of this node; local peers do not reach it.
    pub own: u32,
    /// Offset in bytes from the start of this node's region.
    pub own_offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Pages that were handed over.
pub(crate) struct Offer {
    answers: bool,
    number: u64,
    key: u64,
    offset: u64,
    pages: FilePages,
}

impl Offer {
    pub fn is_one(said: &Said) -> bool {
        [QUESTION, ANSWER].iter().any(|word| said.bytes().starts_with(*word))
    }

    fn is_answer(said: &Said) -> bool {
        said.bytes().starts_with(ANSWER) && said.descriptor.is_some()
    }

    pub fn is_question(said: &Said) -> bool {
        said.bytes().len() == OFFER_LEN && said.bytes().starts_with(QUESTION)
    }

    /// `None`: it makes no sense, or no pages come with it.
    pub fn from_said(mut said: Said) -> Option<Offer> {
        let file = said.descriptor.take()?;
        let bytes: &[u8; OFFER_LEN] = said.bytes().try_into().ok()?;
        let words = bytes.get(4..)?.as_chunks::<8>().0;
        let word = |index: usize| words.get(index).copied().map(u64::from_le_bytes);
        let pages = FilePages::received(file, word(3)?, word(4)?).ok()?;
        Some(Offer {
            answers: bytes.starts_with(ANSWER),
            number: word(0)?,
            key: word(1)?,
            offset: word(2)?,
            pages,
        })
    }
}

/// Say in the socket which pages are to change place.
fn say(
    local_peer: &LocalPeer,
    word: &[u8; 4],
    [number, key, offset]: [u64; 3],
    pages: &FilePages,
) -> std::io::Result<()> {
    let mut said = Vec::with_capacity(OFFER_LEN);
    said.extend_from_slice(word);
    [number, key, offset, pages.offset, pages.len]
        .into_iter()
        .for_each(|word| said.extend_from_slice(&word.to_le_bytes()));
    let file: BorrowedFd<'_> = pages.file();
    local_peer.pair.line.say(&said, Some(file))
}

/// Keep one descriptor more for what comes back.
fn keep_spare(local_peer: &mut LocalPeer) -> std::io::Result<()> {
    local_peer.spares.push(local_peer.pair.line.as_fd().try_clone_to_owned()?);
    Ok(())
}

/// Receives the next socket message. Spare descriptors are reserved for answers to open requests.
/// One spare is released during the receive and reserved again unless the message was an answer. If
/// the spare cannot be reserved again, a message that is no answer loses its descriptor.
pub(crate) fn hear_next(local_peer: &mut LocalPeer) -> std::io::Result<Option<Said>> {
    let kept = local_peer.spares.pop().is_some();
    let mut said = local_peer.pair.line.hear()?;
    if kept && !said.as_ref().is_some_and(Offer::is_answer) && keep_spare(local_peer).is_err() {
        if let Some(said) = &mut said {
            said.descriptor = None;
        }
        let _ = keep_spare(local_peer);
    }
    Ok(said)
}

/// Returns the socket message with this number, which was sent before the ring announced it.
fn hear(local_peer: &mut LocalPeer, answers: bool, number: u64) -> Option<Offer> {
    if !super::local_peers::hear(local_peer) {
        local_peer.has_ended();
    }
    heard(local_peer, answers, number)
}

fn heard(local_peer: &mut LocalPeer, answers: bool, number: u64) -> Option<Offer> {
    let at = local_peer
        .offers
        .iter()
        .position(|offer| (offer.answers, offer.number) == (answers, number))?;
    Some(local_peer.offers.swap_remove(at))
}

/// An exchange that a local peer was asked for.
struct Asked {
    rank: Rank,
    number: u64,
    lock: PagesLock,
    offset: u64,
    len: u64,
    completion: Arc<Completion>,
}

impl Asked {
    /// Returns the pages that came in exchange for this node's pages, if they fit.
    fn fitting(&self, answer: Option<Offer>) -> Option<Offer> {
        answer.filter(|offer| offer.pages.len <= self.len)
    }

    /// Take these; without any, nothing changes here. The region.
    fn settle(self, answer: Option<Offer>) -> Region {
        let Asked { lock, offset, completion, .. } = self;
        let outcome = answer.map_or(Ok(Value::Done), |offer| take(&lock, offset, offer.pages));
        let region = lock.region().clone();
        drop(lock);
        completion.settle(outcome);
        region
    }
}

/// Exchange that a local peer wants. It waits until no thread is inside the region.
struct Wanted {
    rank: Rank,
    lock: PagesLock,
    offer: Offer,
    since: Time,
}

/// Exchanges in progress.
#[derive(Default)]
pub(crate) struct Swaps {
    last: u64,
    asked: Vec<Asked>,
    wanted: Vec<Wanted>,
    /// Regions that were concerned, some of which may be [torn](Region::is_torn).
    settled: Vec<Region>,
}

impl Swaps {
    /// Does a local peer wait until others have left a region? Who leaves wakes this node, unless
    /// it has left just now.
    pub fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// This local peer is none any more, and its line has ended: what it wanted is not done. What
    /// was asked of it is, as far as it has said which its pages are: whoever lives and has said
    /// that takes ours, however late it goes on, and who has not can say it no more (MEM-20.5).
    pub fn cut_off(&mut self, rank: Rank, local_peer: &mut LocalPeer) {
        /// The line of one that keeps to what is agreed is empty long before.
        const LOOKS: usize = 64;
        self.wanted.retain(|wanted| wanted.rank != rank);
        // A dead one takes nothing any more: everything here stays.
        let lives = !local_peer.pair.line.process_has_ended();
        let _ = lives && (0..LOOKS).all(|_| super::local_peers::hear(local_peer));
        for asked in self.asked.extract_if(.., |asked| asked.rank == rank) {
            let answer = asked.fitting(heard(local_peer, true, asked.number).filter(|_| lives));
            self.settled.push(asked.settle(answer));
        }
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Ask a local peer to exchange pages; the completion says how many bytes of them have changed
    /// place, or that it is done without any.
    pub(crate) fn ask_to_swap(&mut self, swap: Swap, completion: Option<Arc<Completion>>) {
        let Some(completion) = completion else { return };
        if let Err(completion) = self.try_to_ask(swap, completion) {
            completion.settle(Ok(Value::Done));
            self.news += 1;
        }
    }

    fn try_to_ask(
        &mut self,
        swap: Swap,
        completion: Arc<Completion>,
    ) -> Result<(), Arc<Completion>> {
        let Swap { at, key, offset, own, own_offset, len } = swap;
        let Self { peers, local_peers, memory, .. } = self;
        // Nothing begins with a region that is being deregistered.
        let Some(own) = memory.region(own).filter(|_| !memory.is_closed(own)) else {
            return Err(completion);
        };
        // Its pages stay until that is over (MEM-18.6).
        if local_peers.wedged_inside(own).is_some() {
            return Err(completion);
        }
        let swaps = &mut local_peers.swaps;
        let Some(local_peer) = peers.local_peer_mut(at) else { return Err(completion) };
        let room = swaps.asked.iter().filter(|asked| asked.rank == at).count() < OFFERS;
        // What the other one has given must be taken: whether it can be is known before.
        let Some(mut lock) = own.lock_pages().filter(|_| room) else { return Err(completion) };
        let pages = lock.pages(own_offset).map(|pages| pages.until(len));
        let Some(pages) = pages.filter(|pages| lock.prepare(own_offset, pages.len)) else {
            return Err(completion);
        };
        let number = swaps.last + 1;
        if keep_spare(local_peer).is_err() {
            return Err(completion);
        }
        if say(local_peer, QUESTION, [number, key, offset], &pages).is_err() {
            local_peer.spares.pop();
            return Err(completion);
        }
        local_peer.ask_to_swap(number);
        swaps.last = number;
        swaps.asked.push(Asked {
            rank: at,
            number,
            lock,
            offset: own_offset,
            len: pages.len,
            completion,
        });
        Ok(())
    }

    /// Settles exchanges that this local peer has answered.
    pub(crate) fn take_swapped(&mut self, rank: Rank) {
        let Self { peers, local_peers, news, .. } = self;
        let Some(local_peer) = peers.local_peer_mut(rank) else { return };
        while let Some((number, done)) = local_peer.next_swapped() {
            local_peers.rung = true;
            let asked = &mut local_peers.swaps.asked;
            let Some(at) =
                asked.iter().position(|asked| (asked.rank, asked.number) == (rank, number))
            else {
                continue;
            };
            let asked = asked.swap_remove(at);
            // A failed exchange has an answer, too.
            let answer = hear(local_peer, true, number);
            if answer.is_none() {
                local_peer.spares.pop();
            }
            let answer = asked.fitting(answer);
            if done && answer.is_none() {
                // It has ours, and nothing has come for them: it cannot be believed any more.
                local_peer.has_ended();
            }
            local_peers.swaps.settled.push(asked.settle(answer.filter(|_| done)));
            *news += 1;
        }
    }

    /// Performs the exchanges that local peers want, where they are allowed, and refuses all
    /// others.
    pub(crate) fn serve_swaps(&mut self) {
        let mut at = 0;
        while let Some(&rank) = self.local_peers.ranks.get(at) {
            at += 1;
            while let Some(number) = self.peers.local_peer_mut(rank).and_then(LocalPeer::next_swap)
            {
                self.local_peers.rung = true;
                let offer = self
                    .peers
                    .local_peer_mut(rank)
                    .and_then(|local_peer| hear(local_peer, false, number));
                match offer.ok_or(()).and_then(|offer| self.admit(rank, offer)) {
                    Ok(wanted) => self.local_peers.swaps.wanted.push(wanted),
                    Err(()) => self.answer_swap(rank, number, false),
                }
            }
        }
        if !self.local_peers.swaps.wanted.is_empty() {
            self.exchange_wanted();
        }
        while let Some(region) = self.local_peers.swaps.settled.pop() {
            if region.is_torn() {
                self.shut(&region);
            }
        }
    }

    /// Withdraws all rights of peers to a torn region. The program would not see what peers put
    /// there, and peers would not see what the program writes (MEM-20.3).
    fn shut(&mut self, region: &Region) {
        for slot in self.memory.slots_of(region) {
            // To grant nothing cannot fail.
            let _ = self.set_rights(slot, None, Rights::NONE);
        }
        let len = region.len();
        self.note(format!(
            "peers cannot reach a region of {len} bytes any more: {}",
            MemoryError::Torn
        ));
    }

    fn exchange_wanted(&mut self) {
        for wanted in std::mem::take(&mut self.local_peers.swaps.wanted) {
            if self.is_reached(wanted.lock.region()) {
                if self.now - wanted.since <= self.leave_time(wanted.lock.region()) {
                    self.local_peers.swaps.wanted.push(wanted);
                    continue;
                }
                self.give_up_who_reaches(wanted.lock.region(), self.now);
            }
            let Wanted { rank, mut lock, offer, .. } = wanted;
            let number = offer.number;
            // Its registration may have ended meanwhile.
            let done = self.may_swap(&offer).is_some_and(|region| region.is_same(lock.region()))
                && self.wedged_inside(lock.region()).is_none()
                && self
                    .peers
                    .local_peer_mut(rank)
                    .and_then(|local_peer| give(local_peer, &mut lock, offer))
                    .is_some();
            self.answer_swap(rank, number, done);
            self.local_peers.swaps.settled.push(lock.region().clone());
        }
    }

    /// The region, shut to local peers, until it is exchanged with.
    fn admit(&mut self, rank: Rank, offer: Offer) -> Result<Wanted, ()> {
        let region = self.may_swap(&offer).ok_or(())?.clone();
        let lock = region.lock_pages().ok_or(())?;
        self.keep_local_peers_out(&region);
        Ok(Wanted { rank, lock, offer, since: self.now })
    }

    /// The region, if every page of it may be read and written, and the range is one that can
    /// change place (MEM-20.2).
    fn may_swap(&self, offer: &Offer) -> Option<&Region> {
        let (_, region, rights) = self.memory.mappable(offer.key)?;
        let unit = region.exchange_unit()?;
        let whole = [offer.offset, offer.pages.offset, offer.pages.len]
            .iter()
            .all(|number| number.is_multiple_of(unit));
        let inside =
            offer.offset.checked_add(offer.pages.len).is_some_and(|end| end <= region.len() as u64);
        (whole && inside && rights.contains(Rights(Rights::READ.0 | Rights::WRITE.0)))
            .then_some(region)
    }

    fn answer_swap(&mut self, rank: Rank, number: u64, done: bool) {
        if let Some(local_peer) = self.peers.local_peer_mut(rank) {
            local_peer.answer_swap(number, done);
        }
    }
}

/// Say what is behind our region, and put there what came; `None`: it is as it was.
fn give(local_peer: &mut LocalPeer, lock: &mut PagesLock, offer: Offer) -> Option<()> {
    let ours = lock.pages(offer.offset)?.until(offer.pages.len);
    // A local peer that has been told our pages may take them, whatever becomes of this exchange.
    // So it must be known before that its pages can be taken (MEM-20.3).
    if !lock.prepare(offer.offset, ours.len) {
        return None;
    }
    // First said, then given up (MEM-20.5).
    say(local_peer, ANSWER, [offer.number, 0, 0], &ours).ok()?;
    let taken = lock.take(offer.offset, offer.pages.until(ours.len));
    if let Err(NotTaken::Torn(_)) = &taken {
        // Nothing is to be copied to or from what is one thing here and another one there.
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
