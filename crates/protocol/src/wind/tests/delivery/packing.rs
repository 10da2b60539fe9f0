//! Tests of which messages share datagrams (WIND-3.6, WIND-3.7), and of datagrams that are answered
//! although they cannot be accepted (WIND-7.5).

use crate::limits::ACK_DELAY;
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world;
use crate::wind::tests::support::world::{Node, Words, World};
use crate::wind::*;
use crate::wire::{Frame, View};
use std::vec::Vec;

/// Returns a world with a node that may send as much as it likes, and its peer.
pub fn established(settings: Settings) -> World {
    let mut world = World::established(settings, Faults::default(), 7);
    world.run(World::is_idle);
    world
}

pub fn message(class: Class, id: u64, len: u64) -> Message {
    let head = Words { id, refuse: false, place: class == Class::Unordered }.head(0);
    Message { urgent: false, head, ..world::message(class, id, len) }
}

/// Returns all datagrams that a node has to send now, with room for the tags.
pub fn send(node: &mut Node, world_now: crate::time::Time) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut bytes = Vec::new();
        if node.connection.transmit(world_now, &mut bytes).is_none() {
            return all;
        }
        bytes.extend([0; 4]);
        all.push(bytes);
    }
}

fn has(datagram: &[u8], what: fn(&Frame<'_>) -> bool) -> bool {
    View::parse(datagram).unwrap().frames().any(|frame| what(&frame.unwrap()))
}

fn is_bulk(datagram: &[u8]) -> bool {
    has(datagram, |frame| matches!(frame, Frame::Fragment(_)))
}

pub fn is_small(datagram: &[u8]) -> bool {
    has(datagram, |frame| matches!(frame, Frame::Message(_)))
}

/// WIND-3.6: small messages share datagrams and go before bulk, in any order of posting. Each lane
/// has its own numbers.
#[test]
fn small_messages_share_datagrams_and_go_before_bulk() {
    let mut world = established(Settings::default());
    let now = world.now;
    let connection = &mut world.nodes[0].connection;
    connection.post(now, message(Class::Unordered, 1, 15_000)).unwrap();
    for id in 2..62 {
        connection.post(now, message(Class::Ordered, id, 100)).unwrap();
    }
    let mut bulk = Vec::new();
    assert_eq!(connection.transmit_by(Lane::Bulk, now, &mut bulk).unwrap().lane, Lane::Bulk);
    bulk.extend([0; 4]);
    assert!(is_bulk(&bulk), "who asks for bulk gets it");
    let sent = send(&mut world.nodes[0], now);
    let small = sent.iter().take_while(|datagram| is_small(datagram)).count();
    assert!((1..8).contains(&small), "60 messages of some 130 bytes in {small} datagrams");
    assert!(sent.iter().skip(small).all(|datagram| is_bulk(datagram) && !is_small(datagram)));
    let numbers = |lane| {
        sent.iter()
            .map(|bytes| *View::parse(bytes).unwrap().header())
            .filter(move |header| header.lane() == lane)
    };
    let first = numbers(Lane::Small).next().unwrap().number;
    assert!(numbers(Lane::Small).zip(first..).all(|(header, number)| header.number == number));
    assert!(numbers(Lane::Bulk).zip(2..).all(|(header, number)| header.number == number));
}

/// WIND-3.7: one system call can send all datagrams of a run.
#[test]
fn datagrams_of_one_run_are_equally_long() {
    let mut world = established(Settings::default());
    let now = world.now;
    world.nodes[0].connection.post(now, message(Class::Unordered, 1, 30_000)).unwrap();
    let sent = send(&mut world.nodes[0], now);
    let (last, rest) = sent.split_last().unwrap();
    assert!(rest.len() > 15 && sent.iter().all(|datagram| is_bulk(datagram)));
    assert!(rest.iter().all(|datagram| datagram.len() == rest[0].len()));
    assert!(last.len() <= rest[0].len());
    assert!(
        rest.iter()
            .skip(1)
            .all(|datagram| !has(datagram, |frame| matches!(frame, Frame::Acknowledge(_))))
    );
    assert!(sent.iter().all(|datagram| !is_small(datagram)));
}

/// WIND-3.4, WIND-7.5, WIND-6.5: a message for which there is no room is not acknowledged, but its
/// sender gets an answer.
#[test]
fn what_finds_no_room_is_answered_all_the_same() {
    let mut world = established(Settings { held_max: 1000, ..Settings::default() });
    let mut now = world.now;
    world.nodes[0].connection.post(now, message(Class::Ordered, 1, 10)).unwrap();
    let first = send(&mut world.nodes[0], now);
    world.nodes[0].connection.post(now, message(Class::Ordered, 2, 1000)).unwrap();
    let second = send(&mut world.nodes[0], now);
    let arrive = |node: &mut Node, datagrams: &[Vec<u8>], now| {
        for bytes in datagrams {
            node.connection.receive(now, &View::parse(bytes).unwrap(), 0, &mut node.handler);
        }
    };
    arrive(&mut world.nodes[1], &second, now);
    assert_eq!(world.nodes[1].connection.statistics().over_limit, 1);
    let answer = send(&mut world.nodes[1], now);
    assert!(!answer.is_empty(), "a sign of life");
    arrive(&mut world.nodes[0], &answer, now);
    assert!(world.nodes[0].connection.poll_event().is_none(), "and no acknowledgement");
    // With the first message there is room for the second, because the message at the floor is
    // always accepted.
    arrive(&mut world.nodes[1], &first, now);
    arrive(&mut world.nodes[1], &second, now);
    assert_eq!(world.nodes[1].handler.order, [0, 1]);
    now += ACK_DELAY;
    let answer = send(&mut world.nodes[1], now);
    arrive(&mut world.nodes[0], &answer, now);
    assert_eq!(world.nodes[0].connection.poll_event(), Some(Event::Acknowledged(Token(1))));
}
