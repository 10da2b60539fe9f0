//! The local peers of a node: when their rings are polled, what becomes of the records found there,
//! and how the peers end.
//!
//! Receiving never transmits. Only the stages that post and send write to a ring and wake its
//! reader.

use super::channel::ring_counters::RingCounters;
use super::channel::unsettled::{LostGroup, Settled};
use super::exchange::PageExchanges;
use super::local_peer::LocalPeer;
use super::map::{Maps, hand_over};
use super::rings::Rings;
use super::socket::{receive_messages, send_segment, take_segment};
use crate::client::shm_channel::{Ahead, ShmChannels};
use crate::failure::Failure;
use crate::inbox::Inbox;
use crate::layers::Layers;
use crate::ops::Ops;
use crate::outcome::{acknowledged, refused, unreadable};
use oikaze_os::shm::{Pair, Watch};
use oikaze_os::sync::make_fences;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{ArrayId, Pages};
use oikaze_protocol::limits::{
    LINK_POLL_LOCAL_ONLY_TIME, LINK_POLL_TIME, LOCAL_PEERS_CHECKED, RECORDS_PER_FAST_POLL,
    RECORDS_PER_POLL,
};
use oikaze_protocol::shm::Damaged;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Token};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Peers that share memory with this node.
pub struct ShmPeers {
    nodes: u32,
    pub(in crate::shm) rings: Rings,
    /// Index of the local peer at which the next search for a message of any sender begins. It
    /// follows the sender of the latest such message (round robin).
    pub(in crate::shm) first: usize,
    /// Number of messages that took the fast path, outside turns, since a turn last polled the
    /// link.
    pub(in crate::shm) fast_messages: u32,
    /// Sockets of the local peers.
    watch: Option<Watch>,
    /// Time between two polls of the link; zero if every turn polls the link.
    link_every: Duration,
    link_polled: Time,
    checked: Time,
    /// Is `true` if a thread may have slept since the last check. Local peers may then have sent
    /// wakeups that [`ShmPeers::check`] must receive.
    wakeups_armed: bool,
    /// Regions of local peers that are mapped, or asked for.
    pub(in crate::shm) maps: Maps,
    /// Pages that are to be exchanged with pages of local peers.
    pub(in crate::shm) swaps: PageExchanges,
    /// Local peers that have ended, for the connections and the layers above to learn of.
    ended: Vec<EndedPeer>,
    /// Is `true` if the next turn has something to do for a local peer.
    due: bool,
    /// Time without a sign of life after which a peer counts as dead.
    pub(in crate::shm) failure_time: Duration,
}

/// Local peer that has ended.
pub(crate) struct EndedPeer {
    pub rank: Rank,
    pub death: Death,
    /// Messages that were not settled.
    pub unsettled: Vec<Token>,
}

impl ShmPeers {
    /// Uses these rings from the first message on. The local peer must do so, too.
    pub(crate) fn new(
        nodes: u32,
        pairs: Vec<(Rank, Pair)>,
        failure_time: Duration,
    ) -> std::io::Result<Self> {
        let mut peers = ShmPeers {
            nodes,
            rings: Rings::default(),
            first: 0,
            fast_messages: 0,
            watch: None,
            link_every: Duration::ZERO,
            link_polled: Time::default(),
            checked: Time::default(),
            wakeups_armed: false,
            maps: Maps::default(),
            swaps: PageExchanges::default(),
            ended: Vec::new(),
            due: false,
            failure_time,
        };
        for (rank, pair) in pairs {
            if peers.watch.is_none() {
                peers.watch = Some(Watch::new()?);
            }
            if let Some(watch) = &peers.watch {
                watch.add(rank, &pair.line)?;
            }
            peers.rings.insert(rank, LocalPeer::new(pair));
        }
        peers.choose_link_pace();
        Ok(peers)
    }

    fn choose_link_pace(&mut self) {
        let (count, others) = (self.rings.ranks.len(), self.nodes as usize - 1);
        self.link_every = match count {
            0 => Duration::ZERO,
            count if count == others => LINK_POLL_LOCAL_ONLY_TIME,
            _ => LINK_POLL_TIME,
        };
    }

    /// Returns `true` if this peer shares memory with this node.
    #[must_use]
    pub fn contains(&self, rank: Rank) -> bool {
        self.rings.get(rank).is_some()
    }

    /// Returns a local peer.
    pub(crate) fn get(&self, rank: Rank) -> Option<&LocalPeer> {
        self.rings.get(rank)
    }

    /// Returns a local peer, mutable.
    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut LocalPeer> {
        self.rings.get_mut(rank)
    }

    /// Sends the file of an array to all local peers (COH-16.1).
    ///
    /// # Errors
    /// A socket takes no message.
    pub fn send_segment(&self, array: ArrayId, file: BorrowedFd<'_>) -> std::io::Result<()> {
        self.rings.iter().try_for_each(|local_peer| send_segment(local_peer, array.into(), file))
    }

    /// Returns the file of an array that a local peer has sent.
    pub fn take_segment(&mut self, from: Rank, array: ArrayId) -> Option<OwnedFd> {
        take_segment(self.rings.get_mut(from)?, array.into())
    }

    /// Returns the traffic through the rings of this peer.
    pub(crate) fn counters(&self, rank: Rank) -> RingCounters {
        self.rings.counters(rank)
    }

    /// Returns the thread-side view of the rings of all local peers.
    pub(crate) fn channels(&self, ahead: Ahead) -> ShmChannels {
        let channel = |rank| self.rings.get(rank).map(|local_peer| Arc::clone(&local_peer.channel));
        ShmChannels::new((0..self.nodes).map(channel).collect(), ahead)
    }

    /// Returns the descriptor that is readable when a local peer has woken this node, or has ended.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Returns `true` if a turn has received a wakeup that a sleeping thread waits for. The
    /// sleeping thread must then poll the rings, and mark anew that it sleeps (MEM-16.5).
    pub fn take_doorbell(&mut self) -> bool {
        std::mem::take(&mut self.rings.doorbell)
    }

    /// Wakes local peers that sleep if anything was done for them since a turn last looked
    /// (MEM-16.5).
    pub fn wake_peers_that_need_it(&mut self) {
        self.rings.for_each(LocalPeer::wake_if_needed);
    }

    /// Makes local peers wake the thread that is about to sleep on the descriptor (MEM-16.5).
    /// Returns `true` if there is something to do already, for which no wakeup comes. Then the
    /// thread must not sleep.
    pub fn arm_wakeups(&mut self) -> bool {
        if self.rings.ranks.is_empty() {
            // All local peers have ended, so no fence is needed on their behalf.
            return self.swaps.are_wanted();
        }
        self.rings.for_each(|local_peer| local_peer.pair.inward.fall_asleep());
        self.wakeups_armed = true;
        // A local peer that writes to a ring or to a region of this node checks without a fence of
        // its own whether this node sleeps (MEM-18.5).
        make_fences();
        let mut news = self.swaps.are_wanted();
        self.rings.for_each(|local_peer| news |= local_peer.has_news());
        news
    }

    /// Returns `true` if this turn may skip the poll of the link.
    #[inline]
    pub(crate) fn spares_link(&mut self, now: Time) -> bool {
        self.fast_messages = 0;
        if !self.link_every.is_zero()
            && now - self.link_polled < self.link_every
            && self.link_polled != Time(0)
        {
            return true;
        }
        self.link_polled = now;
        false
    }

    /// Polls every ring. Returns the number of records taken and messages settled.
    #[inline]
    pub(crate) fn poll<P: Pages>(
        &mut self,
        now: Time,
        layers: &mut Layers<P>,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) -> usize {
        let mut came = 0;
        let mut at = 0;
        while let Some(&rank) = self.rings.ranks.get(at) {
            at += 1;
            let Some(local_peer) = self.rings.get_mut(rank) else { continue };
            local_peer.wake_up(now);
            local_peer.note_takes(now);
            if local_peer.has_news() {
                came += self.poll_one(rank, now, layers, ops, inbox);
            }
        }
        let may_end = at > 0 || self.rings.have_wedged_peers();
        if may_end && (self.wakeups_armed || now - self.checked > LOCAL_PEERS_CHECKED) {
            came += self.check(now);
        }
        came
    }

    fn poll_one<P: Pages>(
        &mut self,
        rank: Rank,
        now: Time,
        layers: &mut Layers<P>,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) -> usize {
        let Some(local_peer) = self.rings.get_mut(rank) else { return 0 };
        let mut came = 0;
        let mut damaged = false;
        if local_peer.has_records() {
            // The number of polls of a dead peer's records is limited (MEM-16.7), so each of them
            // takes as many records as a full poll.
            let between = local_peer.is_taken_from(now) && !local_peer.is_ending();
            let most = if between { RECORDS_PER_FAST_POLL } else { RECORDS_PER_POLL };
            match local_peer.take(rank, most, layers, now) {
                Ok(taken) => came += taken,
                Err(Damaged) => damaged = true,
            }
        }
        while !damaged {
            match local_peer.next_settled() {
                Ok(Some(Settled::Message { token, outcome, .. })) => {
                    came += 1;
                    match outcome {
                        Ok(()) => acknowledged(token, ops, layers),
                        Err(refusal) => refused(token, refusal, ops, layers),
                    }
                }
                Ok(Some(Settled::FastPath { count, epoch })) => {
                    came += 1;
                    inbox.add_settled(1);
                    ops.in_flight.outstanding.end_many(rank, epoch, count);
                }
                Ok(None) => break,
                Err(Damaged) => damaged = true,
            }
        }
        inbox.add_settled(self.maps.map_given(rank, &mut self.rings));
        inbox.add_settled(self.swaps.take_answers(rank, &mut self.rings));
        let Some(local_peer) = self.rings.get_mut(rank) else { return came };
        local_peer.keep_promises();
        // The peer wants memory, or there is room or credit for messages that wait.
        self.due |= local_peer.is_pressed() || local_peer.is_asked();
        if damaged {
            self.end(rank, Death::Damaged, ops, inbox);
        } else if local_peer.is_over() {
            let death = if local_peer.is_closed_by_peer() { Death::Closed } else { Death::Ended };
            self.end(rank, death, ops, inbox);
        }
        came
    }

    /// Asks the kernel which local peers have sent wakeups, and which have ended. Returns 1 if any
    /// local peer has mapped a region of this node. No turn sees stores to such a region, so the
    /// result counts as news, and makes waiting threads check their values from time to time.
    fn check(&mut self, now: Time) -> usize {
        (self.checked, self.wakeups_armed) = (now, false);
        self.rings.forget_wedged_peers();
        let Self { rings, due, .. } = self;
        let Some(watch) = &self.watch else { return 0 };
        watch.look(|called| {
            rings.doorbell = true;
            let Some(local_peer) = rings.get_mut(called.number) else { return };
            if !receive_messages(local_peer) || called.ended {
                watch.remove(&local_peer.pair.line);
                local_peer.has_ended();
                *due = true;
            }
        });
        usize::from(rings.iter().any(|local_peer| local_peer.pair.grants.any()))
    }

    /// Called when the process of a local peer has ended, or this node no longer trusts the local
    /// peer. Nothing waits for the peer any longer (MEM-16.7). [`ShmPeers::take_ended`] follows.
    pub(in crate::shm) fn end(
        &mut self,
        rank: Rank,
        death: Death,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) {
        let unsettled = self.detach(rank, death, ops, inbox);
        self.ended.push(EndedPeer { rank, death, unsettled });
        self.due = true;
    }

    /// Returns `true` if [`ShmPeers::take_ended`] has a local peer.
    #[inline]
    pub(crate) fn have_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes a local peer that has ended.
    pub(crate) fn take_ended(&mut self) -> Option<EndedPeer> {
        self.ended.pop()
    }

    /// Fails all messages that took the fast path.
    pub(crate) fn end_fast(&mut self, failure: &Failure) {
        self.rings.for_each(|local_peer| drop(local_peer.end_fast(failure.clone())));
    }

    /// Shares no memory with this peer any more. Returns the messages that are not settled.
    pub(crate) fn detach(
        &mut self,
        rank: Rank,
        death: Death,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) -> Vec<Token> {
        let Some(local_peer) = self.rings.get_mut(rank) else { return Vec::new() };
        let failure = Failure::PeerLost { peer: rank, death };
        for LostGroup { count, epoch, is_reported } in local_peer.end_fast(failure.clone()) {
            // The collective of a parcel tells its caller of the loss (COLL-3.4).
            let reported = if is_reported { count } else { 0 };
            ops.untaken.note_in_ring(rank, reported.into(), &failure);
            ops.in_flight.outstanding.end_many(rank, epoch, count);
        }
        inbox.add_settled(1);
        if local_peer.pair.grants.take_all_back() {
            make_fences();
        }
        let Some(mut local_peer) = self.rings.remove(rank) else { return Vec::new() };
        local_peer.pair.line.end();
        self.maps.cut_off(rank);
        self.swaps.cut_off(rank, &mut local_peer);
        if let Some(watch) = &self.watch {
            watch.remove(&local_peer.pair.line);
        }
        self.choose_link_pace();
        let (pair, unsettled) = local_peer.end();
        self.rings.note_ended(rank, pair);
        unsettled.collect()
    }

    /// Returns the time of the next try of a record that waits for absent pages.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.rings.iter().filter_map(LocalPeer::next_timeout).min()
    }

    /// Exchanges pages, writes what waited for room into the rings, and wakes the local peers that
    /// sleep and have something to see. Returns `true` if more can be answered now.
    #[inline]
    pub(crate) fn send<P: Pages>(
        &mut self,
        now: Time,
        layers: &mut Layers<P>,
        ops: &mut Ops,
        inbox: &mut Inbox,
    ) -> bool {
        self.serve_swaps(&layers.memory, now, ops, inbox);
        let (mut at, mut asked) = (0, false);
        while let Some(&rank) = self.rings.ranks.get(at) {
            at += 1;
            let Some(local_peer) = self.rings.get_mut(rank) else { continue };
            hand_over(local_peer, &layers.memory);
            local_peer.pump(&layers.memory, now);
            local_peer.wake_if_needed();
            asked |= local_peer.is_asked();
            while let Some(token) = local_peer.next_lost() {
                unreadable(rank, token, None, ops, layers);
            }
        }
        asked
    }

    /// Returns `true` if every local peer has taken all that was put into its ring, and been told
    /// of the outcome of all that it put into this node's ring.
    pub(crate) fn are_settled(&self) -> bool {
        self.rings.iter().all(LocalPeer::is_idle)
    }

    /// Returns `true` if the next turn has something to do for a local peer.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Called when the stages that serve local peers are about to run.
    pub(crate) fn clear_due(&mut self) {
        self.due = false;
    }
}
