//! Tests that counters, latencies and snapshots match what happened to the connection.

use super::support::channel::Faults;
use super::support::world::{World, message};
use crate::wind::*;
use core::time::Duration;

fn is_near(found: Duration, right: Duration) -> bool {
    found.abs_diff(right) <= right / 16
}

/// The channel takes 20 µs each way, and a node that is asked acknowledges at once.
#[test]
fn settle_times_and_round_trips_are_those_of_the_channel() {
    let mut world = World::established(Settings::default(), Faults::default(), 1);
    world.run(World::is_idle);
    let round_trip = 2 * world.channel.delay;
    assert!(
        world.nodes[0].connection.latencies().settle.histogram().is_none(),
        "nothing posted, no memory"
    );
    let classes = [Class::Ordered, Class::Unordered, Class::Sync];
    for id in 0..60 {
        world.post(0, message(classes[id as usize % 3], id, 100));
        world.run(World::is_idle);
    }
    let Latencies { round_trip: rtt, settle } = world.nodes[0].connection.latencies();
    let (rtt, settle) = (rtt.histogram().unwrap(), settle.histogram().unwrap());
    assert_eq!(settle.len(), 60);
    for histogram in [rtt, settle] {
        assert!(is_near(histogram.percentile(5000).unwrap(), round_trip), "{histogram:?}");
        assert!(is_near(histogram.percentile(9900).unwrap(), round_trip), "{histogram:?}");
    }
    assert!(is_near(world.nodes[0].connection.snapshot().round_trip_least, round_trip));
}

/// Waiting counts from the post on, whatever a message waits for: here for a peer that sleeps.
#[test]
fn waiting_counts_and_the_snapshot_says_for_what() {
    let mut world =
        World::established(Settings { credit: 1000, ..Settings::default() }, Faults::default(), 2);
    world.run(World::is_idle);
    let before = world.nodes[0].connection.snapshot();
    assert_eq!(
        (before.standing, before.unsettled, before.in_flight, before.credit),
        (Standing::Established, 0, 0, 1000)
    );
    assert!(before.window > 0 && before.path.is_some());
    world.nodes[1].asleep = true;
    for id in 0..3 {
        let message = Message { charge: Charge::Body, ..message(Class::Ordered, id, 700) };
        let number = world.post(0, message);
        world.nodes[1].handler.credited.insert(number);
    }
    world.stride = Duration::from_micros(50);
    world.run_for(Duration::from_micros(200));
    let during = world.nodes[0].connection.snapshot();
    assert_eq!((during.unsettled, during.blocked, during.datagrams_in_flight), (3, 2, 1));
    assert!(during.in_flight > 700 && during.credit < 700, "{during:?}");
    let slept = Duration::from_millis(100);
    world.run_for(slept);
    world.nodes[1].asleep = false;
    world.run(|world| world.nodes[1].handler.unread.len() == 1);
    while let Some(len) = world.nodes[1].handler.unread.pop() {
        world.nodes[1].connection.consumed(1, len);
    }
    world.run(|world| world.nodes[0].connection.latencies().settle.histogram().is_some());
    let settle = world.nodes[0].connection.latencies().settle;
    assert!(settle.histogram().unwrap().longest() >= slept, "{settle:?}");
    world.nodes[0].connection.close(world.now);
    assert_eq!(world.nodes[0].connection.snapshot().standing, Standing::Ended(Death::Closed));
}

/// A peer that restarts or is lost does not erase the history.
#[test]
fn the_history_outlives_the_peer() {
    let mut world =
        World::established(Settings::default(), Faults { loss: 0.2, ..Faults::default() }, 3);
    for id in 0..50 {
        world.post(0, message(Class::Ordered, id, 2000));
    }
    world.run(World::is_idle);
    let settled = |world: &World| {
        world.nodes[0].connection.latencies().settle.histogram().map(Histogram::len)
    };
    assert_eq!(settled(&world), Some(50));
    world.nodes[0].connection.close(world.now);
    assert_eq!(settled(&world), Some(50));
}
