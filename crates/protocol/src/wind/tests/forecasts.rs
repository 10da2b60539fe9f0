//! Tests that predicted bulk arrives (MEM-3.7), so that bodies are received directly into place.

use super::delivery::packing::{established, message, send};
use super::support::world::World;
use crate::limits::{ACK_DELAY, BULK_RUN, BULK_RUN_OVER};
use crate::wind::*;
use crate::wire::{Frame, View};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Number of datagrams that one call of the link brings.
const GROUP: usize = 7;
/// Bytes of a full fragment.
const FULL: usize = 1408;

/// Hands bulk on in groups, as a link receives it. Returns how many datagrams were predicted.
fn arrive(world: &mut World, bulk: &[Vec<u8>], lens: &[u64]) -> usize {
    let (now, peer) = (world.now, &mut world.nodes[1]);
    let mut predicted = 0;
    for group in bulk.chunks(GROUP) {
        let views: Vec<View<'_>> = group.iter().map(|bytes| View::parse(bytes).unwrap()).collect();
        if let Some(expected) = peer.connection.expected(GROUP * FULL) {
            let end = expected.offset + expected.bytes();
            assert!(end <= lens[expected.message as usize], "{expected:?} sticks out");
            assert!(expected.bytes() <= (GROUP * FULL) as u64);
            let is_next = |(index, view): &(usize, &View<'_>)| expected.is(*index, view);
            predicted += views.iter().enumerate().take_while(is_next).count();
        }
        for view in &views {
            peer.connection.receive(now, view, 0, &mut peer.handler);
        }
    }
    predicted
}

/// Sends messages of these lengths at the same time. Returns the datagrams that were predicted, per
/// hundred, and the messages in the order of their fragments.
fn exchange(lens: &[u64]) -> (usize, Vec<u32>) {
    let mut world = established(Settings::default());
    for (id, len) in (0..).zip(lens) {
        world.post(0, message(Class::Unordered, id, *len));
    }
    let (mut predicted, mut order) = (0, Vec::new());
    while world.nodes[1].handler.order.len() < lens.len() {
        world.now += ACK_DELAY;
        let now = world.now;
        let bulk = send(&mut world.nodes[0], now);
        order.extend(bulk.iter().filter_map(|bytes| {
            match View::parse(bytes).unwrap().frames().next() {
                Some(Ok(Frame::Fragment(fragment))) => Some(fragment.message_low),
                _ => None,
            }
        }));
        predicted += arrive(&mut world, &bulk, lens);
        for answer in send(&mut world.nodes[1], now) {
            let node = &mut world.nodes[0];
            node.connection.receive(now, &View::parse(&answer).unwrap(), 0, &mut node.handler);
        }
    }
    (predicted * 100 / order.len(), order)
}

/// MEM-3.7: groups at the beginning are not predicted, nor are groups after a fragment of another
/// length. Where the turn of a message ends, the rest of the group is not predicted.
#[test]
fn next_fragments_of_the_running_message_are_predicted() {
    let len = 400 * FULL as u64;
    for lens in [&[len][..], &[len + 5], &[300_000], &[len; 5]] {
        let (predicted, _) = exchange(lens);
        assert!(predicted >= 85, "{predicted} % of {lens:?}");
    }
}

/// WIND-3.6: the rest of a message after its turn does not wait for all others if it is short.
#[test]
fn a_turn_goes_on_to_a_messages_end_if_that_is_near() {
    // The first fragments are shorter, because the beginning is beside them.
    for (over, turns) in [(1, 3), (BULK_RUN_OVER / 2, 3), (BULK_RUN_OVER + 1, 6)] {
        let (_, mut order) = exchange(&[u64::from(BULK_RUN + over) * FULL as u64; 3]);
        order.dedup();
        assert_eq!(order.len(), turns, "{over} more: {order:?}");
    }
}

/// Bytes that have arrived are not predicted, in any order of arrival.
#[test]
fn nothing_is_predicted_that_is_there() {
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
        if let Some(expected) = world.nodes[1].connection.expected(GROUP * FULL) {
            let end = expected.offset + expected.bytes();
            assert!((expected.offset..end).all(|byte| !came.contains(&byte)), "{expected:?}");
        }
    }
}
