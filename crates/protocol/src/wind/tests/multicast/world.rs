//! Test world of one sender, which is node 0, and several members.

use crate::Rank;
use crate::random::Random;
use crate::time::Time;
use crate::wind::multicast::{GroupStream, GroupTransmit, MemberState, Members};
use crate::wind::tests::support::channel::{Arrival, Channel, Faults};
use crate::wind::tests::support::world::{Oracle, TestSeal, body, message};
use crate::wind::*;
use crate::wire::{Frame, Seal, SealKind, View};
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// Id of the first stream. Later ones follow.
pub const STREAM: u64 = 0x5_7e4a;

/// One of the two ends of the connection between the sender and a member.
pub struct End {
    pub connection: Connection,
    pub handler: Oracle,
    pub events: Vec<Event>,
}

impl End {
    fn new(settings: Settings, me: Rank, peer: Rank, id: u64, nodes: u32) -> End {
        let me = Introduction::here(me, nodes, 10, id);
        End {
            connection: Connection::new(settings, me, peer, 1, Time(0)),
            handler: Oracle::default(),
            events: Vec::new(),
        }
    }
}

/// Connections of the sender, for its streams.
pub struct Ends<'w>(pub &'w mut Vec<End>);

impl Members for Ends<'_> {
    fn connection(&mut self, rank: Rank) -> Option<&mut Connection> {
        self.0.get_mut(rank as usize - 1).map(|end| &mut end.connection)
    }
}

pub struct Group {
    /// Ends of the sender, one for each member.
    pub sender: Vec<End>,
    /// Ends of the members.
    pub members: Vec<End>,
    pub stream: GroupStream,
    /// Datagrams of the connections.
    pub unicast: Channel,
    /// Group datagrams on their way to each member.
    pub multicast: Vec<Channel>,
    /// Chance that a group datagram is lost on its way to all members.
    pub uplink_loss: f64,
    random: Random,
    /// Members that stand still and receive nothing.
    pub stopped: Vec<bool>,
    pub now: Time,
    /// Turns of the sender.
    pub turns: u64,
    /// Bytes of bulk that the sender sent by connections.
    pub unicast_bulk: u64,
    /// Group datagrams that were sent, with tags.
    pub sent: Vec<Vec<u8>>,
    /// Whether the link has no room for group datagrams.
    pub groups_wait: bool,
    /// Whether to keep all group datagrams in `sent`.
    pub records: bool,
    /// Tokens and numbers of messages that must arrive, by rank.
    pub posted: BTreeMap<Rank, Vec<(u64, u64)>>,
    /// Number of the next message to each member, and the one after the last that was forged.
    pub numbers: Vec<(u64, u64)>,
    scratch: Vec<u8>,
}

impl Group {
    /// Creates a world in which all connections are established, and no member follows the stream.
    pub fn new(count: usize, settings: Settings, faults: Faults, seed: u64) -> Group {
        Group::with(count, |_| settings, faults, seed)
    }

    /// Like [`Group::new`], with settings for each rank.
    pub fn with(
        count: usize,
        settings: impl Fn(Rank) -> Settings,
        faults: Faults,
        seed: u64,
    ) -> Group {
        let mut random = Random::new(seed);
        let mut id = || random.next_u64() | 1;
        let nodes = count as u32 + 1;
        let ranks = 1..nodes;
        let sender =
            ranks.clone().map(|rank| End::new(settings(0), 0, rank, id(), nodes)).collect();
        let members =
            ranks.clone().map(|rank| End::new(settings(rank), rank, 0, id(), nodes)).collect();
        let ranks: Vec<Rank> = ranks.collect();
        let mut group = Group {
            sender,
            members,
            stream: GroupStream::new(STREAM, &ranks, SealKind::EndToEnd),
            unicast: Channel::new(Faults { corrupt: 0.0, ..faults }, seed),
            multicast: ranks
                .iter()
                .map(|rank| Channel::new(faults, seed * 100 + u64::from(*rank)))
                .collect(),
            uplink_loss: 0.0,
            random: Random::new(seed + 1),
            stopped: vec![false; count],
            now: Time(0),
            turns: 0,
            unicast_bulk: 0,
            sent: Vec::new(),
            groups_wait: false,
            records: false,
            posted: BTreeMap::new(),
            numbers: vec![(0, 0); count],
            scratch: Vec::new(),
        };
        let now = group.now;
        group.sender.iter_mut().for_each(|end| end.connection.connect(now));
        group.run(|group| {
            let ends = || group.sender.iter().chain(&group.members);
            ends().all(|end| end.connection.is_established())
        });
        group
    }

    /// Creates a world in which all members are proven.
    pub fn proven(count: usize, settings: Settings, faults: Faults, seed: u64) -> Group {
        let mut group = Group::new(count, settings, faults, seed);
        group.join_all();
        group.run(|group| group.states().iter().all(|state| *state == MemberState::Proven));
        group
    }

    pub fn join_all(&mut self) {
        (1..=self.members.len() as Rank).for_each(|rank| self.join(rank));
    }

    /// Lets a member follow the stream.
    pub fn join(&mut self, rank: Rank) {
        let id = self.stream.id();
        assert!(self.members[rank as usize - 1].connection.follow_stream(id));
        self.stream.joined(rank, self.now, &mut Ends(&mut self.sender));
    }

    pub fn states(&self) -> Vec<MemberState> {
        self.stream.members().map(|(_, state)| state).collect()
    }

    /// Posts a message to these ranks, and remembers that it must arrive.
    pub fn post(&mut self, message: &Message, to: &[Rank]) -> Vec<(Rank, u64)> {
        let token = message.token;
        let to: Vec<(Rank, Token)> = to.iter().map(|rank| (*rank, token)).collect();
        let mut numbers = Vec::new();
        let ends = &mut Ends(&mut self.sender);
        self.stream.post(self.now, message.clone(), &to, ends, |rank, number| {
            numbers.push((rank, number.unwrap()));
        });
        assert_eq!(numbers.len(), to.len());
        for (rank, number) in &numbers {
            self.numbers[*rank as usize - 1].0 = *number + 1;
            self.posted.entry(*rank).or_default().push((token.0, *number));
        }
        numbers
    }

    /// Posts a message to one member by its connection.
    pub fn post_alone(&mut self, message: Message, to: Rank) {
        let token = message.token.0;
        let number = self.sender[to as usize - 1].connection.post(self.now, message).unwrap();
        self.numbers[to as usize - 1].0 = number + 1;
        self.posted.entry(to).or_default().push((token, number));
    }

    /// Posts messages until none that was forged is ahead of all genuine ones.
    pub fn pad_forged(&mut self) {
        for rank in 1..=self.members.len() as Rank {
            let (mut next, forged) = self.numbers[rank as usize - 1];
            while next < forged {
                self.post_alone(message(Class::Ordered, 2000 + next, 10), rank);
                next += 1;
            }
        }
    }

    /// Cancels a message to one member, which may have arrived or not.
    pub fn cancel(&mut self, token: u64, to: Rank) {
        let end = &mut self.sender[to as usize - 1];
        end.connection.cancel(Token(token));
        // A message that is settled already is not cancelled.
        let is_settled = end.events.iter().filter_map(settled).any(|id| id == token);
        if !is_settled && let Some(posted) = self.posted.get_mut(&to) {
            posted.retain(|(id, _)| *id != token);
        }
    }

    fn seal(bytes: &mut Vec<u8>, payload: Option<Segment>, kind: SealKind) {
        if let Some(segment) = payload {
            bytes.extend(body(u64::from(segment.region), segment.offset, segment.len));
        }
        let seal = TestSeal(kind);
        let mut tag = vec![0; seal.len()];
        seal.tag(&[bytes], &mut tag);
        bytes.extend(tag);
    }

    fn emit(&mut self, at: usize, to_member: bool, lane: Lane) {
        let now = self.now;
        for _ in 0..10_000 {
            let ends = if to_member { &mut self.sender } else { &mut self.members };
            let connection = &mut ends[at].connection;
            let due = connection.lane_has_due(lane, now);
            self.scratch.clear();
            let transmit = connection.transmit_by(lane, now, &mut self.scratch);
            assert_eq!(due, transmit.is_some(), "has_due is exact");
            let Some(transmit) = transmit else { return };
            let kind = if transmit.handshake { SealKind::Handshake } else { SealKind::EndToEnd };
            let mut bytes = self.scratch.clone();
            Group::seal(&mut bytes, transmit.payload, kind);
            assert!(View::parse(&bytes).unwrap().frames().all(|frame| frame.is_ok()));
            if to_member && lane == Lane::Bulk {
                self.unicast_bulk += bytes.len() as u64;
            }
            let to = if to_member { at } else { at + self.members.len() };
            self.unicast.send(now, Arrival { to, path: 0, flow: 0, bytes });
        }
        panic!("transmit does not come to an end");
    }

    fn emit_group(&mut self) {
        for _ in 0..10_000 {
            let due = self.stream.has_due(self.now, &mut Ends(&mut self.sender));
            self.scratch.clear();
            let ends = &mut Ends(&mut self.sender);
            let transmit = self.stream.transmit(self.now, ends, &mut self.scratch);
            assert_eq!(due, transmit.is_some(), "has_due is exact");
            let Some(GroupTransmit { payload, members, bytes: len, .. }) = transmit else {
                assert!(self.scratch.is_empty());
                return;
            };
            let mut bytes = self.scratch.clone();
            Group::seal(&mut bytes, payload, SealKind::EndToEnd);
            assert_eq!(bytes.len(), len);
            self.check_datagram(&bytes, members);
            let lost = self.random.chance(self.uplink_loss);
            for (to, channel) in self.multicast.iter_mut().enumerate().filter(|_| !lost) {
                channel.send(self.now, Arrival { to, path: 0, flow: 0, bytes: bytes.clone() });
            }
            if self.records {
                self.sent.push(bytes);
            }
        }
        panic!("the stream does not come to an end");
    }

    /// WIND-12.2, WIND-12.4, WIRE-4.12: a group datagram stands alone, and fits every path.
    fn check_datagram(&mut self, bytes: &[u8], members: u32) {
        let view = View::parse(bytes).unwrap();
        assert_eq!(view.header().connection, self.stream.id());
        assert_eq!(view.header().number, self.stream.statistics().datagrams_sent);
        assert_eq!(view.header().lane(), Lane::Bulk);
        let frames: Vec<Frame<'_>> = view.frames().map(|frame| frame.unwrap()).collect();
        let groups = frames.iter().filter(|frame| matches!(frame, Frame::Group(_))).count();
        assert_eq!(groups, 1);
        for (index, end) in self.sender.iter().enumerate() {
            if members >> index & 1 == 1 {
                assert!(bytes.len() <= end.connection.snapshot().datagram_max);
            }
        }
    }

    fn arrive(&mut self, Arrival { to, path, bytes, .. }: &Arrival) {
        let count = self.members.len();
        if self.stopped[to % count] {
            return;
        }
        let view = View::parse(bytes).unwrap();
        let tag = TestSeal(view.header().seal);
        assert!(tag.verify(view.covered(), view.payload(), view.tag()));
        let end = if *to < count { &mut self.members[*to] } else { &mut self.sender[*to - count] };
        end.connection.receive_ahead(self.now, &view, *path, &mut end.handler);
    }

    fn arrive_group(&mut self, Arrival { to, bytes, .. }: &Arrival) {
        if self.stopped[*to] {
            return;
        }
        let Ok(view) = View::parse(bytes) else { return };
        let tag = TestSeal(view.header().seal);
        if tag.verify(view.covered(), view.payload(), view.tag()) {
            self.give(*to as Rank + 1, &view);
        }
    }

    /// Gives a group datagram to a member, as its engine does.
    pub fn give(&mut self, rank: Rank, view: &View<'_>) {
        let end = &mut self.members[rank as usize - 1];
        let member = rank as u8 - 1;
        if end.connection.follows_stream(view.header().connection) {
            end.connection.receive_group(self.now, view, member, &mut end.handler);
        }
    }

    /// Runs one turn of all nodes, then advances to the next time at which something happens.
    pub fn step(&mut self) {
        let now = self.now;
        while let Some(arrival) = self.unicast.take(now) {
            self.arrive(&arrival);
        }
        for at in 0..self.multicast.len() {
            while let Some(arrival) = self.multicast[at].take(now) {
                self.arrive_group(&arrival);
            }
        }
        let running = |stopped: &[bool], at: usize| !stopped[at];
        for (at, end) in self.members.iter_mut().enumerate() {
            if running(&self.stopped, at) && is_past(end.connection.next_timeout(), now) {
                end.connection.timeout(now);
            }
        }
        for end in &mut self.sender {
            if is_past(end.connection.next_timeout(), now) {
                end.connection.timeout(now);
            }
        }
        if is_past(self.stream.next_timeout(), now) {
            self.stream.timeout(now, &mut Ends(&mut self.sender));
        }
        self.turns += 1;
        let count = self.members.len();
        for again in [false, true] {
            for end in self.sender.iter_mut().chain(&mut self.members).filter(|_| again) {
                end.connection.process_deferred_ack();
            }
            (0..count).for_each(|at| self.emit(at, true, Lane::Small));
            if !self.groups_wait {
                self.emit_group();
            }
            (0..count).for_each(|at| self.emit(at, true, Lane::Bulk));
            for at in 0..count {
                if running(&self.stopped, at) {
                    self.emit(at, false, Lane::Small);
                    self.emit(at, false, Lane::Bulk);
                }
            }
        }
        for end in self.sender.iter_mut().chain(&mut self.members) {
            while let Some(event) = end.connection.poll_event() {
                end.events.push(event);
            }
        }
        self.drop_lost();
        let stopped = &self.stopped;
        let members = self.members.iter().enumerate().filter(|(at, _)| running(stopped, *at));
        let ends = self.sender.iter().chain(members.map(|(_, end)| end));
        let timers = ends.filter_map(|end| end.connection.next_timeout());
        let arrivals = self.multicast.iter().filter_map(Channel::next);
        let next = timers
            .chain(arrivals)
            .chain(self.unicast.next())
            .chain(self.stream.next_timeout())
            .min();
        let far = now + Duration::from_secs(1);
        self.now = next.unwrap_or(far).min(far).max(Time(now.0 + 1));
    }

    /// Tells the stream of connections that have ended.
    fn drop_lost(&mut self) {
        for at in 0..self.sender.len() {
            let rank = at as Rank + 1;
            let is_over = self.sender[at].connection.is_over();
            let is_known = self.states()[at] == MemberState::Lost;
            if is_over && !is_known {
                self.stream.lost(rank, self.now, &mut Ends(&mut self.sender));
            }
        }
    }

    /// Runs until `done`. A minute of virtual time is too long.
    pub fn run(&mut self, mut done: impl FnMut(&Group) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while !done(self) {
            self.step();
            assert!(
                self.now < end,
                "not done in time; {:?} {:#?} {:#?}",
                self.states(),
                self.stream,
                self.sender.iter().map(|end| *end.connection.statistics()).collect::<Vec<_>>()
            );
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Returns `true` if nothing is under way between living nodes.
    pub fn is_idle(&self) -> bool {
        self.sender.iter().zip(&self.members).zip(&self.stopped).all(
            |((sender, member), stopped)| {
                *stopped || (sender.connection.is_idle() && member.connection.is_idle())
            },
        )
    }

    /// Runs until everything is settled, and checks that each living member got all messages that
    /// were posted to it, each once, and that the sender knows it (WIND-12.1).
    pub fn settle(&mut self) {
        self.run(Group::is_idle);
        for (at, (sender, member)) in self.sender.iter().zip(&self.members).enumerate() {
            if self.stopped[at] {
                continue;
            }
            let posted = self.posted.get(&(at as Rank + 1)).map_or(&[][..], Vec::as_slice);
            let mut settled: Vec<u64> = sender.events.iter().filter_map(settled).collect();
            settled.sort_unstable();
            let mut expected: Vec<u64> = posted.iter().map(|(id, _)| *id).collect();
            expected.sort_unstable();
            assert_eq!(settled, expected, "settled at the sender for member {at}");
            let Oracle { delivered, refused, withdrawn, is_deceived, .. } = &member.handler;
            let is_done = |number| {
                let is_given_up = *is_deceived && withdrawn.contains(number);
                delivered.contains(number) || refused.contains(number) || is_given_up
            };
            let missing = posted.iter().find(|(_, number)| !is_done(number));
            assert_eq!(missing, None, "not delivered to member {at}");
        }
    }
}

/// Returns the token of the message that an event settles.
fn settled(event: &Event) -> Option<u64> {
    match event {
        Event::Acknowledged(Token(id)) | Event::Refused(Token(id), _) => Some(*id),
        _ => None,
    }
}

fn is_past(at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| at <= now)
}
