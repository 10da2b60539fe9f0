//! Bytes that no honest peer would send (COH-9.1). Coherence refuses them without a panic, and the
//! state of the other nodes stays correct.

mod updates;

use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Cluster, Node};
use oikaze_protocol::coherence::{CoherenceError, CoherenceEvent, FETCH_PAGES_MAX, KIND, Value};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::{Admission, Refusal, Token};
use proptest::prelude::*;

/// COH-9.2.
fn head(code: u8, fields: [u64; 3]) -> Vec<u8> {
    [KIND, code].into_iter().chain(fields.into_iter().flat_map(u64::to_le_bytes)).collect()
}

fn cluster() -> Cluster {
    Cluster::with_array(3, 9, 9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_bytes_are_survived(code in 0u8..21, fields in any::<[u16; 3]>(), wide in any::<bool>(), body in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        let mut cluster = cluster();
        let spread = if wide { u64::MAX / 65_535 } else { 1 };
        let fields = fields.map(|field| u64::from(if small { field % 8 } else { field }) * spread);
        let body: Vec<u8> = if small { body.into_iter().map(|byte| byte % 6).collect() } else { body };
        for rank in 0..3usize {
            let node = &mut cluster.nodes[rank];
            let from = (rank as u32 + 1) % 3;
            let waits = Token(9);
            node.coherence.lock(1, waits, &mut node.machine);
            let _ = node.coherence.receive(from, &head(code, fields), &body, &mut node.machine);
            let _ = node.coherence.receive(from, &body, &body, &mut node.machine);
            if node.coherence.admit(from, 77, &head(code, fields), fields[2]) == Admission::Place {
                node.coherence.place(from, 77, fields[1], &body, &mut node.machine);
                let _ = node.coherence.arrived(from, 77, &head(code, fields), &mut node.machine);
            }
            node.coherence.place(from, 78, u64::MAX, &body, &mut node.machine);
        }
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_reason() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    let mut tell = |code, fields, body: &[u8]| {
        node.coherence.receive(0, &head(code, fields), body, &mut node.machine)
    };
    let run = |array: u64, count: u64| array | count << 32;
    // Fetches of an unknown array, of a page with another home, past the end, of no page, and of
    // too many pages.
    assert_eq!(tell(1, [run(4, 1), 3, 0], &[]), Err(Refusal::UnknownObject));
    assert_eq!(tell(1, [run(0, 1), 0, 0], &[]), Err(Refusal::NotPermitted));
    assert_eq!(tell(1, [run(0, 2), u64::MAX, 0], &[]), Err(Refusal::OutOfBounds));
    assert_eq!(tell(1, [run(0, 0), 3, 0], &[]), Err(Refusal::OutOfBounds));
    let most = u64::from(FETCH_PAGES_MAX);
    assert_eq!(tell(1, [run(0, most + 1), 3, 0], &[]), Err(Refusal::Malformed));
    // Pages that this node has not requested.
    assert_eq!(tell(2, [run(0, 1), 0, 0], &[0; PAGE]), Err(Refusal::UnknownObject));
    // Diffs of a page with another home, with a run that leaves the page, and with a run that is
    // cut off.
    assert_eq!(tell(3, [0, 0, 0], &[0, 0, 1, 0, 1, 7]), Err(Refusal::NotPermitted));
    assert_eq!(tell(3, [0, 0, 0], &[3, 0, 1, 0xff, 0x1f, 2, 7, 7]), Err(Refusal::OutOfBounds));
    assert_eq!(tell(3, [0, 0, 0], &[3, 0, 1, 0, 9, 7]), Err(Refusal::Malformed));
    // Collectives: node 1 gathers nothing, and waits for no departure.
    assert_eq!(tell(4, [0, 0, 0], &[0, 0, 0, 0, 0]), Err(Refusal::Malformed));
    assert_eq!(tell(5, [1, 0, 0], &[0, 0, 0, 0, 0, 0]), Err(Refusal::Malformed));
    // An acquire of another manager's lock, unlocks of a lock that is not held, and a grant that
    // was not requested.
    assert_eq!(tell(6, [0, 0, 0], &[0, 0, 0]), Err(Refusal::UnknownObject));
    assert_eq!(tell(8, [1, 0, 0], &[0; 7]), Err(Refusal::UnknownObject));
    assert_eq!(tell(8, [1, 0, 0], &[2]), Err(Refusal::Malformed));
    assert_eq!(tell(7, [1, 0, 0], &[0, 0, 0, 0, 0]), Err(Refusal::UnknownObject));
    assert_eq!(node.coherence.statistics().refused, 15);
    assert_eq!(
        node.coherence.receive(8, &head(9, [2, 0, 0]), &[], &mut node.machine),
        Err(Refusal::Malformed)
    );
    assert!(node.machine.alias(0).iter().all(|byte| *byte == 0), "nothing was written");
}

/// COH-3.7: a page is whole with the bytes of one answer, and not with halves of two.
#[test]
fn bytes_of_an_answer_that_was_withdrawn_do_not_count_for_the_next() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    node.coherence.fault(0, 0, None, &mut node.machine);
    let (_, fetch) = node.coherence.poll_message().unwrap();
    let id = u64::from_le_bytes(fetch.head[18..26].try_into().unwrap());
    let answer = head(2, [1 << 32, 0, id]);
    let half = PAGE / 2;
    for (number, byte) in [(77, 1), (78, 2), (79, 3)] {
        assert_eq!(node.coherence.admit(0, number, &answer, PAGE as u64), Admission::Place);
        node.coherence.place(0, number, 0, &vec![byte; half], &mut node.machine);
        assert_eq!(node.machine.mapped(0, 0), None, "half a page has come, {number}");
        match number {
            77 => node.coherence.withdrawn(0, number, &mut node.machine),
            78 => node.coherence.replaced(0, number),
            _ => node.coherence.place(0, number, half as u64, &vec![byte; half], &mut node.machine),
        }
    }
    assert!(node.machine.mapped(0, 0).is_some());
    assert!(node.machine.alias(0)[..PAGE].iter().all(|byte| *byte == 3));
}

/// COH-8.4: if a peer refuses a valid message, every synchronisation fails on every node with the
/// reason, and no node hangs.
#[test]
fn a_refused_message_fails_the_job_and_nobody_hangs() {
    for seed in 0..20 {
        let mut cluster = Cluster::with_array(3, seed, 9);
        let mut random = Random::new(seed);
        let page = [0, 6][random.below(2)];
        let node = &mut cluster.nodes[1];
        node.coherence.fault(0, page, None, &mut node.machine);
        let (to, message) = node.coherence.poll_message().unwrap();
        node.coherence.refused(message.token, Refusal::NoRoom, &mut node.machine);
        assert!(node.machine.mapped(0, page).is_some(), "the thread goes on");
        let tokens = [0, 1, 2].map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
        cluster.run_until_quiet();
        for (rank, token) in (0..).zip(tokens) {
            let text = cluster.take(rank, token).unwrap().unwrap_err().to_string();
            assert!(text.contains("node 1 cannot"), "{text}");
            assert!(text.contains(&format!("node {to} refused")), "{text}");
        }
    }
}

/// COH-5.4, COH-8.4: a diff refused after its node has called a barrier is not at its home, so the
/// barrier may not end as if it were.
#[test]
fn a_diff_refused_while_a_barrier_waits_for_it_fails_the_barrier_everywhere() {
    for seed in 0..20 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.run(vec![Thread::new(1, vec![Op::Store(Cell::word(0, 0), 7)])]);
        let node = &mut cluster.nodes[1];
        let token = node.token();
        node.coherence.barrier(token, &mut node.machine);
        let (to, diff) = node.coherence.poll_message().unwrap();
        assert_eq!(diff.head[..2], [KIND, 3]);
        node.coherence.refused(diff.token, Refusal::NoRoom, &mut node.machine);
        cluster.collect(1);
        let others =
            [0, 2].map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))));
        cluster.run_until_quiet();
        for (rank, token) in [(1, token)].into_iter().chain(others) {
            let text = cluster.take(rank, token).unwrap().unwrap_err().to_string();
            assert!(text.contains(&format!("node {to} refused")), "node {rank}: {text}");
        }
    }
}

/// COH-8.4: rank 0 has not counted an arrival that it refused. The refused node arrives again and
/// reports the refusal.
#[test]
fn a_refused_arrival_fails_the_collective_everywhere_and_nobody_hangs() {
    for seed in 0..20 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        let node = &mut cluster.nodes[1];
        let called = [node.token(), node.token()];
        called.iter().for_each(|token| node.coherence.barrier(*token, &mut node.machine));
        let (_, arrive) = node.coherence.poll_message().unwrap();
        assert_eq!(arrive.head[..2], [KIND, 4]);
        node.coherence.refused(arrive.token, Refusal::NoRoom, &mut node.machine);
        cluster.collect(1);
        let mut tokens = Vec::from(called.map(|token| (1, token)));
        for ranks in [&[0, 2][..], &[0, 2], &[0, 1, 2]] {
            tokens.extend(
                ranks
                    .iter()
                    .map(|rank| (*rank, cluster.call(*rank, |c, token, m| c.barrier(token, m)))),
            );
            cluster.run_until_quiet();
        }
        for (rank, token) in tokens {
            let text = cluster
                .take(rank, token)
                .unwrap_or_else(|| panic!("seed {seed}: node {rank} hangs"))
                .unwrap_err()
                .to_string();
            assert!(text.contains("node 0 refused"), "node {rank}: {text}");
        }
    }
}

/// COH-8.4: a node also does not hang if rank 0 refuses each of its arrivals.
#[test]
fn a_node_whose_every_arrival_is_refused_does_not_hang() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    for _ in 0..3 {
        let token = node.token();
        node.coherence.barrier(token, &mut node.machine);
        while let Some((_, arrive)) = node.coherence.poll_message() {
            node.coherence.refused(arrive.token, Refusal::NoRoom, &mut node.machine);
        }
        assert!(
            matches!(node.coherence.poll_event(), Some(CoherenceEvent::Failed { token: failed, .. }) if failed == token)
        );
    }
}

/// COH-5.4, COH-8.4: a holder whose diff was refused sends no write notice for it with the lock.
/// The next holder gets an error that says why the lock is broken.
#[test]
fn a_lock_whose_holder_could_not_bring_its_changes_home_is_broken() {
    for seed in 0..20 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        let lock = [4, 5][seed as usize % 2];
        cluster.succeeds(1, |c, token, m| c.lock(lock, token, m));
        let waiting = (seed % 4 < 2).then(|| cluster.call(2, |c, token, m| c.lock(lock, token, m)));
        cluster.run(vec![Thread::new(1, vec![Op::Store(Cell::word(0, 0), 7)])]);
        let node = &mut cluster.nodes[1];
        let unlock = node.token();
        node.coherence.unlock(lock, unlock, &mut node.machine);
        let (_, diff) = node.coherence.poll_message().unwrap();
        assert_eq!(diff.head[..2], [KIND, 3]);
        node.coherence.refused(diff.token, Refusal::NoRoom, &mut node.machine);
        cluster.collect(1);
        cluster.run_until_quiet();
        assert!(matches!(
            cluster.take(1, unlock),
            Some(Err(CoherenceError::Refused { rank: 0, .. }))
        ));
        let waiting =
            waiting.unwrap_or_else(|| cluster.call(2, |c, token, m| c.lock(lock, token, m)));
        let later = cluster.call(0, |c, token, m| c.lock(lock, token, m));
        cluster.run_until_quiet();
        for (rank, token) in [(2, waiting), (0, later)] {
            let error = cluster.take(rank, token).unwrap().unwrap_err();
            assert_eq!(
                error,
                CoherenceError::LockBroken { doing: format!("lock {lock}"), rank: 1 },
                "seed {seed}"
            );
        }
        let other = cluster.call(2, |c, token, m| c.lock(8, token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(2, other), Some(Ok(Value::None)), "a lock that it did not have");
    }
}

/// COH-9.1: a node accepts the intervals of another node within bounds. It accepts no interval of
/// its own that it has not made.
#[test]
fn intervals_that_no_sound_node_tells_are_refused() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    let mut tell = |code, body: &[u8]| {
        node.coherence.receive(0, &head(code, [1, 0, 0]), body, &mut node.machine)
    };
    assert_eq!(tell(6, &[0, 0, 0]), Ok(()), "node 0 has lock 1 of node 1");
    let many = |count: u16| {
        let intervals = (1..=count)
            .flat_map(|number| [0, number as u8 | 0x80, (number >> 7) as u8, 0, 0, 0, 0]);
        [0, 0, 0, 0, count as u8 | 0x80, (count >> 7) as u8]
            .into_iter()
            .chain(intervals)
            .collect::<Vec<u8>>()
    };
    for (wrong, refusal) in [
        // The receiver's own time, and its own intervals: first as a vector, then as an interval up
        // to 2⁶³.
        (&[0, 0, 1, 0, 0][..], Refusal::Malformed),
        (
            &[0, 0, 0, 0, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0],
            Refusal::Malformed,
        ),
        // Runs of pages that are not in their order, or overlap.
        (&[0, 1, 0, 0, 1, 0, 1, 0, 0, 2, 0, 4, 1, 0, 0, 1], Refusal::Malformed),
        (&[0, 1, 0, 0, 1, 0, 1, 0, 0, 2, 0, 0, 3, 0, 2, 3], Refusal::Malformed),
        // More intervals than a node keeps.
        (&many(3 * 1280 + 1), Refusal::NoRoom),
    ] {
        assert_eq!(tell(8, wrong), Err(refusal), "{:?}", &wrong[..wrong.len().min(20)]);
    }
    let list =
        |writer: u8, diff: &[u8]| [&[1, 1, 0, writer, 1, 1, 0, diff.len() as u8], diff].concat();
    let (page_3, page_4, page_99) = ([3, 0, 1, 0, 1, 7], [4, 0, 1, 0, 1, 7], [99, 0, 1, 0, 1, 7]);
    // Changes of no page, of two pages, of a page that there is not, and of an unknown writer.
    let two_pages = [page_3, page_4].concat();
    for wrong in [list(0, &[]), list(0, &two_pages), list(0, &page_99), list(3, &page_3)] {
        assert!(tell(8, &[&[0; 5], &wrong[..]].concat()).is_err(), "{wrong:?}");
    }
    let intervals = [0, 1, 0, 0, 1, 0, 1, 0, 0, 2, 0, 0, 3, 0, 4, 3, 0];
    assert_eq!(tell(8, &[&intervals, &list(0, &page_3)[..]].concat()), Ok(()));
}

/// COH-7.10, COH-9.1: a node gives back a lock in the order of its requests. A node that gives back
/// what it has not got makes the holder look like an earlier one, whose message is accepted.
#[test]
fn locks_that_come_back_out_of_turn_are_refused_and_honest_holders_are_not() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    let mut tell = |from, code, request, body: &[u8]| {
        node.coherence.receive(from, &head(code, [1, request, 0]), body, &mut node.machine)
    };
    let (acquire, unlock, passed_to_node_2) = ([0; 3], [0; 7], [2, 0]);
    for (from, request) in [(0, 0), (0, 1), (2, 0)] {
        assert_eq!(tell(from, 6, request, &acquire), Ok(()));
    }
    assert_eq!(tell(0, 8, 1, &unlock), Err(Refusal::Malformed));
    assert_eq!(tell(0, 20, 1, &passed_to_node_2), Err(Refusal::Malformed));
    for (from, request) in [(2, 0), (0, 0), (0, 1)] {
        assert_eq!(tell(from, 8, request, &unlock), Ok(()), "node {from}, request {request}");
    }
    assert_eq!(tell(0, 8, 0, &unlock), Err(Refusal::Malformed), "it is over");
}

/// COH-9.1: a count of intervals that no lock reaches is survived.
#[test]
fn a_grant_with_the_greatest_count_of_intervals_is_survived() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[0];
    node.coherence.lock(1, Token(1), &mut node.machine);
    assert!(node.coherence.poll_message().is_some(), "the request");
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let grant = [&[0; 5][..], &most, &[0, 0]].concat();
    let grant = node.coherence.receive(1, &head(7, [1, 0, 0]), &grant, &mut node.machine);
    assert_eq!(grant, Ok(()));
    cluster.collect(0);
    cluster.run(vec![Thread::new(0, vec![Op::Store(Cell::word(3, 0), 7)])]);
    // The manager knows of no holder, so it does not get the lock back.
    cluster.forged = Some(8);
    cluster.succeeds(0, |c, token, m| c.unlock(1, token, m));
    assert_eq!(cluster.forged, None);
}

/// COH-9.1: a peer that requests pages or locks without end and acknowledges no answer is refused
/// until it acknowledges one.
#[test]
fn answers_that_are_not_acknowledged_are_bounded() {
    let mut cluster = cluster();
    let node = &mut cluster.nodes[1];
    for (code, body) in [(1, &[][..]), (6, &[0, 0, 0])] {
        let ask = |node: &mut Node, number: u64| {
            let fields = if code == 1 { [1 << 32, 3, number] } else { [1 + 3 * number, number, 0] };
            node.coherence.receive(0, &head(code, fields), body, &mut node.machine)
        };
        let refused = (0..100_000).find(|number| ask(node, *number).is_err());
        assert!(refused.is_some_and(|number| number > 50_000), "{refused:?}");
        assert_eq!(ask(node, 100_000), Err(Refusal::NoRoom));
        let answers: Vec<Token> = core::iter::from_fn(|| node.coherence.poll_message())
            .map(|(_, message)| message.token)
            .collect();
        node.coherence.acknowledged(answers[0], &mut node.machine);
        assert_eq!(ask(node, 100_001), Ok(()));
        assert_eq!(ask(node, 100_002), Err(Refusal::NoRoom));
        answers.iter().for_each(|token| node.coherence.acknowledged(*token, &mut node.machine));
        assert_eq!(ask(node, 100_003), Ok(()));
    }
}

/// COH-4.5: what another node says of an interval takes no place of what the writer says.
#[test]
fn a_false_interval_of_another_node_hides_no_write() {
    let written = [0, 1, 0, 2];
    let shared_with_node_1 = [1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1];
    for pages in [&[0, 0][..], &shared_with_node_1] {
        let mut cluster = cluster();
        let cell = Cell::word(0, 0);
        cluster.run(vec![Thread::new(1, vec![Op::Expect(cell, 0)])]);
        let (step, rise, stable) = ([0], [0], [0; 8]);
        let body = [&step[..], &rise, &[1], &written, pages, &stable].concat();
        let node = &mut cluster.nodes[1];
        let notify = head(18, [1, 1, 0]);
        assert_eq!(node.coherence.receive(2, &notify, &body, &mut node.machine), Ok(()));
        let writer = vec![Op::Store(cell, 7), Op::Notify(1)];
        let reader = vec![Op::WaitNotify(0), Op::Expect(cell, 7)];
        cluster.run(vec![Thread::new(0, writer), Thread::new(1, reader)]);
    }
}
