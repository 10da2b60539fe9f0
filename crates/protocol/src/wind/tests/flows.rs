//! Tests of WIND-14: bulk that is sprayed over several flows, some of which are capped, lose
//! datagrams or carry nothing.

use super::support::channel::{Faults, FlowFaults};
use super::support::world;
use super::support::world::{Words, World};
use crate::limits::FLOWS_MAX;
use crate::wind::*;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

const LEN: u64 = 1 << 20;
/// Bytes per second that a capped flow carries.
const CAP: u64 = 100_000_000;

fn settings(flows: u8) -> Settings {
    Settings { datagram_max: 8952, flows: FlowCount::Fixed(flows), ..Settings::default() }
}

fn bulk(id: u64, len: u64) -> Message {
    let segment = Segment { region: id as u32, offset: 0, len };
    let head = Words { id, refuse: false, place: true }.head(0);
    Message {
        urgent: false,
        body: Body::Segment(segment),
        head,
        ..world::message(Class::Unordered, id, 0)
    }
}

fn connected(flows: u8, faults: impl Fn(usize) -> FlowFaults) -> World {
    connected_with(settings(flows), faults)
}

fn connected_with(settings: Settings, faults: impl Fn(usize) -> FlowFaults) -> World {
    let mut world = World::established(settings, Faults::default(), 7);
    world.stride = Duration::from_micros(100);
    for (flow, known) in world.channel.flows.iter_mut().enumerate() {
        *known = faults(flow);
    }
    world
}

/// Sends `count` messages of a mebibyte, four at a time. Returns how long it takes.
fn carry(world: &mut World, count: u64) -> Duration {
    let began = world.now;
    let (first, mut posted) = (world.nodes[1].handler.delivered.len() as u64, 0);
    loop {
        let delivered = world.nodes[1].handler.delivered.len() as u64 - first;
        if delivered == count {
            return world.now - began;
        }
        while posted < count && posted < delivered + 4 {
            world.post(0, bulk(first + posted + 1, LEN));
            posted += 1;
        }
        world.step();
        let waited = world.now - began;
        assert!(waited < Duration::from_secs(60), "{:#?}", statistics(world));
    }
}

fn statistics(world: &World) -> Statistics {
    *world.nodes[0].connection.statistics()
}

fn carried(world: &World) -> Vec<u64> {
    world.channel.flows.iter().map(|flow| flow.bytes).collect()
}

fn capped(_: usize) -> FlowFaults {
    FlowFaults { cap: CAP, ..FlowFaults::default() }
}

/// WIND-14.2: as many times the rate as there are flows.
#[test]
fn capped_flows_carry_together_what_each_may() {
    let took = [1, 2, 4, 16].map(|flows| {
        let mut world = connected(flows, capped);
        carry(&mut world, 20);
        let took = carry(&mut world, 60).as_secs_f64();
        let seen = statistics(&world);
        let used = carried(&world).iter().filter(|bytes| **bytes > 0).count();
        assert_eq!(used, usize::from(flows), "{:?}", carried(&world));
        assert_eq!((seen.flows_cut, seen.probe_timeouts), (0, 0), "{flows} flows: {seen:#?}");
        took
    });
    let [two, four, sixteen] = [1, 2, 3].map(|at| took[0] / took[at]);
    assert!(two > 1.9 && four > 3.7 && sixteen > 12.0, "{took:?}");
}

/// WIND-14.2: the flows share what they have in common evenly, and none loses anything.
#[test]
fn flows_without_caps_lose_nothing() {
    let mut world = connected(4, |_| FlowFaults::default());
    carry(&mut world, 50);
    let seen = statistics(&world);
    let lost = seen.lost_by_reordering + seen.lost_by_time + seen.lost_by_probe;
    assert_eq!((lost, seen.spurious_losses), (0, 0), "{seen:#?}");
    let bytes = carried(&world);
    assert!(bytes[..4].iter().all(|bytes| *bytes > 5 << 20), "{bytes:?}");
}

/// Connects with as many flows as pay, where each is capped, and all of them together.
fn climbing(each: u64, all: u64) -> World {
    let auto = Settings { flows: FlowCount::Auto, ..settings(1) };
    let mut world = World::established(auto, Faults::default(), 7);
    world.stride = Duration::from_micros(100);
    world.channel.flows = [FlowFaults { cap: each, ..FlowFaults::default() }; 16];
    world.channel.all_flows = FlowFaults { cap: all, ..FlowFaults::default() };
    world
}

fn flows_in_use(world: &World) -> u8 {
    world.nodes[0].connection.snapshot().flows
}

/// WIND-14.7: a network that caps flows gets as many as pay.
#[test]
fn as_many_flows_as_pay_are_used() {
    let cap = CAP / 4;
    let mut world = climbing(cap, 4 * cap);
    carry(&mut world, 100);
    let flows = flows_in_use(&world);
    assert!((4..=8).contains(&flows), "{flows} flows, where 4 pay");
    let took = carry(&mut world, 40).as_secs_f64();
    let ideal = (40 * LEN) as f64 / (4 * cap) as f64;
    assert!(took < 1.3 * ideal, "{took} s, where {ideal} s is possible");
    // The caps are lifted, so fewer do as well.
    world.channel.flows.iter_mut().for_each(|flow| flow.cap = 0);
    carry(&mut world, 1000);
    assert!(flows_in_use(&world) < flows, "{} flows, where one suffices", flows_in_use(&world));
}

/// WIND-14.7: an idle connection keeps no flows that the sender chose, and has them again later.
#[test]
fn idle_connection_keeps_no_flows() {
    let mut world = climbing(CAP / 4, CAP);
    carry(&mut world, 100);
    let flows = flows_in_use(&world);
    assert!(flows >= 4, "{flows} flows, where 4 pay");
    world.run(World::is_idle);
    world.run_for(Duration::from_secs(10));
    assert!(world.nodes[0].connection.sending.bulk.is_single(), "none is kept");
    carry(&mut world, 4);
    assert_eq!(flows_in_use(&world), flows);
}

/// WIND-14.7: elsewhere one flow is used, with others on trial.
#[test]
fn one_flow_is_used_where_more_do_not_pay() {
    let mut world = climbing(0, CAP / 2);
    carry(&mut world, 70);
    let tried = carried(&world)[1];
    assert!(tried > 0 && flows_in_use(&world) == 1, "{:?}", carried(&world));
    assert!(world.nodes[0].connection.sending.bulk.is_single(), "the trial left nothing behind");
    assert!(tried * 8 < 70 * LEN, "{:?}", carried(&world));
}

/// WIND-14.7: a second flow that carries nothing does not pay.
#[test]
fn cut_flow_is_not_kept() {
    let mut world = climbing(CAP / 4, 0);
    world.channel.flows[1].is_cut = true;
    carry(&mut world, 20);
    assert!(world.channel.flows[1].bytes > 0, "it was tried");
    assert_eq!(flows_in_use(&world), 1);
}

/// Connects with these flows over three networks, of which one is of another family. Caps are of
/// flows.
fn over_networks(flows: FlowCount, cap: u64) -> World {
    let mut world = World::new(Settings { flows, ..settings(1) }, Faults::default(), 7);
    world.nodes[0].connection.use_networks(vec![vec![3, 0], vec![2, 1, 0]]);
    world.nodes[0].connection.connect(world.now);
    world.run(|world| world.nodes.iter().all(|node| node.connection.is_established()));
    world.stride = Duration::from_micros(100);
    world.channel.flows = [FlowFaults { cap, ..FlowFaults::default() }; 16];
    assert_eq!(world.nodes[0].connection.path(), Some(1));
    world
}

/// WIND-14.8: flows go by different networks, the first one by the path in use.
#[test]
fn flows_go_by_all_networks() {
    for (flows, used) in [(1, [1].as_slice()), (2, &[0, 1]), (3, &[0, 1, 2]), (4, &[0, 1, 2])] {
        let mut world = over_networks(FlowCount::Fixed(flows), CAP);
        carry(&mut world, 20);
        let carried = world.channel.paths.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        assert_eq!(carried.map(|(path, _)| path).collect::<Vec<_>>(), used, "{flows} flows");
        let shown = world.nodes[0].connection.flows(world.now).map(|flow| flow.path);
        assert!(shown.eq([1, 0, 2, 1].into_iter().take(if flows > 1 { flows.into() } else { 0 })));
    }
}

/// WIND-14.8, WIND-14.5: a network that carries nothing is given up, and the other one carries all.
#[test]
fn dead_network_is_given_up() {
    let mut world = over_networks(FlowCount::Fixed(2), CAP);
    world.channel.dead_paths = vec![0];
    carry(&mut world, 20);
    assert_eq!(statistics(&world).flows_cut, 1);
    let before = world.channel.paths;
    carry(&mut world, 20);
    assert_eq!(world.channel.paths[0], before[0], "it is not used");
}

/// WIND-14.7, WIND-14.8: a second network is a second flow that pays.
#[test]
fn second_network_is_tried_and_kept() {
    let mut world = over_networks(FlowCount::Auto, CAP / 4);
    carry(&mut world, 60);
    assert!(flows_in_use(&world) > 1);
    assert!(
        world.channel.paths[..3].iter().all(|bytes| *bytes > 5 << 20),
        "{:?}",
        world.channel.paths
    );
}

/// WIND-1.6, WIND-14.8: a process that takes the place of another one is reached by the same
/// networks.
#[test]
fn networks_outlive_a_restart() {
    let mut world = over_networks(FlowCount::Fixed(2), CAP);
    world.nodes[0].connection.forget();
    let networks = world.nodes[0].connection.sending.bulk.take_networks();
    assert_eq!(networks, [vec![3, 0], vec![2, 1, 0]]);
}

/// WIND-14.4: flows of different delay are compared each with itself only.
#[test]
fn slow_flow_among_quick_ones_is_not_taken_for_lost() {
    let cap = |flow| FlowFaults { cap: CAP / if flow == 1 { 8 } else { 1 }, ..capped(flow) };
    let mut world = connected(4, cap);
    let clean = carry(&mut world, 60).as_secs_f64();
    let seen = statistics(&world);
    let share = seen.spurious_losses as f64 / seen.datagrams_sent as f64;
    assert!(share < 0.01 && seen.flows_cut == 0, "{seen:#?}");
    let ideal = (60 * LEN) as f64 / (CAP as f64 * 3.125);
    assert!(clean < 1.3 * ideal, "{clean} s, where {ideal} s is possible; {seen:#?}");
}

/// WIND-3.2, WIND-14.2, WIND-14.3: short datagrams of flows with different delays arrive in long
/// trains, and the receiver remembers and reports all of them.
#[test]
fn late_flow_of_short_datagrams_loses_nothing() {
    for (late, cap, step) in [(1, CAP, 5), (2, 12 * CAP, 2)] {
        let settings = Settings { datagram_max: 1472, ..settings(4) };
        let mut world = connected_with(settings, |flow| FlowFaults {
            delay: Duration::from_millis(if flow == late { 2 } else { 0 }),
            cap,
            ..FlowFaults::default()
        });
        world.stride = Duration::from_micros(step);
        carry(&mut world, 60);
        let (seen, received) = (statistics(&world), *world.nodes[1].connection.statistics());
        let lost = seen.lost_by_reordering + seen.lost_by_time + seen.lost_by_probe;
        assert_eq!((received.duplicate_datagrams, lost), (0, seen.spurious_losses), "{seen:#?}");
        let train = 60 * LEN / world.channel.trains;
        assert!(seen.spurious_losses < seen.datagrams_sent / 500, "{seen:#?}");
        assert!(train > 32 << 10, "{train} bytes in a train");
    }
}

/// WIND-14.2: a lossy flow costs no more than its share.
#[test]
fn lossy_flow_costs_at_most_its_share() {
    for lossy in 0..4 {
        let mut world = connected(4, capped);
        carry(&mut world, 20);
        let clean = carry(&mut world, 60).as_secs_f64();
        world.channel.flows[lossy].loss = 0.05;
        carry(&mut world, 20);
        let lossy_time = carry(&mut world, 60).as_secs_f64();
        assert!(lossy_time < clean * 4.0 / 3.0 * 1.05, "flow {lossy}: {lossy_time} after {clean}");
    }
}

/// WIND-14.5: a flow that carries nothing is given up, whichever it is and whenever it is cut.
#[test]
fn cut_flow_is_given_up() {
    for cut in 0..4 {
        for late in [false, true] {
            let mut world = connected(4, capped);
            if late {
                carry(&mut world, 8);
            }
            world.channel.flows[cut].is_cut = true;
            carry(&mut world, 40);
            let seen = statistics(&world);
            assert_eq!(seen.flows_cut, 1, "flow {cut}, late {late}: {seen:#?}");
            assert_eq!(world.nodes[0].fallbacks, [Fallback::Flow]);
            let before = world.channel.flows[cut].bytes;
            let took = carry(&mut world, 30).as_secs_f64();
            assert_eq!(world.channel.flows[cut].bytes, before, "it is not used");
            for flow in world.nodes[0].connection.flows(world.now) {
                let is_cut = usize::from(flow.flow) == cut;
                assert_eq!(flow.cut_for > Duration::ZERO, is_cut, "{flow:?}");
                assert!(
                    flow.datagrams_sent > 0 && (!is_cut || flow.datagrams_lost > 0),
                    "{flow:?}"
                );
            }
            let ideal = (30 * LEN) as f64 / (3 * CAP) as f64;
            assert!(took < 1.15 * ideal, "flow {cut}: {took} s, where {ideal} s is possible");
        }
    }
}

/// WIND-14.5: a flow that was cut for a while is used again.
#[test]
fn flow_that_heals_is_used_again() {
    let mut world = connected(2, capped);
    world.channel.flows[1].is_cut = true;
    carry(&mut world, 20);
    let before = world.channel.flows[1].bytes;
    world.channel.flows[1].is_cut = false;
    world.run_for(Duration::from_secs(11));
    carry(&mut world, 20);
    assert!(world.channel.flows[1].bytes > before + (5 << 20), "{:?}", carried(&world));
}

/// WIND-14.5, WIND-14.6: where one port passes, it carries all.
#[test]
fn only_flow_that_passes_carries_everything() {
    for passes in [0, 1, 5, 15] {
        let is_cut = |flow| FlowFaults { is_cut: flow != passes, ..capped(flow) };
        let mut world = connected(FLOWS_MAX, is_cut);
        let took = carry(&mut world, 20);
        assert!(took < Duration::from_secs(2), "flow {passes}: {took:?}");
        carry(&mut world, 20);
        assert_eq!(statistics(&world).flows_cut, u64::from(FLOWS_MAX) - 1, "flow {passes}");
    }
}

/// WIND-8.9, WIND-14.6: where no flow passes, the first port carries all, and soon.
#[test]
fn without_any_flow_the_first_port_carries() {
    for flows in [4, FLOWS_MAX] {
        let mut world = connected(flows, |_| FlowFaults::default());
        world.one_port_only = true;
        let took = carry(&mut world, 20);
        assert!(took < Duration::from_millis(400), "{flows} flows: {took:?}");
        assert_eq!(statistics(&world).bulk_ports_shunned, 1);
        let before = carried(&world);
        carry(&mut world, 20);
        let after = carried(&world);
        assert!(after[0] > before[0] && after[1..] == before[1..], "{before:?} {after:?}");
    }
}

/// WIND-12.6, WIND-14.2: group datagrams use the window of the first flow, and no other.
#[test]
fn group_datagrams_have_the_window_of_the_first_flow() {
    let mut world = connected(4, capped);
    carry(&mut world, 8);
    world.run(World::is_idle);
    let (now, connection) = (world.now, &mut world.nodes[0].connection);
    connection.sending.bulk.controller.stalled(now);
    let window = connection.sending.bulk.controller.window();
    assert!(window * 4 < connection.sending.bulk.window(now), "the others have more");
    for shared in [window, window - 1] {
        connection.sending.bulk.shared = shared;
        assert_eq!(connection.group_has_room(now), shared < window, "{shared} of {window}");
        assert_eq!(connection.group_is_full_after(now, 1), shared + 1 >= window);
    }
    connection.sending.bulk.shared = window - 2;
    assert!(!connection.group_is_full_after(now, 1));
}

/// WIND-8.3, WIND-14.4: a lost size probe is overtaken by datagrams of its own flow, and so tells
/// the width of the path as soon as with one flow.
#[test]
fn several_flows_find_the_width_of_the_path_as_one_does() {
    let probes = [1, 4, 16].map(|flows| {
        let mut world = connected(flows, capped);
        world.fits = [usize::MAX, 3000];
        while !(3000 - 64..=3000).contains(&world.nodes[0].connection.mtu.size()) {
            carry(&mut world, 1);
        }
        statistics(&world).size_probes_sent
    });
    assert!(probes.iter().all(|sent| *sent <= probes[0] * 3 / 2), "{probes:?}");
}

/// WIND-14.2: little bulk goes by the first flow.
#[test]
fn short_message_goes_by_the_first_flow() {
    let mut world = connected(4, |_| FlowFaults::default());
    for id in 0..20 {
        world.post(0, bulk(id, 8192));
        world.run(World::is_idle);
    }
    assert_eq!(carried(&world)[1..], [0; 15]);
}

/// WIND-2, WIND-5: whatever happens on the way, each message arrives once and whole.
#[test]
fn faulty_flows_deliver_everything_once() {
    let faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.1, corrupt: 0.01 };
    for seed in 0..5 {
        let mut world = World::established(settings(1 + seed as u8 * 3), faults, seed);
        world.stride = Duration::from_micros(100);
        for (flow, known) in world.channel.flows.iter_mut().enumerate() {
            *known = FlowFaults { is_cut: flow % 4 == 3, ..capped(flow) };
        }
        carry(&mut world, 20);
        world.run(World::is_idle);
        assert_eq!(world.nodes[1].handler.placed_bytes, 20 * LEN);
    }
}
