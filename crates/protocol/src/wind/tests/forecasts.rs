//! Tests that forecast bulk arrives (MEM-3.7), so that bodies are received directly into place.

use super::packing::{established, message, send};
use super::world::World;
use crate::limits::{ACK_DELAY, BULK_RUN, BULK_RUN_OVER};
use crate::wind::*;
use crate::wire::{Frame, View};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Number of datagrams that one call of the link brings.
const GROUP: usize = 7;
/// Bytes of a full fragment.
const FULL: usize = 1408;

/// Hands bulk on in groups, as a link receives it. Returns how many of the datagrams were forecast,
/// and how many came in all.
fn arrive(world: &mut World, bulk: &[Vec<u8>], lens: &[u64]) -> (usize, usize) {
    let (now, peer) = (world.now, &mut world.nodes[1]);
    let mut foretold = 0;
    for group in bulk.chunks(GROUP) {
        let forecast = peer.connection.expected(GROUP * FULL);
        let mut told = BTreeSet::new();
        for expected in forecast.iter() {
            let end = expected.offset + (expected.pieces * expected.piece) as u64;
            assert!(end <= lens[expected.message as usize], "{expected:?} sticks out");
            assert!(
                (expected.offset..end).all(|byte| told.insert((expected.message, byte))),
                "{expected:?} told twice"
            );
        }
        assert!(told.len() <= GROUP * FULL);
        let views: Vec<View<'_>> = group.iter().map(|bytes| View::parse(bytes).unwrap()).collect();
        foretold +=
            views.iter().enumerate().take_while(|(index, view)| forecast.is(*index, view)).count();
        for view in &views {
            peer.connection.receive(now, view, 0, &mut peer.handler);
        }
    }
    (foretold, bulk.len())
}

/// WIND-3.6: several messages take turns, some begin while others are under way, and one has a
/// shorter last piece.
#[test]
fn turns_of_messages_are_foretold() {
    let mut world = established(Settings::default());
    let full = FULL as u64;
    let lens = [
        400 * full,
        400 * full + 5,
        full * u64::from(BULK_RUN),
        full * u64::from(BULK_RUN + 4),
        300_000,
        400 * full,
    ];
    let (mut foretold, mut all) = (0, 0);
    for (id, len) in (0..).zip(lens) {
        world.nodes[0].connection.post(world.now, message(Class::Unordered, id, len)).unwrap();
        let last = id + 1 == lens.len() as u64;
        // The next message begins a while after this one.
        for _ in 0..if last { 100_000 } else { 3 } {
            world.now += ACK_DELAY;
            let now = world.now;
            let bulk = send(&mut world.nodes[0], now);
            let came = arrive(&mut world, &bulk, &lens);
            (foretold, all) = (foretold + came.0, all + came.1);
            world.now = now + ACK_DELAY;
            let later = world.now;
            for answer in send(&mut world.nodes[1], later) {
                let node = &mut world.nodes[0];
                node.connection.receive(
                    later,
                    &View::parse(&answer).unwrap(),
                    0,
                    &mut node.handler,
                );
            }
        }
        if last {
            break;
        }
    }
    assert_eq!(world.nodes[1].handler.order.len(), lens.len());
    // A message's first group is not forecast, nor are the groups after the repeated beginning ends
    // or a shorter piece has come.
    assert!(foretold * 100 >= all * 85, "{foretold} of {all}");
}

/// WIND-3.6: the rest of a message after its turn does not wait for all others if it is short.
#[test]
fn a_turn_goes_on_to_a_messages_end_if_that_is_near() {
    // The first fragments are shorter, because the beginning is beside them.
    for (over, turns) in [(1, 3), (BULK_RUN_OVER / 2, 3), (BULK_RUN_OVER + 1, 6)] {
        let mut world = established(Settings::default());
        let lens = [u64::from(BULK_RUN + over) * FULL as u64; 3];
        for (id, len) in (0..).zip(lens) {
            world.nodes[0].connection.post(world.now, message(Class::Unordered, id, len)).unwrap();
        }
        let mut order = Vec::new();
        while world.nodes[1].handler.order.len() < lens.len() {
            world.now += ACK_DELAY;
            let now = world.now;
            let bulk = send(&mut world.nodes[0], now);
            for bytes in &bulk {
                if let Some(Ok(Frame::Fragment(fragment))) =
                    View::parse(bytes).unwrap().frames().next()
                {
                    order.push(fragment.message_low);
                }
            }
            arrive(&mut world, &bulk, &lens);
            for answer in send(&mut world.nodes[1], now) {
                let node = &mut world.nodes[0];
                node.connection.receive(now, &View::parse(&answer).unwrap(), 0, &mut node.handler);
            }
        }
        order.dedup();
        assert_eq!(order.len(), turns, "{over} more: {order:?}");
    }
}

/// Bytes that have arrived are not forecast, in any order of arrival.
#[test]
fn nothing_is_foretold_that_is_there() {
    let mut world = established(Settings::default());
    let len = 30 * FULL as u64;
    let now = world.now;
    world.nodes[0].connection.post(now, message(Class::Unordered, 0, len)).unwrap();
    let mut out = send(&mut world.nodes[0], now);
    let lens = [len];
    let mut came = BTreeSet::new();
    // Take datagrams from both ends, the middle last.
    while !out.is_empty() {
        let bytes = if out.len().is_multiple_of(2) { out.remove(0) } else { out.pop().unwrap() };
        let view = View::parse(&bytes).unwrap();
        let Some(Ok(Frame::Fragment(fragment))) = view.frames().next() else { continue };
        came.extend(fragment.offset..fragment.offset + view.payload().len() as u64);
        arrive(&mut world, core::slice::from_ref(&bytes), &lens);
        let forecast = world.nodes[1].connection.expected(GROUP * FULL);
        for expected in forecast.iter() {
            let end = expected.offset + (expected.pieces * expected.piece) as u64;
            assert!((expected.offset..end).all(|byte| !came.contains(&byte)), "{expected:?}");
        }
    }
}
