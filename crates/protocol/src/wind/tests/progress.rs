//! Tests of peers that are heard and acknowledge nothing (WIND-7.6), and of fast paths that lose
//! datagrams (WIND-8.10).

use super::support::channel::Faults;
use super::support::world::{DatagramFilter, Words, World, death, message};
use crate::limits::{FAST_PATH_RETRY_MIN, PROGRESS_FAILURE_TIMES};
use crate::wind::*;
use crate::wire::{Frame, View};
use core::time::Duration;

const FAILURE_TIME: Duration = Duration::from_millis(500);

fn settings() -> Settings {
    Settings { failure_time: FAILURE_TIME, receive_buffer: 8 << 20, ..Settings::default() }
}

fn small(id: u64) -> Message {
    message(Class::Ordered, id, 8)
}

fn bulk(id: u64, len: u64) -> Message {
    let head = Words { id, refuse: false, place: true }.head(0);
    let body = Body::Segment(Segment { region: id as u32, offset: 0, len });
    Message { class: Class::Unordered, head, body, ..small(id) }
}

/// Sender of the datagrams that get lost, predicate for these, the message that gets stuck, and
/// whether it is in the bulk lane.
type Case = (usize, DatagramFilter, fn(u64) -> Message, bool);

fn carries_content(view: &View<'_>) -> bool {
    view.frames().flatten().any(|frame| frame.elicits() && !matches!(frame, Frame::Ping))
}

fn of_the_bulk_lane(view: &View<'_>) -> bool {
    view.header().lane() == Lane::Bulk
}

/// WIND-7.6, WIND-7.9: whichever datagrams get lost, the peer is heard all the time, and both ends
/// learn why the connection ended.
#[test]
fn peer_that_is_heard_but_acknowledges_nothing_is_given_up_with_what_is_stuck() {
    let cases: [Case; 3] = [
        (0, carries_content, small, false),
        (0, carries_content, |id| bulk(id, 100_000), true),
        (0, of_the_bulk_lane, |id| bulk(id, 100_000), true),
    ];
    for (node, lost, message, in_bulk) in cases {
        let mut world = World::established(settings(), Faults::default(), 1);
        world.stride = Duration::from_millis(1);
        world.loses = Some((node, lost));
        world.post(0, message(1));
        let begun = world.now;
        world.run(|world| death(world, 0).is_some());
        let took = world.now - begun;
        let Some(Death::NoProgress(stuck)) = death(&world, 0) else {
            panic!("{:?}", death(&world, 0))
        };
        assert!(took >= FAILURE_TIME * PROGRESS_FAILURE_TIMES, "{took:?}");
        assert!(took < FAILURE_TIME * (PROGRESS_FAILURE_TIMES + 2), "{took:?}");
        assert!(stuck.datagrams > 0 && stuck.messages == 1 && stuck.bulk == in_bulk, "{stuck:?}");
        assert!(world.nodes[0].events.contains(&Event::Failed(Token(1), Death::NoProgress(stuck))));
        world.loses = None;
        world.run(|world| death(world, 1).is_some());
        assert_eq!(death(&world, 1), Some(Death::GivenUp(CloseReason::NoProgress)));
    }
}

/// WIND-7.6: a peer that waits for credit or is merely slow makes progress, or has nothing
/// outstanding.
#[test]
fn slow_path_and_reader_that_does_not_read_are_no_lack_of_progress() {
    let slow = Settings { credit: 1000, ..settings() };
    let mut world = World::established(slow, Faults { loss: 0.6, ..Faults::default() }, 2);
    world.stride = Duration::from_millis(1);
    for id in 1..10 {
        world.post(0, Message { charge: Charge::Body, ..small(id) });
        world.post(1, bulk(100 + id, 20_000));
    }
    world.run_for(FAILURE_TIME * PROGRESS_FAILURE_TIMES * 4);
    world.channel.faults.loss = 0.0;
    world.run_for(FAILURE_TIME * PROGRESS_FAILURE_TIMES * 4);
    assert_eq!((death(&world, 0), death(&world, 1)), (None, None));
    assert_eq!(world.nodes[0].connection.snapshot().blocked, 2);
}

/// WIND-7.4, WIND-7.6: a node that slept for longer first finds out whether the peer has answered
/// meanwhile.
#[test]
fn own_sleep_is_no_lack_of_progress() {
    let mut world = World::established(settings(), Faults::default(), 3);
    world.stride = Duration::from_millis(1);
    world.post(0, small(1));
    world.step();
    world.now += FAILURE_TIME * 20;
    world.run(World::is_idle);
    world.run_for(FAILURE_TIME);
    assert_eq!((death(&world, 0), death(&world, 1)), (None, None));
}

/// WIND-7.6: the wait for a refused or cancelled message has ended, however old it is when the next
/// message is sent.
#[test]
fn refused_and_cancelled_messages_leave_no_wait_behind() {
    for seed in 0..40 {
        let mut world = World::established(
            settings(),
            Faults { loss: 0.4, reorder: 0.3, ..Faults::default() },
            seed,
        );
        world.stride = Duration::from_millis(1);
        for id in 1..30 {
            let head = Words { id, refuse: id % 3 == 0, place: true }.head(0);
            world.post(0, Message { head, ..bulk(id, 5_000) });
            if id % 4 == 0 {
                world.nodes[0].connection.cancel(Token(id));
            }
        }
        world.run(World::is_idle);
        let waits = |world: &World| {
            world.nodes.each_ref().map(|node| {
                node.connection.sending.both().map(|sending| sending.flight.progress.since())
            })
        };
        world.channel.faults = Faults::default();
        world.run_for(FAILURE_TIME);
        // A keepalive may have been sent just now.
        world.run(World::is_idle);
        assert_eq!(waits(&world), [[None; 2]; 2], "seed {seed}");
        assert_eq!((death(&world, 0), death(&world, 1)), (None, None), "seed {seed}");
    }
}

/// WIND-8.10, WIND-8.12: trains are lost, and single datagrams arrive. The transfer ends soon and
/// uses single datagrams from then on. The owner is told once.
#[test]
fn path_that_loses_trains_is_used_without_them() {
    for len in [200_000, 20_000_000] {
        let mut world = World::established(settings(), Faults::default(), 4);
        world.stride = Duration::from_millis(1);
        world.loses_trains = true;
        let begun = world.now;
        world.post(0, bulk(1, len));
        world.run(|world| world.nodes[0].events.contains(&Event::Acknowledged(Token(1))));
        let took = world.now - begun;
        assert!(took < Duration::from_secs(5), "{len} bytes took {took:?}");
        assert_eq!(
            world.nodes[0].fallbacks.iter().filter(|told| **told == Fallback::Segmentation).count(),
            1
        );
    }
}

/// WIND-8.10: an avoided fast path is tried again after a long time, by few datagrams, and used
/// once it works.
#[test]
fn trains_are_tried_again_after_a_long_time() {
    let mut world = World::established(settings(), Faults::default(), 5);
    world.loses_trains = true;
    let transfer = |world: &mut World, id| {
        world.stride = Duration::from_millis(1);
        world.post(0, bulk(id, 2_000_000));
        world.run(|world| world.nodes[0].events.contains(&Event::Acknowledged(Token(id))));
        world.stride = Duration::from_millis(50);
    };
    transfer(&mut world, 1);
    let avoided = |world: &World| world.nodes[0].connection.statistics().trains_avoided;
    assert_eq!(avoided(&world), 1);
    for (id, factor) in [(2, 1), (3, 2)] {
        world.run_for(FAST_PATH_RETRY_MIN * factor);
        transfer(&mut world, id);
        assert_eq!(avoided(&world), id);
    }
    world.loses_trains = false;
    world.run_for(FAST_PATH_RETRY_MIN * 4);
    transfer(&mut world, 4);
    assert_eq!(avoided(&world), 3);
    assert_eq!(
        world.nodes[0].fallbacks.iter().filter(|told| **told == Fallback::Segmentation).count(),
        1,
        "told once"
    );
}

/// WIND-8.10, WIND-8.11: datagrams that bypass the kernel's IP are lost, and those through the
/// socket arrive.
#[test]
fn path_that_loses_bypassed_datagrams_is_used_without_bypass() {
    let mut world = World::established(settings(), Faults::default(), 6);
    world.stride = Duration::from_millis(1);
    world.loses_bypassed = true;
    for id in 1..100 {
        world.post(0, small(id));
        world.run(World::is_idle);
    }
    assert_eq!(world.nodes[0].fallbacks, [Fallback::Bypass]);
    let before = world.nodes[0].connection.statistics().probe_timeouts;
    for id in 100..200 {
        world.post(0, small(id));
        world.run(World::is_idle);
    }
    assert_eq!(
        world.nodes[0].connection.statistics().probe_timeouts,
        before,
        "nothing is lost any more"
    );
}

/// WIND-8.10: ordinary loss, however heavy, does not count against fast paths.
#[test]
fn heavy_loss_of_everything_avoids_no_fast_path() {
    for (seed, loss) in (0..30).flat_map(|seed| [(seed, 0.05), (seed, 0.2)]) {
        let mut world = World::established(settings(), Faults { loss, ..Faults::default() }, seed);
        world.stride = Duration::from_millis(1);
        for id in 1..20 {
            world.post(0, bulk(id, 100_000));
            world.post(0, small(100 + id));
        }
        world.run(World::is_idle);
        let counted = world.nodes[0].connection.statistics();
        assert_eq!(counted.trains_avoided, 0, "seed {seed}, loss {loss}");
        assert_eq!(counted.bypasses_avoided, 0, "seed {seed}, loss {loss}");
    }
}
