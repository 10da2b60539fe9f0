//! Tests of the two lanes, which are independent (WIND-3.6). Bulk takes another port if its own is
//! closed.

use super::packing::{established, is_small, message, send};
use crate::limits::{ACK_DELAY, FIRST_PORT_BULK_MAX};
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::World;
use crate::wind::*;
use crate::wire::View;
use alloc::vec::Vec;
use core::time::Duration;

/// WIND-6.1: a full window of bulk does not hold back small messages, nor the other way round.
#[test]
fn neither_lane_waits_for_the_others_window() {
    let mut world = established(Settings::default());
    let now = world.now;
    world.nodes[0].connection.post(now, message(Class::Unordered, 1, 10_000_000)).unwrap();
    let bulk = send(&mut world.nodes[0], now);
    assert!(!bulk.is_empty() && !world.nodes[0].connection.has_due(now));
    world.nodes[0].connection.post(now, message(Class::Unordered, 2, 8)).unwrap();
    let small = send(&mut world.nodes[0], now);
    assert!(small.len() == 1 && is_small(&small[0]));
    // The small message arrives first. Its acknowledgement says nothing of the others, which do not
    // count as lost.
    let peer = &mut world.nodes[1];
    peer.connection.receive(now, &View::parse(&small[0]).unwrap(), 0, &mut peer.handler);
    assert_eq!(peer.handler.order, [1]);
    let later = now + ACK_DELAY;
    for answer in send(&mut world.nodes[1], later) {
        let node = &mut world.nodes[0];
        node.connection.receive(later, &View::parse(&answer).unwrap(), 0, &mut node.handler);
    }
    assert_eq!(world.nodes[0].connection.poll_event(), Some(Event::Acknowledged(Token(2))));
    let statistics = world.nodes[0].connection.statistics();
    assert_eq!(statistics.lost_by_reordering + statistics.lost_by_time, 0);
    assert_eq!(world.nodes[0].connection.snapshot().datagrams_in_flight, bulk.len());
}

/// WIND-8.9: bulk may take the first port while there is little of it, and none of a long message.
#[test]
fn short_messages_may_take_the_short_way() {
    let mut world = established(Settings::default());
    let now = world.now;
    let mut went = |len: u64| {
        let connection = &mut world.nodes[0].connection;
        connection.post(now, message(Class::Unordered, len, len)).unwrap();
        let next = || {
            connection.transmit_by(Lane::Bulk, now, &mut Vec::new()).map(|transmit| transmit.short)
        };
        core::iter::from_fn(next).collect::<Vec<_>>()
    };
    assert_eq!(went(4096), [true; 3]);
    assert_eq!(went(FIRST_PORT_BULK_MAX), [true; 7]);
    assert!(!went(FIRST_PORT_BULK_MAX + 1).contains(&true));
    assert!(!went(4096).contains(&true), "more than twice as much is in flight");
}

/// WIND-8.9.
#[test]
fn bulk_takes_the_port_for_all_where_its_own_is_closed() {
    let transfer = |world: &mut World, id: u64| {
        world.post(0, message(Class::Unordered, id, 300_000));
        world.run(|world| world.nodes[1].handler.placed_bytes >= 300_000 * id);
        let mut bytes = std::vec::Vec::new();
        world.post(0, message(Class::Unordered, 0, 3000));
        world.nodes[0]
            .connection
            .transmit_by(Lane::Bulk, world.now, &mut bytes)
            .map(|transmit| transmit.port)
    };
    let mut open = World::established(Settings::default(), Faults::default(), 3);
    assert_eq!(transfer(&mut open, 1), Some(Some(7001)));
    assert_eq!(open.nodes[0].connection.statistics().bulk_ports_shunned, 0);
    let mut closed = World::established(Settings::default(), Faults::default(), 3);
    closed.one_port_only = true;
    assert_eq!(transfer(&mut closed, 1), Some(None));
    assert_eq!(closed.nodes[0].connection.statistics().bulk_ports_shunned, 1);
    // A peer that stands still is not a reason, because nothing was heard of it.
    let mut asleep = World::established(Settings::default(), Faults::default(), 3);
    asleep.run(World::is_idle);
    asleep.nodes[1].asleep = true;
    asleep.nodes[0].connection.post(asleep.now, message(Class::Unordered, 1, 300_000)).unwrap();
    asleep.run(|world| world.nodes[0].connection.statistics().probe_timeouts > 4);
    assert_eq!(asleep.nodes[0].connection.statistics().bulk_ports_shunned, 0);
}

/// WIND-8.9: a peer that stands still for long right after it was heard, and gets the lost
/// datagrams later, is not evidence about a port.
#[test]
fn peer_that_stalls_after_it_was_heard_keeps_its_bulk_port() {
    for (seed, steps) in (0..20).flat_map(|seed| [2, 5, 9, 14].map(|steps| (seed, steps))) {
        let mut world = World::established(Settings::default(), Faults::default(), seed);
        world.stride = Duration::from_millis(1);
        world.post(0, message(Class::Unordered, 1, 3_000_000));
        (0..steps).for_each(|_| world.step());
        for (id, stall) in [(2, 300), (3, 2000), (4, 20)] {
            // Small messages arrive after the last acknowledged bulk.
            world.post(1, message(Class::Unordered, id, 8));
            (0..1 + seed % 5).for_each(|_| world.step());
            world.nodes[1].asleep = true;
            world.run_for(Duration::from_millis(stall));
            world.nodes[1].asleep = false;
            (0..steps).for_each(|_| world.step());
        }
        world.run(|world| world.nodes[0].events.contains(&Event::Acknowledged(Token(1))));
        assert_eq!(
            world.nodes[0].connection.statistics().bulk_ports_shunned,
            0,
            "seed {seed}, {steps} steps"
        );
        assert_eq!(world.nodes[0].fallbacks, [], "seed {seed}, {steps} steps");
    }
}
