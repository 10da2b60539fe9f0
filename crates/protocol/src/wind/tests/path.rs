//! Tests of WIND-8: paths that become narrower and wider, with and without a report, with and
//! without other loss.

use super::delivery::messages::exchange_on;
use super::support::channel::Faults;
use super::support::world;
use super::support::world::{Node, Words, World};
use crate::limits::DATAGRAM_MIN;
use crate::random::Random;
use crate::time::Time;
use crate::wind::*;
use core::time::Duration;
use std::vec::Vec;

/// UDP payloads at MTU 9000, 1500 and 1280, over IPv6.
const JUMBO: usize = 8952;
const ETHERNET: usize = 1452;

fn jumbo() -> Settings {
    Settings { datagram_max: JUMBO as u16, ..Settings::default() }
}

fn message(id: u64, len: u64) -> Message {
    Message { urgent: false, ..world::message(Class::Unordered, id, len) }
}

fn bulk(id: u64, len: u64) -> Message {
    let segment = Segment { region: id as u32, offset: 0, len };
    Message {
        body: Body::Segment(segment),
        head: Words { id, refuse: false, place: true }.head(0),
        ..message(id, 0)
    }
}

/// Keeps node 0 busy with one message after another of `len` bytes until `done`.
fn busy_until(world: &mut World, len: u64, mut done: impl FnMut(&World) -> bool) {
    let mut id = world.now.0;
    let end = world.now + Duration::from_secs(900);
    while !done(world) {
        if world.nodes[0].connection.outbox.is_empty() {
            id += 1;
            world.post(0, bulk(id & 0xffff_ffff, len));
        }
        world.step();
        assert!(
            world.now < end,
            "not in time: {:?} {:#?}",
            world.nodes[0].connection.mtu,
            statistics(world)
        );
    }
}

fn statistics(world: &World) -> Statistics {
    *world.nodes[0].connection.statistics()
}

fn size(world: &World) -> usize {
    world.nodes[0].connection.mtu.size()
}

/// Narrows the path in the middle of a transfer, until that is known. Returns the longest time
/// without any progress meanwhile, in probe timeouts.
fn standstill(world: &mut World, fits: usize, len: u64) -> f64 {
    let timeout = {
        let flight = &world.nodes[0].connection.sending.bulk.flight;
        flight.probe.timeout(flight.rtt(), true)
    };
    world.fits = [fits; 2];
    let before = statistics(world);
    let (mut progress, mut longest) =
        ((world.nodes[1].handler.placed_bytes, world.now), Duration::ZERO);
    busy_until(world, len, |world| {
        let placed = world.nodes[1].handler.placed_bytes;
        longest = longest.max(world.now - progress.1);
        if placed > progress.0 {
            progress = (placed, world.now);
        }
        statistics(world).black_holes > before.black_holes
    });
    assert!(statistics(world).probe_timeouts - before.probe_timeouts <= 3);
    assert!(size(world) <= fits);
    longest.as_secs_f64() / timeout.as_secs_f64()
}

/// 9000 → 1500 → 1280 and back, silently, with bulk in flight (WIND-8.4 to 8.7).
#[test]
fn a_black_hole_is_left_within_three_probe_timeouts() {
    for len in [8192, 20_000, 1 << 20] {
        for seed in 0..10 {
            let mut world = World::established(jumbo(), Faults::default(), seed);
            world.stride = Duration::from_micros(10);
            let mut sent = 0;
            busy_until(&mut world, len, |_| {
                sent += 1;
                sent > 20 + seed
            });
            assert_eq!((size(&world), statistics(&world).black_holes), (JUMBO, 0));
            let first = standstill(&mut world, ETHERNET, len);
            busy_until(&mut world, len, |world| size(world) == ETHERNET);
            let second = standstill(&mut world, DATAGRAM_MIN, len);
            assert!(first < 2.0, "seed {seed}, {len} bytes: {first} and {second} probe timeouts");
            assert!(second < 2.0, "seed {seed}, {len} bytes: {first} and {second} probe timeouts");
            assert_eq!(size(&world), DATAGRAM_MIN);
            // WIND-6.2.
            let controller = &mut world.nodes[0].connection.sending.bulk.controller;
            controller.stalled(world.now);
            assert_eq!(controller.window(), 2 * DATAGRAM_MIN as u64);
            world.stride = Duration::from_millis(5);
            world.fits = [JUMBO; 2];
            let wide = world.now;
            busy_until(&mut world, 8192, |world| size(world) == JUMBO);
            assert!(world.now - wide < Duration::from_secs(11), "{:?}", world.now - wide);
            assert_eq!(statistics(&world).black_holes, 2);
        }
    }
}

/// The ceiling was wrong from the beginning (WIND-8.2, 8.3).
#[test]
fn a_path_that_never_carried_what_the_routes_say() {
    for fits in [DATAGRAM_MIN, 1300, 1372, 1400, ETHERNET, 1472, 2000, 4000, 8000, 8900] {
        let mut world = World::established(jumbo(), Faults::default(), 3);
        world.stride = Duration::from_micros(200);
        world.fits = [fits; 2];
        let start = world.now;
        world.post(0, bulk(1, 1 << 20));
        world.run(World::is_idle);
        assert!(world.now - start < Duration::from_millis(100), "{fits}: {:?}", world.now - start);
        busy_until(&mut world, 100_000, |world| size(world) + 64 >= fits);
        // Datagrams shorter than the ceiling do not refute it.
        assert!(
            size(&world) <= fits || (fits == 8900 && statistics(&world).black_holes == 0),
            "{fits}: {}",
            size(&world)
        );
        world.run(World::is_idle);
        let probes = statistics(&world).size_probes_sent;
        world.run_for(Duration::from_millis(900));
        assert_eq!(
            statistics(&world).size_probes_sent,
            probes,
            "nothing is probed while nothing is sent"
        );
    }
}

/// WIND-8.8: no timeout is needed when the system reports the size.
#[test]
fn a_word_of_the_system_is_processed_at_once() {
    let mut world = World::established(jumbo(), Faults::default(), 4);
    busy_until(&mut world, 1 << 20, |world| statistics(world).datagrams_sent > 200);
    (world.fits, world.told) = ([ETHERNET; 2], true);
    let begun = statistics(&world);
    busy_until(&mut world, 1 << 20, |world| {
        statistics(world).datagrams_sent > begun.datagrams_sent + 500
    });
    assert_eq!(size(&world), ETHERNET);
    assert_eq!(statistics(&world).probe_timeouts, begun.probe_timeouts);
    assert_eq!(statistics(&world).black_holes, 0);
    let now = world.now;
    let connection = &mut world.nodes[0].connection;
    let path = connection.path().unwrap();
    connection.too_big(now, 1 - path, 100);
    assert_eq!(connection.mtu.size(), ETHERNET, "another path");
    connection.too_big(now, path, 5000);
    assert_eq!(connection.mtu.size(), ETHERNET, "a word never raises");
    connection.too_big(now, path, 68);
    assert_eq!(connection.mtu.size(), DATAGRAM_MIN, "never below the base");
}

/// The two directions may differ, and the ends too (WIND-8.1, WIRE-1.2).
#[test]
fn ends_and_ways_that_differ() {
    let mut world = World::new(jumbo(), Faults::default(), 5);
    world.nodes[1] = super::support::world::Node::new(
        Settings { datagram_max: 1452, ..jumbo() },
        1,
        10,
        77,
        world.now,
    );
    world.nodes[0].connection.connect(world.now);
    world.run(|world| world.nodes.iter().all(|node| node.connection.is_established()));
    assert_eq!(world.nodes.each_ref().map(|node| node.connection.mtu.size()), [ETHERNET; 2]);

    let mut world = World::established(jumbo(), Faults::default(), 6);
    world.fits = [JUMBO, ETHERNET];
    world.post(1, bulk(1, 300_000));
    busy_until(&mut world, 300_000, |world| size(world) == ETHERNET);
    world.run(World::is_idle);
    assert_eq!(world.nodes.each_ref().map(|node| node.connection.mtu.size()), [ETHERNET, JUMBO]);
}

/// Loss that hits every size is not taken for a narrow path (WIND-8.3).
#[test]
fn loss_is_not_narrowness() {
    for seed in 0..20 {
        let faults = Faults { loss: 0.3, ..Faults::default() };
        let mut world = World::established(jumbo(), faults, seed);
        for id in 0..20 {
            world.post(0, bulk(id, 300_000));
        }
        world.run(World::is_idle);
        // A wrong reduction is soon undone.
        busy_until(&mut world, 100_000, |world| size(world) == JUMBO);
        assert!(
            statistics(&world).black_holes <= 3,
            "seed {seed}: {} falls",
            statistics(&world).black_holes
        );
    }
}

/// WIND-8.3: a flight whose end is lost does not show a narrow path, though small retransmissions
/// overtake the end (WIND-8.5).
#[test]
fn a_lost_tail_is_no_black_hole() {
    for seed in 0..10 {
        let mut world = World::established(
            Settings { receive_buffer: 4 << 20, ..jumbo() },
            Faults::default(),
            seed,
        );
        world.post(0, bulk(1, 1 << 20));
        world.run(World::is_idle);
        world.stride = Duration::from_micros(10);
        world.post(0, bulk(2, 50_000));
        world.step();
        world.channel.faults.loss = 1.0;
        world.post(0, bulk(3, 200_000 + seed * 10_000));
        world.run(|world| !world.nodes[0].connection.outbox.has_bulk());
        world.channel.faults.loss = 0.0;
        world.run(World::is_idle);
        assert!(
            statistics(&world).lost_by_reordering > 3,
            "seed {seed}: {:#?}",
            statistics(&world)
        );
        assert_eq!((statistics(&world).black_holes, size(&world)), (0, JUMBO), "seed {seed}");
    }
}

/// WIND-8.5: the size in use is probed again, however many small messages wait.
#[test]
fn small_messages_without_end_do_not_keep_datagrams_small() {
    let mut world =
        World::established(Settings { window_max: 1 << 16, ..jumbo() }, Faults::default(), 1);
    world.stride = Duration::from_micros(100);
    let (mut id, mut went_down) = (0, false);
    let mut step = |world: &mut World| {
        let Node { connection, .. } = &mut world.nodes[0];
        while connection.outbox.queues().small < 200 {
            id += 1;
            connection.post(world.now, message(id, 1000)).unwrap();
        }
        if !connection.outbox.has_bulk() {
            id += 1;
            connection.post(world.now, bulk(id, 1 << 20)).unwrap();
        }
        world.step();
    };
    (0..20).for_each(|_| step(&mut world));
    world.channel.faults.loss = 1.0;
    let ends = world.now + Duration::from_millis(20);
    while world.now < ends {
        step(&mut world);
        went_down |= size(&world) == DATAGRAM_MIN;
    }
    assert!(went_down);
    world.channel.faults.loss = 0.0;
    while size(&world) < JUMBO {
        step(&mut world);
        assert!(
            world.now < ends + Duration::from_millis(100),
            "{:#?}",
            world.nodes[0].connection.mtu
        );
    }
}

/// WIND-2.4: a message that was sent whole is sent again in fragments. Both forms arrive, in any
/// order, and count as one message.
#[test]
fn both_forms_of_a_message_are_one() {
    for seed in 0..200 {
        let faults = Faults { loss: 0.1, reorder: 0.3, duplicate: 0.1, ..Faults::default() };
        let mut world = World::established(jumbo(), faults, seed);
        world.channel.delay = Duration::from_micros(20 + seed * 10);
        let classes = [Class::Ordered, Class::Unordered, Class::Sync];
        for id in 0..40 {
            let class = classes[id as usize % 3];
            world.post(
                0,
                Message {
                    class,
                    charge: [Charge::Body, Charge::Nothing][id as usize % 2],
                    ..message(id, 300 * id)
                },
            );
        }
        (0..seed % 7).for_each(|_| world.step());
        world.fits = [[ETHERNET, 1300, DATAGRAM_MIN][seed as usize % 3]; 2];
        world.told = seed % 2 == 0;
        world.run(World::is_idle);
        assert_eq!(world.nodes[1].handler.delivered.len(), 40, "seed {seed}");
    }
}

/// All classes and sizes, over paths whose width changes meanwhile.
#[test]
fn a_thousand_changing_paths() {
    for seed in 20_000..21_000 {
        let mut random = Random::new(seed);
        let faults = Faults {
            loss: random.below(40) as f64 / 100.0,
            duplicate: random.below(30) as f64 / 100.0,
            reorder: random.below(30) as f64 / 100.0,
            corrupt: 0.0,
        };
        let faults = if random.below(2) == 0 { Faults::default() } else { faults };
        let widths: Vec<usize> = (0..4)
            .map(|_| [DATAGRAM_MIN, 1300, ETHERNET, 1472, 4000, JUMBO][random.below(6)])
            .collect();
        let told = random.below(2) == 0;
        let mut world = World::established(jumbo(), faults, seed);
        world.told = told;
        let mut change = Random::new(seed ^ 0x77);
        exchange_on(&mut world, seed, 60, true, |world| {
            if change.below(40) == 0 {
                world.fits[change.below(2)] = widths[change.below(4)];
            }
        });
    }
}

/// WIND-8.2: a size probe that was sent last is decided all the same. The memory behind it is
/// bounded, and the next probe is sent.
#[test]
fn a_lost_size_probe_that_nothing_follows_is_decided() {
    let mut world = World::established(jumbo(), Faults::default(), 1);
    world.run(World::is_idle);
    let now = world.now;
    let path = world.nodes[0].connection.path().unwrap();
    world.nodes[0].connection.too_big(now, path, ETHERNET);
    world.fits[1] = ETHERNET;
    // WIND-8.7: now the ceiling is probed again.
    world.run_for(Duration::from_secs(6));
    world.run(World::is_idle);
    let (now, before) = (world.now, statistics(&world).size_probes_sent);
    world.nodes[0].connection.post(now, message(1, 8)).unwrap();
    world.run(|world| statistics(world).size_probes_sent > before);
    // From here on node 0 sends only acknowledgements.
    let mut most = 0;
    world.nodes[1].connection.post(now, bulk(2, 20_000_000)).unwrap();
    world.run(|world| {
        most = most.max(world.nodes[0].connection.sending.small.flight.records());
        world.nodes[1].connection.outbox.is_empty()
    });
    assert!(most < 64, "{most} datagrams remembered");
    assert_eq!(statistics(&world).size_probes_lost, before + 1);
    let now = world.now;
    world.nodes[0].connection.post(now, message(3, 8)).unwrap();
    world.run(|world| statistics(world).size_probes_sent == before + 2);
}

/// WIND-8.7: a size probe that becomes due while something is in flight is a deadline like any
/// other.
#[test]
fn a_larger_size_is_tried_again_in_time() {
    let mut world = World::established(jumbo(), Faults::default(), 1);
    world.run(World::is_idle);
    let (now, path) = (world.now, world.nodes[0].connection.path().unwrap());
    world.nodes[0].connection.too_big(now, path, ETHERNET);
    let raise = world.nodes[0].connection.mtu.raise_time().unwrap();
    let (now, connection) = (Time(raise.0 - 10_000), &mut world.nodes[0].connection);
    connection.timeout(now);
    connection.post(now, message(1, 8)).unwrap();
    while connection.transmit(now, &mut Vec::new()).is_some() {}
    assert!(!connection.lane_has_due(Lane::Small, now), "nothing is due before {raise:?}");
    assert!(connection.lane_has_due(Lane::Small, raise));
    assert!(
        connection.next_timeout() <= Some(raise),
        "nobody would look before {:?}",
        connection.next_timeout()
    );
}

/// WIND-2.5: pages are kept together if that leaves little empty.
#[test]
fn a_body_is_cut_between_pages_where_that_was_asked_for() {
    let cut = |settings: Settings, pages| {
        let mut world = World::established(settings, Faults::default(), 1);
        world.run(World::is_idle);
        let connection = &mut world.nodes[0].connection;
        let number = connection.post(world.now, bulk(1, 1 << 20)).unwrap();
        if pages {
            connection.cut_between_pages(number);
        }
        let first = connection.transmit_by(Lane::Bulk, world.now, &mut Vec::new()).unwrap();
        first.payload.unwrap().len
    };
    let ethernet = Settings { datagram_max: ETHERNET as u16, ..Settings::default() };
    assert_eq!([false, true].map(|pages| cut(jumbo(), pages)), [8832, 8192]);
    assert_eq!(cut(ethernet, true), cut(ethernet, false));
}
