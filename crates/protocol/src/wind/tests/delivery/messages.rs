//! Tests with random messages of all classes and sizes, in both directions, against the oracle in
//! `world`.

use crate::limits::PTO_PINGS_MAX;
use crate::random::Random;
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::{Words, World, body, message};
use crate::wind::*;
use crate::wire::SealKind;
use std::collections::BTreeMap;
use std::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Posted {
    number: u64,
    refuse: bool,
    outcomes: u32,
}

/// Messages that one node has posted, by token.
type Ledger = BTreeMap<u64, Posted>;

fn random_message(random: &mut Random, id: u64, refusals: bool) -> (Message, bool) {
    let class = [Class::Ordered, Class::Unordered, Class::Sync][random.below(3)];
    let len = match random.below(10) {
        0 => 0_usize,
        1..=5 => random.below(200),
        6 | 7 => random.below(5000),
        8 => 4096,
        _ => random.below(100_000),
    } as u64;
    let refuse = refusals && random.below(5) == 0;
    let words = Words { id, refuse, place: class == Class::Unordered && random.below(2) == 0 };
    let segment = Segment { region: id as u32, offset: 0, len };
    let body =
        if random.below(2) == 0 { Body::Segment(segment) } else { Body::Inline(body(id, 0, len)) };
    let head = words.head(random.below(56));
    let urgent = class == Class::Sync;
    let charge = match (random.below(3), words.place) {
        (0, true) => Charge::Entry,
        (0, false) => Charge::Body,
        _ => Charge::Nothing,
    };
    (Message { class, urgent, charge, head, body, token: Token(id) }, refuse)
}

fn post(world: &mut World, n: usize, message: Message, refuse: bool, ledger: &mut Ledger) {
    let (token, credited) = (message.token.0, message.charge.is_credited());
    let number = world.post(n, message);
    if credited {
        world.nodes[1 - n].handler.credited.insert(number);
    }
    ledger.insert(token, Posted { number, refuse, outcomes: 0 });
}

/// WIND-2 and WIND-4.4: an event reports only what is already true at the receiver (WIND-4.1, 4.2).
fn settle(world: &mut World, n: usize, ledger: &mut Ledger) {
    let events = core::mem::take(&mut world.nodes[n].events);
    let handler = &world.nodes[1 - n].handler;
    for event in events {
        let (token, refused) = match event {
            Event::Acknowledged(token) => (token, false),
            Event::Refused(token, _) => (token, true),
            Event::Established => continue,
            other => panic!(
                "node {n}: {other:?}; {:#?}",
                world.nodes.each_ref().map(|n| *n.connection.statistics())
            ),
        };
        let posted = ledger.get_mut(&token.0).unwrap();
        posted.outcomes += 1;
        assert_eq!((posted.outcomes, refused), (1, posted.refuse), "{posted:?}");
        assert!(
            handler.delivered.contains(&posted.number) || handler.refused.contains(&posted.number),
            "{posted:?} is not there"
        );
    }
}

pub(in crate::wind::tests) fn exchange(
    settings: Settings,
    faults: Faults,
    seed: u64,
    count: u64,
    refusals: bool,
) -> World {
    let mut world = World::established(settings, faults, seed);
    exchange_on(&mut world, seed, count, refusals, |_| {});
    world
}

/// Exchanges messages, while `meanwhile` changes the world from time to time.
pub(in crate::wind::tests) fn exchange_on(
    world: &mut World,
    seed: u64,
    count: u64,
    refusals: bool,
    mut meanwhile: impl FnMut(&mut World),
) {
    let mut random = Random::new(seed ^ 0xfeed);
    let mut ledgers = [Ledger::new(), Ledger::new()];
    world.stride = core::time::Duration::from_micros(200);
    let mut id = 0;
    while id < count || !world.is_idle() {
        for (n, ledger) in ledgers.iter_mut().enumerate() {
            for _ in 0..random.below(8) {
                if id < count {
                    id += 1;
                    let (message, refuse) = random_message(&mut random, id, refusals);
                    post(world, n, message, refuse, ledger);
                }
            }
            // The application reads from time to time.
            if random.below(2) == 0 {
                for len in core::mem::take(&mut world.nodes[n].handler.unread) {
                    world.nodes[n].connection.consumed(1, len);
                }
            }
        }
        for _ in 0..random.below(20) {
            world.step();
            (0..2).for_each(|n| settle(world, n, &mut ledgers[n]));
        }
        meanwhile(world);
        assert!(
            world.now.0 < 120_000_000_000,
            "seed {seed}: not done; {:#?}",
            world.nodes.each_ref().map(|n| *n.connection.statistics())
        );
    }
    for (n, ledger) in ledgers.iter().enumerate() {
        assert!(
            ledger.values().all(|posted| posted.outcomes == 1),
            "node {n}: every message has one outcome"
        );
        let handler = &world.nodes[1 - n].handler;
        assert_eq!(handler.delivered.len() + handler.refused.len(), ledger.len());
        // WIND-3.2: no datagram is accepted twice.
        let (sent, taken) =
            (world.nodes[n].connection.statistics(), world.nodes[1 - n].connection.statistics());
        assert!(taken.datagrams_received <= sent.datagrams_sent);
        assert_eq!((sent.malformed, taken.malformed), (0, 0));
    }
}

fn jumbo() -> Settings {
    Settings { datagram_max: 8972, ..Settings::default() }
}

#[test]
fn a_perfect_channel_loses_nothing_and_repeats_nothing() {
    for settings in [Settings::default(), jumbo()] {
        let world = exchange(settings, Faults::default(), 1, 400, false);
        for node in &world.nodes {
            let s = node.connection.statistics();
            assert_eq!(
                (s.lost_by_reordering, s.duplicate_messages, s.duplicate_datagrams, s.malformed),
                (0, 0, 0, 0)
            );
        }
    }
}

#[test]
fn all_classes_through_every_kind_of_fault() {
    let all = Faults { loss: 0.05, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 };
    let grid = [
        all,
        Faults { loss: 0.3, ..all },
        Faults { duplicate: 0.5, ..all },
        Faults { reorder: 0.5, ..all },
        Faults { corrupt: 0.1, ..all },
    ];
    for (n, faults) in grid.into_iter().enumerate() {
        for seed in 0..6 {
            let settings = if seed % 2 == 0 { Settings::default() } else { jumbo() };
            exchange(settings, faults, 100 * n as u64 + seed, 150, seed % 3 == 0);
        }
    }
}

/// Every kind of channel, with much and little room, by seed. (Seeds 10,048 and 10,730 found
/// livelocks when there was little room.)
#[test]
fn a_thousand_channels() {
    for seed in 10_000..11_000 {
        let mut random = Random::new(seed);
        let faults = Faults {
            loss: random.below(50) as f64 / 100.0,
            duplicate: random.below(50) as f64 / 100.0,
            reorder: random.below(50) as f64 / 100.0,
            corrupt: random.below(10) as f64 / 100.0,
        };
        let roomy = random.below(2) == 0;
        let settings = if random.below(2) == 0 { jumbo() } else { Settings::default() };
        let settings = if roomy {
            settings
        } else {
            Settings { credit: 120_000, held_max: 3000, receive_buffer: 30_000, ..settings }
        };
        exchange(settings, faults, seed, 80, random.below(2) == 0);
    }
}

/// WIND-4.3, WIND-5.5.
#[test]
fn half_of_everything_lost_both_ways() {
    for seed in 0..4 {
        exchange(Settings::default(), Faults { loss: 0.5, ..Faults::default() }, seed, 100, true);
    }
}

/// WIND-6.5, WIND-6.6.
#[test]
fn little_room_and_little_credit_never_deadlock() {
    let tight =
        Settings { credit: 120_000, held_max: 3000, receive_buffer: 30_000, ..Settings::default() };
    let faults = Faults { loss: 0.1, reorder: 0.2, ..Faults::default() };
    let worlds: Vec<World> =
        (0..4).map(|seed| exchange(tight, faults, 500 + seed, 150, true)).collect();
    assert!(
        worlds.iter().any(|w| w.nodes.iter().any(|n| n.connection.statistics().over_limit > 0)),
        "the limit was reached"
    );
}

/// WIND-5.4, WIND-6.6: with patience, a sender whose questions are answered still notices that the
/// peer accepts none of its messages.
#[test]
fn patience_is_no_hindrance_where_there_is_little_room() {
    let tight =
        Settings { credit: 120_000, held_max: 3000, receive_buffer: 30_000, ..Settings::default() };
    let faults = Faults { loss: 0.1, reorder: 0.2, ..Faults::default() };
    let took = |silences: u32| -> core::time::Duration {
        let one = |seed| {
            let mut world = World::established(tight, faults, seed);
            for sending in
                world.nodes.iter_mut().flat_map(|node| node.connection.sending.both_mut())
            {
                (0..silences).for_each(|_| sending.flight.probe.learn_patience());
            }
            let begun = world.now;
            exchange_on(&mut world, seed, 150, true, |_| {});
            world.now - begun
        };
        (500..510).map(one).sum()
    };
    let (patient, usual) = (took(PTO_PINGS_MAX), took(0));
    assert!(patient < usual * 2, "{patient:?} instead of {usual:?}");
}

/// WIND-6.5: bodies that are placed as they arrive take no room. Several long ones are sent at
/// once, and none of their bytes twice.
#[test]
fn what_is_placed_takes_no_room() {
    let settings = Settings { held_max: 3000, ..jumbo() };
    let mut world = World::established(settings, Faults::default(), 12);
    let placed = |id| {
        let head = Words { id, refuse: false, place: true }.head(0);
        let body = Body::Inline(body(id, 0, 300_000));
        Message { urgent: false, head, body, ..message(Class::Unordered, id, 0) }
    };
    for id in 1..=3 {
        world.post(0, placed(id));
    }
    world.run(World::is_idle);
    assert!((0..3).all(|number| world.nodes[1].handler.delivered.contains(&number)));
    assert_eq!(world.nodes[1].connection.statistics().over_limit, 0);
}

#[test]
fn a_header_only_seal_has_the_same_format() {
    assert_eq!(SealKind::HeaderOnly.tag_len(), SealKind::EndToEnd.tag_len());
}

/// WIND-2.12: the bytes of ordered messages may go to their place as they arrive. The messages are
/// delivered in their turn all the same.
#[test]
fn ordered_messages_are_placed_until_their_turn() {
    const COUNT: u64 = 12;
    let mut early = 0;
    for seed in 0..20 {
        let faults = Faults { loss: 0.1, ..Faults::default() };
        let mut world = World::established(Settings::default(), faults, seed);
        for id in 0..COUNT {
            let message = crate::wind::tests::support::world::message(Class::Ordered, id, 20_000);
            world.post(0, message);
        }
        while !world.is_idle() {
            world.run_for(core::time::Duration::from_millis(1));
        }
        let handler = &world.nodes[1].handler;
        assert_eq!(handler.delivered.len() as u64, COUNT, "seed {seed}");
        assert!(handler.order.is_sorted(), "seed {seed}: {:?}", handler.order);
        early += handler.early;
    }
    assert!(early >= 20, "the first message of each world at least: {early}");
}
