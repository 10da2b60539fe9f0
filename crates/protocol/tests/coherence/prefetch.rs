//! Fetches of several runs, and fetches ahead of their use (COH-3.3, COH-3.10).
#![allow(clippy::single_range_in_vec_init, reason = "a list of ranges may have one of them")]

use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Cluster, Node};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, CoherenceStatistics, FETCH_PAGES_MAX, FETCH_RUNS_MAX, Homes, KIND, PREFETCH_PAGES_MAX,
    Value,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::{Body, Message, Refusal, Token};
use std::ops::Range;

const FETCH: u8 = 1;
const PAGES: u8 = 2;

fn statistics(cluster: &Cluster, rank: usize) -> CoherenceStatistics {
    *cluster.nodes[rank].coherence.statistics()
}

/// COH-9.2.
fn head(code: u8, fields: [u64; 3]) -> Vec<u8> {
    [KIND, code].into_iter().chain(fields.into_iter().flat_map(u64::to_le_bytes)).collect()
}

/// First field of a fetch from array 0.
fn packed(count: u64, demanded: u64) -> u64 {
    count << 32 | demanded << 48
}

/// Writes the number of each page into its first word, at its home.
fn number_pages(cluster: &mut Cluster, pages: u64, homes: impl Fn(u64) -> Rank) {
    let nodes = cluster.nodes.len() as Rank;
    let threads = (0..nodes).map(|rank| {
        let mine = (0..pages).filter(|page| homes(*page) == rank);
        let stores = mine.map(|page| Op::Store(Cell::word(page as usize, 0), page + 1));
        Thread::new(rank, stores.chain([Op::Barrier]).collect())
    });
    let threads = threads.collect();
    cluster.run(threads);
    cluster.run_until_quiet();
}

fn hold(cluster: &Cluster, rank: usize, ranges: &[Range<u64>]) -> bool {
    let coherence = &cluster.nodes[rank].coherence;
    ranges.iter().all(|range| coherence.holds(0, range.clone(), Access::Read))
}

fn on_their_way(cluster: &Cluster, rank: usize, pages: u64) -> u64 {
    let coherence = &cluster.nodes[rank].coherence;
    (0..pages).filter(|page| coherence.fetching_from(0, *page).is_some()).count() as u64
}

/// Takes the messages of this code that a node posts, and gives the others to the network.
fn take_messages(cluster: &mut Cluster, rank: usize, code: u8) -> Vec<Message> {
    let node = &mut cluster.nodes[rank];
    let all: Vec<_> = std::iter::from_fn(|| node.coherence.poll_message()).collect();
    assert!(all.iter().all(|(_, message)| message.head[1] == code), "{all:?}");
    all.into_iter().map(|(_, message)| message).collect()
}

/// COH-3.3: ranges in any order, overlapping or empty, cost one request to each home.
#[test]
fn touch_of_many_ranges_sends_one_request_to_each_home() {
    for (seed, access) in (0..20).zip([Access::Read, Access::Write].into_iter().cycle()) {
        let mut cluster = Cluster::new(4, seed);
        cluster.declare("p", 64, Homes::Cyclic { pages: 1 });
        number_pages(&mut cluster, 64, |page| (page % 4) as Rank);
        let before = (statistics(&cluster, 0), cluster.network.delivered);
        let ranges = vec![40..47, 3..6, 61..63, 5..9, 20..20];
        cluster.succeeds(0, |c, token, m| c.touch_many(0, ranges, access, token, m));
        let wanted = [40..47, 3..9, 61..63];
        let own = wanted.iter().cloned().flatten().filter(|page| page % 4 == 0).count() as u64;
        let after = statistics(&cluster, 0);
        assert_eq!(after.fetches - before.0.fetches, 3, "seed {seed}: one to each other node");
        assert_eq!(after.fetched_pages - before.0.fetched_pages, 15 - own);
        // A request to each of three homes, and an answer for each page, as each is a run.
        assert_eq!(cluster.network.delivered - before.1, 3 + 15 - own);
        for page in wanted.into_iter().flatten() {
            assert!(cluster.nodes[0].coherence.holds(0, page..page + 1, access));
            assert_eq!(cluster.nodes[0].machine.load(0, page as usize * PAGE, 8), Some(page + 1));
        }
    }
}

/// COH-3.3: a request holds up to 256 pages, and up to 32 runs.
#[test]
fn long_and_scattered_ranges_need_few_requests() {
    let far = u64::from(FETCH_PAGES_MAX) * 3;
    for (homes, ranges, requests, pages) in [
        (Homes::Block, vec![far..2 * far], 3, far),
        // Each second page: each is a run.
        (Homes::Block, (far..far + 80).step_by(2).map(|page| page..page + 1).collect(), 2, 40),
        (Homes::Cyclic { pages: 2 }, vec![0..134], 2, 66),
    ] {
        let mut cluster = Cluster::new(2, 1);
        cluster.declare("p", 2 * far, homes);
        let touch: Vec<Range<u64>> = ranges.clone();
        cluster.succeeds(0, |c, token, m| c.touch_many(0, touch, Access::Read, token, m));
        assert!(hold(&cluster, 0, &ranges));
        let s = statistics(&cluster, 0);
        assert_eq!((s.fetches, s.fetched_pages), (requests, pages), "{ranges:?}");
    }
}

/// COH-3.10: a prefetch requests a bounded number of pages, and the others as pages arrive.
#[test]
fn prefetch_of_a_long_range_is_bounded_and_fetches_all_of_it() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(2, seed);
        let pages = 2 * 3 * PREFETCH_PAGES_MAX;
        cluster.declare("p", pages, Homes::Block);
        let node = &mut cluster.nodes[0];
        let ranges = [pages / 2..pages - 5, pages - 5..pages, pages - 9..2 * pages];
        node.coherence.prefetch(0, &ranges, &mut node.machine);
        let mut most = 0;
        loop {
            cluster.collect(0);
            most = most.max(on_their_way(&cluster, 0, pages));
            if !cluster.step() {
                break;
            }
        }
        assert_eq!(most, PREFETCH_PAGES_MAX, "seed {seed}");
        assert!(hold(&cluster, 0, &[pages / 2..pages]));
        let s = statistics(&cluster, 0);
        assert_eq!(s.fetched_pages, pages / 2);
        assert!(s.fetches <= pages / 2 / u64::from(FETCH_PAGES_MAX) * 2, "{} requests", s.fetches);
        assert!(cluster.nodes[0].outcomes.is_empty(), "no operation ends");
    }
}

/// COH-3.10: what a prefetch has requested is not requested again by a touch or a fault.
#[test]
fn touch_and_fault_wait_for_pages_of_a_prefetch() {
    for seed in 0..40 {
        let mut cluster = Cluster::with_array(2, seed, 64);
        number_pages(&mut cluster, 64, |page| (page / 32) as Rank);
        let node = &mut cluster.nodes[0];
        node.coherence.prefetch(0, &[40..50, 32..36], &mut node.machine);
        cluster.collect(0);
        cluster.steps(seed % 7);
        let token = cluster.call(0, |c, token, m| c.touch(0, 41..49, Access::Write, token, m));
        cluster.run(vec![Thread::new(0, vec![Op::Expect(Cell::word(33, 0), 34)])]);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(0, token), Some(Ok(Value::None)), "seed {seed}");
        assert!(cluster.nodes[0].coherence.holds(0, 41..49, Access::Write));
        let s = statistics(&cluster, 0);
        assert_eq!((s.fetches, s.fetched_pages), (1, 14), "seed {seed}");
    }
}

/// COH-3.6: a notice that names one run of a request makes this run stale, and no other one. A
/// touch fetches it again, a prefetch does not.
#[test]
fn stale_run_of_a_request_is_fetched_again_alone() {
    for waits in [true, false] {
        let mut cluster = Cluster::with_array(2, 7, 16);
        number_pages(&mut cluster, 16, |page| (page / 8) as Rank);
        let node = &mut cluster.nodes[0];
        let (ranges, token) = (vec![9..10, 12..14], node.token());
        if waits {
            node.coherence.touch_many(0, ranges, Access::Read, token, &mut node.machine);
        } else {
            node.coherence.prefetch(0, &ranges, &mut node.machine);
        }
        let [fetch] = take_messages(&mut cluster, 0, FETCH).try_into().unwrap();
        let Node { coherence, machine, .. } = &mut cluster.nodes[1];
        coherence.receive(0, &fetch.head, fetch.body.bytes(), machine).unwrap();
        let old = machine.alias(0).to_vec();
        let answers = take_messages(&mut cluster, 1, PAGES);
        assert_eq!(answers.len(), 2);
        // Lock 1 tells node 0 that node 1 has written page 9.
        let lock = |ops: &[Op]| [&[Op::Lock(1)], ops, &[Op::Unlock(1)]].concat();
        cluster.run(vec![Thread::new(1, lock(&[Op::Store(Cell::word(9, 0), 77)]))]);
        cluster.run(vec![Thread::new(0, lock(&[]))]);
        cluster.run_until_quiet();
        for answer in answers {
            let Body::Segment(s) = answer.body else { panic!("pages are not copied") };
            let body = &old[s.offset as usize..][..s.len as usize];
            let Node { coherence, machine, .. } = &mut cluster.nodes[0];
            coherence.receive(1, &answer.head, body, machine).unwrap();
        }
        assert!(hold(&cluster, 0, &[12..14]), "the other run is valid");
        assert!(!hold(&cluster, 0, &[9..10]));
        cluster.collect(0);
        cluster.run_until_quiet();
        assert_eq!(hold(&cluster, 0, &[9..10]), waits);
        assert_eq!(cluster.take(0, token).is_some(), waits);
        let s = statistics(&cluster, 0);
        assert_eq!((s.fetches, s.stale_pages), (1 + u64::from(waits), 1));
        cluster.run(vec![Thread::new(0, vec![Op::Expect(Cell::word(9, 0), 77)])]);
    }
}

/// COH-3.4: a fetch says how many of its pages were not read ahead.
#[test]
fn home_learns_how_many_pages_were_demanded() {
    let fetch = |begin: &dyn Fn(&mut Cluster)| {
        let mut cluster = Cluster::with_array(2, 3, 256);
        begin(&mut cluster);
        cluster.run_until_quiet();
        let s = statistics(&cluster, 0);
        (s.served_pages, s.served_demanded_pages)
    };
    let sequence: Vec<Op> = (0..128).map(|page| Op::Load(Cell::word(page, 3))).collect();
    assert_eq!(fetch(&|c| drop(c.run(vec![Thread::new(1, sequence.clone())]))), (128, 9));
    let touch = |c: &mut Cluster| {
        c.call(1, |c, token, m| c.touch(0, 3..50, Access::Read, token, m));
    };
    assert_eq!(fetch(&touch), (47, 47));
    let prefetch = |c: &mut Cluster| {
        let node = &mut c.nodes[1];
        node.coherence.prefetch(0, &[3..5, 9..40], &mut node.machine);
        c.collect(1);
    };
    assert_eq!(fetch(&prefetch), (33, 33));
}

/// COH-9.1: a request with one wrong run is refused as a whole, before anything has changed.
#[test]
fn fetch_with_a_wrong_run_is_refused_and_serves_nothing() {
    let mut cluster = Cluster::with_array(3, 9, 900);
    let far = 300 - 2;
    let runs = |count: usize, run: [u8; 3]| run.repeat(count);
    let eighth = (FETCH_PAGES_MAX / 8) as u8;
    // As LEB128 numbers.
    let [all, more] = [0, 1].map(|low| [low | 0x80, (FETCH_PAGES_MAX >> 7) as u8]);
    let cases: [(u64, u64, Vec<u8>, Refusal); 12] = [
        // More demanded pages than pages, in the first run and in a later one.
        (packed(1, 2), 7, vec![], Refusal::Malformed),
        (packed(1, 1), 7, vec![0, 1, 2], Refusal::Malformed),
        // A run that is cut off, without a page, too long, or one run or one page too many.
        (packed(1, 1), 7, vec![0, 1], Refusal::Malformed),
        (packed(1, 1), 7, vec![0, 0, 0], Refusal::OutOfBounds),
        (packed(1, 1), 7, [&[0], &more[..], &[1]].concat(), Refusal::Malformed),
        (packed(1, 1), 7, runs(FETCH_RUNS_MAX, [1, 1, 1]), Refusal::Malformed),
        (packed(1, 1), 7, [&[0], &all[..], &[1]].concat(), Refusal::Malformed),
        (packed(1, 1), 7, runs(8, [0, eighth, eighth]), Refusal::Malformed),
        // Numbers beyond the last one.
        (packed(1, 1), u64::MAX, vec![0, 1, 1], Refusal::Malformed),
        // A run that another node is home of, one that begins behind the end, and one that no
        // number reaches.
        (packed(1, 1), 7, vec![far as u8 | 0x80, (far >> 7) as u8, 3, 1], Refusal::NotPermitted),
        (packed(1, 1), 7, vec![0xff, 0x7f, 1, 1], Refusal::OutOfBounds),
        (packed(1, 1), 7, [vec![0xff; 9], vec![1, 1, 1]].concat(), Refusal::OutOfBounds),
    ];
    for (first, number, body, refusal) in cases {
        let node = &mut cluster.nodes[1];
        let head = head(FETCH, [first, 300, number]);
        let result = node.coherence.receive(0, &head, &body, &mut node.machine);
        assert_eq!(result, Err(refusal), "{body:?}");
        assert!(node.coherence.poll_message().is_none(), "{body:?}");
    }
    assert_eq!(statistics(&cluster, 1).served_pages, 0);
    // At its limits, a request is served, with one answer for each run.
    let node = &mut cluster.nodes[1];
    let body = runs(7, [0, eighth, 0]);
    let first = packed(eighth.into(), 1);
    let result = node.coherence.receive(0, &head(FETCH, [first, 300, 5]), &body, &mut node.machine);
    assert_eq!(result, Ok(()));
    let answers = take_messages(&mut cluster, 1, PAGES);
    let numbers: Vec<u64> = answers.iter().map(|answer| answer.head[18].into()).collect();
    assert_eq!(numbers, (5..13).collect::<Vec<_>>());
    assert_eq!(statistics(&cluster, 1).served_pages, u64::from(FETCH_PAGES_MAX));
    assert_eq!(statistics(&cluster, 1).served_demanded_pages, 1);
}

/// COH-9.1: a peer that acknowledges no answer gets no more of them by requests of many runs.
#[test]
fn answers_to_many_runs_are_bounded_together() {
    let mut cluster = Cluster::with_array(3, 9, 900);
    let node = &mut cluster.nodes[1];
    let body = [1, 1, 1].repeat(FETCH_RUNS_MAX - 1);
    let mut served = 0;
    while node.coherence.receive(0, &head(FETCH, [packed(1, 1), 300, 0]), &body, &mut node.machine)
        == Ok(())
    {
        served += 1;
        assert!(served < 100_000);
    }
    assert_eq!(served, (1 << 16) / FETCH_RUNS_MAX);
    let answers = std::iter::from_fn(|| node.coherence.poll_message()).count();
    assert_eq!(answers, 1 << 16);
}

/// COH-3.8: a touch of many ranges ends if a home dies. Its pages are lost, and pages of other
/// homes arrive.
#[test]
fn touch_of_many_ranges_with_a_dead_home_ends() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 90, Homes::Cyclic { pages: 1 });
        let ranges = vec![60..80, 1..30, 85..86];
        let token = cluster.call(0, |c, token, m| c.touch_many(0, ranges, Access::Read, token, m));
        cluster.steps(seed % 12);
        cluster.kill(2);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(0, token), Some(Ok(Value::None)), "seed {seed}");
        assert!(hold(&cluster, 0, &[60..80, 1..30, 85..86]));
        // All at once, after the death, too.
        cluster.succeeds(0, |c, token, m| {
            c.touch_many(0, vec![30..40, 50..55], Access::Write, token, m)
        });
    }
}

/// COH-3.10: a prefetch loses no page. A lock that needs no dead node works afterwards.
#[test]
fn prefetch_from_a_dead_home_loses_no_page() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 90, Homes::Cyclic { pages: 1 });
        let prefetch = |cluster: &mut Cluster, range| {
            let node = &mut cluster.nodes[0];
            node.coherence.prefetch(0, &[range], &mut node.machine);
            cluster.collect(0);
        };
        prefetch(&mut cluster, 1..40);
        cluster.steps(seed % 12);
        cluster.kill(2);
        cluster.run_until_quiet();
        prefetch(&mut cluster, 40..80);
        cluster.run_until_quiet();
        let of_home = |home: u64| (1..80).filter(move |page| page % 3 == home);
        assert!(of_home(1).all(|page| hold(&cluster, 0, &[page..page + 1])), "seed {seed}");
        assert!(of_home(2).filter(|page| *page > 40).all(|page| !hold(
            &cluster,
            0,
            &[page..page + 1]
        )));
        assert_eq!(on_their_way(&cluster, 0, 90), 0);
        cluster.succeeds(0, |c, token, m| c.lock(3, token, m));
    }
}

/// COH-9.1: a refused request of several runs gives up all of them.
#[test]
fn refused_request_ends_the_waits_for_all_its_runs() {
    let mut cluster = Cluster::with_array(2, 1, 90);
    let node = &mut cluster.nodes[0];
    let token = node.token();
    node.coherence.touch_many(0, vec![50..52, 60..62], Access::Read, token, &mut node.machine);
    let [fetch] = take_messages(&mut cluster, 0, FETCH).try_into().unwrap();
    let node = &mut cluster.nodes[0];
    node.coherence.refused(fetch.token, Refusal::NoRoom, &mut node.machine);
    cluster.collect(0);
    assert!(cluster.take(0, token).is_some());
    let barrier = cluster.call(0, |c, token, m| c.barrier(token, m));
    cluster.call(1, |c, token, m| c.barrier(token, m));
    cluster.run_until_quiet();
    let text = cluster.take(0, barrier).unwrap().unwrap_err().to_string();
    assert!(text.contains("node 1 refused"), "{text}");
}

/// A range outside of the array fails a touch, and a prefetch leaves it out.
#[test]
fn ranges_outside_of_the_array_are_not_fetched() {
    let mut cluster = Cluster::with_array(2, 1, 8);
    let token =
        cluster.call(0, |c, token, m| c.touch_many(0, vec![4..5, 7..9], Access::Read, token, m));
    let text = cluster.take(0, token).unwrap().unwrap_err().to_string();
    assert!(text.contains("7..9") || text.contains("7 to"), "{text}");
    let node = &mut cluster.nodes[0];
    node.coherence.prefetch(0, &[9..20, Range { start: 6, end: 5 }], &mut node.machine);
    node.coherence.prefetch(1, &[0..1], &mut node.machine);
    assert!(node.coherence.poll_message().is_none());
    assert_ne!(token, Token::NONE);
}
