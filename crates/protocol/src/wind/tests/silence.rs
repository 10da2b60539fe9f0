//! Tests of silences: telling loss from a peer that stands still (WIND-5.7).

use super::support::channel::Faults;
use super::support::world::{Words, World, message};
use crate::limits::PTO_PINGS_MAX;
use crate::wind::*;
use core::time::Duration;

/// How long the peer or the path stands still. It exceeds many probe timeouts, as when a processor
/// is taken away.
const STALL: Duration = Duration::from_millis(2);

/// Sends a message from node 0, runs until idle, and returns how long that took.
fn exchange(world: &mut World, id: u64) -> Duration {
    let begun = world.now;
    world.post(0, message(Class::Ordered, id, 8));
    world.run(World::is_idle);
    world.now - begun
}

/// Lets the path stand still during one message in twenty.
fn now_and_then_still(world: &mut World, ids: core::ops::Range<u64>) -> u64 {
    let usual = world.channel.delay;
    let before = world.nodes[0].connection.statistics().lost_by_probe;
    for id in ids {
        world.channel.delay = if id % 20 == 0 { STALL / 2 } else { usual };
        exchange(world, id);
    }
    world.channel.delay = usual;
    world.nodes[0].connection.statistics().lost_by_probe - before
}

#[test]
fn a_peer_that_stands_still_now_and_then_is_asked_and_what_is_lost_is_still_found_soon() {
    let mut world = World::established(Settings::default(), Faults::default(), 1);
    let first = now_and_then_still(&mut world, 1..401);
    let later = now_and_then_still(&mut world, 401..2401);
    let counted = *world.nodes[0].connection.statistics();
    assert!(first > 0 && counted.spurious_losses == counted.lost_by_probe, "{counted:?}");
    assert_eq!(later, 0, "datagrams sent again in vain, after {first}");
    // The tail is really lost, and the answer to a question overtakes it.
    for id in 2401..2420 {
        exchange(&mut world, id);
    }
    world.stride = Duration::from_micros(5);
    for id in 3000..3020 {
        let timeout = {
            let flight = &world.nodes[0].connection.sending.small.flight;
            flight.probe.timeout(flight.rtt(), true)
        };
        world.channel.faults.loss = 1.0;
        world.post(0, message(Class::Ordered, id, 8));
        let begun = world.now;
        world.step();
        world.channel.faults.loss = 0.0;
        world.run(World::is_idle);
        let (took, round_trip) = (world.now - begun, world.channel.delay * 2);
        assert!(took <= timeout + round_trip * 3, "{took:?} with a timeout of {timeout:?}");
    }
    assert_eq!(world.nodes[0].connection.statistics().lost_by_probe, counted.lost_by_probe);
}

/// Lost acknowledgements teach no patience, and their data is still sent again as soon.
#[test]
fn lost_acknowledgements_are_no_slowness() {
    let mut world =
        World::established(Settings::default(), Faults { loss: 0.4, ..Faults::default() }, 2);
    for id in 1..2000 {
        exchange(&mut world, id);
    }
    let counted = world.nodes[0].connection.statistics();
    assert!(counted.spurious_losses > 200, "{counted:?}");
    let tail_probes =
        |counted: &Statistics| counted.tail_probes as f64 / counted.probe_timeouts as f64;
    // With patience, most timeouts would only ask.
    assert!(tail_probes(counted) > 0.6, "{counted:?}");
    const { assert!(PTO_PINGS_MAX >= 3) };
}

/// Sends a body of many datagrams to a peer with much room. Returns the world when more than `most`
/// datagrams are in flight.
fn many_in_flight(most: usize) -> World {
    let settings = Settings { receive_buffer: 8 << 20, ..Settings::default() };
    let mut world = World::established(settings, Faults::default(), 3);
    world.stride = Duration::from_micros(50);
    let head = Words { id: 1, refuse: false, place: true }.head(0);
    let body = Body::Segment(Segment { region: 1, offset: 0, len: 16 << 20 });
    world.post(0, Message { class: Class::Unordered, head, body, ..message(Class::Ordered, 1, 8) });
    world.run(|world| world.nodes[0].connection.sending.bulk.flight.datagrams() > most);
    world
}

/// Delays everything that is sent now, so that it arrives together after `span`.
fn stand_still(world: &mut World, span: Duration) {
    let (usual, goes_on) = (world.channel.delay, world.now + span);
    while world.now < goes_on {
        world.channel.delay = usual.max(goes_on - world.now);
        world.step();
    }
    world.channel.delay = usual;
}

/// WIND-5.6: the window is restored however long the peer stood still, and however much was in
/// flight.
#[test]
fn a_window_is_restored_after_a_peer_stood_still() {
    for (most, millis) in [(300, 2), (300, 60), (3000, 3), (3000, 5), (3000, 60)] {
        let mut world = many_in_flight(most);
        let bulk = |world: &World| world.nodes[0].connection.sending.bulk.controller.window();
        let before = bulk(&world);
        stand_still(&mut world, Duration::from_millis(millis));
        assert!(bulk(&world) < before, "all was given up meanwhile");
        world.run(World::is_idle);
        assert!(bulk(&world) >= before, "{most}, {millis} ms: {} of {before}", bulk(&world));
    }
}

/// WIND-5.6: the losses for which the window was reduced were real. Their retransmissions were late
/// and given up too, which undoes nothing.
#[test]
fn a_window_is_not_restored_for_what_it_was_not_reduced_for() {
    let mut world = many_in_flight(300);
    world.channel.faults.loss = 1.0;
    world.run(|world| world.nodes[0].connection.sending.bulk.flight.probe.has_given_up());
    world.channel.faults.loss = 0.0;
    stand_still(&mut world, Duration::from_millis(60));
    world.run(World::is_idle);
    let counted = world.nodes[0].connection.statistics();
    assert!(counted.spurious_losses > 0 && counted.windows_restored == 0, "{counted:#?}");
}

/// Numbers are never used twice, so that every loss leaves a permanent hole. An idle connection
/// forgets the holes.
#[test]
fn holes_of_a_bad_hour_are_forgotten_in_a_silence() {
    let mut world =
        World::established(Settings::default(), Faults { loss: 0.3, ..Faults::default() }, 1);
    for id in 1..2000 {
        let now = world.now;
        for node in &mut world.nodes {
            node.connection.post(now, message(Class::Ordered, id, 8)).unwrap();
        }
        world.run(World::is_idle);
    }
    world.channel.faults = Faults::default();
    let pieces =
        |world: &World| world.nodes.each_ref().map(|node| node.connection.received.small.pieces());
    assert!(pieces(&world).iter().all(|pieces| *pieces > 50), "{:?}", pieces(&world));
    exchange(&mut world, 2000);
    world.run_for(Settings::default().keepalive() + Duration::from_millis(10));
    assert_eq!(pieces(&world), [1, 1]);
    exchange(&mut world, 2001);
}
