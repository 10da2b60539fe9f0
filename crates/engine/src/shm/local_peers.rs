//! The local peers of a node: when their rings are polled, what becomes of the records found there,
//! and how the peers end.
//!
//! Receiving never transmits: writing to a ring, and the wakeup of its reader, belong to the stages
//! that post and send.

use crate::dispatch::Dispatch;
use crate::shm::exchange::{OFFERS, Offer};
use crate::shm::{Handed, LocalPeer, Settled};
use crate::{Engine, Failure};
use oikaze_os::memory::Region;
use oikaze_os::net::Link;
use oikaze_os::shm::{ControlSocket, Pair, Watch};
use oikaze_os::sync::make_fences;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{
    GRANTS, LAST_WORDS, LINK_AMONG_RINGS, LINK_BESIDE_RINGS, LOCAL_PEERS_CHECKED, RECORDS_A_LOOK,
    RECORDS_BETWEEN,
};
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::shm::Damaged;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Token};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Which peers share memory with this node.
#[derive(Default)]
pub(crate) struct LocalPeers {
    pub ranks: Vec<Rank>,
    /// Where among them a message that any may send is looked for first: behind the one that the
    /// last came from.
    pub first: usize,
    /// Watch over the control sockets of local peers.
    watch: Option<Watch>,
    /// Between two looks at the link; zero if every look is one.
    link_every: Duration,
    link_looked: Time,
    checked: Time,
    /// Somebody rang, and was heard: a thread that sleeps is not told again, and the local peer
    /// believes it awake.
    pub rung: bool,
    /// Some thread may have slept since then: whoever rang has left something to be heard.
    dozed: bool,
    /// Regions of local peers that are mapped, or asked for.
    pub maps: crate::shm::map::Maps,
    /// Pages that are to change place with theirs.
    pub swaps: crate::shm::exchange::Swaps,
    /// Local peers that were given up in the middle of an access to a region, and whose processes
    /// live (MEM-18.6).
    wedged_peers: Vec<(Rank, Pair)>,
}

impl LocalPeers {
    /// Returns `true` if this turn may skip the poll of the link.
    #[inline]
    pub fn spares_link(&mut self, now: Time) -> bool {
        if !self.link_every.is_zero()
            && now - self.link_looked < self.link_every
            && self.link_looked != Time(0)
        {
            return true;
        }
        self.link_looked = now;
        false
    }

    /// Returns a peer that was given up in the middle of an access to this memory, if it has not
    /// left the memory since.
    pub fn wedged_inside(&mut self, region: &Region) -> Option<Rank> {
        self.forget_wedged_peers();
        let inside = |(_, pair): &&(Rank, Pair)| pair.grants.is_inside(region);
        self.wedged_peers.iter().find(inside).map(|(rank, _)| *rank)
    }

    fn forget_wedged_peers(&mut self) {
        self.wedged_peers.retain_mut(|(_, pair)| pair.is_wedged());
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Failures that no caller has been told of.
    #[must_use]
    pub fn untaken(&self) -> &Arc<crate::Untaken> {
        &self.untaken
    }

    /// Use these rings from the first message on; both sides must.
    pub(crate) fn attach_local_peers(&mut self, pairs: Vec<(Rank, Pair)>) -> std::io::Result<()> {
        for (rank, pair) in pairs {
            let Some(peer) = self.peers.get_mut(rank) else { continue };
            if self.local_peers.watch.is_none() {
                self.local_peers.watch = Some(Watch::new()?);
            }
            if let Some(watch) = &self.local_peers.watch {
                watch.add(rank, &pair.line)?;
            }
            peer.local_peer = Some(Box::new(LocalPeer::new(pair)));
            self.local_peers.ranks.push(rank);
        }
        self.choose_link_pace();
        Ok(())
    }

    fn choose_link_pace(&mut self) {
        let (count, others) = (self.local_peers.ranks.len(), self.nodes as usize - 1);
        self.local_peers.link_every = match count {
            0 => Duration::ZERO,
            count if count == others => LINK_BESIDE_RINGS,
            _ => LINK_AMONG_RINGS,
        };
    }

    /// Readable when a local peer has woken this node, or has ended.
    #[must_use]
    pub fn local_peers_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.local_peers.watch.as_ref().map(AsFd::as_fd)
    }

    /// Has a turn heard what a sleeping thread waits for? Then that thread must look at the rings,
    /// and say anew that it sleeps (MEM-16.5).
    pub fn take_rung(&mut self) -> bool {
        std::mem::take(&mut self.local_peers.rung)
    }

    /// Local peers that sleep are woken if anything was done for them since a turn looked
    /// (MEM-16.5).
    pub fn wake_stirred_local_peers(&mut self) {
        let Self { local_peers, peers, .. } = self;
        for rank in &local_peers.ranks {
            if let Some(local_peer) = peers.local_peer_mut(*rank) {
                local_peer.wake_if_stirred();
            }
        }
    }

    /// A thread is about to sleep on the descriptor: from here on local peers wake it. Has anything
    /// come meanwhile?
    pub fn doze(&mut self) -> bool {
        let Self { local_peers, peers, .. } = self;
        if local_peers.ranks.is_empty() {
            // All have ended; their fences need not be made any more.
            return local_peers.swaps.are_wanted();
        }
        for rank in &local_peers.ranks {
            if let Some(local_peer) = peers.local_peer_mut(*rank) {
                local_peer.pair.inward.fall_asleep();
            }
        }
        local_peers.dozed = true;
        // A local peer that writes to a ring or to a region of this node checks without a fence of
        // its own whether this node sleeps (MEM-18.5).
        make_fences();
        let mut news = local_peers.swaps.are_wanted();
        for rank in &local_peers.ranks {
            news |= peers.local_peer_mut(*rank).is_some_and(|local_peer| local_peer.has_news());
        }
        news
    }

    /// Look into every ring; how much has come or been settled.
    #[inline]
    pub(crate) fn hear_local_peers(&mut self, now: Time) -> usize {
        let mut came = 0;
        let mut at = 0;
        while let Some(&rank) = self.local_peers.ranks.get(at) {
            at += 1;
            let Some(local_peer) = self.peers.local_peer_mut(rank) else { continue };
            local_peer.wake_up(now);
            local_peer.note_takes(now);
            if local_peer.has_news() {
                came += self.hear_local_peer(rank, now);
            }
        }
        let may_end = at > 0 || !self.local_peers.wedged_peers.is_empty();
        if may_end
            && (self.local_peers.dozed || now - self.local_peers.checked > LOCAL_PEERS_CHECKED)
        {
            came += self.check_local_peers(now);
        }
        came
    }

    fn hear_local_peer(&mut self, rank: Rank, now: Time) -> usize {
        let Self { peers, rma, coherence, memory, pages, buffer_pool, .. } = self;
        let Some(local_peer) = peers.local_peer_mut(rank) else { return 0 };
        let mut came = 0;
        let mut damaged = false;
        if local_peer.has_records() {
            let mut handler = Dispatch { rma, coherence, memory, pages, buffer_pool };
            // The looks at what a dead one left are numbered (MEM-16.7): each is a whole one.
            let between = local_peer.is_taken_from(now) && !local_peer.is_ending();
            let most = if between { RECORDS_BETWEEN } else { RECORDS_A_LOOK };
            let taken = local_peer.take(rank, most, &mut handler, now);
            match taken {
                Ok(taken) => came += taken,
                Err(_) => damaged = true,
            }
        }
        while !damaged {
            match self.next_settled(rank) {
                Ok(Some(Settled::Message(token, outcome))) => {
                    came += 1;
                    match outcome {
                        Ok(()) => self.acknowledged(token),
                        Err(refusal) => self.refused(token, refusal),
                    }
                }
                Ok(Some(Settled::FastPath { count, epoch })) => {
                    came += 1;
                    self.news += 1;
                    self.operations.outstanding.end_many(rank, epoch, count);
                }
                Ok(None) => break,
                Err(_) => damaged = true,
            }
        }
        self.map_given(rank);
        self.take_swapped(rank);
        let Some(local_peer) = self.peers.local_peer_mut(rank) else { return came };
        local_peer.keep_promises();
        // Somebody wants memory; or room, or credit, has come for what waits.
        self.more |= local_peer.is_pressed() || local_peer.is_asked();
        if damaged {
            self.end_local_peer(rank, Death::Damaged, now);
        } else if local_peer.is_over() {
            let death = if local_peer.said_goodbye() { Death::Closed } else { Death::Ended };
            self.end_local_peer(rank, death, now);
        }
        came
    }

    fn next_settled(&mut self, rank: Rank) -> Result<Option<Settled>, Damaged> {
        match self.peers.local_peer_mut(rank) {
            Some(local_peer) => local_peer.next_settled(),
            None => Ok(None),
        }
    }

    /// Ask the kernel who has rung, and who has ended. What local peers write into regions that
    /// they have mapped no turn sees: threads that wait for it beside the driver are to look now
    /// and then.
    fn check_local_peers(&mut self, now: Time) -> usize {
        let Self { local_peers, peers, more, .. } = self;
        (local_peers.checked, local_peers.dozed) = (now, false);
        local_peers.forget_wedged_peers();
        let Some(watch) = &local_peers.watch else { return 0 };
        let rung = &mut local_peers.rung;
        watch.look(|called| {
            *rung = true;
            let Some(local_peer) = peers.local_peer_mut(called.number) else { return };
            if !hear(local_peer) || called.ended {
                watch.remove(&local_peer.pair.line);
                local_peer.has_ended();
                *more = true;
            }
        });
        let given = |rank: &Rank| peers.local_peer(*rank).is_some_and(|one| one.pair.grants.any());
        usize::from(local_peers.ranks.iter().any(given))
    }

    /// The process of a local peer has ended, or it cannot be believed any more: whatever waits for
    /// it, waits no longer (MEM-16.7).
    pub(crate) fn end_local_peer(&mut self, rank: Rank, death: Death, now: Time) {
        if let Some(peer) = self.peers.touch(rank) {
            if matches!(death, Death::Damaged | Death::Stuck) || peer.connection.is_established() {
                peer.connection.end(death);
            } else {
                // While they are still meeting, the connection may be about to hear why the other
                // one leaves.
                peer.connection.end_by(now + LAST_WORDS, death);
            }
        }
        // The connection's event does all that follows from the peer's end. Only the sharing of
        // memory ends here.
        for token in self.detach_local_peer(rank, death) {
            self.lost(rank, token);
        }
        self.more = true;
    }

    /// Nobody waits for what went directly into a ring any more.
    pub(crate) fn end_fast(&mut self, failure: &Failure) {
        for rank in self.local_peers.ranks.clone() {
            if let Some(local_peer) = self.peers.local_peer_mut(rank) {
                local_peer.end_fast(failure.clone());
            }
        }
    }

    /// Share no memory any more; the messages that are not settled.
    pub(crate) fn detach_local_peer(&mut self, rank: Rank, death: Death) -> Vec<Token> {
        let Some(peer) = self.peers.get_mut(rank) else { return Vec::new() };
        let Some(mut local_peer) = peer.local_peer.take() else { return Vec::new() };
        let failure = Failure::PeerLost { peer: rank, death };
        for (count, epoch) in local_peer.end_fast(failure.clone()) {
            self.untaken.note_in_ring(rank, count.into(), &failure);
            self.operations.outstanding.end_many(rank, epoch, count);
        }
        self.news += 1;
        peer.rings = local_peer.counters();
        if local_peer.pair.grants.take_all_back() {
            make_fences();
        }
        local_peer.pair.line.end();
        self.local_peers.maps.cut_off(rank);
        self.local_peers.swaps.cut_off(rank, &mut local_peer);
        if let Some(watch) = &self.local_peers.watch {
            watch.remove(&local_peer.pair.line);
        }
        self.local_peers.ranks.retain(|known| *known != rank);
        self.choose_link_pace();
        let (mut pair, unsettled) = local_peer.end();
        let unsettled = unsettled.collect();
        if pair.is_wedged() {
            self.local_peers.wedged_peers.push((rank, pair));
        }
        unsettled
    }

    /// When a record that waits for absent pages is to be looked at again.
    pub(crate) fn next_of_local_peers(&self) -> Option<Time> {
        let next = |rank: &Rank| self.peers.local_peer(*rank)?.next_timeout();
        self.local_peers.ranks.iter().filter_map(next).min()
    }

    /// Put in what waited for room, and wake those who sleep and have something to see. Can more be
    /// answered now?
    #[inline]
    pub(crate) fn stir_local_peers(&mut self) -> bool {
        self.serve_swaps();
        let (mut at, mut asked) = (0, false);
        while let Some(&rank) = self.local_peers.ranks.get(at) {
            at += 1;
            let Self { peers, memory, now, .. } = self;
            let Some(local_peer) = peers.local_peer_mut(rank) else { continue };
            crate::shm::map::hand_over(local_peer, memory);
            local_peer.pump(memory, *now);
            local_peer.wake_if_stirred();
            asked |= local_peer.is_asked();
            while let Some(token) = self.next_lost(rank) {
                self.unreadable(rank, token, Failure::Remote(RmaError::SourceGone));
            }
        }
        asked
    }

    fn next_lost(&mut self, rank: Rank) -> Option<Token> {
        self.peers.local_peer_mut(rank)?.next_lost()
    }

    /// Has every local peer taken all that was put into its ring, and been told of all that it put
    /// into ours?
    pub(crate) fn local_peers_are_settled(&self) -> bool {
        let idle = |rank: &Rank| {
            self.peers.local_peer(*rank).is_none_or(|local_peer| local_peer.is_idle())
        };
        self.local_peers.ranks.iter().all(idle)
    }
}

/// Hear what was said on a line; false if it has ended, or says what nobody says.
pub(crate) fn hear(local_peer: &mut LocalPeer) -> bool {
    /// In one look.
    const SAID: usize = 64;
    for _ in 0..SAID {
        match crate::shm::exchange::hear_next(local_peer) {
            Ok(None) => break,
            Ok(Some(said)) if ControlSocket::is_wake(&said) => {}
            // The kernel hands over bytes without their descriptor where this process may have no
            // more of them. What is not mapped is reached through the ring, and a question answered
            // in the negative; but the pages of an answer are gone with it.
            Ok(Some(said)) if said.descriptor.is_none() => {
                if !crate::shm::map::forgo(local_peer, &said) && !Offer::is_question(&said) {
                    return false;
                }
            }
            Ok(Some(said)) if Offer::is_one(&said) => match Offer::from_said(said) {
                Some(offer) if local_peer.offers.len() < 2 * OFFERS => {
                    local_peer.offers.push(offer)
                }
                _ => return false,
            },
            Ok(Some(said)) => match Handed::from_said(said) {
                Some(handed) if local_peer.handed.len() < GRANTS => local_peer.handed.push(handed),
                _ => return false,
            },
            Err(_) => return false,
        }
    }
    true
}
