//! Tests of many refusals at once (WIND-4.6), by one end and by both.

use super::support::channel::Faults;
use super::support::world::{Words, World, message};
use crate::wind::*;
use core::time::Duration;

const MESSAGES: u64 = 2000;

/// One message in ten is refused.
fn post_many(world: &mut World, from: usize, class: Class, refused: bool) {
    for id in 0..MESSAGES {
        let head = Words { id, refuse: refused && id % 10 == 3, place: false }.head(0);
        let message = Message { urgent: false, head, ..message(class, id, 8) };
        world.post(from, message);
    }
}

/// Lets both nodes send many messages, of which the nodes in `refuses` refuse a tenth. Returns
/// virtual time and datagrams until all have ended.
fn cost(class: Class, refuses: [bool; 2], loss: f64, seed: u64) -> (Duration, u64) {
    let mut world =
        World::established(Settings::default(), Faults { loss, ..Faults::default() }, seed);
    world.run(World::is_idle);
    world.nodes.iter_mut().for_each(|node| node.events.clear());
    // Resolution with which the end is seen.
    world.stride = Duration::from_micros(100);
    let (begun, before) = (world.now, world.datagrams);
    (0..2).for_each(|from| post_many(&mut world, from, class, refuses[1 - from]));
    world.run(World::is_idle);
    for (from, node) in world.nodes.iter().enumerate() {
        let told = |wanted: fn(&Event) -> bool| {
            node.events.iter().filter(|event| wanted(event)).count() as u64
        };
        let refused = if refuses[1 - from] { MESSAGES / 10 } else { 0 };
        assert_eq!(
            told(|event| matches!(event, Event::Refused(_, Refusal::NotPermitted))),
            refused,
            "each is told, and once"
        );
        assert_eq!(told(|event| matches!(event, Event::Acknowledged(_))), MESSAGES - refused);
    }
    (world.now - begun, world.datagrams - before)
}

/// WIND-4.6: two nodes that both have more refusals than one acknowledgement can report do not wait
/// for each other.
#[test]
fn refusals_both_ways_cost_little_more_than_one_way() {
    for class in [Class::Unordered, Class::Ordered, Class::Sync] {
        for (loss, seeds) in [(0.0, 1), (0.01, 8), (0.1, 8)] {
            // With loss, few runs say little.
            let runs = |refuses| {
                let runs = (1..=seeds).map(|seed| cost(class, refuses, loss, seed));
                runs.fold((Duration::ZERO, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
            };
            let (one, both) = (runs([true, false]), runs([true, true]));
            std::eprintln!("{class:?} {loss}: {one:?} {both:?}");
            assert!(
                both.0 < 2 * one.0 && both.1 < 3 * one.1,
                "{class:?}, loss {loss}: one way {one:?}, both ways {both:?}"
            );
        }
    }
}

/// WIND-4.6: the refusals of a whole datagram of messages are reported in a few round trips,
/// because nothing else is accepted meanwhile.
#[test]
fn a_burst_of_refusals_takes_few_round_trips() {
    const BURST: u64 = 256;
    let mut world = World::established(Settings::default(), Faults::default(), 1);
    world.run(World::is_idle);
    world.stride = Duration::from_micros(10);
    let mut refuse = |ids: core::ops::Range<u64>| {
        let begun = world.now;
        for id in ids {
            let head = Words { id, refuse: true, place: false }.head(0);
            let class = Class::Unordered;
            let message =
                Message { urgent: false, head, body: Body::Empty, ..message(class, id, 0) };
            world.post(0, message);
        }
        world.run(World::is_idle);
        world.now - begun
    };
    let one = refuse(0..1);
    let all = refuse(1..1 + BURST);
    std::eprintln!("one refusal {one:?}, {BURST} of them {all:?}");
    assert!(all <= one * (BURST / 16) as u32, "one refusal {one:?}, {BURST} of them {all:?}");
}
