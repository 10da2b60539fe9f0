//! Many peers: what they cost in memory and in the work of a turn, and that nobody waits for
//! others' bulk (WIND-3.9, WIND-3.10, WIND-10).

use oikaze_engine::{Completion, Request, Value};
use oikaze_os::counting::Counting;
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::IDLE_PEER_MAX;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::{Body, Class, Segment, Settings};
use oikaze_sim::cluster::Cluster;
use oikaze_sim::crowd::{Crowd, LATENCY};
use oikaze_sim::net::Weather;
use oikaze_sim::plan::{Plan, Role, Scenario};
use oikaze_sim::program::{SharedPlan, Size};
use oikaze_sim::random::Random;
use oikaze_sim::trace::Trace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// One test at a time, for the heap is everybody's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings() -> Settings {
    Settings { datagram_max: 8952, receive_buffer: 8 << 20, ..Settings::default() }
}

fn connected(peers: u32, settings: Settings) -> Crowd {
    let mut crowd = Crowd::new(7, peers, settings).unwrap();
    let soon = crowd.now + Duration::from_secs(5);
    crowd
        .run_until(soon, |crowd| (1..=peers).all(|rank| crowd.hub.peers().is_connected(rank)))
        .unwrap();
    crowd.pass(Duration::from_millis(50)).unwrap();
    crowd
}

fn send(crowd: &mut Crowd, to: Rank, bytes: usize) -> Arc<Completion> {
    crowd.ask(Request::Send {
        to,
        class: Class::Ordered,
        tag: 1,
        body: Body::Inline(vec![1; bytes]),
    })
}

fn until_done(crowd: &mut Crowd, all: &[Arc<Completion>]) {
    let deadline = crowd.now + Duration::from_secs(60);
    let mut at = 0;
    crowd
        .run_until(deadline, |_| {
            // Each is looked at until it is done, and not again.
            while all.get(at).is_some_and(|one| one.is_done()) {
                at += 1;
            }
            at == all.len()
        })
        .unwrap();
    assert!(all.iter().all(|one| one.outcome() == Some(Ok(Value::Done))));
}

/// Read what has arrived, as a user would.
fn read(crowd: &mut Crowd) -> u64 {
    let mut count = 0;
    while let Some(arrived) = crowd.hub.inbox().take_arrived() {
        count += 1;
        crowd.ask(Request::Consumed {
            from: arrived.from,
            messages: 1,
            bytes: arrived.body.len() as u64,
        });
    }
    count
}

/// A message of so many bytes to each peer and one from each, all at once, until all have arrived
/// and are read.
fn everybody_talks(crowd: &mut Crowd, peers: u32, bytes: usize) {
    let all: Vec<_> = (1..=peers).map(|rank| send(crowd, rank, bytes)).collect();
    (1..=peers).for_each(|rank| crowd.say(rank, bytes));
    until_done(crowd, &all);
    let (deadline, mut arrived) = (crowd.now + Duration::from_secs(60), 0);
    crowd
        .run_until(deadline, |crowd| {
            arrived += read(crowd);
            arrived == u64::from(peers)
        })
        .unwrap();
}

#[test]
fn a_thousand_peers_are_served_and_only_the_active_ones_cost_work() {
    let _alone = alone();
    const PEERS: u32 = 1000;
    let mut crowd = connected(PEERS, settings());
    everybody_talks(&mut crowd, PEERS, 10_000);
    assert!(crowd.leaves.iter().all(|leaf| leaf.heard.bytes == 10_000));
    crowd.pass(Duration::from_millis(50)).unwrap();
    // A few of them, while the others are silent: what a turn looks at is those few.
    let before = crowd.hub.counters();
    let mut exchanged = 0;
    for round in 0..200 {
        let rank = 1 + round % 4 * 250;
        let sent = send(&mut crowd, rank, 8);
        until_done(&mut crowd, &[sent]);
        exchanged += 1;
    }
    let after = crowd.hub.counters();
    let (visits, turns) = (after.visits - before.visits, after.turns - before.turns);
    assert!(turns >= exchanged);
    // A message out, its acknowledgement in, a deadline or two: each an active turn of a handful of
    // looks.
    assert!(
        visits <= 40 * exchanged,
        "{visits} looks at peers for {exchanged} messages among {PEERS} peers"
    );
    // Nobody: nothing but what keeps peers alive.
    let before = crowd.hub.counters();
    crowd.pass(Duration::from_secs(2)).unwrap();
    let after = crowd.hub.counters();
    let (visits, turns) = (after.visits - before.visits, after.turns - before.turns);
    assert!(visits <= 60 * u64::from(PEERS), "{visits} looks in 2 s of silence, {turns} turns");
}

#[test]
fn sixty_four_nodes_share_arrays_and_pass_barriers_together() {
    let _alone = alone();
    const NODES: u32 = 64;
    let random = &mut Random::stream(64, 64);
    let shared = SharedPlan::any(Size { nodes: NODES, threads: 1, pages: 8, phases: 4 }, random);
    let base = Plan::new(64, Scenario::Shared);
    let plan = Plan {
        nodes: NODES,
        settings: settings(),
        false_candidates: false,
        refusing: 0.0,
        weather: Weather { partitions: Vec::new(), ..Weather::mild(random) },
        stalls: Vec::new(),
        roles: vec![vec![Role::Sharer(0)]; NODES as usize],
        accessors: 0,
        shared: Some(Arc::new(shared)),
        sharers: 1,
        ..base
    };
    let mut cluster = Cluster::new(plan, Trace::new(false)).unwrap();
    let summary =
        cluster.run().unwrap_or_else(|violation| panic!("{violation}\n{}", cluster.state()));
    // Each of them has connected to each.
    assert!(summary.datagrams >= u64::from(NODES * (NODES - 1)), "{summary:?}");
}

#[test]
fn a_turn_in_which_nothing_happens_allocates_nothing_and_looks_at_nobody() {
    let _alone = alone();
    let mut crowd = connected(100, settings());
    let (quiet, before) = (crowd.now, crowd.hub.counters().visits);
    // The heap is the test harness's too, which may say something meanwhile; not each time.
    let calls = (0..10).map(|_| {
        let calls = HEAP.calls_here();
        (0..1000).for_each(|_| assert!(crowd.hub.turn(quiet).is_idle()));
        HEAP.calls_here() - calls
    });
    assert_eq!(calls.min(), Some(0));
    assert_eq!(crowd.hub.counters().visits, before);
}

#[test]
fn an_idle_peer_costs_eight_kibibytes_at_most() {
    let _alone = alone();
    for (peers, bytes) in [(1000, 20_000), (16, 4 << 20)] {
        let before = HEAP.live_here();
        let mut crowd = connected(peers, settings());
        everybody_talks(&mut crowd, peers, bytes);
        crowd.pass(Duration::from_secs(4)).unwrap();
        let both = HEAP.live_here() - before;
        crowd.disperse();
        let hub = HEAP.live_here() - before;
        // Memory that the engine keeps for any number of peers.
        let once = 256 << 10;
        let each = (hub - once).max(0) / i64::from(peers);
        println!(
            "{peers} peers after {bytes} bytes each way: {each} bytes a peer ({hub} in all), {} at the peer's end",
            (both - hub) / i64::from(peers)
        );
        assert!(each <= IDLE_PEER_MAX as i64, "{each} bytes a peer");
    }
}

/// How long 8 bytes take to `to`, sent at several moments while `bulk` goes on.
fn latencies(crowd: &mut Crowd, to: Rank, bulk: Option<&Completion>) -> Vec<Duration> {
    let mut spans = Vec::new();
    for round in 0..60 {
        crowd.pass(Duration::from_nanos(150_000 + 7_919 * round)).unwrap();
        let early = bulk.and_then(Completion::outcome);
        assert_eq!(early, None, "the bulk must last longer than the test ({round} rounds to {to})");
        let (begun, before) = (crowd.now, crowd.leaf(to).heard.messages);
        crowd.leaf(to).heard.short_at = None;
        let deadline = begun + Duration::from_secs(5);
        // Not an ordered one: that would wait for the put before it, as it must (WIND-2.3).
        let body = Body::Inline(vec![1; 8]);
        let sent = crowd.ask(Request::Send { to, class: Class::Unordered, tag: 1, body });
        crowd.run_until(deadline, |crowd| crowd.leaf(to).heard.short_at.is_some()).unwrap();
        spans.push(crowd.leaf(to).heard.short_at.unwrap() - begun);
        assert!(crowd.leaf(to).heard.messages > before);
        crowd.run_until(deadline, |_| sent.is_done()).unwrap();
    }
    spans.sort_unstable();
    spans
}

/// WIND-3.9: before bulk to another peer; WIND-3.10: after two runs of it at most; WIND-6.1: not
/// for the window.
#[test]
fn eight_bytes_overtake_a_gibibyte_to_the_same_peer_and_to_another() {
    let _alone = alone();
    const LONG: u64 = 1 << 30;
    // The second has a window that a gibibyte fills all the time.
    for window_max in [settings().window_max, 64 << 10] {
        let mut crowd = connected(3, Settings { window_max, ..settings() });
        let idle = latencies(&mut crowd, 1, None);
        let idle = idle[idle.len() / 2];
        assert!(idle >= LATENCY && idle < LATENCY * 2, "{idle:?}");
        // Never touched, so that it costs no memory: a gibibyte of zeros.
        let region = crowd
            .hub
            .memory()
            .insert(Region::private(LONG as usize).unwrap(), Rights::ALL)
            .unwrap();
        let body = Body::Segment(Segment { region: region.slot, offset: 0, len: LONG });
        let bulk = crowd.ask(Request::Put { to: 1, key: 1, offset: 0, body, signal: None });
        for to in [1, 2] {
            let spans = latencies(&mut crowd, to, Some(&bulk));
            let (median, worst) = (spans[spans.len() / 2], spans[spans.len() - 1]);
            println!(
                "window {window_max}, to {to}: idle {idle:?}, during bulk {median:?}, at worst {worst:?}"
            );
            assert!(
                median <= 3 * idle && worst <= 10 * idle,
                "to {to}: {median:?} and at worst {worst:?}, idle {idle:?}"
            );
        }
    }
}

/// WIND-10.1, and WIND-10.4: those who wait for the hub are served between bursts of garbage.
#[test]
fn a_flood_of_garbage_takes_no_memory_and_no_peer_is_looked_at_for_it() {
    let _alone = alone();
    let mut crowd = connected(20, settings());
    crowd.pass(Duration::from_secs(3)).unwrap();
    let (heap, before) = (HEAP.live_here(), crowd.hub.counters());
    let (somewhere, peer) = (([192, 0, 2, 1], 9).into(), crowd.address(5));
    let mut forged = 0_u64;
    for round in 0..20_000_u64 {
        let noise = (round % 1400) as usize;
        // Noise; a header that makes sense with an id that does not; a handshake of nobody, with a
        // tag by chance.
        let mut bytes = vec![(round * 37) as u8; noise];
        if round % 3 != 0 {
            bytes = vec![0; 24 + 4];
            bytes[0] = if round % 3 == 1 { (round % 255) as u8 + 1 } else { 0 };
            bytes[8] = 1;
            bytes[17] = 1;
            forged += 1;
        }
        crowd.knock(if round % 2 == 0 { somewhere } else { peer }, bytes);
        if round % 64 == 0 {
            crowd.pass(Duration::from_micros(5)).unwrap();
        }
    }
    crowd.pass(Duration::from_millis(5)).unwrap();
    let after = crowd.hub.counters();
    let (unknown_connection, visits) =
        (after.unknown_connection - before.unknown_connection, after.visits - before.visits);
    assert!(
        unknown_connection >= 15_000 && forged > 0,
        "{unknown_connection} of 20,000 were seen as what they are"
    );
    assert!(visits <= 100, "{visits} looks at peers");
    let grown = HEAP.live_here() - heap;
    assert!(grown < 64 << 10, "{grown} bytes more");
    // And the honest are served meanwhile and afterwards.
    let all: Vec<_> = (1..=20).map(|rank| send(&mut crowd, rank, 100_000)).collect();
    for round in 0..2_000_u64 {
        crowd.knock(somewhere, vec![round as u8; 300]);
    }
    until_done(&mut crowd, &all);
}
