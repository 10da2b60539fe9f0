//! Streams in which this node sends, and the sets of receivers for which it may open one.

use super::counters::GroupCounters;
use crate::peers::Peers;
use crate::sealing::stream::StreamSendKeys;
use oikaze_os::secrets::protected::Protected;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::GROUP_STREAMS_MAX;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::multicast::{GroupStream, MemberState};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Sets of receivers that are remembered: those that got one message alike, and those for which a
/// stream is of no use.
const SETS_MAX: usize = 32;

/// Stream of this node.
pub(crate) struct OwnStream {
    pub stream: GroupStream,
    /// Receivers for which the stream was opened, sorted.
    pub receivers: Vec<Rank>,
    /// Address of the group, as the link takes it.
    pub to: SocketAddr,
    /// Keys, if datagrams are sealed with keys.
    pub keys: Option<Protected<StreamSendKeys>>,
    /// Time of the latest message.
    used: Time,
    /// Something may be due: a message was posted since the latest look.
    is_posted: bool,
    /// All receivers heard the group when the node last looked.
    was_heard_by_all: bool,
}

impl OwnStream {
    pub fn new(
        stream: GroupStream,
        receivers: Vec<Rank>,
        to: SocketAddr,
        keys: Option<StreamSendKeys>,
        now: Time,
    ) -> Self {
        let keys = keys.map(Protected::new);
        Self { stream, receivers, to, keys, used: now, is_posted: true, was_heard_by_all: false }
    }

    /// Called when something was posted, or a member's state has changed.
    pub fn note_change(&mut self, now: Time) {
        (self.used, self.is_posted) = (now, true);
    }

    /// Returns `true` if all receivers hear the group.
    fn is_heard_by_all(&self) -> bool {
        let proven = |(_, state): &(Rank, MemberState)| *state == MemberState::Proven;
        self.stream.members().filter(proven).count() == self.receivers.len()
    }

    fn has_member(&self, rank: Rank) -> bool {
        self.receivers.binary_search(&rank).is_ok()
    }

    /// Returns `true` if something may be due: a member was heard, something was posted, or a time
    /// has come.
    fn may_be_due(&self, now: Time, peers: &Peers) -> bool {
        self.is_posted
            || self.stream.next_timeout().is_some_and(|at| at <= now)
            || self.receivers.iter().any(|rank| peers.active.contains(*rank))
    }
}

/// Streams of this node.
#[derive(Default)]
pub(crate) struct OwnStreams {
    streams: Vec<OwnStream>,
    /// Sets of receivers that got one message alike.
    seen: VecDeque<Vec<Rank>>,
    /// Sets of receivers for which a stream is of no use.
    useless: VecDeque<Vec<Rank>>,
    /// Streams or useless sets have come or gone.
    is_changed: bool,
    /// Number of streams that were opened.
    pub opened: u64,
    /// Counters of streams that were closed.
    closed: GroupCounters,
}

/// Decision about a message to a set of receivers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamChoice {
    /// Send it in the stream at this index.
    Share(usize),
    /// Send it to each receiver, and open a stream.
    Open,
    /// Send it to each receiver.
    Each,
}

impl OwnStreams {
    /// Chooses for a message to these receivers, which are sorted (WIND-13.1).
    pub fn choose(&mut self, receivers: &[Rank], now: Time) -> StreamChoice {
        if let Some(index) = self.streams.iter().position(|own| own.receivers == receivers) {
            let Some(own) = self.streams.get_mut(index) else { return StreamChoice::Each };
            own.used = now;
            return match own.stream.is_open() {
                true => StreamChoice::Share(index),
                false => StreamChoice::Each,
            };
        }
        let is_known = |sets: &VecDeque<Vec<Rank>>| sets.iter().position(|set| set == receivers);
        if is_known(&self.useless).is_some() {
            return StreamChoice::Each;
        }
        if let Some(index) = is_known(&self.seen) {
            self.seen.remove(index);
            return StreamChoice::Open;
        }
        remember(&mut self.seen, receivers.to_vec());
        StreamChoice::Each
    }

    /// Opens no stream for these receivers any more.
    pub fn give_up(&mut self, receivers: Vec<Rank>) {
        remember(&mut self.useless, receivers);
        self.is_changed = true;
    }

    /// Forgets for which receivers a stream is of no use, if this node was one of them. A process
    /// that takes its place may be of use.
    pub fn forget(&mut self, rank: Rank) {
        self.useless.retain(|set| !set.contains(&rank));
        self.seen.retain(|set| !set.contains(&rank));
        self.is_changed = true;
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut OwnStream> {
        self.streams.get_mut(index)
    }

    /// Returns the stream with this id.
    pub fn of_id(&mut self, id: u64) -> Option<&mut OwnStream> {
        self.streams.iter_mut().find(|own| own.stream.id() == id)
    }

    /// Returns `true` if a stream of this node has this id.
    pub fn contains(&self, id: u64) -> bool {
        self.streams.iter().any(|own| own.stream.id() == id)
    }

    pub fn insert(&mut self, own: OwnStream) {
        self.opened += 1;
        self.is_changed = true;
        self.streams.push(own);
    }

    /// Takes the stream that was not used for longest, if there is no room for another.
    pub fn take_oldest_if_full(&mut self) -> Option<OwnStream> {
        if self.streams.len() < GROUP_STREAMS_MAX {
            return None;
        }
        let oldest = self.streams.iter().enumerate().min_by_key(|(_, own)| own.used);
        let index = oldest.map(|(index, _)| index)?;
        Some(self.take(index))
    }

    /// Takes a stream of which this node is a receiver.
    pub fn take_of_member(&mut self, rank: Rank) -> Option<OwnStream> {
        let index = self.streams.iter().position(|own| own.has_member(rank))?;
        Some(self.take(index))
    }

    /// Takes a stream that is of no use any more.
    pub fn take_useless(&mut self) -> Option<OwnStream> {
        let index = self.streams.iter().position(|own| !own.stream.is_usable())?;
        Some(self.take(index))
    }

    /// Takes any stream.
    pub fn take_any(&mut self) -> Option<OwnStream> {
        (!self.streams.is_empty()).then(|| self.take(0))
    }

    fn take(&mut self, index: usize) -> OwnStream {
        let own = self.streams.swap_remove(index);
        self.is_changed = true;
        add(&mut self.closed, &own.stream);
        own
    }

    /// Called when no stream was asked because the link has no room. Each is asked in the next
    /// turn.
    pub fn note_all(&mut self) {
        self.streams.iter_mut().for_each(|own| own.is_posted = true);
    }

    /// Returns the sets of receivers that have a stream, or for which one is of no use, if anything
    /// has changed since the latest call. Each has `true` if all receivers hear the group.
    pub fn changed_sets(&mut self) -> Option<Vec<(Vec<Rank>, bool)>> {
        for own in &mut self.streams {
            let is_heard = own.is_heard_by_all();
            self.is_changed |= own.was_heard_by_all != is_heard;
            own.was_heard_by_all = is_heard;
        }
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let streams = self.streams.iter().map(|own| (own.receivers.clone(), own.was_heard_by_all));
        Some(streams.chain(self.useless.iter().map(|set| (set.clone(), false))).collect())
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns `true` if something of a stream is due.
    pub fn have_due(&mut self, now: Time, peers: &mut Peers) -> bool {
        let mut any = false;
        for own in &mut self.streams {
            if own.may_be_due(now, peers) {
                own.is_posted = own.stream.has_due(now, peers);
                any |= own.is_posted;
            }
        }
        any
    }

    /// Returns `true` if something of the stream at this index is due.
    pub fn has_due(&mut self, index: usize, now: Time, peers: &mut Peers) -> bool {
        let Some(own) = self.streams.get_mut(index) else { return false };
        own.is_posted = own.may_be_due(now, peers) && own.stream.has_due(now, peers);
        own.is_posted
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.streams.iter().filter_map(|own| own.stream.next_timeout()).min()
    }

    /// Adds the counters of all streams.
    pub fn add_to(&self, counters: &mut GroupCounters) {
        let closed = &self.closed;
        counters.group_datagrams_sent += closed.group_datagrams_sent;
        counters.group_bytes_sent += closed.group_bytes_sent;
        counters.group_members_left_out += closed.group_members_left_out;
        counters.group_repairs += closed.group_repairs;
        counters.group_messages += closed.group_messages;
        counters.group_streams_opened += self.opened;
        for own in &self.streams {
            add(counters, &own.stream);
            let proven = |(_, state): &(Rank, MemberState)| *state == MemberState::Proven;
            counters.group_members += own.stream.members().filter(proven).count() as u64;
        }
    }
}

fn add(counters: &mut GroupCounters, stream: &GroupStream) {
    let statistics = stream.statistics();
    counters.group_datagrams_sent += statistics.datagrams_sent;
    counters.group_bytes_sent += statistics.bytes_sent;
    counters.group_messages += statistics.messages;
    counters.group_repairs += statistics.repairs;
    counters.group_members_left_out += statistics.members_left_out;
}

fn remember(sets: &mut VecDeque<Vec<Rank>>, set: Vec<Rank>) {
    if sets.len() >= SETS_MAX {
        sets.pop_front();
    }
    sets.push_back(set);
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::wire::SealKind;

    fn own(id: u64, receivers: &[Rank], now: u64) -> OwnStream {
        let stream = GroupStream::new(id, receivers, SealKind::EndToEnd);
        let to = ([239, 192, 0, 1], 50_000).into();
        OwnStream::new(stream, receivers.to_vec(), to, None, Time(now))
    }

    /// WIND-13.1: the second message to a set opens a stream. It is shared once two have joined.
    #[test]
    fn second_message_to_a_set_opens_a_stream() {
        let mut streams = OwnStreams::default();
        assert_eq!(streams.choose(&[1, 2], Time(1)), StreamChoice::Each);
        assert_eq!(streams.choose(&[1, 2, 3], Time(2)), StreamChoice::Each);
        assert_eq!(streams.choose(&[1, 2], Time(3)), StreamChoice::Open);
        streams.insert(own(7, &[1, 2], 3));
        assert_eq!(streams.choose(&[1, 2], Time(4)), StreamChoice::Each, "nobody has joined");
        assert!(streams.contains(7) && !streams.contains(8));
    }

    #[test]
    fn sets_without_use_are_not_tried_again_until_a_node_is_replaced() {
        let mut streams = OwnStreams::default();
        streams.give_up(vec![1, 2]);
        assert!((0..5).all(|now| streams.choose(&[1, 2], Time(now)) == StreamChoice::Each));
        streams.forget(2);
        assert_eq!(streams.choose(&[1, 2], Time(8)), StreamChoice::Each);
        assert_eq!(streams.choose(&[1, 2], Time(9)), StreamChoice::Open);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_stream_goes_first() {
        let mut streams = OwnStreams::default();
        for set in 0..2 * SETS_MAX as Rank {
            streams.choose(&[set, set + 1], Time(1));
            streams.give_up(vec![set, set + 1]);
        }
        assert_eq!((streams.seen.len(), streams.useless.len()), (SETS_MAX, SETS_MAX));
        for id in 0..GROUP_STREAMS_MAX as u64 {
            assert!(streams.take_oldest_if_full().is_none());
            streams.insert(own(id + 1, &[id as Rank, 900], id + 1));
        }
        streams.choose(&[0, 900], Time(1000));
        assert_eq!(streams.take_oldest_if_full().unwrap().stream.id(), 2);
        assert_eq!(streams.take_of_member(5).unwrap().stream.id(), 6);
        assert!(streams.take_of_member(5).is_none());
        assert_eq!(streams.len(), GROUP_STREAMS_MAX - 2);
    }
}
