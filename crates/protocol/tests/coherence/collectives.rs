//! How collectives travel: the pair, the tree, and rank 0 with its children (COH-6.11 to COH-6.13).

mod departures;
mod moving;
mod notifications;
mod notified_updates;
mod teams;

use crate::cluster::machine::Machine;
use crate::cluster::{Cluster, Node, Outcome, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Coherence, CoherenceError, CoherenceEvent, Declaration, Element, Homes, KIND, ReduceOp,
    Reduction, Value, Values,
};
use oikaze_protocol::limits::{FAILURE_TIME, NAME_MAX};
use oikaze_protocol::random::Random;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Refusal, Token};

const ARRIVE: u8 = 4;
const DEPART: u8 = 5;
/// Sizes of jobs: one node, a pair, rank 0 with children, and trees.
const SIZES: [u32; 7] = [1, 2, 3, 8, 9, 12, 70];

fn head(code: u8, fields: [u64; 3]) -> Vec<u8> {
    [KIND, code].into_iter().chain(fields.into_iter().flat_map(u64::to_le_bytes)).collect()
}

/// Calls on every node in a random order, with steps of the network in between, and returns what
/// each call gave.
fn all_call(
    cluster: &mut Cluster,
    mut call: impl FnMut(&mut Cluster, Rank) -> Token,
) -> Vec<Outcome> {
    let nodes = cluster.nodes.len();
    let mut order: Vec<Rank> = (0..nodes as Rank).collect();
    for i in (1..nodes).rev() {
        let other = cluster.random.below(i + 1);
        order.swap(i, other);
    }
    let mut tokens = vec![Token::NONE; nodes];
    for rank in order {
        tokens[rank as usize] = call(cluster, rank);
        let steps = cluster.random.below(4) as u64;
        cluster.steps(steps);
    }
    cluster.run_until_quiet();
    let seed = cluster.seed;
    (0..)
        .zip(tokens)
        .map(|(rank, token)| {
            cluster.take(rank, token).unwrap_or_else(|| panic!("seed {seed}: node {rank} hangs"))
        })
        .collect()
}

fn all_pass_a_barrier(cluster: &mut Cluster) {
    let all =
        all_call(cluster, |cluster, rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
    assert!(all.iter().all(|outcome| *outcome == Ok(Value::None)), "{all:?}");
}

/// COH-6.1, 6.3, 6.11 and 6.12.
#[test]
fn collectives_agree_whatever_the_number_of_nodes() {
    for nodes in SIZES {
        for seed in seeds(0, if nodes < 20 { 40 } else { 6 }) {
            let mut cluster = Cluster::new(nodes, seed);
            all_pass_a_barrier(&mut cluster);
            let name: String = "long name ".repeat(NAME_MAX / 10);
            cluster.declare(&name, u64::from(nodes), Homes::Block);
            // The operands are equal as numbers on some nodes, but not as bits.
            let part = |rank: Rank| match rank % 4 {
                0 => vec![-0.0, 0.1 + f64::from(rank) * 1e16],
                1 => vec![0.0, -1e16],
                _ => vec![0.0, 1e-3],
            };
            let expected: Vec<u64> = (1..nodes)
                .fold(part(0), |sum, rank| sum.iter().zip(part(rank)).map(|(a, b)| a + b).collect())
                .iter()
                .map(|value: &f64| value.to_bits())
                .collect();
            let all = all_call(&mut cluster, |cluster, rank| {
                let reduction = Reduction { op: ReduceOp::Sum, values: Values::F64(part(rank)) };
                cluster.call(rank, |c, token, m| c.reduce(reduction, token, m))
            });
            for outcome in all {
                let Ok(Value::Reduced(Values::F64(got))) = &outcome else { panic!("{outcome:?}") };
                let got: Vec<u64> = got.iter().map(|value| value.to_bits()).collect();
                assert_eq!(got, expected, "seed {seed}, {nodes} nodes");
            }
        }
    }
}

/// COH-6.2: the texts are the same everywhere, and the job goes on.
#[test]
fn collectives_fail_alike_whatever_the_number_of_nodes() {
    for nodes in SIZES.into_iter().skip(1) {
        for seed in seeds(0, if nodes < 20 { 40 } else { 6 }) {
            let mut cluster = Cluster::new(nodes, seed);
            let odd = (seed % u64::from(nodes)) as Rank;
            let all = all_call(&mut cluster, |cluster, rank| {
                let one = Reduction { op: ReduceOp::Max, values: Values::U64(vec![1]) };
                cluster.call(rank, |c, token, m| {
                    if rank == odd { c.barrier(token, m) } else { c.reduce(one, token, m) }
                })
            });
            let first = all[0].clone().unwrap_err().to_string();
            assert!(first.contains(&format!("node {odd} ")), "{first}");
            for outcome in all {
                assert_eq!(outcome, Err(CoherenceError::Mismatch(first.clone())), "seed {seed}");
            }
            all_pass_a_barrier(&mut cluster);
            // Too long a reason is cut alike on all nodes.
            let all = all_call(&mut cluster, |cluster, rank| {
                let declaration = Declaration {
                    name: if rank == odd { "x".repeat(3000) } else { "x".into() },
                    bytes: 4096,
                    element: Element { kind: 1, size: 8 },
                    homes: Homes::Block,
                    ..Declaration::default()
                };
                cluster.declare_on(rank, declaration)
            });
            let first = all[0].clone().unwrap_err().to_string();
            assert!(first.starts_with(&format!("node {odd} cannot go on")), "{first}");
            assert!(all.iter().all(|outcome| *outcome == all[0]), "seed {seed}");
            all_pass_a_barrier(&mut cluster);
        }
    }
}

/// COH-6.6, 6.9: some nodes leave while others call a barrier or two. Each node ends as soon as its
/// last call has ended, and none needs it any more.
#[test]
fn nodes_that_leave_wait_for_those_that_call_something_else() {
    for nodes in SIZES.into_iter().skip(1) {
        for seed in seeds(0, if nodes < 20 { 60 } else { 4 }) {
            let mut cluster = Cluster::new(nodes, seed);
            let mut random = Random::new(seed);
            // Nodes that call something else before they leave.
            let late: Vec<bool> = (0..nodes).map(|_| random.chance(0.4)).collect();
            let mut leaves = vec![None; nodes as usize];
            let mut barriers = vec![None; nodes as usize];
            for rank in 0..nodes {
                let token = if late[rank as usize] {
                    cluster.call(rank, |c, token, m| c.barrier(token, m))
                } else {
                    cluster.call(rank, |c, token, m| c.leave(token, m))
                };
                let calls = if late[rank as usize] { &mut barriers } else { &mut leaves };
                calls[rank as usize] = Some(token);
                let steps = random.below(6) as u64;
                cluster.steps(steps);
            }
            let all_late = late.iter().all(|late| *late);
            let mut gone = 0;
            while gone < nodes {
                let (mut moved, before) = (cluster.step(), gone);
                for rank in 0..nodes {
                    let at = rank as usize;
                    if let Some(token) = barriers[at]
                        && let Some(outcome) = cluster.take(rank, token)
                    {
                        let fails = matches!(
                            outcome,
                            Err(CoherenceError::Mismatch(_) | CoherenceError::NodeLeaving { .. })
                        );
                        assert!(fails || (all_late && outcome.is_ok()), "seed {seed}: {outcome:?}");
                        barriers[at] = None;
                        moved = true;
                        leaves[at] = Some(cluster.call(rank, |c, token, m| c.leave(token, m)));
                    }
                    if let Some(token) = leaves[at]
                        && let Some(outcome) = cluster.take(rank, token)
                    {
                        assert_eq!(outcome, Ok(Value::None), "seed {seed}, node {rank} of {nodes}");
                        leaves[at] = None;
                        gone += 1;
                        cluster.kill(rank);
                    }
                }
                moved |= gone > before;
                assert!(moved, "seed {seed}, {nodes} nodes: nothing moves");
            }
        }
    }
}

/// COH-8.4: whichever arrival is refused, the job fails with the reason and no node hangs.
#[test]
fn a_refused_arrival_of_any_node_is_told_to_all() {
    for nodes in [2, 3, 12, 20] {
        for seed in seeds(0, 60) {
            let mut cluster = Cluster::with_array(nodes, seed, 3);
            cluster.network.refuse_next = Some((ARRIVE, Refusal::NoRoom));
            for round in 0..3 {
                let all = all_call(&mut cluster, |cluster, rank| {
                    cluster.call(rank, |c, token, m| c.barrier(token, m))
                });
                assert_eq!(cluster.network.refuse_next, None);
                let failed = all.iter().filter(|outcome| outcome.is_err()).count() as u32;
                // In a pair, the refused node may have had the other's arrival already.
                assert!(failed == nodes || (nodes == 2 && round == 0 && failed == 1), "{all:?}");
                for outcome in all.into_iter().filter_map(Result::err) {
                    let text = outcome.to_string();
                    assert!(text.contains("refused it"), "seed {seed}, {nodes} nodes: {text}");
                }
            }
        }
    }
}

/// COH-8.1, 8.2, 8.10 and 6.6: a leaf, an inner node or rank 0 dies at any moment of a barrier or
/// of leaving. Every call of the others ends.
#[test]
fn nobody_hangs_whichever_node_of_the_tree_dies() {
    // With 12 nodes, rank 1 has the child 2. With 70, rank 1 has children, and rank 9 is a leaf.
    for (nodes, places) in [(2, &[0, 1][..]), (12, &[0, 1, 2, 11]), (70, &[0, 1, 9])] {
        for seed in seeds(0, if nodes < 20 { 160 } else { 10 }) {
            let dead = places[seed as usize % places.len()];
            let leaves = seed % 8 < 4;
            let mut cluster = Cluster::new(nodes, seed);
            all_pass_a_barrier(&mut cluster);
            let mut tokens = Vec::new();
            let moment = cluster.random.below(nodes as usize + 1) as Rank;
            for rank in 0..nodes {
                if rank == moment && seed % 3 == 0 {
                    cluster.kill(dead);
                }
                // The dead node has called in half of the runs.
                if rank != dead || seed % 2 == 0 {
                    tokens.push((
                        rank,
                        cluster.call(rank, |c, token, m| {
                            if leaves { c.leave(token, m) } else { c.barrier(token, m) }
                        }),
                    ));
                }
                let steps = cluster.random.below(8) as u64;
                cluster.steps(steps);
            }
            let steps = cluster.random.below(40) as u64;
            cluster.steps(steps);
            if cluster.nodes[dead as usize].alive {
                cluster.kill(dead);
            }
            cluster.run_until_quiet();
            for (rank, token) in tokens.into_iter().filter(|(rank, _)| *rank != dead) {
                let outcome = cluster.take(rank, token);
                match outcome {
                    Some(Ok(Value::None)) if seed % 2 == 0 => {}
                    Some(Err(CoherenceError::NodeDead { rank: named, .. })) if named == dead => {}
                    other => panic!("seed {seed}: node {rank} of {nodes}, dead {dead}: {other:?}"),
                }
            }
        }
    }
}

/// COH-8.10: a node that hears of a death before it arrives does not arrive. Nodes that wait in
/// *leave*, at which the dead node had arrived, do not wait for it.
#[test]
fn nobody_waits_for_a_node_that_a_death_keeps_from_arriving() {
    let places =
        [(3, 0, 1), (3, 2, 1), (12, 0, 5), (12, 2, 5), (12, 3, 6), (70, 1, 5), (70, 11, 40)];
    for (nodes, late, dead) in places {
        for seed in seeds(0, if nodes < 20 { 12 } else { 1 }) {
            let mut cluster = Cluster::new(nodes, seed);
            let leaves: Vec<(Rank, Token)> = (0..nodes)
                .filter(|rank| *rank != late)
                .map(|rank| (rank, cluster.call(rank, |c, token, m| c.leave(token, m))))
                .collect();
            cluster.run_until_quiet();
            cluster.kill(dead);
            cluster.run_until_quiet();
            for (rank, token) in leaves.into_iter().filter(|(rank, _)| *rank != dead) {
                let outcome = cluster.take(rank, token);
                assert!(
                    matches!(outcome, Some(Err(CoherenceError::NodeDead { rank, .. })) if rank == dead),
                    "seed {seed}: node {rank} of {nodes}: {outcome:?}"
                );
            }
            let last = cluster.call(late, |c, token, m| c.leave(token, m));
            assert!(matches!(cluster.take(late, last), Some(Err(CoherenceError::NodeDead { .. }))));
        }
    }
}

/// COH-8.1, 8.10: a process that has taken the place of a dead node is not believed.
#[test]
fn a_dead_node_dooms_nobody_else() {
    let mut cluster = Cluster::new(3, 1);
    let node = &mut cluster.nodes[0];
    let doom = |node: &mut Node, from: Rank, dead: u8| {
        let (head, body) = (head(DEPART, [0; 3]), [2, dead, 0, 0, 0, 0]);
        node.coherence.receive(from, &head, &body, &mut node.machine)
    };
    node.coherence.node_died(2, &mut node.machine);
    assert_eq!(doom(node, 2, 1), Ok(()));
    // Node 1 manages lock 1.
    node.coherence.lock(1, Token(5), &mut node.machine);
    assert_eq!(node.coherence.poll_event(), None, "node 1 counts as alive");
    assert_eq!(doom(node, 1, 2), Ok(()));
    assert_eq!(node.coherence.poll_event(), None);
}

/// COH-6.13: rank 0 hears which nodes below other nodes are missing.
#[test]
fn rank_0_hears_who_is_missing() {
    for (nodes, missing) in
        [(2, vec![1]), (12, vec![2]), (70, vec![1, 11, 40]), (200, vec![0, 3, 27, 28])]
    {
        let mut cluster = Cluster::new(nodes, 3);
        all_pass_a_barrier(&mut cluster);
        let called: Vec<(Rank, Token)> = (0..nodes)
            .filter(|rank| !missing.contains(rank))
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
            .collect();
        cluster.run_until_quiet();
        let mut clock = Time(0);
        // Less than a failure time for each level.
        for _ in 0..8 {
            clock += FAILURE_TIME / 8;
            for rank in 0..nodes {
                cluster.nodes[rank as usize].coherence.ask(clock, FAILURE_TIME);
                cluster.collect(rank);
            }
            cluster.run_until_quiet();
        }
        let hub = &cluster.nodes[0].coherence;
        assert_eq!(hub.late(), missing, "{nodes} nodes");
        let arrived: Vec<Rank> = called.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(hub.gathered(), arrived);
        let late_at_1 = if nodes == 2 { Vec::new() } else { cluster.nodes[1].coherence.late() };
        assert_eq!(late_at_1, Vec::<Rank>::new());
        let last: Vec<(Rank, Token)> = missing
            .iter()
            .map(|rank| (*rank, cluster.call(*rank, |c, token, m| c.barrier(token, m))))
            .collect();
        cluster.run_until_quiet();
        cluster.all_succeeded(called.into_iter().chain(last));
        assert_eq!(cluster.nodes[0].coherence.late(), Vec::<Rank>::new());
    }
    let mut pair = Cluster::new(2, 1);
    pair.call(1, |c, token, m| c.barrier(token, m));
    assert_eq!(pair.nodes[1].coherence.late(), [0], "both nodes of a pair know");
    assert_eq!(pair.nodes[1].coherence.gathered(), [1]);
}

/// Body of an arrival at a barrier: `calls`, no intervals, no counts, no array dropped, no changes
/// of copies.
fn arrival(calls: &[u8]) -> Vec<u8> {
    calls.iter().chain(&[0; 5]).copied().collect()
}

/// COH-9.1.
#[test]
fn arrivals_that_no_sound_node_sends_are_refused() {
    // Of 12 nodes, node 1 is the parent of node 2 and a child of rank 0, as node 3 is with node 4.
    let mut cluster = Cluster::with_array(12, 1, 12);
    let mut tell = |to: usize, from, epoch, body: &[u8]| {
        let node = &mut cluster.nodes[to];
        node.coherence.receive(from, &head(ARRIVE, [epoch, 0, 0]), body, &mut node.machine)
    };
    // A barrier call (0) of one run of ranks: the gap before it and its length.
    let of = |first, count| arrival(&[1, 0, 1, first, count]);
    let wrong: [(usize, Rank, u64, Vec<u8>); 19] = [
        (0, 2, 1, of(2, 1)),                              // not a child of rank 0
        (1, 3, 1, of(3, 1)),                              // not below this node
        (1, 0, 1, of(0, 1)),                              // its parent
        (0, 1, 1, of(1, 3)),                              // a rank of another subtree
        (0, 1, 1, of(0, 1)),                              // the receiver
        (0, 1, 1, of(1, 0)),                              // nobody
        (0, 1, 1, arrival(&[0])),                         // no call
        (0, 1, 1, arrival(&[2, 0, 1, 1, 1, 3, 1, 1, 1])), // a rank twice
        (0, 1, 0, of(1, 1)),                              // an epoch that is over
        (0, 1, 2, of(1, 1)),                              // an epoch that nobody can have reached
        (0, 1, u64::MAX, of(1, 1)),
        (0, 1, 1, vec![1, 0, 1, 1, 1, 1, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]), // an interval of node 5, not late
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 1, 5, 0, 1, 0, 0, 0]),          // updates of node 5
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0]),          // no updates
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 0]), // no dropped arrays, not even none
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0]), // an empty range of dropped arrays
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 0, 2, 0, 1, 0, 1, 0, 0]), // two ranges that touch
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 0, 0]), // no changes of copies, not even none
        (0, 1, 1, vec![1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 12, 1, 0]), // a copy beyond the array
    ];
    for (to, from, epoch, body) in wrong {
        let refused = tell(to, from, epoch, &body);
        assert!(refused.is_err(), "node {from} to {to}, epoch {epoch}: {body:?}");
    }
    assert_eq!(tell(0, 1, 1, &of(2, 1)), Ok(()), "node 1 tells of node 2 first");
    assert_eq!(tell(0, 1, 1, &of(2, 1)), Err(Refusal::Malformed), "once only");
    assert_eq!(tell(0, 1, 1, &of(1, 2)), Err(Refusal::Malformed), "not with another rank either");
    // Node 1 with a late interval of node 5, and an update to node 0.
    let rest = [1, 0, 1, 1, 1, 1, 5, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0];
    assert_eq!(tell(0, 1, 1, &rest), Ok(()));
}

/// COH-9.1: a pair.
#[test]
fn arrivals_in_a_pair_come_from_the_other_node_one_collective_ahead_at_most() {
    for me in [0, 1] {
        let mut pair = Cluster::new(2, 1);
        let other = 1 - me;
        let body = arrival(&[1, 0, 1, other as u8, 1]);
        let node = &mut pair.nodes[me as usize];
        let mut tell = |epoch, body: &[u8], c: &mut Coherence| {
            c.receive(other, &head(ARRIVE, [epoch, 0, 0]), body, &mut node.machine)
        };
        let c = &mut node.coherence;
        assert_eq!(tell(0, &arrival(&[1, 0, 1, me as u8, 1]), c), Err(Refusal::Malformed));
        assert_eq!(tell(1, &body, c), Err(Refusal::Malformed), "this node has not called");
        assert_eq!(tell(0, &body, c), Ok(()), "the other node may be first");
        assert_eq!(tell(0, &body, c), Err(Refusal::Malformed));
        assert_eq!(c.late(), [me]);
        assert_eq!(tell(1, &body, c), Err(Refusal::Malformed));
    }
    // Node 0 has called: the other may have this arrival, and go on to the next collective.
    let mut pair = Cluster::new(2, 1);
    let node = &mut pair.nodes[0];
    let tokens = [1, 2].map(Token);
    tokens.iter().for_each(|token| node.coherence.barrier(*token, &mut node.machine));
    let body = arrival(&[1, 0, 1, 1, 1]);
    for (epoch, expected) in [(2, false), (1, true), (1, false), (0, true), (3, false), (0, false)]
    {
        let told =
            node.coherence.receive(1, &head(ARRIVE, [epoch, 0, 0]), &body, &mut node.machine);
        assert_eq!(told.is_ok(), expected, "epoch {epoch}");
    }
    let done: Vec<_> = std::iter::from_fn(|| node.coherence.poll_event()).collect();
    let expected = tokens.map(|token| CoherenceEvent::Done { token, value: Value::None });
    assert_eq!(done, expected, "both collectives are over");
}

/// COH-9.1.
#[test]
fn departures_that_no_sound_node_sends_are_refused() {
    let mut cluster = Cluster::with_array(12, 1, 12);
    let node = &mut cluster.nodes[1];
    node.coherence.barrier(Token(77), &mut node.machine);
    let mut tell = |from, epoch, body: &[u8]| {
        node.coherence.receive(from, &head(DEPART, [epoch, 0, 0]), body, &mut node.machine)
    };
    let fine = [0, 0, 0, 0, 0, 0];
    for (from, epoch, body) in [
        (2, 1, &fine[..]), // not the parent
        (3, 1, &fine),
        (0, 0, &fine), // another collective
        (0, 2, &fine),
        (0, 1, &fine[..5]),
        (0, 1, &[0, 0, 0, 0, 0, 0, 0]),
        (0, 1, &[0, 0, 0, 0, 0, 1, 0, 1]), // frees an array that this node has not dropped
        (0, 1, &[0, 2, 0, 0, 0, 0]),       // neither with values nor without
        (0, 1, &[1, 2, 1, b'x', 0, 0, 0, 0]), // neither unfit nor fit
        (0, 1, &[1, 0, 1, 0xff, 0, 0, 0, 0]), // no text
        (0, 1, &[2, 12, 0, 0, 0, 0]),      // a dead node that does not exist
        (0, 1, &[3, 0, 0, 0, 0]),
        (0, 1, &[0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]), // an interval that this node has not closed
        (0, 1, &[0, 0, 0, 0, 1, 1, 1, 1, 0]),          // updates of a node to itself
        (0, 1, &[0, 0, 0, 0, 1, 0, 3, 1, 0]),          // updates that no node below got
        (0, 1, &[0, 0, 0, 0, 2, 0, 2, 1, 0, 2, 1, 0]), // counted twice
        (0, 1, &[0, 0, 1, 1, 1, 1, 0, 0, 0]),          // raises this node above what it has done
        (0, 1, &[0, 0, 1, 0, 13, 1, 0, 0, 0]),         // raises a node that does not exist
        (0, 1, &[0, 0, 1, 0, 1, 0, 0, 0, 0]),          // raises a node by nothing
        (0, 1, &[0, 0, 0, 0, 1, 12, 2, 1, 0]),         // a node that does not exist
    ] {
        assert!(tell(from, epoch, body).is_err(), "node {from}, epoch {epoch}: {body:?}");
    }
    let long: Vec<u8> = [1, 0, 0x88, 0x27].into_iter().chain([b'x'; 5000]).chain([0; 4]).collect();
    assert_eq!(tell(0, 1, &long), Err(Refusal::Malformed), "too long a text");
    // Its child has not arrived, so no collective can be over. This is the parent's lie, and what
    // follows must not be worse than a failed collective.
    assert_eq!(tell(0, 1, &fine), Ok(()));
    assert_eq!(
        node.coherence.poll_event(),
        Some(CoherenceEvent::Done { token: Token(77), value: Value::None })
    );
}

/// Bytes that are nearly right are survived, too.
#[test]
fn changed_messages_of_collectives_are_survived() {
    for seed in seeds(0, 400) {
        let nodes = [2, 3, 12][seed as usize % 3];
        let mut cluster = Cluster::with_array(nodes, seed, 3);
        let mut random = Random::new(seed);
        for round in 0..6u64 {
            for rank in 0..nodes {
                let node = &mut cluster.nodes[rank as usize];
                node.coherence.barrier(Token(round), &mut node.machine);
                if let Some((to, message)) = node.coherence.poll_message() {
                    let (mut head, mut body) =
                        (message.head.to_vec(), message.body.bytes().to_vec());
                    for _ in 0..random.below(3) {
                        let bytes = if random.chance(0.2) { &mut head } else { &mut body };
                        if !bytes.is_empty() {
                            let at = random.below(bytes.len());
                            let most = if random.chance(0.5) { 4 } else { 256 };
                            bytes[at] = random.below(most) as u8;
                        }
                    }
                    let receiver = &mut cluster.nodes[to as usize];
                    let _ = receiver.coherence.receive(rank, &head, &body, &mut receiver.machine);
                }
            }
        }
    }
}

/// Cost of one collective.
struct Cost {
    /// Number of messages on the longest path.
    rounds: u32,
    messages: usize,
    /// Sum over the rounds of the most messages that one node sends or receives.
    busiest: usize,
    /// Length of the longest body in bytes.
    longest: usize,
}

/// Delivers all messages of a round at once, until nothing is sent any more.
fn cost(nodes: &mut [Coherence], mut call: impl FnMut(&mut Coherence, Token)) -> Cost {
    let pages = &mut Machine::default();
    nodes.iter_mut().for_each(|node| call(node, Token(1)));
    let (mut rounds, mut messages, mut busiest, mut longest) = (0, 0, 0, 0);
    loop {
        let mut flying = Vec::new();
        let mut most = 0;
        for (rank, node) in (0..).zip(nodes.iter_mut()) {
            let before = flying.len();
            while let Some((to, message)) = node.poll_message() {
                flying.push((rank, to, message));
            }
            most = most.max(flying.len() - before);
        }
        if flying.is_empty() {
            break;
        }
        let mut received = vec![0usize; nodes.len()];
        for (from, to, message) in &flying {
            received[*to as usize] += 1;
            longest = longest.max(message.body.len() as usize);
            let result =
                nodes[*to as usize].receive(*from, &message.head, message.body.bytes(), pages);
            assert_eq!(result, Ok(()));
        }
        for (from, _, message) in &flying {
            nodes[*from as usize].acknowledged(message.token, pages);
        }
        rounds += 1;
        messages += flying.len();
        busiest += most.max(received.into_iter().max().unwrap_or(0));
    }
    for node in nodes {
        let is_leaving = |event: &CoherenceEvent| matches!(event, CoherenceEvent::Leaving { .. });
        let event = std::iter::from_fn(|| node.poll_event()).find(|event| !is_leaving(event));
        assert!(matches!(event, Some(CoherenceEvent::Done { token: Token(1), .. })), "{event:?}");
    }
    Cost { rounds, messages, busiest, longest }
}

/// COH-6.11, COH-6.12: the longest path of a barrier grows with the logarithm of the nodes, each
/// node handles a few messages, and a message does not hold a copy of each node's call.
#[test]
fn a_barrier_takes_time_in_proportion_to_the_logarithm_of_the_nodes() {
    for (count, path) in [(2, 1), (3, 2), (8, 2), (9, 2), (64, 4), (256, 6), (1024, 8)] {
        let mut nodes: Vec<Coherence> =
            (0..count).map(|rank| Coherence::new(rank, count)).collect();
        let Cost { rounds, messages, busiest, longest } =
            cost(&mut nodes, |node, token| node.barrier(token, &mut Machine::default()));
        println!(
            "{count} nodes: {rounds} rounds, {messages} messages, {busiest} on the path, {longest} bytes"
        );
        assert_eq!(rounds, path, "{count} nodes");
        assert_eq!(messages, if count == 2 { 2 } else { 2 * (count as usize - 1) });
        assert!(busiest <= 8 * path as usize, "{busiest} messages, {longest} bytes");
        assert!(longest <= 12, "{busiest} messages, {longest} bytes");
        let declaration = Declaration {
            name: "x".repeat(NAME_MAX),
            bytes: 4096 * u64::from(count),
            element: Element { kind: 1, size: 8 },
            homes: Homes::Block,
            ..Declaration::default()
        };
        let Cost { rounds, longest, .. } = cost(&mut nodes, |node, token| {
            node.declare(declaration.clone(), token, &mut Machine::default());
        });
        assert_eq!(rounds, path, "declaration on {count} nodes");
        assert!(longest <= NAME_MAX + 32, "{longest} bytes for {count} nodes");
    }
}
