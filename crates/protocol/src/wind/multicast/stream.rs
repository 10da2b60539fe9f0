//! [`GroupStream`]: the sender's state machine of one multicast group.

use super::groups::{GroupFate, MemberNews};
use super::member::{Member, MemberState};
use crate::Rank;
use crate::limits::{DATAGRAM_NUMBER_MAX, GROUP_MEMBERS_MAX, GROUP_RECEIVERS_MIN};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::connection::Connection;
use crate::wire::{FIRST_NUMBER, SealKind};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Access to the connections to the members of a stream.
pub trait Members {
    /// Returns the connection to this rank, if there is one. The stream may change everything about
    /// it that [`Connection::post`] and [`Connection::timeout`] change.
    fn connection(&mut self, rank: Rank) -> Option<&mut Connection>;
}

/// Message whose bytes wait for group datagrams.
#[derive(Debug)]
pub(super) struct SharedMessage {
    /// Offset of the first byte that was not sent.
    pub offset: u64,
    /// Indices of the members that wait for it, in order, and its number in the connection to each.
    pub to: Vec<(u8, u64)>,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStatistics {
    /// Group datagrams sent, probes included.
    pub datagrams_sent: u64,
    /// Bytes of these datagrams.
    pub bytes_sent: u64,
    /// Group datagrams that repaired what several members had lost.
    pub repairs: u64,
    /// Messages that were posted to be shared.
    pub messages: u64,
    /// Times that a member was left out.
    pub members_left_out: u64,
}

/// Sender's state machine of one multicast group (WIND-12). It has no clock.
///
/// # Contract
///
/// In one turn the owner calls, after the connections have received: [`timeout`](Self::timeout) if
/// the time of [`next_timeout`](Self::next_timeout) has come; [`post`](Self::post) as wanted; and
/// [`transmit`](Self::transmit) while it returns a datagram. It calls [`invite`](Self::invite) when
/// it asks the members to follow the stream, and [`end`](Self::end) before it drops the stream.
#[derive(Debug)]
pub struct GroupStream {
    id: u64,
    pub(super) seal: SealKind,
    /// Number of the next group datagram.
    pub(super) next: u64,
    pub(super) members: Vec<Member>,
    pub(super) queue: VecDeque<SharedMessage>,
    /// Latest messages that were sent as a whole, the last one first.
    pub(super) sent: VecDeque<SharedMessage>,
    /// Members with news since the latest look.
    news: MemberNews,
    /// Earliest time at which the state of a member may change by itself.
    pub(super) member_time: Option<Time>,
    /// Members that hold others up, one bit for each index.
    pub(super) holding: u32,
    /// Time for which messages have waited so far.
    busy: Duration,
    /// Time of the latest look at waiting messages, if there were any.
    waited_at: Option<Time>,
    /// Whether members may have lost bytes that can be repaired together.
    pub(super) has_losses: bool,
    /// Time at which a member that has no room now may get some by itself or is left out.
    pub(super) wake: Option<Time>,
    pub(super) statistics: GroupStatistics,
}

impl GroupStream {
    /// Creates a stream to these ranks. The index of a member is its place in the slice. Ranks
    /// after the first [`GROUP_MEMBERS_MAX`] are left out. `seal` is the kind of seal of the job.
    #[must_use]
    pub fn new(id: u64, members: &[Rank], seal: SealKind) -> GroupStream {
        let members = members.iter().take(GROUP_MEMBERS_MAX);
        GroupStream {
            id,
            seal,
            next: FIRST_NUMBER,
            members: members.map(|rank| Member::new(*rank)).collect(),
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            news: MemberNews::default(),
            member_time: None,
            holding: 0,
            busy: Duration::ZERO,
            waited_at: None,
            has_losses: false,
            wake: None,
            statistics: GroupStatistics::default(),
        }
    }

    /// Lets the next datagram have this number.
    #[cfg(test)]
    pub fn skip_to(&mut self, number: u64) {
        self.next = self.next.max(number);
        self.statistics.datagrams_sent = self.next - FIRST_NUMBER;
    }

    /// Returns the id, which the datagrams of the stream name.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the members and their states, in the order of their indices.
    pub fn members(&self) -> impl Iterator<Item = (Rank, MemberState)> + '_ {
        self.members.iter().map(|member| (member.rank, member.state))
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> GroupStatistics {
        self.statistics
    }

    /// Returns `true` if enough members are proven, so that [`post`](Self::post) shares messages.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.members.iter().filter(|member| member.is_proven()).count() >= GROUP_RECEIVERS_MIN
    }

    /// Returns `false` if the stream is not likely to share another message, because multicast does
    /// not reach enough members, too few of them are left, or its numbers are used up.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let hopeful = self.members.iter().filter(|member| member.is_hopeful()).count();
        hopeful >= GROUP_RECEIVERS_MIN && self.next < DATAGRAM_NUMBER_MAX
    }

    /// Returns the index of a member.
    pub(super) fn index_of(&self, rank: Rank) -> Option<u8> {
        let at = self.members.iter().position(|member| member.rank == rank)?;
        u8::try_from(at).ok()
    }

    /// Called when the owner asks the members to follow the stream. They have [`GROUP_JOIN_TIME`]
    /// to answer.
    ///
    /// [`GROUP_JOIN_TIME`]: crate::limits::GROUP_JOIN_TIME
    pub fn invite(&mut self, now: Time) {
        self.members.iter_mut().for_each(|member| member.invited(now));
        self.note_member_times();
    }

    /// Called when a member follows the stream. Probes show whether multicast reaches it.
    pub fn joined(&mut self, rank: Rank, now: Time, members: &mut impl Members) {
        let (id, next) = (self.id, self.next);
        let Some(index) = self.index_of(rank) else { return };
        let Some(member) = self.members.get_mut(usize::from(index)) else { return };
        if member.state != MemberState::Invited {
            return;
        }
        let connection = members.connection(rank);
        let news = self.news.clone();
        match connection.map(|connection| connection.join_group(id, index, news)) {
            Some(true) => member.joined(next, now),
            _ => member.state = MemberState::Lost,
        }
        self.note_member_times();
    }

    /// Finds the time at which the state of a member may change by itself, after one has changed.
    pub(super) fn note_member_times(&mut self) {
        self.member_time = self.members.iter().filter_map(Member::next_timeout).min();
    }

    /// Called when a member does not follow the stream, or no longer does. It gets its messages
    /// alone.
    pub fn refused(&mut self, rank: Rank, now: Time, members: &mut impl Members) {
        self.part_with(rank, MemberState::Refused, now, members);
    }

    /// Called when the connection to a member has ended, or the member is a new process
    /// (WIND-12.10).
    pub fn lost(&mut self, rank: Rank, now: Time, members: &mut impl Members) {
        self.part_with(rank, MemberState::Lost, now, members);
    }

    fn part_with(&mut self, rank: Rank, state: MemberState, now: Time, members: &mut impl Members) {
        let Some(index) = self.index_of(rank) else { return };
        self.unshare(index, members);
        if let Some(member) = self.members.get_mut(usize::from(index)) {
            member.state = state;
        }
        self.note_member_times();
        if let Some(connection) = members.connection(rank) {
            connection.leave_group(now, self.id);
        }
    }

    /// Ends the stream. What waits for group datagrams, and what is in flight, goes to each member
    /// alone (WIND-12.10).
    pub fn end(&mut self, now: Time, members: &mut impl Members) {
        for (rank, state) in self.members().collect::<Vec<_>>() {
            let state = if state == MemberState::Lost { state } else { MemberState::Refused };
            self.part_with(rank, state, now, members);
        }
    }

    /// Returns when the owner has to call [`timeout`](Self::timeout) at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.member_time.into_iter().chain(self.wake).min()
    }

    /// Acts on timers. Calling it early is harmless.
    pub fn timeout(&mut self, now: Time, members: &mut impl Members) {
        self.has_due(now, members);
    }

    /// Learns what has become of the members since the last call. Looks at those with news, and at
    /// those whose time has come.
    pub(super) fn review(&mut self, now: Time, members: &mut impl Members) {
        let is_time = self.member_time.is_some_and(|at| at <= now);
        if !is_time && !self.news.is_any() {
            return;
        }
        let news = self.news.take();
        for index in 0..self.members.len() {
            let Some(member) = self.members.get_mut(index) else { break };
            let is_due = is_time && member.next_timeout().is_some_and(|at| at <= now);
            let has_news = news >> index & 1 == 1;
            if !(is_due || has_news) || !member.is_possible() || member.is_awaited(now) {
                continue;
            }
            let connection = members.connection(member.rank);
            let fate: Option<GroupFate> =
                connection.and_then(|connection| connection.group_fate(self.id));
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            match fate {
                // The connection has ended, and its messages with it.
                None => {
                    member.state = MemberState::Lost;
                    self.forget(index);
                }
                Some(fate) => {
                    self.has_losses |= member.has_lost_more(fate);
                    if member.learn(fate, self.next, now, self.busy) {
                        self.leave_out(index, now, members);
                    }
                }
            }
        }
        self.note_member_times();
    }

    /// Counts the time for which messages wait.
    pub(super) fn count_busy(&mut self, now: Time) {
        let is_waiting = !self.queue.is_empty();
        if let Some(at) = core::mem::replace(&mut self.waited_at, is_waiting.then_some(now)) {
            self.busy += now - at;
        }
    }

    /// Leaves a member out for a while.
    pub(super) fn leave_out(&mut self, index: u8, now: Time, members: &mut impl Members) {
        if planted(Bug::ForgetLeftOut) {
            self.forget(index);
        }
        self.unshare(index, members);
        if let Some(member) = self.members.get_mut(usize::from(index)) {
            member.leave_out(now);
            self.statistics.members_left_out += 1;
        }
        self.note_member_times();
    }

    /// Lets everything that waits for group datagrams go to this member alone.
    fn unshare(&mut self, index: u8, members: &mut impl Members) {
        let Some(rank) = self.members.get(usize::from(index)).map(|member| member.rank) else {
            return;
        };
        if let Some(connection) = members.connection(rank) {
            for message in &self.queue {
                let number = message.to.iter().find(|(to, _)| *to == index).map(|to| to.1);
                // After a restart, the number may belong to another message.
                if let Some(number) = number.filter(|_| connection.group_fate(self.id).is_some()) {
                    connection.unshare(number);
                }
            }
        }
        self.forget(index);
    }

    /// Forgets that this member waits for anything.
    fn forget(&mut self, index: u8) {
        self.queue.iter_mut().for_each(|message| message.to.retain(|(to, _)| *to != index));
    }
}
