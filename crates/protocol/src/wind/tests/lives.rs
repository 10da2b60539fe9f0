//! Tests of beginnings and ends: handshakes, restarts, deaths, keepalive, and refusals of unfit
//! peers.

use super::support::channel::Faults;
use super::support::world::{Node, Words, World, death, message};
use crate::limits::DATAGRAM_NUMBER_MAX;
use crate::wind::ack::received::Wants;
use crate::wind::*;
use crate::wire::{SealKind, Versions};
use core::time::Duration;
use std::vec::Vec;

fn both_established(world: &World) -> bool {
    world.nodes.iter().all(|node| node.connection.is_established())
}

/// WIND-1: 1,000 handshakes at 30 % loss, half of them begun by both sides at once, with a dead
/// first path (WIND-1.1, 1.4).
#[test]
fn a_thousand_handshakes_at_thirty_percent_loss() {
    for seed in 0..1000 {
        let faults = Faults {
            loss: 0.3,
            duplicate: 0.1,
            reorder: 0.3,
            corrupt: if seed % 2 == 0 { 0.3 } else { 0.0 },
        };
        let mut world = World::new(Settings::default(), faults, seed);
        world.dead_path = seed % 3 == 0;
        world.nodes[0].connection.connect(world.now);
        if seed % 2 == 0 {
            world.nodes[1].connection.connect(world.now);
        }
        world.post(0, message(Class::Sync, 1, 10));
        world.run(both_established);
        assert!(world.now.0 < 5_000_000_000, "seed {seed}: {:?}", world.now);
        if world.dead_path {
            assert!(
                world.nodes.iter().all(|node| node.connection.path() == Some(1)),
                "the path that works is chosen"
            );
        }
        world.run(World::is_idle);
        assert!(world.nodes[1].handler.delivered.contains(&0));
    }
}

/// WIND-1.3: the confirmation is lost, and neither end waits forever (WIND-1.2, 1.4).
#[test]
fn a_lost_confirmation_is_made_good() {
    let mut world = unconfirmed();
    world.run(both_established);
}

/// Returns a world in which node 0 is established, and its confirmation was lost.
fn unconfirmed() -> World {
    let mut world = World::new(Settings::default(), Faults::default(), 3);
    world.nodes[0].connection.connect(world.now);
    world.run(|world| world.nodes[1].connection.statistics().handshakes_sent > 0);
    world.channel.faults.loss = 1.0;
    world.run(|world| world.nodes[0].connection.is_established());
    world.channel.faults.loss = 0.0;
    assert!(!world.nodes[1].connection.is_established());
    world
}

/// WIND-7.3: a node that knows the peer and was not shown its own id yet sends CLOSE too, because
/// the peer may be established.
#[test]
fn goodbye_is_said_before_the_other_is_sure() {
    let mut world = unconfirmed();
    world.nodes[1].connection.close(world.now);
    let closed = world.now;
    world.run(|world| death(world, 0).is_some());
    assert_eq!(death(&world, 0), Some(Death::Closed));
    assert!(world.now - closed < Duration::from_millis(100), "{:?}", world.now - closed);
}

/// MEM-16.7: a peer known from elsewhere to have ended is lost at that time, whether or not the two
/// ends know each other by then.
#[test]
fn an_end_known_from_elsewhere_is_not_put_off_by_meeting() {
    for meets in [false, true] {
        let mut world = World::new(
            Settings::default(),
            Faults { loss: if meets { 0.0 } else { 1.0 }, ..Faults::default() },
            7,
        );
        world.nodes[0].connection.connect(world.now);
        let at = world.now + Duration::from_millis(500);
        world.nodes[0].connection.end_by(at, Death::Ended);
        if meets {
            world.run(|world| world.nodes[0].connection.is_established());
            world.channel.faults.loss = 1.0;
        }
        world.run(|world| death(world, 0).is_some());
        assert_eq!(death(&world, 0), Some(Death::Ended));
        // The end comes one step later. Otherwise the ends would wait for five and ten seconds.
        assert!(world.now >= at && world.now <= at + world.stride, "{:?}", world.now);
    }
}

/// WIND-1.8.
#[test]
fn nobody_there_is_unreachable() {
    let mut world = World::new(Settings::default(), Faults { loss: 1.0, ..Faults::default() }, 4);
    world.nodes[0].connection.connect(world.now);
    world.post(0, message(Class::Ordered, 7, 10));
    world.run(|world| death(world, 0).is_some());
    assert_eq!(
        world.nodes[0].events,
        [Event::Failed(Token(7), Death::Unreachable), Event::Dead(Death::Unreachable)]
    );
    assert_eq!(
        world.nodes[0].connection.post(world.now, message(Class::Ordered, 8, 1)),
        Err(PostError::Dead(Death::Unreachable))
    );
}

/// WIND-1.5: both learn why, with both values.
#[test]
fn unfit_peers_are_refused_with_both_values() {
    for (what, expected) in [
        ("nodes", Misfit::Nodes),
        ("page", Misfit::PageSize),
        ("version", Misfit::Version),
        ("order", Misfit::ByteOrder),
        ("seal", Misfit::Seal),
    ] {
        let mut world = World::new(Settings::default(), Faults::default(), 5);
        let mut me = Introduction::here(0, 2, 10, 77);
        let mut settings = Settings::default();
        match what {
            "nodes" => me.nodes = 3,
            "page" => me.page_size = 65_536,
            "version" => me.versions = Versions { lowest: 12, highest: 13 },
            "seal" => settings.seal = SealKind::HeaderOnly,
            _ => me.byte_order = 2,
        }
        world.nodes[0].connection = Connection::new(settings, me, 1, 1, world.now);
        world.nodes[0].connection.connect(world.now);
        world.run(|world| death(world, 0).is_some() && death(world, 1).is_some());
        let [Some(Death::Refused(zero)), Some(Death::Refused(one))] =
            [death(&world, 0), death(&world, 1)]
        else {
            panic!()
        };
        assert_eq!((zero.misfit, one.misfit), (expected, expected));
        assert_eq!((zero.mine, zero.theirs), (one.theirs, one.mine));
        assert!(zero.mine != zero.theirs && zero.by_peer && !one.by_peer);
    }
}

/// WIND-7.10: a connection whose datagram numbers end says so at both ends at once.
#[test]
fn last_datagram_number_ends_the_connection_with_a_reason_at_both_ends() {
    for lane in Lane::BOTH {
        let mut world = World::established(Settings::default(), Faults::default(), 1);
        world.run(World::is_idle);
        let first = DATAGRAM_NUMBER_MAX - 114;
        let [one, other] = &mut world.nodes;
        one.connection.sending[lane].flight.skip_to(first);
        world.numbers.insert((0, other.connection.id(), lane == Lane::Bulk), first - 1);
        other.connection.received[lane].record(first - 1, world.now, Wants::Nothing);
        let begun = world.now;
        for id in 0.. {
            if death(&world, 0).is_some() && death(&world, 1).is_some() {
                break;
            }
            assert!(id < 1000, "numbers have no end");
            let len = if lane == Lane::Bulk { 20_000 } else { 10 };
            let message = message(Class::Ordered, id, len);
            let _ = world.nodes[0].connection.post(world.now, message);
            world.step();
        }
        let numbers = world.nodes[0].connection.sending[lane].flight.next_number();
        assert!(numbers <= DATAGRAM_NUMBER_MAX + 1, "{numbers:x} is too large");
        assert_eq!(death(&world, 0), Some(Death::NumbersUsedUp));
        assert_eq!(death(&world, 1), Some(Death::GivenUp(CloseReason::NumbersUsedUp)));
        assert!(world.now - begun < Settings::default().failure_time);
        assert!(world.nodes[0].handler.delivered.is_empty());
        assert!(!world.nodes[1].handler.delivered.is_empty(), "what had numbers has arrived");
    }
}

/// WIND-1.6: the new process is met with new ids, old messages have failed, and old datagrams are
/// stale.
#[test]
fn a_restarted_peer_is_a_new_one() {
    for seed in 0..40 {
        let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.4, ..Faults::default() };
        let mut world = World::established(Settings::default(), faults, seed);
        for id in 0..20 {
            world.post(0, message(Class::Ordered, id, 3000));
            world.post(1, message(Class::Unordered, 100 + id, 3000));
        }
        (0..seed).for_each(|_| world.step());
        let old_id = world.nodes[0].connection.id();
        world.nodes[0].events.clear();
        let settled_before = 20 - world.nodes[0].handler.delivered.len();
        let _ = settled_before;
        world.nodes[1] = Node::new(Settings::default(), 1, 11, 0x5eed + seed, world.now);
        world.nodes[1].connection.connect(world.now);
        // The new process's datagrams are judged afresh.
        let abandoned = world.nodes[0].handler.abandoned;
        world.run(|world| world.nodes[0].handler.abandoned > abandoned);
        world.nodes[0].handler = super::support::world::Oracle::default();
        world.run(both_established);
        assert_ne!(world.nodes[0].connection.id(), old_id);
        let events = &world.nodes[0].events;
        let restarted = events
            .iter()
            .position(|event| *event == Event::Restarted { incarnation: 11 })
            .expect("told");
        assert_eq!(events.last(), Some(&Event::Established));
        assert!(events[restarted..].iter().all(|event| !matches!(event, Event::Failed(..))));
        world.nodes[0].events.clear();
        for id in 0..5 {
            world.post(0, message(Class::Sync, 200 + id, 2000));
            world.post(1, message(Class::Sync, 300 + id, 2000));
        }
        world.run(World::is_idle);
        let expected: Vec<Event> = (0..5).map(|id| Event::Acknowledged(Token(200 + id))).collect();
        assert_eq!(world.nodes[0].events, expected);
    }
}

/// WIND-1.7: a process that is older than the known one, or of the same age with another id, is
/// ignored.
#[test]
fn an_older_process_is_not_heard() {
    for incarnation in [9, 10] {
        let mut world = World::established(Settings::default(), Faults::default(), 6);
        world.run(World::is_idle);
        let (id, mut events) = (world.nodes[0].connection.id(), Vec::new());
        core::mem::swap(&mut events, &mut world.nodes[0].events);
        world.nodes[1] = Node::new(Settings::default(), 1, incarnation, 0x01d, world.now);
        world.nodes[1].connection.connect(world.now);
        world.run_for(Duration::from_millis(500));
        assert!(!world.nodes[1].connection.is_established());
        assert_eq!((world.nodes[0].connection.id(), world.nodes[0].handler.abandoned), (id, 0));
        assert!(world.nodes[0].connection.is_established() && world.nodes[0].events.is_empty());
    }
}

/// WIND-7: a peer that has gone is dead after the failure time, and everything unsettled fails
/// (WIND-7.2).
#[test]
fn a_silent_peer_dies_after_the_failure_time() {
    let settings = Settings { failure_time: Duration::from_millis(500), ..Settings::default() };
    let mut world = World::established(settings, Faults::default(), 6);
    world.stride = Duration::from_millis(10);
    world.run_for(Duration::from_secs(3));
    assert_eq!((death(&world, 0), death(&world, 1)), (None, None), "idle is not dead");
    let pings: u64 = world.nodes.iter().map(|node| node.connection.statistics().pings_sent).sum();
    assert!((20..80).contains(&pings), "{pings} keepalives in 3 s");
    world.post(0, message(Class::Ordered, 1, 100));
    world.nodes[1].asleep = true;
    let start = world.now;
    world.run(|world| death(world, 0).is_some());
    let span = world.now - start;
    assert!((Duration::from_millis(400)..Duration::from_millis(700)).contains(&span), "{span:?}");
    assert!(world.nodes[0].events.contains(&Event::Failed(Token(1), Death::Silent)));
}

/// WIND-7.4: a node that slept does not declare the others dead, and is not dead itself before the
/// failure time.
#[test]
fn a_stall_is_not_death() {
    let settings = Settings { failure_time: Duration::from_secs(1), ..Settings::default() };
    for seed in 0..20 {
        let mut world =
            World::established(settings, Faults { loss: 0.3, ..Faults::default() }, seed);
        for _ in 0..4 {
            world.nodes[0].asleep = true;
            world.run_for(Duration::from_millis(500));
            world.nodes[0].asleep = false;
            world.run_for(Duration::from_millis(300));
        }
        // Both nodes sleep for longer than the failure time.
        world.now += Duration::from_secs(3);
        world.run_for(Duration::from_secs(2));
        assert_eq!((death(&world, 0), death(&world, 1)), (None, None), "seed {seed}");
    }
}

/// WIND-5.4, WIND-7.1: a round trip measured while a node stood still does not delay probes and
/// questions beyond its death.
#[test]
fn a_stall_is_not_a_slow_path() {
    let settings = Settings { failure_time: Duration::from_secs(1), ..Settings::default() };
    let mut world = World::established(settings, Faults::default(), 9);
    world.stride = Duration::from_millis(1);
    // Simulates that each node stood still once for a while.
    let usual = core::mem::replace(&mut world.channel.delay, Duration::from_millis(250));
    world.post(0, message(Class::Ordered, 1, 100));
    world.run(World::is_idle);
    (world.channel.delay, world.channel.faults.loss) = (usual, 1.0);
    world.post(0, message(Class::Ordered, 2, 100));
    let begun = world.now;
    world.run_for(Duration::from_millis(300));
    world.channel.faults.loss = 0.0;
    world.run(|world| world.nodes[0].events.contains(&Event::Acknowledged(Token(2))));
    assert!(world.now - begun < Duration::from_millis(500), "{:?}", world.now - begun);
}

#[test]
fn goodbye_is_heard_and_carries_the_last_acknowledgement() {
    let mut world = World::established(Settings::default(), Faults::default(), 8);
    world.post(1, Message { urgent: false, ..message(Class::Unordered, 1, 10) });
    world.run(|world| world.nodes[0].handler.delivered.contains(&0));
    world.nodes[0].connection.close(world.now);
    world.run(|world| death(world, 1).is_some());
    assert_eq!(death(&world, 0), Some(Death::Closed));
    assert_eq!(
        world.nodes[1].events.iter().filter(|e| **e == Event::Acknowledged(Token(1))).count(),
        1
    );
    assert_eq!(death(&world, 1), Some(Death::Closed));
}

/// WIND-7.3: two nodes that close at the same time need one CLOSE each, and a lost CLOSE is sent
/// again.
#[test]
fn who_hears_goodbye_after_saying_it_is_done() {
    let parted =
        |world: &World| world.nodes.iter().all(|node| node.connection.next_timeout().is_none());
    for (loss, seeds) in [(0.0, 0..1), (0.3, 0..50)] {
        for seed in seeds {
            let mut world =
                World::established(Settings::default(), Faults { loss, ..Faults::default() }, seed);
            let (before, now) = (world.datagrams, world.now);
            world.nodes.iter_mut().for_each(|node| node.connection.close(now));
            world.run(parted);
            let said = world.datagrams - before;
            assert!(said <= 6 && (loss > 0.0 || said == 2), "seed {seed}: {said} datagrams");
        }
    }
}

/// WIND-4.7: a cancelled message is never gathered again, its number is done, and the messages
/// after it arrive.
#[test]
fn a_cancelled_message_blocks_nobody() {
    for seed in 0..30 {
        let mut world = World::established(
            Settings::default(),
            Faults { loss: 0.2, ..Faults::default() },
            seed,
        );
        let head = Words { id: 1, refuse: false, place: seed % 2 == 0 }.head(0);
        let segment = Body::Segment(Segment { region: 1, offset: 0, len: 300_000 });
        let big = Message {
            class: Class::Unordered,
            urgent: false,
            charge: match (seed % 3, seed % 2) {
                (0, 0) => Charge::Entry,
                (0, _) => Charge::Body,
                _ => Charge::Nothing,
            },
            head,
            body: segment,
            token: Token(1),
        };
        world.post(0, big);
        world.post(0, message(Class::Ordered, 2, 10));
        (0..seed * 2).for_each(|_| world.step());
        world.nodes[0].connection.cancel(Token(1));
        world.run(World::is_idle);
        assert!(world.nodes[1].handler.delivered.contains(&1), "seed {seed}");
        let outcomes = world.nodes[0]
            .events
            .iter()
            .filter(|e| matches!(e, Event::Acknowledged(Token(1)) | Event::Failed(..)))
            .count();
        assert_eq!(
            outcomes,
            usize::from(world.nodes[0].events.contains(&Event::Acknowledged(Token(1))))
        );
    }
}

/// WIND-6.4: nothing is sent beyond the credit, and the credit comes back. A message larger than
/// all credit goes alone (WIND-6.7).
#[test]
fn credit_runs_out_and_comes_back() {
    let settings = Settings { credit: 10_000, ..Settings::default() };
    for seed in 0..10 {
        let mut world =
            World::established(settings, Faults { loss: 0.3, ..Faults::default() }, seed);
        for id in 0..30 {
            let number =
                world.post(0, Message { charge: Charge::Body, ..message(Class::Ordered, id, 900) });
            world.nodes[1].handler.credited.insert(number);
        }
        let large = Message { charge: Charge::Body, ..message(Class::Ordered, 99, 10_000) };
        let number = world.post(0, large);
        world.nodes[1].handler.credited.insert(number);
        world.post(0, message(Class::Ordered, 100, 10));
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.nodes[1].handler.unread.len(), 9, "10,000 / (900 + 128)");
        while !world.is_idle() || world.nodes[1].handler.delivered.len() < 32 {
            if !world.nodes[1].handler.unread.is_empty() {
                let len = world.nodes[1].handler.unread.remove(0);
                let is_alone = len != 10_000 || world.nodes[1].handler.unread.is_empty();
                assert!(is_alone, "seed {seed}");
                world.nodes[1].connection.consumed(1, len);
            }
            world.run_for(Duration::from_millis(1));
        }
        assert!(world.nodes[0].events.contains(&Event::Acknowledged(Token(99))));
    }
}

/// WIND-4.6: one acknowledgement cannot report all refusals that happen at once.
#[test]
fn many_refusals_at_once_are_all_told() {
    for seed in 0..20 {
        let mut world = World::established(
            Settings::default(),
            Faults { loss: 0.3, ..Faults::default() },
            seed,
        );
        for id in 0..200 {
            let head = Words { id, refuse: true, place: false }.head(0);
            world.post(0, Message { head, ..message(Class::Sync, id, 0) });
        }
        world.run(World::is_idle);
        let refused = world.nodes[0]
            .events
            .iter()
            .filter(|event| matches!(event, Event::Refused(..)))
            .count();
        assert_eq!(refused, 200, "seed {seed}");
    }
}

/// WIND-7.3: CLOSE is sent again to a peer that goes on sending, but not all at once, because one
/// short loss would then take all of them.
#[test]
fn goodbye_outlives_a_loss_while_the_other_goes_on_sending() {
    for micros in [1000, 10_000] {
        let mut world = World::established(Settings::default(), Faults::default(), 8);
        world.stride = Duration::from_micros(5);
        let head = Words { id: 1, refuse: false, place: true }.head(0);
        let body = Body::Segment(Segment { region: 1, offset: 0, len: 8 << 20 });
        world.post(1, Message { head, body, ..message(Class::Unordered, 1, 0) });
        world.run(|world| world.nodes[0].handler.placed_bytes > 1 << 20);
        world.nodes[0].connection.close(world.now);
        let (closed, said) = (world.now, world.nodes[0].connection.statistics().datagrams_sent);
        // Nothing reaches node 1 for a while.
        world.fits[1] = 0;
        world.run_for(Duration::from_micros(micros));
        world.fits[1] = usize::MAX;
        let said = world.nodes[0].connection.statistics().datagrams_sent - said;
        assert!(said <= 1 + micros / 2000, "{said} times in {micros} µs");
        world.run(|world| death(world, 1).is_some());
        assert_eq!(death(&world, 1), Some(Death::Closed), "{micros} µs");
        assert!(world.now - closed < Duration::from_millis(100), "{:?}", world.now - closed);
    }
}

/// WIND-7.3: CLOSE is repeated to a peer that cannot hear it for no longer than the failure time.
#[test]
fn goodbye_ends_though_the_other_never_hears_it() {
    let settings = Settings { failure_time: Duration::from_millis(500), ..Settings::default() };
    let mut world = World::established(settings, Faults::default(), 8);
    world.stride = Duration::from_millis(1);
    world.nodes[0].connection.close(world.now);
    let closed = world.now;
    world.fits[1] = 0;
    let mut id = 0;
    while world.nodes[0].connection.next_timeout().is_some() {
        id += 1;
        let _ = world.nodes[1].connection.post(world.now, message(Class::Unordered, id, 8));
        world.step();
        assert!(world.now - closed < Duration::from_secs(1));
    }
}
