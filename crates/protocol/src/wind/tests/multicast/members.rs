//! Members that come, go, lose and stand still.

use super::world::{Ends, Group};
use crate::Rank;
use crate::limits::{GROUP_RETRY_MIN, GROUP_STREAMS_MAX, NUMBERS_AHEAD_MAX};
use crate::wind::multicast::{GroupStream, MemberState, Members};
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::message;
use crate::wind::*;
use crate::wire::SealKind;
use core::time::Duration;
use std::vec::Vec;

const ALL: [Rank; 4] = [1, 2, 3, 4];

fn proven(seed: u64) -> Group {
    Group::proven(4, Settings::default(), Faults::default(), seed)
}

/// WIND-12.8: a member that no group datagram reaches is not proven, and gets its messages alone.
#[test]
fn unreached_member_is_not_proven() {
    let mut group = Group::new(4, Settings::default(), Faults::default(), 1);
    group.multicast[3].faults.loss = 1.0;
    group.join_all();
    group.post(&message(Class::Ordered, 1, 100_000), &ALL);
    group.run(|group| group.states()[3] == MemberState::Out);
    assert_eq!(group.states()[..3], [MemberState::Proven; 3]);
    group.post(&message(Class::Ordered, 2, 100_000), &ALL);
    group.settle();
    // It is tried again, with longer and longer pauses.
    let before = group.stream.statistics().datagrams_sent;
    group.run_for(GROUP_RETRY_MIN * 8);
    let probes = group.stream.statistics().datagrams_sent - before;
    assert!((6..=12).contains(&probes), "{probes}");
    group.multicast[3].faults.loss = 0.0;
    group.run(|group| group.states()[3] == MemberState::Proven);
}

/// WIND-12.9: a member whose datagrams all get lost is left out soon, and the others do not wait.
#[test]
fn member_that_never_acknowledges_is_left_out() {
    let mut group = proven(3);
    group.multicast[1].faults.loss = 1.0;
    for id in 1..20 {
        group.post(&message(Class::Ordered, id, 200_000), &ALL);
    }
    let began = group.now;
    let others =
        |group: &Group| [0, 2, 3].iter().all(|at| group.members[*at].handler.delivered.len() == 19);
    group.run(others);
    assert_eq!(group.states()[1], MemberState::Out);
    assert!(group.now - began < Duration::from_millis(200), "{:?}", group.now - began);
    group.settle();
}

/// WIND-12.6, WIND-12.9: a member with some loss does not hold the others up for long, either if
/// there is little to send.
#[test]
fn others_keep_going_beside_a_lossy_member() {
    let turns = |loss: f64| {
        let mut group = proven(5);
        group.multicast[1].faults.loss = loss;
        let before = group.turns;
        for id in 1..40 {
            group.post(&message(Class::Ordered, id, 200_000), &ALL);
        }
        let others = |group: &Group| {
            [0, 2, 3].iter().all(|at| group.members[*at].handler.delivered.len() == 39)
        };
        group.run(others);
        let turns = group.turns - before;
        group.settle();
        turns
    };
    let (clean, lossy) = (turns(0.0), turns(0.05));
    assert!(lossy * 8 <= clean * 10, "{clean} turns without loss, {lossy} with it");
}

/// WIND-12.9: the others keep at least 0.8 of their rate beside a member that loses 5 %.
#[test]
fn others_keep_their_rate_beside_a_lossy_member() {
    let run = |loss: f64| {
        let mut group = proven(5);
        group.multicast[1].faults.loss = loss;
        let (turns, began) = (group.turns, group.now);
        for id in 1..200 {
            group.post(&message(Class::Ordered, id, 200_000), &ALL);
        }
        let others = |group: &Group| {
            [0, 2, 3].iter().all(|at| group.members[*at].handler.delivered.len() == 199)
        };
        group.run(others);
        let taken = (group.turns - turns, (group.now - began).as_nanos() as u64);
        group.settle();
        taken
    };
    let (clean, lossy) = (run(0.0), run(0.05));
    assert!(lossy.0 * 8 <= clean.0 * 10, "{clean:?} turns without loss, {lossy:?} with it");
    assert!(lossy.1 * 8 <= clean.1 * 10, "{clean:?} ns without loss, {lossy:?} with it");
}

/// WIND-12.5, WIND-12.7: a GROUP_ACK that is lost at the end of a burst is repeated when the sender
/// asks, and the member is not left out.
#[test]
fn lost_last_group_ack_is_repeated() {
    let mut group = proven(19);
    group.post(&message(Class::Ordered, 1, 8000), &ALL);
    group.unicast.faults.loss = 1.0;
    group.run(|group| group.members.iter().all(|end| end.handler.delivered.len() == 1));
    // The acknowledgements of this turn are lost.
    group.unicast.faults.loss = 0.0;
    group.settle();
    assert_eq!(group.stream.statistics().members_left_out, 0);
    assert_eq!(group.states(), [MemberState::Proven; 4]);
}

/// WIND-12.8: a member that got no number for long learns from a probe where the numbers are.
#[test]
fn member_that_was_left_out_for_long_comes_back() {
    let mut group = proven(21);
    group.multicast[1].faults.loss = 1.0;
    group.post(&message(Class::Ordered, 1, 100_000), &ALL);
    group.run(|group| group.states()[1] == MemberState::Out);
    group.settle();
    // The others get numbers all the time.
    for id in 2..5 {
        group.stream.skip_to((id - 1) * NUMBERS_AHEAD_MAX);
        group.post(&message(Class::Ordered, id, 5000), &[1, 3, 4]);
        group.settle();
    }
    assert_ne!(group.states()[1], MemberState::Proven);
    group.multicast[1].faults.loss = 0.0;
    group.run(|group| group.states() == [MemberState::Proven; 4]);
    let before = group.unicast_bulk;
    group.post(&message(Class::Ordered, 5, 100_000), &ALL);
    group.settle();
    assert_eq!(group.unicast_bulk, before, "all get it by group datagrams");
}

/// Counts for which members a stream asks.
struct Asked<'w>(Ends<'w>, Vec<Rank>);

impl Members for Asked<'_> {
    fn connection(&mut self, rank: Rank) -> Option<&mut Connection> {
        self.1.push(rank);
        self.0.connection(rank)
    }
}

/// WIND-12.2: a stream with nothing to do looks at no member, and a datagram costs no work for
/// members that it is not addressed to.
#[test]
fn work_is_that_of_the_addressees() {
    let mut group = Group::proven(16, Settings::default(), Faults::default(), 23);
    group.settle();
    group.stream.has_due(group.now, &mut Ends(&mut group.sender));
    let mut asked = Asked(Ends(&mut group.sender), Vec::new());
    assert!(!group.stream.has_due(group.now, &mut asked));
    assert!(asked.1.is_empty(), "nothing is to be done");
    group.post(&message(Class::Ordered, 1, 300_000), &[3, 7]);
    let mut asked = Asked(Ends(&mut group.sender), Vec::new());
    let (mut count, mut bytes) = (0, Vec::new());
    while group.stream.transmit(group.now, &mut asked, &mut bytes).is_some() {
        count += 1;
    }
    assert!(count > 1, "{count}");
    assert!(asked.1.iter().all(|rank| [3, 7].contains(rank)), "{:?}", asked.1);
    assert!(asked.1.len() < 20 * (count + 1), "{} times for {count}", asked.1.len());
}

/// WIND-12.9: a member that stands still is left out, and dies as any peer does.
#[test]
fn dead_member_ends_with_its_connection() {
    let mut group = proven(7);
    group.stopped[2] = true;
    for id in 1..10 {
        group.post(&message(Class::Ordered, id, 400_000), &ALL);
    }
    let others =
        |group: &Group| [0, 1, 3].iter().all(|at| group.members[*at].handler.delivered.len() == 9);
    group.run(others);
    assert!(group.states()[2] == MemberState::Out, "{:?}", group.states());
    group.run(|group| group.states()[2] == MemberState::Lost);
    let failed = |event: &&Event| matches!(event, Event::Failed(..));
    assert_eq!(group.sender[2].events.iter().filter(failed).count(), 9);
    group.post(&message(Class::Ordered, 20, 100_000), &[1, 2, 4]);
    group.settle();
    assert!(group.stream.is_usable() && group.stream.is_open());
}

/// WIND-12.9: a member that stood still for a while and lost its group datagrams gets them alone.
#[test]
fn partitioned_member_catches_up() {
    let mut group = proven(9);
    group.post(&message(Class::Ordered, 1, 2_000_000), &ALL);
    group.step();
    group.stopped[0] = true;
    group.run_for(Duration::from_millis(500));
    group.stopped[0] = false;
    group.post(&message(Class::Ordered, 2, 500_000), &ALL);
    group.settle();
    group.run(|group| group.states()[0] == MemberState::Proven);
}

/// WIND-12.10, WIND-1.6: after a member has restarted, no old number means a new message.
#[test]
fn restarted_member_is_lost_to_the_stream() {
    let mut group = proven(11);
    group.post(&message(Class::Ordered, 1, 4_000_000), &ALL);
    (0..2).for_each(|_| group.step());
    // A new process at the rank of member 2, which knows no stream.
    let me = Introduction::here(2, 5, 11, 0x1234_5671);
    group.members[1].connection = Connection::new(Settings::default(), me, 0, 1, group.now);
    group.members[1].handler = Default::default();
    let now = group.now;
    group.members[1].connection.connect(now);
    let restarted = |event: &Event| matches!(event, Event::Restarted { .. });
    group.run(|group| group.sender[1].events.iter().any(restarted));
    group.posted.clear();
    group.sender.iter_mut().for_each(|end| end.events.clear());
    // It begins with new messages of the same numbers, before the owner has told the stream.
    group.post_alone(message(Class::Ordered, 7, 50_000), 2);
    group.run(|group| group.members[1].handler.delivered.len() == 1);
    assert_eq!(group.states()[1], MemberState::Lost);
    group.run(Group::is_idle);
}

/// WIND-12.10: the rest of everything goes to each member alone when a stream ends.
#[test]
fn ended_stream_leaves_nothing_behind() {
    end_under_way(13);
}

/// Ends a stream while messages are under way.
pub fn end_under_way(seed: u64) {
    let mut group = proven(seed);
    for id in 1..5 {
        group.post(&message(Class::Ordered, id, 1_000_000), &ALL);
    }
    (0..4).for_each(|_| group.step());
    group.stream.end(group.now, &mut Ends(&mut group.sender));
    assert!(!group.stream.is_usable() && !group.stream.is_open());
    assert_eq!(group.stream.next_timeout(), None);
    group.settle();
    assert!(group.unicast_bulk > 1_000_000);
}

/// WIND-12.2: streams do not depend on each other, and a connection follows few.
#[test]
fn connection_follows_few_streams() {
    let mut group = proven(15);
    let connection = &mut group.members[0].connection;
    assert!(connection.follow_stream(group.stream.id()), "it follows already");
    for id in 1..GROUP_STREAMS_MAX as u64 {
        assert!(connection.follow_stream(id));
    }
    assert!(!connection.follow_stream(99));
    connection.leave_stream(1);
    assert!(connection.follow_stream(99) && !connection.follows_stream(1));
}

/// WIND-12.3, WIND-6.5: the windows of all members are full of what they have no room for, so the
/// message that all of it waits for goes to each member alone.
#[test]
fn oldest_message_goes_alone_when_nothing_is_acknowledged() {
    fill_windows_before_the_oldest_message(25);
}

/// Fills the windows of all members before the first group datagram of an earlier message goes.
/// Their timers run out at different times, so that never all windows have room at once.
pub fn fill_windows_before_the_oldest_message(seed: u64) {
    let settings = Settings { held_max: 100_000, ..Settings::default() };
    let mut group = Group::proven(2, settings, Faults::default(), seed);
    group.groups_wait = true;
    group.post(&message(Class::Ordered, 0, 500_000), &[1, 2]);
    for rank in [1, 2] {
        (1..6).for_each(|id| group.post_alone(message(Class::Ordered, id, 200_000), rank));
        group.run_for(Duration::from_millis(1));
    }
    group.groups_wait = false;
    group.settle();
}

/// WIND-12.3: too few members share nothing.
#[test]
fn one_proven_member_gets_its_messages_alone() {
    let mut group = Group::new(3, Settings::default(), Faults::default(), 17);
    group.join(1);
    group.stream.refused(2, group.now, &mut Ends(&mut group.sender));
    group.run(|group| group.states()[0] == MemberState::Proven);
    group.post(&message(Class::Ordered, 1, 50_000), &[1, 2, 3]);
    group.settle();
    assert_eq!(group.stream.statistics().messages, 0);
    assert_eq!(group.states(), [MemberState::Proven, MemberState::Refused, MemberState::Invited]);
    let mut two = GroupStream::new(1, &[1, 2], SealKind::EndToEnd);
    assert!(two.is_usable());
    two.refused(1, group.now, &mut Ends(&mut group.sender));
    assert!(!two.is_usable());
    let states: Vec<_> = two.members().collect();
    assert_eq!(states, [(1, MemberState::Refused), (2, MemberState::Invited)]);
}
