//! Collectives that do not agree, and reductions (COH-6.2, COH-6.3).

use crate::cluster::Cluster;
use crate::cluster::threads::{Cell, Op, Thread};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, CallStep, CoherenceError, Declaration, Element, Homes, ReduceOp, Reduction, Value,
    Values,
};
use oikaze_protocol::wind::Token;

fn declaration(name: &str, bytes: u64) -> Declaration {
    Declaration {
        name: name.into(),
        bytes,
        element: Element { kind: 1, size: 8 },
        homes: Homes::Block,
        ..Declaration::default()
    }
}

/// Checks that the operation fails on every node with a text that contains all of `parts`.
fn all_fail(cluster: &mut Cluster, tokens: &[Token], parts: &[&str]) {
    cluster.run_until_quiet();
    for (rank, token) in (0..).zip(tokens) {
        match cluster.take(rank, *token) {
            Some(Err(CoherenceError::Mismatch(text))) => {
                parts
                    .iter()
                    .for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
            }
            other => panic!("node {rank}: {other:?}"),
        }
    }
}

/// COH-2.1.
#[test]
fn declarations_that_differ_name_nodes_and_values() {
    type Change = fn(&mut Declaration);
    let cases: [(Change, [&str; 2]); 4] = [
        (|d| d.bytes = 8192, ["node 0 declared 4096 bytes", "node 2 declared 8192 bytes"]),
        (
            |d| d.name = "q".into(),
            ["node 0 declared the name \"p\"", "node 2 declared the name \"q\""],
        ),
        (|d| d.element.size = 4, ["type 1 with 8 bytes", "type 1 with 4 bytes"]),
        (|d| d.homes = Homes::Cyclic { pages: 3 }, ["homes in blocks", "cyclic homes of 3 pages"]),
    ];
    for (seed, (change, parts)) in (0..).zip(cases) {
        let mut cluster = Cluster::new(3, seed);
        let mut other = declaration("p", 4096);
        change(&mut other);
        let declared = [declaration("p", 4096), declaration("p", 4096), other];
        let tokens: Vec<Token> =
            (0..).zip(declared).map(|(rank, d)| cluster.declare_on(rank, d)).collect();
        all_fail(&mut cluster, &tokens, &parts);
        // The job goes on: a barrier and a declaration under the next number work.
        let tokens: Vec<Token> =
            (0..3).map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m))).collect();
        cluster.run_until_quiet();
        (0..)
            .zip(tokens)
            .for_each(|(rank, token)| assert_eq!(cluster.take(rank, token), Some(Ok(Value::None))));
        assert_eq!(cluster.declare("r", 2, Homes::Block), 1);
        // The names are free again.
        assert_eq!(cluster.declare("p", 2, Homes::Block), 2);
        assert_eq!(cluster.declare("q", 2, Homes::Block), 3);
    }
}

/// COH-2.3: a node that has heard of the agreement asks for pages of a node that has not.
#[test]
fn pages_are_answered_for_before_the_agreement_is_heard() {
    let mut early = 0;
    for seed in 0..200 {
        let mut cluster = Cluster::new(3, seed);
        let declared =
            Declaration { homes: Homes::Cyclic { pages: 1 }, ..declaration("p", 3 * 4096) };
        let tokens: Vec<Token> =
            (0..3).map(|rank| cluster.declare_on(rank, declared.clone())).collect();
        let heard = (0..10_000).find_map(|_| {
            cluster.step();
            cluster.take(1, tokens[1])
        });
        assert!(matches!(heard, Some(Ok(_))), "{heard:?}");
        if cluster.take(2, tokens[2]).is_none() {
            early += 1;
            let there = Cell::word(2, 0);
            assert_eq!(
                cluster.run(vec![Thread::new(1, vec![Op::Store(there, 7), Op::Load(there)])]),
                [[7]]
            );
        }
    }
    assert!(early > 20, "{early} of them");
}

#[test]
fn an_unsound_declaration_fails_everywhere() {
    let mut cluster = Cluster::new(3, 1);
    let mut bad = declaration("p", 4096 * 2);
    bad.homes = Homes::Explicit(vec![0, 9]);
    let tokens: Vec<Token> = (0..3).map(|rank| cluster.declare_on(rank, bad.clone())).collect();
    all_fail(&mut cluster, &tokens, &["home of page 1", "3 nodes"]);
    let name: String = (0..60).map(|_| 'x').collect();
    let tokens: Vec<Token> = (0..3)
        .map(|rank| cluster.declare_on(rank, declaration(if rank == 1 { &name } else { "x" }, 8)))
        .collect();
    all_fail(&mut cluster, &tokens, &["node 1 cannot", "60 bytes"]);
}

/// COH-6.2.
#[test]
fn different_collectives_fail_everywhere() {
    let mut cluster = Cluster::new(3, 5);
    let sum = |v| Reduction { op: ReduceOp::Sum, values: v };
    let mut tokens: Vec<Token> = (0..2)
        .map(|rank| {
            cluster.call(rank, |c, token, m| c.reduce(sum(Values::F64(vec![1.0, 2.0])), token, m))
        })
        .collect();
    tokens.push(cluster.call(2, |c, token, m| c.barrier(token, m)));
    all_fail(
        &mut cluster,
        &tokens,
        &["node 2 called barrier while node 0 called barrier_reduce (Sum of 2 f64)"],
    );
    let values = |rank| if rank == 1 { Values::I64(vec![1]) } else { Values::U64(vec![1]) };
    let tokens: Vec<Token> = (0..3)
        .map(|rank| cluster.call(rank, |c, token, m| c.reduce(sum(values(rank)), token, m)))
        .collect();
    all_fail(
        &mut cluster,
        &tokens,
        &[
            "node 1 called barrier_reduce (Sum of 1 i64) while node 0 called barrier_reduce (Sum of 1 u64)",
        ],
    );
}

/// COH-6.2: steps of one operation give the greatest number, and others name the operation.
#[test]
fn steps_of_an_operation_agree_on_a_number_or_name_it() {
    let step = |call: &str, step, arguments, number| {
        let call = call.to_owned();
        CallStep { call, step, arguments, number }
    };
    let take = |cluster: &mut Cluster, odd: CallStep| -> Vec<Token> {
        let of = |rank| if rank == 2 { odd.clone() } else { step("save array \"a\"", 1, 7, 3) };
        (0..3).map(|rank| cluster.call(rank, |c, token, m| c.step(of(rank), token, m))).collect()
    };
    let mut cluster = Cluster::new(3, 8);
    let tokens = take(&mut cluster, step("save array \"a\"", 1, 7, u64::MAX));
    cluster.run_until_quiet();
    for (rank, token) in (0..).zip(tokens) {
        let greatest = Value::Reduced(Values::U64(vec![u64::MAX]));
        assert_eq!(cluster.take(rank, token), Some(Ok(greatest)));
    }
    for (odd, text) in [
        (
            step("load array \"a\"", 1, 7, 0),
            "node 2 called load array \"a\" while node 0 called save",
        ),
        (
            step("save array \"a\"", 2, 7, 0),
            "node 2 is in step 2 of save array \"a\", node 0 in step 1",
        ),
        (step("save array \"a\"", 1, 8, 0), "save array \"a\" with other arguments than node 0"),
    ] {
        let tokens = take(&mut cluster, odd);
        all_fail(&mut cluster, &tokens, &[text]);
    }
}

/// COH-6.2: nodes prepare different declarations together, and name them against other calls.
#[test]
fn steps_before_declarations_agree_and_are_named_against_other_calls() {
    let step = |rank: Rank| CallStep {
        call: format!("declare array \"{rank}\""),
        step: 0,
        arguments: 0,
        number: u64::from(rank),
    };
    let mut cluster = Cluster::new(3, 8);
    let tokens: Vec<Token> =
        (0..3).map(|rank| cluster.call(rank, |c, token, m| c.step(step(rank), token, m))).collect();
    cluster.run_until_quiet();
    for (rank, token) in (0..).zip(tokens) {
        let greatest = Value::Reduced(Values::U64(vec![2]));
        assert_eq!(cluster.take(rank, token), Some(Ok(greatest)));
    }
    let tokens: Vec<Token> = (0..3)
        .map(|rank| match rank {
            2 => cluster.call(rank, |c, token, m| c.barrier(token, m)),
            _ => cluster.call(rank, |c, token, m| c.step(step(rank), token, m)),
        })
        .collect();
    let text = "node 2 called barrier while node 0 called declare array \"0\"";
    all_fail(&mut cluster, &tokens, &[text]);
}

/// COH-6.3: in rank order, so the same bits in every run, whatever order the arrivals come in.
#[test]
fn reductions_are_the_same_bits_in_every_run() {
    let part = |rank: Rank| {
        vec![
            0.1 + f64::from(rank) * 1e16,
            if rank.is_multiple_of(2) { 1e-3 } else { -1e16 },
            -0.0,
            f64::from(rank),
        ]
    };
    let expected: Vec<f64> =
        (0..4).map(|i| (1..5).fold(part(0)[i], |sum, rank| sum + part(rank)[i])).collect();
    for seed in 0..30 {
        let mut cluster = Cluster::new(5, seed);
        for (op, check) in [
            (ReduceOp::Sum, &expected),
            (ReduceOp::Min, &vec![0.1, -1e16, -0.0, 0.0]),
            (ReduceOp::Max, &vec![4e16, 1e-3, -0.0, 4.0]),
        ] {
            let reduce = |rank| Reduction { op, values: Values::F64(part(rank)) };
            let tokens: Vec<Token> = (0..5)
                .map(|rank| cluster.call(rank, |c, token, m| c.reduce(reduce(rank), token, m)))
                .collect();
            cluster.run_until_quiet();
            for (rank, token) in (0..).zip(tokens) {
                match cluster.take(rank, token) {
                    Some(Ok(Value::Reduced(Values::F64(got)))) => {
                        assert!(
                            got.iter().zip(check).all(|(a, b)| a.to_bits() == b.to_bits()),
                            "{op:?} {got:?} {check:?}"
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let mut cluster = Cluster::new(2, 3);
    let token = cluster.call(0, |c, token, m| c.unlock(4, token, m));
    assert_eq!(cluster.take(0, token), Some(Err(CoherenceError::NotHeld { lock: 4 })));
    cluster.declare("p", 2, Homes::Block);
    let token = cluster.call(0, |c, token, m| c.touch(0, 1..5, Access::Read, token, m));
    let text = format!("{}", cluster.take(0, token).unwrap().unwrap_err());
    assert!(text.contains("1..5") && text.contains("\"p\"") && text.contains("2 pages"), "{text}");
    let token = cluster.call(0, |c, token, m| c.touch(7, 1..5, Access::Read, token, m));
    assert!(cluster.take(0, token).unwrap().unwrap_err().to_string().contains("declare it first"));
}

/// COH-6.6: after `leave`, no node asks another one for anything, and a node that has left does not
/// count as dead.
#[test]
fn leaving_is_no_death() {
    for seed in 0..60 {
        let nodes = 2 + (seed % 3) as u32;
        let mut cluster = Cluster::new(nodes, seed);
        let tokens: Vec<Token> =
            (0..nodes).map(|rank| cluster.call(rank, |c, token, m| c.leave(token, m))).collect();
        let mut gone = vec![];
        while gone.len() < nodes as usize {
            assert!(cluster.step() || !gone.is_empty(), "seed {seed}");
            for rank in (0..nodes).filter(|rank| !gone.contains(rank)).collect::<Vec<_>>() {
                if let Some(outcome) = cluster.take(rank, tokens[rank as usize]) {
                    assert_eq!(outcome, Ok(Value::None), "seed {seed}");
                    gone.push(rank);
                    cluster.kill(rank);
                }
            }
        }
    }
}

/// COH-6.7, COH-6.8 and COH-6.9: a barrier at which one node will not arrive fails at once, and all
/// nodes can leave afterwards.
#[test]
fn barrier_of_others_fails_when_a_node_leaves() {
    for seed in 0..100 {
        let mut cluster = Cluster::new(3, seed);
        let leaver = (seed % 3) as Rank;
        let others = || (0..3).filter(move |rank| *rank != leaver);
        let leave = cluster.call(leaver, |c, token, m| c.leave(token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(leaver, leave), None, "it waits for the others");
        // One of the others called before it heard of it in half of the runs.
        let barriers: Vec<(Rank, Token)> = others()
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
            .collect();
        cluster.run_until_quiet();
        for (rank, token) in barriers {
            let failed = cluster.take(rank, token);
            assert!(
                matches!(failed, Some(Err(CoherenceError::NodeLeaving { rank, .. })) if rank == leaver),
                "{failed:?}"
            );
        }
        let leaves: Vec<(Rank, Token)> = others()
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.leave(token, m))))
            .collect();
        cluster.run_until_quiet();
        cluster.all_succeeded(leaves.into_iter().chain([(leaver, leave)]));
    }
}

/// COH-6.8 and COH-6.9: a barrier that is under way when the notice arrives fails.
#[test]
fn barrier_under_way_fails_when_a_node_leaves() {
    let mut known_to_rank_0 = 0;
    for seed in 0..200 {
        let mut cluster = Cluster::new(3, seed);
        let barrier = cluster.call(1, |c, token, m| c.barrier(token, m));
        for _ in 0..seed % 20 {
            cluster.step();
        }
        known_to_rank_0 += usize::from(cluster.nodes[0].coherence.late() == [0, 2]);
        let leaves = [0, 2].map(|rank| (rank, cluster.call(rank, |c, token, m| c.leave(token, m))));
        cluster.run_until_quiet();
        // Rank 0 may have answered before the notices came.
        let failed = cluster.take(1, barrier);
        let named = matches!(
            failed,
            Some(Err(CoherenceError::NodeLeaving { .. } | CoherenceError::Mismatch(_)))
        );
        assert!(named, "seed {seed}: {failed:?}");
        let last = cluster.call(1, |c, token, m| c.leave(token, m));
        cluster.run_until_quiet();
        cluster.all_succeeded(leaves.into_iter().chain([(1, last)]));
    }
    assert!(known_to_rank_0 > 20, "{known_to_rank_0}");
}

/// COH-6.8: a node that passes the last barrier first may leave before the others have heard of the
/// barrier's end.
#[test]
fn barrier_that_the_leaving_node_has_passed_succeeds() {
    let mut early = 0;
    for seed in 0..300 {
        let mut cluster = Cluster::new(3, seed);
        let barriers: Vec<Token> =
            (0..3).map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m))).collect();
        let mut leaves: Vec<(Rank, Token)> = Vec::new();
        while leaves.len() < 3 {
            cluster.step();
            for rank in 0..3 {
                if let Some(outcome) = cluster.take(rank, barriers[rank as usize]) {
                    assert_eq!(outcome, Ok(Value::None), "seed {seed}, node {rank}");
                    leaves.push((rank, cluster.call(rank, |c, token, m| c.leave(token, m))));
                }
            }
            early += usize::from(
                leaves.len() == 1
                    && (1..3).any(|rank| cluster.nodes[rank].coherence.is_leaving(leaves[0].0)),
            );
        }
        cluster.run_until_quiet();
        leaves
            .into_iter()
            .for_each(|(rank, token)| assert_eq!(cluster.take(rank, token), Some(Ok(Value::None))));
    }
    assert!(early > 20, "{early} notices came before the barrier's end");
}

/// COH-6.7.
#[test]
fn locks_of_a_leaving_node_are_given_back() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(3, seed);
        cluster.succeeds(2, |c, token, m| c.lock(1, token, m));
        let wanted = cluster.call(0, |c, token, m| c.lock(1, token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(0, wanted), None);
        cluster.call(2, |c, token, m| c.leave(token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(0, wanted), Some(Ok(Value::None)), "seed {seed}");
    }
}
