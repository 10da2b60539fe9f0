//! Tests of the controllers on a path given by a formula, and of the shares against a manual count.

use super::*;
use crate::limits::GRANT_TIME;
use crate::wind::congestion::receive_share::Grant;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

const DATAGRAM: u64 = 1000;

/// One flow on a path. Acknowledgements come after the base round trip and the queueing delay, once
/// every quarter of a round trip.
struct Path {
    now: Time,
    base: Duration,
    /// Bytes per microsecond.
    rate: u64,
    /// Bytes that fit into the queue, and bytes from which on datagrams are marked.
    room: u64,
    mark_from: u64,
    /// Bytes of another flow in the queue.
    foreign: u64,
    lost: u64,
}

impl Path {
    fn new(base_us: u64, rate: u64) -> Path {
        let base = Duration::from_micros(base_us);
        Path {
            now: Time(1_000_000),
            base,
            rate,
            room: u64::MAX,
            mark_from: u64::MAX,
            foreign: 0,
            lost: 0,
        }
    }

    /// Returns the bytes in the queue: those of the other flow, and those of the window beyond what
    /// the path holds.
    fn queue(&self, window: u64) -> u64 {
        self.foreign + window.saturating_sub(self.base.as_micros() as u64 * self.rate)
    }

    fn round(&mut self, controller: &mut dyn Controller) {
        let (window, begin) = (controller.window(), self.now);
        let queue = self.queue(window);
        let delay = self.base + Duration::from_micros(queue.min(self.room) / self.rate);
        if queue > self.room {
            self.lost += 1;
            controller.lost(begin, begin + delay);
        }
        for quarter in 1..5 {
            self.now = begin + delay / 4 * quarter;
            let datagrams = (window / 4 / DATAGRAM).max(1) as u32;
            let marked = if queue > self.mark_from { datagrams } else { 0 };
            let sent = Time(self.now.0.saturating_sub(delay.as_nanos() as u64));
            let bytes = window / 4;
            controller.acknowledged(&Sample {
                now: self.now,
                bytes,
                sent,
                delay: Some(delay),
                datagrams,
                marked,
                limited: true,
            });
        }
    }

    fn rounds(&mut self, controller: &mut dyn Controller, count: u32) {
        (0..count).for_each(|_| self.round(controller));
    }
}

fn delay(most: u64) -> Delay {
    Delay::new(Limits::new(DATAGRAM, most))
}

/// WIND-9.2, WIND-9.3
#[test]
fn an_idle_path_is_filled_in_few_round_trips() {
    // Delay added by a busy host, within the budget.
    for noise_us in [20, 900] {
        let mut path = Path::new(20, u64::MAX / (1 << 40));
        let mut flow = delay(8 << 20);
        path.rounds(&mut flow, 4);
        path.base = Duration::from_micros(noise_us);
        path.rounds(&mut flow, 30);
        assert_eq!(flow.window(), 8 << 20, "{noise_us}");
    }
}

/// WIND-9.3
#[test]
fn a_deep_queue_stays_at_the_target() {
    let mut path = Path::new(100, 125);
    let mut flow = delay(64 << 20);
    path.rounds(&mut flow, 300);
    let standing = Duration::from_micros(path.queue(flow.window()) / path.rate);
    assert!(
        (Duration::from_micros(1000)..Duration::from_micros(2600)).contains(&standing),
        "{standing:?}"
    );
    assert_eq!(path.lost, 0);
}

/// WIND-9.3: sends a window, waits, and then gets all its acknowledgements at once.
fn stand_still(flow: &mut Delay, now: &mut Time, span: Duration) {
    let (window, sent) = (flow.window(), *now);
    *now += span;
    for quarter in 0..4 {
        let (sent, delay) = (Time(sent.0 + quarter), Some(span));
        flow.acknowledged(&Sample {
            now: *now,
            bytes: window / 4,
            sent,
            delay,
            datagrams: 9,
            marked: 0,
            limited: true,
        });
    }
}

/// WIND-9.3
#[test]
fn a_host_that_stands_still_is_no_queue() {
    // The path's queue holds less than the target.
    let (mut flow, mut path) = (delay(1 << 20), Path::new(100, 1250));
    path.rounds(&mut flow, 60);
    let before = flow.window();
    assert_eq!(before, 1 << 20);
    (0..20).for_each(|_| stand_still(&mut flow, &mut path.now, Duration::from_millis(12)));
    assert_eq!(flow.window(), before);
    // A queue of that length is different, whichever flow fills it.
    path.foreign = 12_000 * path.rate;
    path.rounds(&mut flow, 3);
    assert!(flow.window() <= before / 2, "{} of {before}", flow.window());
}

/// WIND-9.3: the acknowledgements of a small window come together in any case.
#[test]
fn silence_says_nothing_of_a_small_window() {
    let (mut flow, mut now) = (delay(8 << 20), Time(1_000_000));
    let before = flow.window();
    (0..4).for_each(|_| stand_still(&mut flow, &mut now, Duration::from_millis(12)));
    assert!(flow.window() < before, "{} of {before}", flow.window());
}

/// WIND-9.5
#[test]
fn marks_keep_a_shallow_queue_from_filling() {
    let mut path = Path::new(100, 1250);
    (path.mark_from, path.room) = (60_000, 400_000);
    let mut flow = delay(64 << 20);
    path.rounds(&mut flow, 60);
    path.lost = 0;
    let mut windows = Vec::new();
    for _ in 0..400 {
        path.round(&mut flow);
        windows.push(flow.window());
    }
    let bdp = 125_000;
    assert_eq!(path.lost, 0);
    assert!(
        windows.iter().all(|window| (bdp / 10 * 9..bdp + 200_000).contains(window)),
        "{windows:?}"
    );
}

/// WIND-9.5: a path that clears marks is judged by the marks that are left.
#[test]
fn without_marks_nothing_is_believed_marked() {
    let mut flow = delay(1 << 20);
    let before = flow.window();
    let sample = Sample {
        now: Time(9),
        bytes: 0,
        sent: Time(8),
        delay: None,
        datagrams: 0,
        marked: 0,
        limited: false,
    };
    flow.acknowledged(&sample);
    assert_eq!(flow.window(), before);
}

/// WIND-9.4
#[test]
fn beside_somebody_who_fills_the_queue_it_competes_and_it_yields_again_when_he_has_gone() {
    let mut path = Path::new(1000, 25);
    path.room = 500_000;
    let mut flow = delay(8 << 20);
    path.rounds(&mut flow, 200);
    let alone = flow.window();
    path.foreign = 400_000;
    path.rounds(&mut flow, 40);
    assert!(flow.window() >= alone / 2, "{} of {alone}", flow.window());
    path.foreign = 0;
    // The test comes after 2 s at the latest, and rounds here take 5 to 20 ms each.
    path.rounds(&mut flow, 1000);
    let queued = Duration::from_micros(path.queue(flow.window()) / path.rate);
    assert!(queued < Duration::from_millis(5), "{queued:?}");
}

/// WIND-9.6.
#[test]
fn a_loss_that_was_none_is_undone() {
    for algorithm in [Algorithm::Delay, Algorithm::Cubic] {
        let mut flow = algorithm.controller(DATAGRAM, 1 << 20);
        Path::new(100, 1 << 30).rounds(&mut *flow, 10);
        let before = flow.window();
        flow.lost(Time(50_000_000), Time(60_000_000));
        flow.lost(Time(55_000_000), Time(61_000_000));
        let after = flow.window();
        assert!(after.abs_diff(before / 10 * 7) <= 100, "{after} of {before}, once");
        flow.spurious(Time(62_000_000));
        assert_eq!(flow.window(), before);
        flow.stalled(Time(70_000_000));
        assert_eq!(flow.window(), 2 * DATAGRAM);
        flow.spurious(Time(80_000_000));
        assert_eq!(flow.window(), before);
    }
}

/// WIND-5.6, WIND-9.6: an event that found the window reduced already undoes nothing, and nothing
/// from before it.
#[test]
fn a_reduction_from_before_another_is_not_undone() {
    for algorithm in [Algorithm::Delay, Algorithm::Cubic] {
        let mut flow = algorithm.controller(DATAGRAM, 1 << 20);
        Path::new(100, 1 << 30).rounds(&mut *flow, 10);
        flow.lost(Time(50_000_000), Time(60_000_000));
        let (now, sent) = (Time(70_000_000), Time(65_000_000));
        flow.acknowledged(&Sample {
            now,
            bytes: DATAGRAM,
            sent,
            delay: None,
            datagrams: 1,
            marked: 1,
            limited: true,
        });
        flow.lost(Time(66_000_000), Time(71_000_000));
        let before = (flow.window(), flow.pacing_gain());
        flow.spurious(Time(72_000_000));
        assert_eq!((flow.window(), flow.pacing_gain()), before, "{algorithm}");
    }
}

/// WIND-6.2: two datagrams of the size in use.
#[test]
fn a_path_that_becomes_narrow_or_wide_changes_the_steps() {
    for algorithm in [Algorithm::Delay, Algorithm::Cubic] {
        let mut flow = algorithm.controller(9000, 1 << 20);
        flow.stalled(Time(1));
        assert_eq!(flow.window(), 18_000);
        flow.resized(1500);
        flow.stalled(Time(2));
        assert_eq!(flow.window(), 3000);
        flow.resized(9000);
        assert_eq!(flow.window(), 18_000);
    }
}

/// WIND-9.7
#[test]
fn algorithms_have_names() {
    for algorithm in [Algorithm::Delay, Algorithm::Cubic] {
        assert_eq!(std::format!("{algorithm}").parse(), Ok(algorithm));
    }
    assert_eq!("reno".parse::<Algorithm>(), Err(NoSuchAlgorithm));
}

proptest! {
    /// WIND-6.2: whatever happens, the window stays within its bounds and nothing overflows
    /// (WIND-6.2).
    #[test]
    fn no_history_leads_out_of_bounds(
        cubic in any::<bool>(),
        steps in proptest::collection::vec((0u8..10, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 34, any::<u32>()), 0..300),
    ) {
        let (least, most) = (2 * DATAGRAM, 5 << 20);
        let algorithm = if cubic { Algorithm::Cubic } else { Algorithm::Delay };
        let mut flow: Box<dyn Controller> = algorithm.controller(DATAGRAM, most);
        let mut now = Time(0);
        for (what, span, ago, bytes, count) in steps {
            now += Duration::from_nanos(span);
            let sent = Time(now.0.saturating_sub(ago));
            match what {
                0 => flow.lost(sent, now),
                1 => flow.spurious(now),
                2 => flow.stalled(now),
                _ => {
                    let delay = (what < 8).then(|| Duration::from_nanos(ago));
                    let marked = if what == 3 { count } else { 0 };
                    flow.acknowledged(&Sample { now, bytes, sent, delay, datagrams: count, marked, limited: what != 4 });
                }
            }
            prop_assert!((least..=most).contains(&flow.window()));
            prop_assert!((100..=200).contains(&flow.pacing_gain()));
        }
    }
}

/// WIND-9.9, WIND-9.10
#[test]
fn shares_follow_those_who_send() {
    const BUFFER: u64 = 4 << 20;
    let mut shares = Shares::new(BUFFER, 65);
    let allowance = BUFFER / 4 / 64;
    let mut now = Time(1);
    assert_eq!(shares.of(3, now), allowance, "nothing sent yet");
    shares.received(3, allowance, now);
    assert_eq!((shares.of(3, now), shares.senders()), (allowance, 0), "no more than allowed");
    shares.received(3, 1, now);
    assert_eq!(shares.of(3, now), BUFFER - 63 * allowance);
    assert_eq!(shares.of(4, now), allowance);
    (1..65).for_each(|rank| shares.received(rank, allowance + 1, now));
    assert_eq!((shares.of(3, now), shares.senders()), (BUFFER / 64, 64));
    // One peer continues to send much, one sends a little, and the others are silent.
    for _ in 0..50 {
        now += GRANT_TIME / 10;
        shares.received(7, allowance, now);
        shares.received(8, 100, now);
        let told: u64 = (1..65).map(|rank| shares.of(rank, now)).sum();
        assert!(told <= BUFFER, "{told}");
    }
    assert_eq!((shares.senders(), shares.of(8, now)), (1, allowance));
    now += 5 * GRANT_TIME;
    assert_eq!((shares.of(7, now), shares.senders()), (allowance, 0));
}

/// WIND-9.11
#[test]
fn a_grant_ages() {
    let mut grant = Grant::new(1 << 20, 3);
    let allowance = (1 << 20) / 8;
    assert_eq!(grant.bytes(Time(5)), allowance);
    grant.note(Time(10), 700_000);
    assert_eq!(grant.bytes(Time(10) + GRANT_TIME), 700_000);
    assert_eq!(grant.bytes(Time(11) + GRANT_TIME), allowance);
    grant.note(Time(20), 0);
    assert_eq!(grant.bytes(Time(20)), allowance, "never less");
}

proptest! {
    /// The sum of the shares never exceeds the buffer, whichever peers come and go.
    #[test]
    fn the_buffer_is_never_promised_twice(steps in proptest::collection::vec((1u32..9, 0u64..200_000, 0u64..60_000_000), 0..200)) {
        let mut shares = Shares::new(1 << 20, 9);
        let mut now = Time(0);
        for (rank, bytes, span) in steps {
            now += Duration::from_nanos(span);
            shares.received(rank, bytes, now);
            let told: u64 = (1..9).map(|rank| shares.of(rank, now)).sum();
            prop_assert!(told <= 1 << 20, "{}", told);
            prop_assert!(shares.senders() <= 8);
        }
    }
}
