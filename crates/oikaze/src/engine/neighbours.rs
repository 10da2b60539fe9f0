//! The neighbours of a node: when their rings are looked at, what becomes of what is found there,
//! and how they end.
//!
//! Receiving never transmits: what is put into a ring, and whom to wake for it, belongs to the
//! stages that post and send.

use super::neighbour::{Handed, Neighbour, Settled};
use super::swapping::{OFFERS, Offer};
use super::upward::Upward;
use super::{Engine, Failure};
use oikaze_os::hazard::make_fences;
use oikaze_os::link::Link;
use oikaze_os::memory::Region;
use oikaze_os::neighbour::{Line, Pair, Straggler, Watch};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{
    GRANTS, LAST_WORDS, LINK_AMONG_RINGS, LINK_BESIDE_RINGS, NEIGHBOURS_CHECKED, RECORDS_A_LOOK,
    RECORDS_BETWEEN,
};
use oikaze_protocol::neighbour::Damaged;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Token};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Which peers share memory with this node.
#[derive(Default)]
pub(super) struct Neighbours {
    pub ranks: Vec<Rank>,
    /// Where among them a message that any may send is looked for first: behind the one that the
    /// last came from.
    pub first: usize,
    /// Their lines.
    watch: Option<Watch>,
    /// Between two looks at the link; zero if every look is one.
    link_every: Duration,
    link_looked: Time,
    checked: Time,
    /// Somebody rang, and was heard: a thread that sleeps is not told again, and the neighbour
    /// believes it awake.
    pub rung: bool,
    /// Some thread may have slept since then: whoever rang has left something to be heard.
    dozed: bool,
    /// Regions of neighbours that are mapped, or asked for.
    pub maps: super::mapping::Maps,
    /// Pages that are to change place with theirs.
    pub swaps: super::swapping::Swaps,
    /// Those that were, and may still reach into regions.
    pub stragglers: Vec<Straggler>,
}

impl Neighbours {
    /// Is it time for a look at the link, too?
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

    /// Is one that was given up in the middle of reaching this memory?
    pub fn hold(&mut self, region: &Region) -> bool {
        self.forget_stragglers();
        self.stragglers.iter().any(|straggler| straggler.is_inside(region))
    }

    /// Of those that are inside nowhere any more nothing is kept.
    fn forget_stragglers(&mut self) {
        self.stragglers.retain_mut(|straggler| !straggler.is_gone());
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Failures that no caller has been told of.
    #[must_use]
    pub fn untaken(&self) -> &Arc<super::Untaken> {
        &self.untaken
    }

    /// Use these rings from the first message on; both sides must.
    pub(super) fn attach_neighbours(&mut self, pairs: Vec<(Rank, Pair)>) -> std::io::Result<()> {
        for (rank, pair) in pairs {
            let Some(peer) = self.peers.get_mut(rank) else { continue };
            if self.neighbours.watch.is_none() {
                self.neighbours.watch = Some(Watch::new()?);
            }
            if let Some(watch) = &self.neighbours.watch {
                watch.add(rank, &pair.line)?;
            }
            peer.neighbour = Some(Box::new(Neighbour::new(pair)));
            self.neighbours.ranks.push(rank);
        }
        self.choose_link_pace();
        Ok(())
    }

    fn choose_link_pace(&mut self) {
        let (count, others) = (self.neighbours.ranks.len(), self.nodes as usize - 1);
        self.neighbours.link_every = match count {
            0 => Duration::ZERO,
            count if count == others => LINK_BESIDE_RINGS,
            _ => LINK_AMONG_RINGS,
        };
    }

    /// Readable when a neighbour has woken this node, or has ended.
    #[must_use]
    pub fn neighbours_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.neighbours.watch.as_ref().map(AsFd::as_fd)
    }

    /// Has a turn heard what a sleeping thread waits for? Then that thread must look at the rings,
    /// and say anew that it sleeps (MEM-16.5).
    pub fn take_rung(&mut self) -> bool {
        std::mem::take(&mut self.neighbours.rung)
    }

    /// Neighbours that sleep are woken if anything was done for them since a turn looked
    /// (MEM-16.5).
    pub fn wake_stirred_neighbours(&mut self) {
        let Self { neighbours, peers, .. } = self;
        for rank in &neighbours.ranks {
            if let Some(neighbour) = peers.neighbour_mut(*rank) {
                neighbour.wake_if_stirred();
            }
        }
    }

    /// A thread is about to sleep on the descriptor: from here on neighbours wake it. Has anything
    /// come meanwhile?
    pub fn doze(&mut self) -> bool {
        let Self { neighbours, peers, .. } = self;
        if neighbours.ranks.is_empty() {
            // All have ended; their fences need not be made any more.
            return neighbours.swaps.are_wanted();
        }
        for rank in &neighbours.ranks {
            if let Some(neighbour) = peers.neighbour_mut(*rank) {
                neighbour.pair.inward.fall_asleep();
            }
        }
        neighbours.dozed = true;
        // Whoever puts something into a ring, or stores in a region of ours, looks whether we sleep
        // without a fence of its own (MEM-18.5).
        make_fences();
        let mut news = neighbours.swaps.are_wanted();
        for rank in &neighbours.ranks {
            news |= peers.neighbour_mut(*rank).is_some_and(|neighbour| neighbour.has_news());
        }
        news
    }

    /// Look into every ring; how much has come or been settled.
    #[inline]
    pub(super) fn hear_neighbours(&mut self, now: Time) -> usize {
        let mut came = 0;
        let mut at = 0;
        while let Some(&rank) = self.neighbours.ranks.get(at) {
            at += 1;
            let Some(neighbour) = self.peers.neighbour_mut(rank) else { continue };
            neighbour.wake_up(now);
            neighbour.note_takes(now);
            if neighbour.has_news() {
                came += self.hear_neighbour(rank, now);
            }
        }
        let may_end = at > 0 || !self.neighbours.stragglers.is_empty();
        if may_end && (self.neighbours.dozed || now - self.neighbours.checked > NEIGHBOURS_CHECKED)
        {
            came += self.check_neighbours(now);
        }
        came
    }

    fn hear_neighbour(&mut self, rank: Rank, now: Time) -> usize {
        let Self { peers, rma, coherence, memory, pages, bodies, .. } = self;
        let Some(neighbour) = peers.neighbour_mut(rank) else { return 0 };
        let mut came = 0;
        let mut damaged = false;
        if neighbour.has_records() {
            let mut upper = Upward { rma, coherence, memory, pages, bodies };
            // The looks at what a dead one left are numbered (MEM-16.7): each is a whole one.
            let between = neighbour.is_taken_from(now) && !neighbour.is_ending();
            let most = if between { RECORDS_BETWEEN } else { RECORDS_A_LOOK };
            let taken = neighbour.take(rank, most, &mut upper, now);
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
                Ok(Some(Settled::Straight { count, epoch })) => {
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
        let Some(neighbour) = self.peers.neighbour_mut(rank) else { return came };
        neighbour.keep_promises();
        // Somebody wants memory; or room, or credit, has come for what waits.
        self.more |= neighbour.is_pressed() || neighbour.is_asked();
        if damaged {
            self.end_neighbour(rank, Death::Damaged, now);
        } else if neighbour.is_over() {
            let death = if neighbour.said_goodbye() { Death::Closed } else { Death::Ended };
            self.end_neighbour(rank, death, now);
        }
        came
    }

    fn next_settled(&mut self, rank: Rank) -> Result<Option<Settled>, Damaged> {
        match self.peers.neighbour_mut(rank) {
            Some(neighbour) => neighbour.next_settled(),
            None => Ok(None),
        }
    }

    /// Ask the kernel who has rung, and who has ended. What neighbours write into regions that they
    /// have mapped no turn sees: threads that wait for it beside the driver are to look now and
    /// then.
    fn check_neighbours(&mut self, now: Time) -> usize {
        let Self { neighbours, peers, more, .. } = self;
        (neighbours.checked, neighbours.dozed) = (now, false);
        neighbours.forget_stragglers();
        let Some(watch) = &neighbours.watch else { return 0 };
        let rung = &mut neighbours.rung;
        watch.look(|called| {
            *rung = true;
            let Some(neighbour) = peers.neighbour_mut(called.number) else { return };
            if !hear(neighbour) || called.ended {
                watch.remove(&neighbour.pair.line);
                neighbour.has_ended();
                *more = true;
            }
        });
        let given = |rank: &Rank| peers.neighbour(*rank).is_some_and(|one| one.pair.grants.any());
        usize::from(neighbours.ranks.iter().any(given))
    }

    /// The process of a neighbour has ended, or it cannot be believed any more: whatever waits for
    /// it, waits no longer (MEM-16.7).
    pub(super) fn end_neighbour(&mut self, rank: Rank, death: Death, now: Time) {
        if let Some(peer) = self.peers.touch(rank) {
            if matches!(death, Death::Damaged | Death::Stuck) || peer.connection.is_established() {
                peer.connection.end(death);
            } else {
                // While they are still meeting, the connection may be about to hear why the other
                // one leaves.
                peer.connection.end_by(now + LAST_WORDS, death);
            }
        }
        // What follows from its end is done by the connection's event; that it shares memory is
        // over here and now.
        for token in self.detach_neighbour(rank, death) {
            self.lost(rank, token);
        }
        self.more = true;
    }

    /// Nobody waits for what went straight into a ring any more.
    pub(super) fn end_straight(&mut self, failure: &Failure) {
        for rank in self.neighbours.ranks.clone() {
            if let Some(neighbour) = self.peers.neighbour_mut(rank) {
                neighbour.end_straight(failure.clone());
            }
        }
    }

    /// Share no memory any more; the messages that are not settled.
    pub(super) fn detach_neighbour(&mut self, rank: Rank, death: Death) -> Vec<Token> {
        let Some(peer) = self.peers.get_mut(rank) else { return Vec::new() };
        let Some(mut neighbour) = peer.neighbour.take() else { return Vec::new() };
        let failure = Failure::PeerLost { peer: rank, death };
        for (count, epoch) in neighbour.end_straight(failure.clone()) {
            self.untaken.note_in_ring(rank, count.into(), &failure);
            self.operations.outstanding.end_many(rank, epoch, count);
        }
        self.news += 1;
        peer.rings = neighbour.counters();
        if neighbour.pair.grants.take_all_back() {
            make_fences();
        }
        self.neighbours.stragglers.extend(Straggler::of(&neighbour.pair));
        neighbour.pair.line.end();
        self.neighbours.maps.cut_off(rank);
        self.neighbours.swaps.cut_off(rank, &mut neighbour);
        if let Some(watch) = &self.neighbours.watch {
            watch.remove(&neighbour.pair.line);
        }
        self.neighbours.ranks.retain(|known| *known != rank);
        self.choose_link_pace();
        neighbour.into_unsettled().collect()
    }

    /// When a record that waits for absent pages is to be looked at again.
    pub(super) fn next_of_neighbours(&self) -> Option<Time> {
        let next = |rank: &Rank| self.peers.neighbour(*rank)?.next_timeout();
        self.neighbours.ranks.iter().filter_map(next).min()
    }

    /// Put in what waited for room, and wake those who sleep and have something to see. Can more be
    /// answered now?
    #[inline]
    pub(super) fn stir_neighbours(&mut self) -> bool {
        self.serve_swaps();
        let (mut at, mut asked) = (0, false);
        while let Some(&rank) = self.neighbours.ranks.get(at) {
            at += 1;
            let Self { peers, memory, now, .. } = self;
            let Some(neighbour) = peers.neighbour_mut(rank) else { continue };
            super::mapping::hand_over(neighbour, memory);
            neighbour.pump(memory, *now);
            neighbour.wake_if_stirred();
            asked |= neighbour.is_asked();
            while let Some(token) = self.next_lost(rank) {
                self.unreadable(rank, token, Failure::Remote(RmaError::SourceGone));
            }
        }
        asked
    }

    fn next_lost(&mut self, rank: Rank) -> Option<Token> {
        self.peers.neighbour_mut(rank)?.next_lost()
    }

    /// Has every neighbour taken all that was put into its ring, and been told of all that it put
    /// into ours?
    pub(super) fn neighbours_are_settled(&self) -> bool {
        let idle =
            |rank: &Rank| self.peers.neighbour(*rank).is_none_or(|neighbour| neighbour.is_idle());
        self.neighbours.ranks.iter().all(idle)
    }
}

/// Hear what was said on a line; false if it has ended, or says what nobody says.
pub(super) fn hear(neighbour: &mut Neighbour) -> bool {
    /// In one look.
    const SAID: usize = 64;
    for _ in 0..SAID {
        match super::swapping::hear_next(neighbour) {
            Ok(None) => break,
            Ok(Some(said)) if Line::is_wake(&said) => {}
            // The kernel hands over bytes without their descriptor where this process may have no
            // more of them. What is not mapped is reached through the ring, and a question answered
            // in the negative; but the pages of an answer are gone with it.
            Ok(Some(said)) if said.descriptor.is_none() => {
                if !super::mapping::forgo(neighbour, &said) && !Offer::is_question(&said) {
                    return false;
                }
            }
            Ok(Some(said)) if Offer::is_one(&said) => match Offer::from_said(said) {
                Some(offer) if neighbour.offers.len() < 2 * OFFERS => neighbour.offers.push(offer),
                _ => return false,
            },
            Ok(Some(said)) => match Handed::from_said(said) {
                Some(handed) if neighbour.handed.len() < GRANTS => neighbour.handed.push(handed),
                _ => return false,
            },
            Err(_) => return false,
        }
    }
    true
}
