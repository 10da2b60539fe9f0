//! Tests of two nodes that send to each other in turns: acknowledgements travel with the answers
//! (WIND-3.8).

use super::support::channel::Faults;
use super::support::world;
use super::support::world::{Node, World};
use crate::limits::{ACK_PIGGYBACK_TIME, ACK_SCORE_MIN, PAGE};
use crate::wind::*;
use crate::wire::{SealKind, View};
use core::ops::Range;
use core::time::Duration;
use std::vec::Vec;

fn message(id: u64) -> Message {
    sized(id, 8)
}

fn sized(id: u64, len: u64) -> Message {
    world::message(Class::Unordered, id, len)
}

/// Sends message `number` of node `n`, and lets it arrive.
fn send(world: &mut World, n: usize, number: u64) {
    world.post(n, message(number));
    world.run(|world| world.nodes[1 - n].handler.delivered.contains(&number));
}

/// Waits like an application that needs this long to see a message and to answer it.
fn think(world: &mut World, span: Duration) {
    let until = world.now + span;
    while world.now < until {
        world.step();
    }
}

/// Returns a connected world. Time advances in small steps, so that the application acts in time
/// between them.
fn established(seed: u64) -> World {
    let mut world = World::established(Settings::default(), Faults::default(), seed);
    world.stride = Duration::from_micros(1);
    world
}

/// Returns the number of datagrams of exchanges in turns: `say` sends and lets arrive what node `n`
/// says in the exchange of a number.
fn exchanges_of(
    world: &mut World,
    numbers: Range<u64>,
    thinking: Duration,
    say: impl Fn(&mut World, usize, u64),
) -> u64 {
    let before = world.datagrams;
    for number in numbers {
        for n in 0..2 {
            say(world, n, number);
            think(world, thinking);
        }
    }
    world.datagrams - before
}

/// Returns the number of datagrams of `count` exchanges of one message each way.
fn exchanges(world: &mut World, first: u64, count: u64, thinking: Duration) -> u64 {
    exchanges_of(world, first..first + count, thinking, send)
}

/// Returns the number of datagrams of 100 exchanges, after those in which the nodes learn to wait.
fn learned(world: &mut World, say: impl Fn(&mut World, usize, u64)) -> u64 {
    let learning = u64::from(ACK_SCORE_MIN) + 1;
    exchanges_of(world, 0..learning, Duration::from_micros(3), &say);
    exchanges_of(world, learning..learning + 100, Duration::from_micros(3), &say)
}

#[test]
fn one_datagram_each_way_once_it_is_learned() {
    let mut world = established(11);
    let learning = u64::from(ACK_SCORE_MIN) + 1;
    exchanges(&mut world, 0, learning, Duration::from_micros(3));
    let datagrams = exchanges(&mut world, learning, 100, Duration::from_micros(3));
    assert!((200..=204).contains(&datagrams), "{datagrams} datagrams for 100 exchanges");
    // Everything is settled all the same, the last after a short wait.
    world.run(World::is_idle);
    let outcomes = world
        .nodes
        .iter()
        .map(|node| node.events.iter().filter(|e| matches!(e, Event::Acknowledged(_))).count());
    assert_eq!(outcomes.sum::<usize>() as u64, 2 * (learning + 100));
}

/// A header and its data are a message each, and the answer acknowledges both.
#[test]
fn one_answer_acknowledges_all_that_it_answers() {
    let mut world = established(13);
    let datagrams = learned(&mut world, |world, n, number| {
        world.post(n, message(2 * number));
        world.step(); // the header goes before the data is there
        send(world, n, 2 * number + 1);
    });
    assert!(
        (400..=404).contains(&datagrams),
        "{datagrams} datagrams for 100 exchanges of two messages each way"
    );
}

/// Bodies of several datagrams answer each other, and the acknowledgement goes with the last of
/// them.
#[test]
fn fragments_that_answer_bring_the_acknowledgement() {
    let mut world = established(15);
    let datagrams = learned(&mut world, |world, n, number| {
        world.post(n, sized(number, PAGE as u64));
        world.run(|world| world.nodes[1 - n].handler.delivered.contains(&number));
    });
    assert!(
        (600..=604).contains(&datagrams),
        "{datagrams} datagrams for 100 exchanges of three each way"
    );
    assert_eq!(world.nodes[0].connection.statistics().unknown_fragments, 0);
}

/// A node that waits in vain stops waiting.
#[test]
fn slow_answers_are_acknowledged_at_once() {
    let mut world = established(12);
    let datagrams = exchanges(&mut world, 0, 50, ACK_PIGGYBACK_TIME * 4);
    assert_eq!(datagrams, 200, "an acknowledgement of its own for each");
    // After fast exchanges, a message without an answer is acknowledged after the hold, and soon
    // the next ones at once.
    exchanges(&mut world, 50, 49, Duration::from_micros(3));
    let took: Vec<Duration> = (99..107)
        .map(|number| {
            let begun = world.now;
            world.nodes[0].connection.post(begun, message(number)).unwrap();
            world.run(|world| world.nodes[0].events.contains(&Event::Acknowledged(Token(number))));
            world.now - begun
        })
        .collect();
    assert!(took[0] >= world.channel.delay * 2 + ACK_PIGGYBACK_TIME, "{took:?}");
    assert!(took[7] < world.channel.delay * 2 + Duration::from_micros(2), "{took:?}");
}

/// Lets node 1's message bring the acknowledgement of node 0's, for which something else may be
/// `waiting`. Returns whether the acknowledgement is processed at once, and afterwards.
fn beside(waiting: bool) -> [bool; 2] {
    let mut world = established(14);
    exchanges(&mut world, 0, u64::from(ACK_SCORE_MIN) + 1, Duration::from_micros(3));
    world.run(World::is_idle);
    let now = world.now;
    let [a, b] = &mut world.nodes;
    let send = |from: &mut Node, number: u64, to: &mut Node| {
        let mut bytes = Vec::new();
        from.connection.post(now, message(number)).unwrap();
        from.connection.transmit(now, &mut bytes).unwrap();
        bytes.extend([0; SealKind::EndToEnd.tag_len()]);
        to.connection.receive_ahead(now, &View::parse(&bytes).unwrap(), 0, &mut to.handler);
    };
    send(a, 100, b);
    if waiting {
        a.connection.post(now, message(101)).unwrap();
    }
    let before = a.handler.delivered.len();
    send(b, 200, a);
    assert_eq!(a.handler.delivered.len(), before + 1, "what came with it waits in no case");
    let at_once = a.connection.has_events();
    a.connection.process_deferred_ack();
    [at_once, a.connection.has_events()]
}

/// WIND-3.11
#[test]
fn an_acknowledgement_beside_a_message_lets_the_answer_go_first() {
    assert_eq!(beside(false), [false, true]);
    assert_eq!(beside(true), [true, true], "what waits may need the room");
}
