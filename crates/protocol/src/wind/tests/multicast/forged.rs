//! Group datagrams that a member forges in the sender's name: they may spoil messages, and neither
//! end nor block a connection, nor make its ends differ (WIND-12.11 to WIND-12.13).

use super::delivery::exchange_beside;
use super::world::{Group, STREAM};
use crate::Rank;
use crate::random::Random;
use crate::wind::multicast::MemberState;
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::{Words, body, message};
use crate::wind::*;
use crate::wire::{Builder, Flags, Fragment, Open, SealKind, View};
use std::vec::Vec;

const ALL: [Rank; 3] = [1, 2, 3];

/// A datagram number that the stream does not reach.
const UNUSED: u64 = 1 << 20;

/// Part of a message as a member forges it.
#[derive(Clone, Copy, Debug)]
pub struct Forged {
    pub class: Class,
    pub words: Words,
    pub credited: bool,
    /// Length of the body that the beginning tells, or `None` if there is no beginning.
    pub len: Option<u64>,
    /// Offset and number of bytes.
    pub offset: u64,
    pub count: u64,
}

/// Returns a forged group datagram of this number to the first member, with a part of the message
/// that has this number in the connection.
pub fn datagram(stream: u64, number: u64, message: u32, member: u8, forged: Forged) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, stream, number, SealKind::EndToEnd, 1232);
    builder.flag(Flags::BULK_LANE);
    let Forged { class, words, credited, len, offset, count } = forged;
    builder.fragment(Fragment { message_low: 0, offset }, count as u16);
    builder.group(1 << member, [message].into_iter());
    let head = words.head(0);
    if let Some(len) = len {
        builder.open(&Open { number: 0, class, credited, head: &head, len });
    }
    builder.finish(Some(&body(words.id, offset, count)));
    bytes.extend([0; 4]);
    bytes
}

/// Beginnings that contradict those of the genuine messages below, without their whole bodies.
fn beginnings() -> impl Iterator<Item = Forged> {
    let begin = |class, place, len| {
        let words = Words { id: 300, refuse: false, place };
        Forged { class, words, credited: false, len: Some(len), offset: 0, count: 100 }
    };
    [
        begin(Class::Ordered, false, 200),
        begin(Class::Ordered, false, 1 << 20),
        begin(Class::Unordered, false, 60_000),
        begin(Class::Unordered, true, 60_000),
    ]
    .into_iter()
}

fn forge(group: &mut Group, message: u32, forged: Forged) {
    let number = UNUSED + 64 * u64::from(message) + forged.offset / 100;
    let bytes = datagram(STREAM, number, message, 0, forged);
    group.give(1, &View::parse(&bytes).unwrap());
}

/// Returns the credit of the connection to the first member, as the sender sees it.
fn credit(group: &Group) -> u64 {
    group.sender[0].connection.snapshot().credit
}

/// WIND-12.12: what the connection says of a message replaces what group datagrams have said.
#[test]
fn forged_beginning_gives_way_to_the_connection() {
    for forged in beginnings() {
        let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
        let lens = [10, 5000, 60_000, 60_000, 60_000, 10];
        // Some of them are out of order: a later message is forged before an earlier one comes.
        (0..lens.len() as u32).for_each(|number| forge(&mut group, number, forged));
        for (id, len) in (0..).zip(lens) {
            let genuine = message(Class::Ordered, id, len);
            match id {
                0..3 => group.post_alone(genuine, 1),
                _ => assert!(group.post(&genuine, &ALL).contains(&(1, id))),
            }
        }
        group.cancel(4, 1);
        group.settle();
        let delivered: Vec<u64> = group.members[0].handler.order.clone();
        assert_eq!(delivered, [0, 1, 2, 3, 5], "{forged:?}");
        assert!(group.sender.iter().all(|end| end.connection.is_established()));
    }
}

/// WIND-12.12: bytes of the connection replace those that a member forged.
#[test]
fn forged_bytes_give_way_to_the_connection() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
    let words = Words { id: 3, refuse: false, place: false };
    // The beginning is that of the genuine message, and the bytes are others.
    let class = Class::Ordered;
    let begin = Forged { class, words, credited: false, len: Some(5000), offset: 100, count: 100 };
    forge(&mut group, 1, begin);
    let other = Words { id: 9, ..words };
    forge(&mut group, 1, Forged { words: other, len: None, offset: 1000, count: 1000, ..begin });
    group.post_alone(message(Class::Ordered, 0, 70_000), 1);
    group.post_alone(message(Class::Ordered, 3, 5000), 1);
    // The handler checks each byte.
    group.settle();
    assert_eq!(group.members[0].handler.order, [0, 1]);
}

/// Returns a forged message of 100 bytes that one datagram brings.
fn whole(class: Class, words: Words) -> Forged {
    Forged { class, words, credited: false, len: Some(100), offset: 0, count: 100 }
}

/// Ways in which a member can harm another one, each with what must hold all the same.
#[cfg(feature = "planted-bugs")]
pub const FORGERIES: [fn(); 6] = [
    message_of_another_kind_is_dropped,
    message_forged_as_a_whole_gives_way,
    forged_message_causes_no_refusal,
    forged_beginnings_leave_room,
    forged_datagram_numbers_block_no_connection,
    forged_far_numbers_leave_the_member_proven,
];

/// WIND-12.13: a message that no sender shares does not come by group datagrams, nor do bytes of
/// one that the connection has begun.
#[test]
fn message_of_another_kind_is_dropped() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
    group.members[0].handler.unshared.extend([0, 900]);
    let words = |id| Words { id, refuse: false, place: false };
    let malformed = |group: &Group| group.members[0].connection.statistics().malformed;
    let before = malformed(&group);
    for class in Class::ALL {
        forge(&mut group, 0, whole(class, words(900)));
    }
    assert_eq!(malformed(&group), before + 3);
    assert!(group.members[0].handler.order.is_empty());
    group.post_alone(message(Class::Ordered, 0, 2_000_000), 1);
    (0..3).for_each(|_| group.step());
    assert!(group.members[0].handler.order.is_empty(), "it is under way");
    let other = Forged { len: None, offset: 1_900_000, ..whole(Class::Ordered, words(7)) };
    forge(&mut group, 0, other);
    assert_eq!(malformed(&group), before + 4);
    group.settle();
    assert_eq!(group.members[0].handler.ids, [0]);
}

/// WIND-12.12: the message that the sender has posted is delivered, also if another one was forged
/// as a whole in its place.
#[test]
fn message_forged_as_a_whole_gives_way() {
    for class in Class::ALL {
        for is_shared in [false, true] {
            let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
            let words = Words { id: 301, refuse: false, place: class == Class::Unordered };
            // The last one is forged before its turn.
            for number in [0, 1, 3] {
                forge(&mut group, number, whole(class, words));
            }
            for (id, len) in [(4, 10), (5, 6000), (6, 10), (7, 6000), (8, 10)] {
                match is_shared && len > 10 {
                    true => drop(group.post(&message(class, id, len), &ALL)),
                    false => group.post_alone(message(class, id, len), 1),
                }
            }
            group.settle();
            let mut genuine = group.members[0].handler.ids.clone();
            genuine.retain(|id| *id != 301);
            genuine.sort_unstable();
            assert_eq!(genuine, [4, 5, 6, 7, 8], "{class:?} {is_shared}");
            assert!(group.sender[0].connection.is_established());
        }
    }
}

/// WIND-12.11: what only group datagrams have told causes no refusal, whether the layer above
/// refuses it when it begins, when it is whole, or for lack of room.
#[test]
fn forged_message_causes_no_refusal() {
    let settings = Settings { assembly_max: 1 << 20, ..Settings::default() };
    let mut group = Group::proven(3, settings, Faults::default(), 1);
    let words = |id, refuse| Words { id, refuse, place: false };
    for number in 0..40 {
        let at_once = whole(Class::Unordered, words(700, true));
        let when_whole = whole(Class::Unordered, words(701, true));
        let long = Forged { len: Some(2 << 20), ..whole(Class::Unordered, words(702, false)) };
        forge(&mut group, 3 * number, at_once);
        forge(&mut group, 3 * number + 1, when_whole);
        forge(&mut group, 3 * number + 2, long);
    }
    for id in 0..120 {
        group.post_alone(message(Class::Ordered, id, 10), 1);
    }
    group.settle();
    assert_eq!(group.members[0].connection.statistics().refusals_sent, 0);
    let mut genuine = group.members[0].handler.ids.clone();
    genuine.retain(|id| *id < 700);
    assert_eq!(genuine, (0..120).collect::<Vec<u64>>());
}

/// WIND-12.11, WIND-6.5: forged beginnings leave half of the room to the connection.
#[test]
fn forged_beginnings_leave_room() {
    let settings = Settings { held_max: 200_000, ..Settings::default() };
    let mut group = Group::proven(3, settings, Faults::default(), 1);
    let words = Words { id: 302, refuse: false, place: false };
    for number in 10..20 {
        let long = Forged { len: Some(60_000), ..whole(Class::Ordered, words) };
        forge(&mut group, number, long);
    }
    let held = group.members[0].connection.snapshot().held;
    assert!((60_000..=100_000).contains(&held), "{held} bytes");
    (0..25).for_each(|id| group.post_alone(message(Class::Ordered, id, 10), 1));
    group.settle();
    assert_eq!(group.members[0].connection.snapshot().held, 0);
}

/// WIND-12.13, WIND-6.3: a message that was forged as a whole costs what the sender was charged for
/// the genuine one, whether that is delivered, refused or withdrawn.
#[test]
fn forged_messages_take_no_credit_from_the_connection() {
    for (refuse, is_lost, is_cancelled) in
        [(false, false, false), (true, false, false), (true, true, false), (false, false, true)]
    {
        for len in [10, 5000] {
            let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
            let before = credit(&group);
            let words = Words { id: 301, refuse, place: false };
            let whole = whole(Class::Ordered, words);
            group.members[0].handler.credited.insert(0);
            let genuine = Message { charge: Charge::Body, ..message(Class::Ordered, 5, len) };
            if is_lost {
                group.post_alone(genuine, 1);
                group.unicast.faults.loss = 1.0;
                group.step();
                group.unicast.faults.loss = 0.0;
                forge(&mut group, 0, whole);
            } else {
                forge(&mut group, 0, whole);
                (0..20).for_each(|_| group.step());
                group.post_alone(genuine, 1);
            }
            if is_cancelled {
                group.cancel(5, 1);
            }
            group.run(Group::is_idle);
            let end = &mut group.members[0];
            for len in core::mem::take(&mut end.handler.unread) {
                // The forged message costs nothing.
                let read = if len == 100 { (0, 0) } else { (1, len) };
                end.connection.consumed(read.0, read.1);
            }
            // A message after it brings the latest grant.
            group.post_alone(message(Class::Sync, 6, 10), 1);
            group.run(Group::is_idle);
            assert_eq!(credit(&group), before, "{refuse} {is_lost} {is_cancelled} {len}");
        }
    }
}

/// WIND-12.3, WIND-12.13: a group datagram begins no message that costs credit.
#[test]
fn forged_message_that_costs_credit_is_dropped() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
    let forged = beginnings().next().unwrap();
    let before = group.members[0].connection.statistics().malformed;
    forge(&mut group, 0, Forged { credited: true, ..forged });
    assert_eq!(group.members[0].connection.statistics().malformed, before + 1);
    let genuine = Message { charge: Charge::Body, ..message(Class::Ordered, 5, 60_000) };
    group.post(&genuine, &ALL);
    group.settle();
    assert_eq!(group.stream.statistics().messages, 0, "it goes to each member alone");
}

/// WIND-12.14, WIRE-4.14: a victim that acknowledges what never reaches it gives the message up
/// once the sender has settled it, and everything after it arrives.
#[test]
fn forged_datagram_numbers_block_no_connection() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
    let next = group.stream.statistics().datagrams_sent + 1;
    for at in 0..6 {
        let words = Words { id: 700 + at, refuse: false, place: false };
        let (class, count) = (Class::Unordered, 100);
        let forged = Forged { class, words, credited: false, len: Some(100), offset: 0, count };
        let bytes = datagram(STREAM, next + at, 3000 + at as u32, 0, forged);
        group.give(1, &View::parse(&bytes).unwrap());
    }
    for id in 0..4 {
        group.post(&message(Class::Ordered, id, 30_000), &ALL);
    }
    // No other datagram goes to the victim, until the sender asks for a sign of life.
    let begun = group.now;
    group.run(|group| group.members.iter().all(|end| end.handler.delivered.contains(&3)));
    let limit = Settings::default().keepalive();
    assert!(group.now - begun < limit, "{:?} of {limit:?}", group.now - begun);
    assert!(group.members[0].handler.withdrawn.contains(&0), "its bytes never came");
    assert!(group.members[1..].iter().all(|end| end.handler.withdrawn.is_empty()));
    group.run(|group| group.sender.iter().all(|end| end.connection.is_idle()));
    assert!(group.sender.iter().all(|end| end.connection.is_established()));
}

/// WIND-12.5, WIND-12.11: numbers far ahead of those of the sender, forged in a probe or with a
/// message, do not keep the victim from acknowledging the sender's.
#[test]
fn forged_far_numbers_leave_the_member_proven() {
    let probe = |number| {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, STREAM, number, SealKind::EndToEnd, 1232);
        builder.flag(Flags::BULK_LANE);
        builder.group(1, core::iter::empty());
        builder.ping();
        builder.finish(None);
        bytes.extend([0; 4]);
        bytes
    };
    let words = Words { id: 303, refuse: false, place: false };
    let part = |number| datagram(STREAM, number, 40, 0, whole(Class::Unordered, words));
    let forged: [Vec<Vec<u8>>; 4] = [
        [probe(1 << 50)].into(),
        [part(UNUSED)].into(),
        (0..40).map(|at| probe((1 << 40) + 2 * at)).collect(),
        (0..40).map(|at| part(UNUSED + 2 * at)).collect(),
    ];
    for all in &forged {
        let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
        for bytes in all {
            group.give(1, &View::parse(bytes).unwrap());
        }
        let before = group.unicast_bulk;
        for id in 1..40 {
            group.post(&message(Class::Ordered, id, 60_000), &ALL);
            (0..3).for_each(|_| group.step());
        }
        group.run(|group| group.sender.iter().all(|end| end.connection.is_idle()));
        assert_eq!(group.states(), [MemberState::Proven; 3]);
        assert_eq!(group.stream.statistics().members_left_out, 0);
        assert!(group.unicast_bulk - before < 60_000, "{}", group.unicast_bulk - before);
    }
}

/// Gives a random forged datagram to a random member.
fn forge_any(group: &mut Group, random: &mut Random) {
    let at = random.below(group.members.len());
    group.members[at].handler.is_deceived = true;
    let words = Words {
        id: 1000 + random.below(500) as u64,
        refuse: random.below(8) == 0,
        place: random.below(3) == 0,
    };
    let class = Class::ALL[random.below(3)];
    let words = Words { place: words.place && class == Class::Unordered, ..words };
    let len = [100, 5000, 60_000, 1 << 20][random.below(4)];
    let offset = [0, 100, 3000][random.below(3)].min(len - 100);
    let len = (random.below(3) > 0).then_some(len);
    let (credited, count) = (random.below(10) == 0, 100);
    let forged = Forged { class, words, credited, len, offset, count };
    // Messages that are under way, or come soon, by datagrams that do, or never come.
    let (next, last) = &mut group.numbers[at];
    let message = next.saturating_sub(random.below(4) as u64) + random.below(8) as u64;
    *last = (*last).max(message + 1);
    let soon = group.stream.statistics().datagrams_sent + 1 + random.below(60) as u64;
    let number = if random.below(8) == 0 { UNUSED + soon } else { soon };
    let bytes = datagram(STREAM, number, message as u32, at as u8, forged);
    if !group.stopped[at] {
        group.give(at as Rank + 1, &View::parse(&bytes).unwrap());
    }
}

/// Exchanges random messages while members forge datagrams.
fn exchange_among_forgers(seed: u64) {
    let mut random = Random::new(seed + 77);
    let few = 1 + random.below(6);
    exchange_beside(seed, |group, _| {
        if random.below(few) == 0 {
            (0..1 + random.below(4)).for_each(|_| forge_any(group, &mut random));
        }
    });
}

/// WIND-12.11: whatever members forge, all messages are settled, and every connection stays as
/// usable as it was.
#[test]
fn random_messages_among_forgers_are_settled() {
    (0..60).for_each(exchange_among_forgers);
}

/// Like the test above, with many seeds.
#[test]
#[ignore = "takes minutes: run by hand"]
fn random_messages_among_forgers_for_long() {
    (60..3000).for_each(exchange_among_forgers);
}
