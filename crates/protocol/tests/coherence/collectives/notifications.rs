//! Notifications (COH-15.4 to 15.10), in any order of messages.

use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Cluster, notified, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{CoherenceError, Value};
use oikaze_protocol::wind::Refusal;

/// COH-15.4 to 15.10, COH-4.6: what was left out of a notification, was forgotten, or came by
/// updates is not missed.
#[test]
fn random_programs_with_notifications_read_what_a_sequential_machine_would() {
    for seed in seeds(8_000_000, 400) {
        notified::run(2 + (seed % 4) as u32, 400 + (seed % 7) as usize * 200, seed);
    }
}

/// Returns the number of intervals that a node keeps.
fn kept(cluster: &Cluster, node: usize) -> u64 {
    let statistics = cluster.nodes[node].coherence.statistics();
    statistics.intervals_kept - statistics.intervals_forgotten
}

/// Runs one round of two lengths after another, and returns the longest notification and the
/// largest number of kept intervals of a node, after each.
fn grown(
    nodes: u32,
    counts: [u64; 2],
    programs: impl Fn(u64, u64) -> Vec<Vec<Op>>,
) -> [(u64, u64); 2] {
    let mut cluster = Cluster::with_array(nodes, 5, 6);
    let mut first = 0;
    counts.map(|count| {
        let threads = (0..).zip(programs(first, count));
        let threads = threads.map(|(node, ops)| Thread::new(node, ops)).collect();
        cluster.notified.clear();
        cluster.run(threads);
        first += count;
        let longest = cluster.notified.iter().max().copied();
        let all = 0..nodes as usize;
        (longest.unwrap_or(0), all.map(|node| kept(&cluster, node)).max().unwrap_or(0))
    })
}

/// Each node in turn adds to what the one before it has written, on two pages in turn.
fn ring(nodes: u64, first: u64, count: u64) -> Vec<Vec<Op>> {
    let mut ops = vec![Vec::new(); nodes as usize];
    for step in first..first + count {
        let (node, next) = (step % nodes, (step + 1) % nodes);
        let cell = |step: u64| Cell::word((step % 2) as usize * 3, 5);
        let mine = &mut ops[node as usize];
        if step > 0 {
            mine.push(Op::WaitNotify(((step - 1) % nodes) as Rank));
            mine.push(Op::Expect(cell(step - 1), step - 1));
        }
        mine.extend([Op::Store(cell(step), step), Op::Notify(next as Rank)]);
    }
    ops
}

/// COH-15.5, COH-4.6: bytes of a notification and what nodes keep do not grow with the steps.
#[test]
fn many_steps_of_two_nodes_grow_nothing() {
    let [before, after] = grown(2, [1000, 100_000], |first, count| ring(2, first, count));
    // The numbers of vectors and of updates are a little longer.
    assert!(after.0 <= before.0 + 12 && before.0 < 60, "{before:?}, {after:?}");
    assert!(after.1 <= 64 && before.1 <= 64, "{before:?}, {after:?}");
}

#[test]
fn many_steps_of_a_ring_grow_nothing() {
    let [before, after] = grown(3, [1000, 30_000], |first, count| ring(3, first, count));
    assert!(after.0 <= before.0 + 12 && before.0 < 90, "{before:?}, {after:?}");
    // One of eight notifications says what may be forgotten.
    assert!(after.1 <= 64 + 40 && before.1 <= 64 + 40, "{before:?}, {after:?}");
}

/// COH-15.5: node 1 does not tell node 0 the interval of node 2, of which node 0 has told it.
#[test]
fn a_notification_leaves_out_what_its_receiver_has_told() {
    let mut cluster = Cluster::with_array(3, 5, 6);
    let (x, y) = (Cell::word(0, 5), Cell::word(2, 5));
    let (written, heard) = (vec![Op::Store(x, 1), Op::Notify(0)], vec![Op::WaitNotify(2)]);
    cluster.run(vec![Thread::new(2, written), Thread::new(0, heard)]);
    let told = vec![Op::WaitNotify(0), Op::Store(y, 2), Op::Notify(0)];
    cluster.run(vec![Thread::new(0, vec![Op::Notify(1)]), Thread::new(1, told)]);
    // Step, rise of nodes 1 and 2, one interval of 9 bytes, and what all nodes know. The interval
    // of node 2 would have as many.
    let len = cluster.notified.last().copied().unwrap();
    assert!(len < 1 + 4 + 1 + 2 * 9 + 10, "{len} bytes");
}

/// COH-4.5: the reader never says what it knows, and the third node learns all at a barrier.
#[test]
fn a_writer_that_hears_nothing_keeps_a_bounded_number_of_intervals() {
    let cell = |step: u64| Cell::word((step % 3) as usize, 5);
    let programs = |first: u64, count: u64| {
        let (mut writer, mut reader, mut third) = (Vec::new(), Vec::new(), Vec::new());
        for step in first..first + count {
            writer.extend([Op::Store(cell(step), step), Op::Notify(1)]);
            reader.push(Op::WaitNotify(0));
        }
        if first == 0 {
            third.extend((0..3).map(|step| Op::Load(cell(step))));
        } else {
            for ops in [&mut writer, &mut reader, &mut third] {
                ops.push(Op::Barrier);
            }
        }
        if first > 0 {
            let last = first + count;
            let expected = |step: u64| Op::Expect(cell(step), step);
            for ops in [&mut reader, &mut third] {
                ops.extend((last - 3..last).map(expected));
            }
        }
        vec![writer, reader, third]
    };
    let [before, after] = grown(3, [4000, 20_000], programs);
    assert!(after.0 <= before.0 + 9 && before.0 < 50, "{before:?}, {after:?}");
    assert!(before.1 <= 1280, "{before:?}");
    assert_eq!(after.1, 0, "a barrier has told all");
}

/// COLL-3.7: a notification that came before the nodes were brought in step ends no wait after it,
/// also if it comes late. What it told is not missed.
#[test]
fn what_a_forgotten_notification_has_told_is_not_missed() {
    for seed in seeds(8_100_000, 50) {
        let (x, y) = (Cell::word(0, 5), Cell::word(1, 5));
        let mut cluster = Cluster::with_array(2, seed, 6);
        let run = |cluster: &mut Cluster, first: Vec<Op>, second: Vec<Op>| {
            cluster.run(vec![Thread::new(0, first), Thread::new(1, second)]);
        };
        let written = |cell, value| vec![Op::Store(cell, value), Op::Notify(1)];
        run(&mut cluster, written(x, 1), vec![Op::WaitNotify(0), Op::Expect(x, 1)]);
        run(&mut cluster, written(x, 2), Vec::new());
        let nodes = if seed % 2 == 0 { [0, 1] } else { [1, 0] };
        cluster.nodes[nodes[0]].coherence.forget_notifications();
        if seed % 3 == 0 {
            cluster.run_until_quiet();
        }
        cluster.nodes[nodes[1]].coherence.forget_notifications();
        let seen = vec![Op::WaitNotify(0), Op::Expect(x, 2), Op::Expect(y, 3)];
        run(&mut cluster, written(y, 3), seen);
        run(&mut cluster, written(x, 4), vec![Op::WaitNotify(0), Op::Expect(x, 4)]);
    }
}

/// COH-15.11: more notifications than a node keeps apart end as many waits, and each wait shows at
/// least what was written before its notification.
#[test]
fn many_notifications_that_were_not_waited_for_end_as_many_waits() {
    let mut cluster = Cluster::with_array(2, 5, 6);
    let cell = |step: u64| Cell::word((step % 3) as usize * 2, step as usize / 3);
    let count = 1000;
    let writes = (0..count).flat_map(|step| [Op::Store(cell(step), step), Op::Notify(1)]);
    cluster.run(vec![Thread::new(0, writes.collect())]);
    cluster.run_until_quiet();
    let reads = (0..count).flat_map(|step| [Op::WaitNotify(0), Op::Expect(cell(step), step)]);
    cluster.run(vec![Thread::new(1, reads.collect())]);
    let token = cluster.call(1, |c, token, pages| c.wait_notify(0, true, token, pages));
    cluster.run_until_quiet();
    assert_eq!(cluster.take(1, token), None, "no notification is left");
    cluster.succeeds(0, |c, token, pages| c.notify(1, token, pages));
    cluster.all_succeeded([(1, token)]);
}

/// COH-15.11: a sender is ahead of the network by a bounded number of notifications.
#[test]
fn a_sender_waits_while_many_notifications_are_not_settled() {
    let mut cluster = Cluster::with_array(2, 5, 6);
    let ended = |cluster: &mut Cluster, tokens: &[_]| {
        tokens.iter().filter(|token| cluster.take(0, **token) == Some(Ok(Value::None))).count()
    };
    let tokens: Vec<_> =
        (0..100).map(|_| cluster.call(0, |c, token, pages| c.notify(1, token, pages))).collect();
    assert_eq!(ended(&mut cluster, &tokens), 64);
    cluster.run_until_quiet();
    assert_eq!(ended(&mut cluster, &tokens), 36);
}

/// COH-15.4: a wait that nobody needs any more leaves the notification to the next one.
#[test]
fn a_cancelled_wait_takes_no_notification() {
    let mut cluster = Cluster::with_array(2, 5, 6);
    let wait = |cluster: &mut Cluster, takes| {
        cluster.call(1, |c, token, pages| c.wait_notify(0, takes, token, pages))
    };
    let cancelled = wait(&mut cluster, true);
    cluster.call(1, |c, _, pages| c.cancel(cancelled, pages));
    let ready = wait(&mut cluster, false);
    assert_eq!(cluster.take(1, ready), None);
    cluster.succeeds(0, |c, token, pages| c.notify(1, token, pages));
    cluster.all_succeeded([(1, ready)]);
    assert_eq!(cluster.take(1, cancelled), None);
    let taken = wait(&mut cluster, true);
    cluster.all_succeeded([(1, taken)]);
    let next = wait(&mut cluster, true);
    assert_eq!(cluster.take(1, next), None);
}

/// COH-15.4: a node that cannot release says so once, and all waits for it fail from then on.
#[test]
fn a_node_that_cannot_release_says_so_once() {
    let mut cluster = Cluster::with_array(3, 5, 9);
    let wait = |cluster: &mut Cluster| {
        let token = cluster.call(1, |c, token, pages| c.wait_notify(0, true, token, pages));
        cluster.run_until_quiet();
        cluster.take(1, token)
    };
    let node = &mut cluster.nodes[0];
    node.coherence.fault(0, 6, None, &mut node.machine);
    let (_, fetch) = node.coherence.poll_message().unwrap();
    node.coherence.refused(fetch.token, Refusal::NoRoom, &mut node.machine);
    for step in 0..2 {
        for _ in 0..1000 {
            let token = cluster.call(0, |c, token, pages| c.notify(1, token, pages));
            let outcome = cluster.take(0, token);
            assert!(matches!(outcome, Some(Err(CoherenceError::Refused { .. }))), "{outcome:?}");
        }
        assert_eq!(cluster.notified.len(), 1 + step);
        for _ in 0..3 {
            let outcome = wait(&mut cluster);
            let is_told = matches!(outcome, Some(Err(CoherenceError::NotReleased { rank: 0 })));
            assert!(is_told, "{outcome:?}");
        }
        // After that the nodes may not know of it any more.
        for node in &mut cluster.nodes {
            node.coherence.forget_notifications();
        }
        assert_eq!(wait(&mut cluster), None);
    }
}

/// COH-6.7, COH-15.4: a notification whose call has ended early waits for its release. The notice
/// that its sender sends nothing more comes after it.
#[test]
fn a_notification_comes_before_its_sender_is_silent() {
    for seed in seeds(8_200_000, 40) {
        let mut cluster = Cluster::with_array(3, seed, 9);
        let cell = Cell::word(6, 1);
        cluster.run(vec![Thread::new(0, vec![Op::Store(cell, 7)])]);
        let notified = cluster.call(0, |c, token, pages| c.notify(1, token, pages));
        cluster.call(0, |c, _, pages| c.cancel(notified, pages));
        cluster.call(0, |c, token, pages| c.leave(token, pages));
        if seed % 2 == 0 {
            cluster.run_until_quiet();
        }
        cluster.run(vec![Thread::new(1, vec![Op::WaitNotify(0), Op::Expect(cell, 7)])]);
        let after = cluster.call(1, |c, token, pages| c.wait_notify(0, true, token, pages));
        cluster.run_until_quiet();
        let outcome = cluster.take(1, after);
        let has_left = matches!(outcome, Some(Err(CoherenceError::NodeLeaving { rank: 0, .. })));
        assert!(has_left, "seed {seed}: {outcome:?}");
    }
}
