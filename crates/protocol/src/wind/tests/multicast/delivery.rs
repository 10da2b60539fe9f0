//! Delivery by multicast: exactly once, in order, with the right bytes, whatever the channels do.

use super::world::{Ends, Group};
use crate::Rank;
use crate::random::Random;
use crate::wind::multicast::MemberState;
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::{Words, body, message};
use crate::wind::*;
use core::time::Duration;
use std::vec::Vec;

/// WIND-12.3, WIND-12.4: without loss, the bytes go once.
#[test]
fn mebibyte_to_seven_members_goes_once() {
    let mut group = Group::proven(7, Settings::default(), Faults::default(), 1);
    let before = group.stream.statistics().bytes_sent;
    let all: Vec<Rank> = (1..=7).collect();
    group.post(&message(Class::Ordered, 3, 1 << 20), &all);
    group.settle();
    let sent = group.stream.statistics().bytes_sent - before;
    assert!(sent < (1 << 20) * 11 / 10, "{sent}");
    assert_eq!(group.unicast_bulk, 0, "nothing goes to a member alone");
    assert!(group.members.iter().all(|end| end.handler.delivered.len() == 1));
}

/// Exchanges random messages with random members over bad channels.
pub fn exchange(seed: u64) {
    exchange_beside(seed, |_, _| {});
}

/// Like [`exchange`], and calls `forge` between the messages.
pub fn exchange_beside(seed: u64, mut forge: impl FnMut(&mut Group, &mut Random)) {
    let mut random = Random::new(seed);
    let count = 2 + random.below(6);
    let rate = |random: &mut Random, most: usize| random.below(most + 1) as f64 / 100.0;
    let faults = Faults {
        loss: rate(&mut random, 5),
        duplicate: rate(&mut random, 20),
        reorder: rate(&mut random, 20),
        corrupt: 0.0,
    };
    let settings = Settings { private_seed: seed | 1, ..Settings::default() };
    let mut group = Group::new(count, settings, faults, seed);
    for channel in &mut group.multicast {
        let worse = rate(&mut random, 25);
        channel.faults = Faults { loss: worse, corrupt: 0.01, ..faults };
    }
    group.uplink_loss = rate(&mut random, 4);
    // The last member follows late, if at all.
    (1..count as Rank).for_each(|rank| group.join(rank));
    for id in 0..40u64 {
        let len = match random.below(4) {
            0 => random.below(200),
            1 => random.below(20_000),
            _ => random.below(120_000),
        };
        let class = Class::ALL[random.below(3)];
        let words = Words {
            id,
            refuse: random.below(20) == 0,
            place: class == Class::Unordered && random.below(2) == 0,
        };
        let body = Body::Inline(body(id, 0, len as u64));
        let message = Message { head: words.head(random.below(50)), body, ..message(class, id, 0) };
        let to: Vec<Rank> = (1..=count as Rank).filter(|_| random.below(4) > 0).collect();
        if random.below(5) == 0 {
            to.iter().for_each(|rank| group.post_alone(message.clone(), *rank));
        } else {
            group.post(&message, &to);
        }
        match random.below(14) {
            3 => {
                // A member that gets no processor for a while.
                let at = random.below(count);
                group.stopped[at] = true;
                group.run_for(Duration::from_millis(random.below(300) as u64));
                group.stopped[at] = false;
            }
            4 => {
                let to = 1 + random.below(count) as Rank;
                group.cancel(id - random.below(3).min(id as usize) as u64, to);
            }
            0 => group.join_late(count as Rank),
            1 => {
                // A switch that drops multicast for a while.
                let at = random.below(count);
                group.multicast[at].faults.loss =
                    if group.multicast[at].faults.loss < 1.0 { 1.0 } else { 0.02 };
            }
            2 => group.run_for(Duration::from_millis(30)),
            _ => (0..random.below(20)).for_each(|_| group.step()),
        }
        forge(&mut group, &mut random);
    }
    group.pad_forged();
    // Perhaps one dies.
    if let Some(stopped) = group.stopped.get_mut(random.below(8 * count)) {
        *stopped = true;
    }
    group.settle();
    group.stream.end(group.now, &mut Ends(&mut group.sender));
    group.settle();
}

/// Like the next test, with many seeds.
#[test]
#[ignore = "takes minutes: run by hand"]
fn random_messages_for_long() {
    (60..6000).for_each(exchange);
}

impl Group {
    fn join_late(&mut self, rank: Rank) {
        if self.states()[rank as usize - 1] == MemberState::Invited {
            self.join(rank);
        }
    }
}

/// WIND-12.1, WIND-12.7: the shared first flight changes nothing about delivery.
#[test]
fn random_messages_over_bad_channels_are_delivered_once() {
    (0..60).for_each(exchange);
}

/// WIND-12.3: a body in a segment or in rows is gathered from its source, and repaired from there.
#[test]
fn segment_is_gathered_and_repaired_from_its_source() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 5);
    group.multicast[1].faults.loss = 0.08;
    for id in [2u64, 3, 4] {
        let segment = Segment { region: id as u32, offset: 0, len: 200_000 };
        let body = Body::Segment(segment);
        group.post(&Message { body, ..message(Class::Ordered, id, 0) }, &[1, 2, 3]);
    }
    group.settle();
    assert!(group.unicast_bulk > 0, "member 2 lacked some");
}

/// WIND-12.7: only the member that lost bytes gets them again, and alone.
#[test]
fn repair_goes_to_the_member_that_lost() {
    let mut group = Group::proven(4, Settings::default(), Faults::default(), 7);
    group.multicast[2].faults.loss = 0.05;
    for id in 1..6 {
        group.post(&message(Class::Ordered, id, 300_000), &[1, 2, 3, 4]);
    }
    group.settle();
    for (at, end) in group.sender.iter().enumerate() {
        let lost = end.connection.statistics().group_datagrams_lost;
        assert_eq!(lost > 0, at == 2, "member {at}: {lost}");
    }
}

/// WIND-12.7: what all members have lost is repaired by group datagrams.
#[test]
fn common_loss_is_repaired_together() {
    let mut group = Group::proven(7, Settings::default(), Faults::default(), 21);
    group.uplink_loss = 0.02;
    for id in 1..20 {
        group.post(&message(Class::Ordered, id, 300_000), &[1, 2, 3, 4, 5, 6, 7]);
    }
    group.settle();
    let repairs = group.stream.statistics().repairs;
    let alone = group.unicast_bulk / 1400;
    assert!(repairs > 40 && alone < repairs, "{repairs} together, {alone} alone");
}

/// WIND-12.3, WIND-6.3: a message that costs credit goes to each member alone, and waits for the
/// credit of each.
#[test]
fn credited_messages_go_to_each_member_alone() {
    let settings = Settings { credit: 200_000, ..Settings::default() };
    let mut group = Group::proven(3, settings, Faults::default(), 9);
    for end in &mut group.members {
        end.handler.credited = (0..100).collect();
    }
    for id in 1..9u64 {
        let credited = Message { charge: Charge::Body, ..message(Class::Ordered, id, 50_000) };
        group.post(&credited, &[1, 2, 3]);
    }
    // Members 1 and 3 read at once, and member 2 does not.
    let read = |group: &mut Group, at: usize| {
        let end = &mut group.members[at];
        for len in core::mem::take(&mut end.handler.unread) {
            end.connection.consumed(1, len);
        }
    };
    let got = |group: &Group, at: usize| group.members[at].handler.delivered.len();
    while got(&group, 0) < 8 || got(&group, 2) < 8 {
        group.step();
        read(&mut group, 0);
        read(&mut group, 2);
    }
    assert!(got(&group, 1) < 8, "member 2 has no credit");
    while got(&group, 1) < 8 {
        group.step();
        read(&mut group, 1);
    }
    group.settle();
    assert_eq!(group.stream.statistics().messages, 0);
}

/// WIND-12.4: a group datagram fits the narrowest path.
#[test]
fn datagrams_fit_the_narrowest_path() {
    let settings = |rank: Rank| Settings {
        datagram_max: [9000, 9000, 1400, 3000][rank as usize],
        ..Settings::default()
    };
    let mut group = Group::with(3, settings, Faults::default(), 11);
    group.join_all();
    group.run(|group| group.states().iter().all(|state| *state == MemberState::Proven));
    group.records = true;
    group.post(&message(Class::Ordered, 1, 100_000), &[1, 2, 3]);
    group.post(&message(Class::Ordered, 2, 100_000), &[1, 3]);
    group.settle();
    let longest = |members: u64| {
        let of = |bytes: &&Vec<u8>| u64::from(bytes[24 + 16 + 4]) == members;
        group.sent.iter().filter(of).map(Vec::len).max().unwrap()
    };
    assert!(longest(0b111) <= 1400 && longest(0b101) > 2900);
}

/// WIND-12.3, WIND-4.7: a message that is withdrawn for all is not read again, and one that is
/// withdrawn for some still goes to the others.
#[test]
fn withdrawn_messages_are_not_sent() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 13);
    let long = |id| message(Class::Ordered, id, 3_000_000);
    group.post(&long(1), &[1, 2, 3]);
    group.post(&long(2), &[1, 2, 3]);
    (0..3).for_each(|_| group.step());
    for rank in [1, 2, 3] {
        let count = if rank == 2 { 1 } else { 2 };
        for id in (1..=2u64).filter(|id| *id == 1 || count == 2) {
            group.cancel(id, rank);
        }
    }
    group.settle();
    let delivered: Vec<usize> =
        group.members.iter().map(|end| end.handler.delivered.len()).collect();
    assert_eq!(delivered, [0, 1, 0]);
}

/// WIND-12.5, WIND-4.6: a group datagram that causes more refusals than one datagram reports is not
/// acknowledged before these are known.
#[test]
fn group_datagram_that_causes_many_refusals_settles_none_of_them_wrongly() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 15);
    // Group datagrams come late, after the messages that wait for theirs.
    for channel in &mut group.multicast {
        channel.delay = Duration::from_micros(400);
    }
    group.post(&message(Class::Ordered, 1, 5000), &[1, 2, 3]);
    for id in 2..302u64 {
        let words = Words { id: 2 * id + 1, refuse: true, place: false };
        let small = Body::Inline(body(2 * id + 1, 0, 10));
        let message = message(Class::Ordered, 2 * id + 1, 0);
        group.post_alone(Message { head: words.head(0), body: small, ..message }, 2);
    }
    group.settle();
    let refused = |event: &&Event| matches!(event, Event::Refused(..));
    assert_eq!(group.sender[1].events.iter().filter(refused).count(), 300);
    assert_eq!(group.members[1].handler.refused.len(), 300);
}
