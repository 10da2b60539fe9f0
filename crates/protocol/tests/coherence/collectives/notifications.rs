//! Notifications (COH-15.4 to 15.10), in any order of messages.

use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Channel, Cluster, notified, seeds};
use oikaze_protocol::Rank;

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
) -> [(usize, u64); 2] {
    let mut cluster = Cluster::with_array(nodes, 5, 6);
    let mut first = 0;
    counts.map(|count| {
        let threads = (0..).zip(programs(first, count));
        let threads = threads.map(|(node, ops)| Thread::new(node, ops)).collect();
        cluster.channels.values_mut().for_each(|channel| channel.lengths.clear());
        cluster.run(threads);
        first += count;
        let longest = cluster.channels.values().flat_map(|channel| &channel.lengths).max();
        let all = 0..nodes as usize;
        (longest.copied().unwrap_or(0), all.map(|node| kept(&cluster, node)).max().unwrap_or(0))
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
    assert!(after.1 <= 64 + 9 && before.1 <= 64 + 9, "{before:?}, {after:?}");
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

/// COH-15.5: a notification that left out what a lost one had told changes nothing, and is refused.
/// A barrier tells all.
#[test]
fn what_a_lost_notification_has_told_is_not_missed() {
    for seed in seeds(8_100_000, 50) {
        let (x, y) = (Cell::word(0, 5), Cell::word(1, 5));
        let mut cluster = Cluster::with_array(2, seed, 6);
        let run = |cluster: &mut Cluster, first: Vec<Op>, second: Vec<Op>| {
            cluster.run(vec![Thread::new(0, first), Thread::new(1, second)]);
        };
        let written = |cell, value| vec![Op::Store(cell, value), Op::Notify(1)];
        run(&mut cluster, written(x, 1), vec![Op::WaitNotify(0), Op::Expect(x, 1)]);
        run(&mut cluster, written(x, 2), Vec::new());
        assert!(cluster.channels.get_mut(&(0, 1)).and_then(Channel::arrive).is_some());
        run(&mut cluster, written(y, 3), Vec::new());
        let body =
            cluster.channels.get_mut(&(0, 1)).and_then(Channel::arrive).expect("it was sent");
        let token = cluster.call(1, |c, token, pages| c.acquire_from_node(0, &body, token, pages));
        let error = cluster.nodes[1].outcomes.remove(&token).expect("an outcome").unwrap_err();
        assert!(error.to_string().contains("earlier notification"), "{error}");
        let seen = vec![Op::Barrier, Op::Expect(x, 2), Op::Expect(y, 3)];
        run(&mut cluster, vec![Op::Barrier], seen);
        run(&mut cluster, written(x, 4), vec![Op::WaitNotify(0), Op::Expect(x, 4)]);
    }
}
