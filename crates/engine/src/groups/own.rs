//! Streams in which this node sends, and the sets of receivers for which it may open one.

use super::counters::GroupCounters;
use super::sets::UselessSets;
use crate::client::shown_groups::{ShownGroup, serves};
use crate::peers::Peers;
use crate::sealing::stream::StreamSendKeys;
use oikaze_os::secrets::protected::Protected;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::GROUP_STREAMS_MAX;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::multicast::{GroupStream, MemberState};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum number of sets of receivers that got one message alike and are remembered.
const SEEN_MAX: usize = 32;
/// Minimum age of a stream that gives way to another one. Opening a stream costs messages to each
/// member, and pays only after many messages.
const AGE_MIN: Duration = Duration::from_secs(5);

/// Stream of this node.
pub(crate) struct OwnStream {
    pub stream: GroupStream,
    /// Receivers for which the stream was opened, sorted.
    pub receivers: Vec<Rank>,
    /// Address of the group, as the link takes it.
    pub to: SocketAddr,
    /// Keys, if datagrams are sealed with keys.
    pub keys: Option<Protected<StreamSendKeys>>,
    opened: Time,
    /// Time of the latest message.
    used: Time,
    /// Something may be due: a message was posted, or a member's connection may have changed, since
    /// the latest look.
    has_news: bool,
    /// Time at which the stream wants a look, as of the latest one.
    wake: Option<Time>,
    /// Members that heard the group at the latest look, one bit for each index.
    hearing: u32,
}

impl OwnStream {
    pub fn new(
        stream: GroupStream,
        receivers: Vec<Rank>,
        to: SocketAddr,
        keys: Option<StreamSendKeys>,
        now: Time,
    ) -> Self {
        Self {
            stream,
            receivers,
            to,
            keys: keys.map(Protected::new),
            opened: now,
            used: now,
            has_news: true,
            wake: None,
            hearing: 0,
        }
    }

    /// Called when something was posted, or a member's state has changed.
    pub fn note_change(&mut self, now: Time) {
        (self.used, self.has_news) = (now, true);
    }

    /// Returns the members that hear the group, one bit for each index.
    fn hearing(&self) -> u32 {
        let proven = |(at, (_, state)): (u32, (Rank, MemberState))| {
            u32::from(state == MemberState::Proven) << at
        };
        (0..u32::BITS).zip(self.stream.members()).map(proven).fold(0, |all, one| all | one)
    }

    fn has_member(&self, rank: Rank) -> bool {
        self.receivers.binary_search(&rank).is_ok()
    }

    /// Returns the receivers, and those that hear the group.
    fn shown(&self) -> ShownGroup {
        let hearing = self.stream.members().filter(|(_, state)| *state == MemberState::Proven);
        let hearing = hearing.map(|(rank, _)| rank).collect();
        ShownGroup { receivers: self.receivers.clone(), hearing }
    }
}

/// Streams of this node.
#[derive(Default)]
pub(crate) struct OwnStreams {
    streams: Vec<OwnStream>,
    /// Streams of which a node is a receiver, by rank, one bit for each index of a stream.
    of_rank: Vec<u8>,
    /// Sets of receivers that got one message alike.
    seen: VecDeque<Vec<Rank>>,
    /// Sets of receivers for which a stream was of no use.
    useless: UselessSets,
    /// Streams or useless sets have come or gone, or a member's state has changed.
    is_changed: bool,
    /// A stream was of no use any more at the latest look at it.
    has_useless: bool,
    /// Number of streams that were opened.
    pub opened: u64,
    /// Counters of streams that were closed.
    closed: GroupCounters,
}

const _: () = assert!(GROUP_STREAMS_MAX <= u8::BITS as usize);

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
    /// Chooses for a message to these receivers, which are sorted (WIND-13.1). A stream for more
    /// receivers serves, too, because a datagram names its addressees (WIND-12.4).
    pub fn choose(&mut self, receivers: &[Rank], now: Time) -> StreamChoice {
        let serving = self.streams.iter().enumerate();
        let serving = serving.filter(|(_, own)| serves(&own.receivers, receivers));
        if let Some(index) = serving.min_by_key(|(_, own)| own.receivers.len()).map(|(at, _)| at) {
            let Some(own) = self.streams.get_mut(index) else { return StreamChoice::Each };
            own.used = now;
            return match own.stream.is_open() {
                true => StreamChoice::Share(index),
                false => StreamChoice::Each,
            };
        }
        if self.useless.are_in_force(receivers, now) {
            return StreamChoice::Each;
        }
        if let Some(index) = self.seen.iter().position(|set| set == receivers) {
            if !self.has_room(now) {
                return StreamChoice::Each;
            }
            self.seen.remove(index);
            return StreamChoice::Open;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(receivers.to_vec());
        StreamChoice::Each
    }

    /// Opens no stream for these receivers for some time, because one is of no use.
    pub fn give_up(&mut self, receivers: Vec<Rank>, now: Time) {
        self.useless.insert(receivers, now);
        self.is_changed = true;
    }

    /// Forgets for which receivers a stream is of no use, if this node was one of them. A process
    /// that takes its place may be of use.
    pub fn forget(&mut self, rank: Rank) {
        self.useless.forget(rank);
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
        self.index_members();
    }

    /// Returns `true` if another stream may be opened, perhaps in the place of an old one.
    fn has_room(&self, now: Time) -> bool {
        self.streams.len() < GROUP_STREAMS_MAX || self.oldest(now).is_some()
    }

    /// Returns the stream that was not used for longest, of those that may give way.
    fn oldest(&self, now: Time) -> Option<usize> {
        let old = self.streams.iter().enumerate().filter(|(_, own)| now - own.opened >= AGE_MIN);
        old.min_by_key(|(_, own)| own.used).map(|(index, _)| index)
    }

    /// Takes the stream that was not used for longest, if there is no room for another.
    pub fn take_oldest_if_full(&mut self, now: Time) -> Option<OwnStream> {
        if self.streams.len() < GROUP_STREAMS_MAX {
            return None;
        }
        self.oldest(now).map(|index| self.take(index))
    }

    /// Takes a stream of which this node is a receiver.
    pub fn take_of_member(&mut self, rank: Rank) -> Option<OwnStream> {
        let index = self.streams.iter().position(|own| own.has_member(rank))?;
        Some(self.take(index))
    }

    /// Takes a stream that is of no use any more.
    pub fn take_useless(&mut self) -> Option<OwnStream> {
        if !self.has_useless {
            return None;
        }
        let index = self.streams.iter().position(|own| !own.stream.is_usable());
        self.has_useless = index.is_some();
        index.map(|index| self.take(index))
    }

    /// Takes any stream.
    pub fn take_any(&mut self) -> Option<OwnStream> {
        (!self.streams.is_empty()).then(|| self.take(0))
    }

    fn take(&mut self, index: usize) -> OwnStream {
        let own = self.streams.swap_remove(index);
        self.is_changed = true;
        add(&mut self.closed, &own.stream);
        self.index_members();
        own
    }

    /// Notes anew which streams each node is a receiver of.
    fn index_members(&mut self) {
        self.of_rank.clear();
        for (index, own) in self.streams.iter().enumerate() {
            for &rank in &own.receivers {
                if self.of_rank.len() <= rank as usize {
                    self.of_rank.resize(rank as usize + 1, 0);
                }
                if let Some(streams) = self.of_rank.get_mut(rank as usize) {
                    *streams |= 1 << index;
                }
            }
        }
    }

    /// Called before streams are asked whether something is due. What a member has sent, or a timer
    /// of its connection, may concern a stream.
    pub fn note_active(&mut self, peers: &Peers) {
        if self.streams.is_empty() {
            return;
        }
        let streams_of = |rank: Rank| self.of_rank.get(rank as usize).copied().unwrap_or(0);
        let concerned = peers.active.iter().map(streams_of).fold(0, |all, one| all | one);
        for (index, own) in self.streams.iter_mut().enumerate() {
            own.has_news |= concerned >> index & 1 == 1;
        }
    }

    /// Called when no stream was asked because the link has no room. Each is asked in the next
    /// turn.
    pub fn note_all(&mut self) {
        self.streams.iter_mut().for_each(|own| own.has_news = true);
    }

    /// Returns the sets of receivers that have a stream, or for which one is of no use, if anything
    /// has changed since the latest call.
    pub fn changed_sets(&mut self, now: Time) -> Option<Vec<ShownGroup>> {
        self.is_changed |= self.useless.expire(now);
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let useless = self.useless.in_force(now);
        let useless = useless
            .map(|receivers| ShownGroup { receivers: receivers.to_vec(), hearing: Vec::new() });
        Some(self.streams.iter().map(OwnStream::shown).chain(useless).collect())
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns `true` if something of a stream is due.
    pub fn have_due(&mut self, now: Time, peers: &mut Peers) -> bool {
        self.note_active(peers);
        (0..self.streams.len()).fold(false, |any, index| any | self.has_due(index, now, peers))
    }

    /// Returns `true` if something of the stream at this index is due. Looks at a stream only if
    /// something of it may have changed, so that streams at rest cost little.
    pub fn has_due(&mut self, index: usize, now: Time, peers: &mut Peers) -> bool {
        let Some(own) = self.streams.get_mut(index) else { return false };
        if !own.has_news && own.wake.is_none_or(|at| at > now) {
            return false;
        }
        own.has_news = own.stream.has_due(now, peers);
        own.wake = own.stream.next_timeout();
        let hearing = own.hearing();
        self.is_changed |= std::mem::replace(&mut own.hearing, hearing) != hearing;
        self.has_useless |= !own.stream.is_usable();
        if own.stream.is_open() {
            self.useless.remove(&own.receivers);
        }
        own.has_news
    }

    /// Returns the time at which a stream wants a look at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        self.streams.iter().filter_map(|own| own.wake).min()
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
            counters.group_members += u64::from(own.hearing().count_ones());
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
        streams.give_up(vec![1, 2], Time(0));
        assert!((0..5).all(|now| streams.choose(&[1, 2], Time(now)) == StreamChoice::Each));
        streams.forget(2);
        assert_eq!(streams.choose(&[1, 2], Time(8)), StreamChoice::Each);
        assert_eq!(streams.choose(&[1, 2], Time(9)), StreamChoice::Open);
    }

    /// WIND-12.4, WIND-13.2: while one receiver is busy, the others share the stream of all. A
    /// stream with many more receivers does not serve, because all of them hear its datagrams.
    #[test]
    fn fewer_receivers_share_the_stream_of_all() {
        let mut streams = OwnStreams::default();
        let all: Vec<Rank> = (1..=6).collect();
        streams.insert(own(7, &all, 1));
        for set in [&[1, 2, 3, 4, 6][..], &[2, 4, 6]] {
            for _ in 0..3 {
                assert_eq!(streams.choose(set, Time(2)), StreamChoice::Each, "nobody has joined");
            }
        }
        assert!(streams.seen.is_empty(), "no stream of their own is opened for them");
        for (set, why) in [(&[1, 2][..], "few of them"), (&[4, 5, 6, 7], "one is not a member")] {
            assert_eq!(streams.choose(set, Time(3)), StreamChoice::Each);
            assert_eq!(streams.choose(set, Time(4)), StreamChoice::Open, "{why}");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_stream_goes_first() {
        let mut streams = OwnStreams::default();
        for set in 0..2 * SEEN_MAX as Rank {
            streams.choose(&[set, set + 1], Time(1));
        }
        assert_eq!(streams.seen.len(), SEEN_MAX);
        let late = Time(0) + AGE_MIN * 2;
        for id in 0..GROUP_STREAMS_MAX as u64 {
            assert!(streams.take_oldest_if_full(late).is_none());
            streams.insert(own(id + 1, &[id as Rank, 900], id + 1));
        }
        streams.choose(&[0, 900], Time(1000));
        assert_eq!(streams.take_oldest_if_full(late).unwrap().stream.id(), 2);
        assert_eq!(streams.take_of_member(5).unwrap().stream.id(), 6);
        assert!(streams.take_of_member(5).is_none());
        assert_eq!(streams.len(), GROUP_STREAMS_MAX - 2);
    }

    /// WIND-13.2: sets of receivers that take turns do not displace the streams of each other.
    #[test]
    fn young_streams_do_not_give_way() {
        let mut streams = OwnStreams::default();
        for id in 0..GROUP_STREAMS_MAX as u64 {
            streams.insert(own(id + 1, &[id as Rank, 900], 0));
        }
        let soon = Time(AGE_MIN.as_nanos() as u64 - 1);
        for _ in 0..3 {
            assert_eq!(streams.choose(&[100, 101], soon), StreamChoice::Each);
        }
        assert_eq!(streams.choose(&[100, 101], Time(0) + AGE_MIN), StreamChoice::Open);
    }
}
