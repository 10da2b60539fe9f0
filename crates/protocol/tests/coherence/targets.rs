//! Arrays as targets of one-sided operations (COH-12).

use crate::cluster::{Cluster, Node, seeds};
use crate::updates::head;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, CoherenceError, Homes, TargetOp, Value};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{Accumulation, Combine, NumberKind, Width};
use oikaze_protocol::wind::{Refusal, Token};

const TARGET: u8 = 16;
const TARGET_DONE: u8 = 17;
const PAGES: u64 = 5;
const SUM: Accumulation = Accumulation { element: NumberKind::U64, combine: Combine::Sum };

fn act(
    cluster: &mut Cluster,
    rank: Rank,
    at: u64,
    len: u64,
    op: TargetOp,
    operands: &[u8],
) -> Token {
    cluster.call(rank, |c, token, m| c.target(0, at, len, op, operands, token, m))
}

fn load(cluster: &mut Cluster, rank: Rank, at: u64) -> u64 {
    let page = at / PAGE as u64;
    cluster.succeeds(rank, |c, t, m| c.touch(0, page..page + 1, Access::Read, t, m));
    cluster.nodes[rank as usize].machine.load(0, at as usize, 8).unwrap()
}

/// COH-12.1 to 12.3: after a barrier, every node reads the sum of what all have added, in any order
/// of messages. Between additions, some nodes hold copies, which become invalid.
#[test]
fn additions_at_home_are_seen_after_a_barrier() {
    for seed in seeds(0, 60) {
        let mut random = Random::new(seed);
        let nodes = [2, 3, 10][random.below(3)];
        let mut cluster = Cluster::new(nodes, seed);
        let homes = [Homes::Block, Homes::Cyclic { pages: 1 }][random.below(2)].clone();
        cluster.declare("p", PAGES, homes);
        let guarded = random.chance(0.5);
        if guarded {
            cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(0));
        }
        let words: Vec<u64> =
            (0..6).map(|_| 8 * random.below(PAGES as usize * 512) as u64).collect();
        let mut sums = vec![0u64; words.len()];
        for round in 0..6 {
            let mut tokens = Vec::new();
            for _ in 0..12 {
                let (rank, word) =
                    (random.below(nodes as usize) as Rank, random.below(words.len()));
                let add = random.below(100) as u64 + 1;
                let twins = words.iter().zip(&mut sums).filter(|(at, _)| **at == words[word]);
                twins.for_each(|(_, sum)| *sum += add);
                let op = if random.chance(0.5) {
                    TargetOp::Combine(SUM)
                } else {
                    TargetOp::Accumulate(SUM)
                };
                let token = act(&mut cluster, rank, words[word], 8, op, &add.to_le_bytes());
                tokens.push((rank, token));
                cluster.steps(random.below(5) as u64);
            }
            let call = |rank| cluster.call(rank, |c, token, m| c.barrier(token, m));
            let barriers: Vec<Token> = (0..nodes).map(call).collect();
            cluster.run_until_quiet();
            for (rank, token) in tokens {
                assert!(matches!(cluster.take(rank, token), Some(Ok(Value::Bytes(_)))));
            }
            cluster.all_succeeded((0..).zip(barriers));
            for rank in 0..nodes {
                for (word, sum) in words.iter().zip(&sums) {
                    if random.chance(0.5) {
                        let found = load(&mut cluster, rank, *word);
                        assert_eq!(found, *sum, "seed {seed}, round {round}, node {rank}");
                    }
                }
            }
        }
        let refused = cluster.nodes.iter().map(|node| node.coherence.statistics().refused);
        assert_eq!(refused.sum::<u64>(), 0);
    }
}

/// COH-12.1: the release waits until the change is made at the home.
#[test]
fn arrival_waits_for_the_change() {
    let mut cluster = Cluster::with_array(3, 1, 3);
    let put = act(&mut cluster, 1, 0, 8, TargetOp::Write, &[7; 8]);
    let token = cluster.call(1, |c, token, m| c.barrier(token, m));
    assert!(!cluster.nodes[0].coherence.gathered().contains(&1));
    cluster.run_until_quiet();
    assert_eq!(cluster.nodes[0].coherence.gathered(), [1]);
    assert_eq!(cluster.nodes[0].machine.alias(0)[..9], [7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert_eq!(cluster.take(1, put), Some(Ok(Value::Bytes(Vec::new()))));
    assert_eq!(cluster.take(1, token), None);
}

#[test]
fn compare_exchange_returns_what_was_there() {
    let mut cluster = Cluster::with_array(2, 1, 2);
    let at = PAGE as u64 + 4;
    let op = TargetOp::CompareExchange(Width::W32);
    for (expected, new, found) in [(0u32, 5u32, 0u32), (0, 6, 5), (5, 7, 5), (7, 0, 7)] {
        let operands = [expected.to_le_bytes(), new.to_le_bytes()].concat();
        let token = act(&mut cluster, 0, at, 4, op, &operands);
        cluster.run_until_quiet();
        let bytes = found.to_le_bytes().to_vec();
        assert_eq!(cluster.take(0, token), Some(Ok(Value::Bytes(bytes))));
    }
}

/// COH-12.5: operations at a dead home fail, and others work.
#[test]
fn operations_at_a_dead_home_fail() {
    let mut cluster = Cluster::with_array(3, 1, 3);
    let lost = act(&mut cluster, 1, 0, 3 * PAGE as u64, TargetOp::Read, &[]);
    cluster.kill(2);
    cluster.run_until_quiet();
    let outcome = cluster.take(1, lost);
    assert!(matches!(outcome, Some(Err(CoherenceError::NodeDead { rank: 2, .. }))), "{outcome:?}");
    let token = act(&mut cluster, 1, 2 * PAGE as u64, 8, TargetOp::Read, &[]);
    let outcome = cluster.take(1, token);
    assert!(matches!(outcome, Some(Err(CoherenceError::NodeDead { rank: 2, .. }))), "{outcome:?}");
    let token = act(&mut cluster, 1, 0, 8, TargetOp::Read, &[]);
    cluster.run_until_quiet();
    assert_eq!(cluster.take(1, token), Some(Ok(Value::Bytes(vec![0; 8]))));
}

/// COH-9.1.
#[test]
fn operations_that_make_no_sense_are_refused() {
    let mut cluster = Cluster::with_array(2, 1, 4);
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    let mut tell = |code: u64, element: u64, offset: u64, body: &[u8]| {
        let head = head(TARGET, [code << 32 | element << 40, offset, 1]);
        coherence.receive(1, &head, body, machine)
    };
    let add = [&[8][..], &[1; 8]].concat();
    for (code, element, offset, body) in [
        (0, 1, 0, &[8][..]), // a read of numbers
        (0, 0, 0, &[0]),     // of nothing
        (0, 0, 0, &[8, 1]),  // with operands
        (0, 0, 0, &[0x81, 0x80, 2]),
        (1, 0, 0, &add), // elements without a type
        (1, 7, 0, &add),
        (4, 3, 0, &add), // an unknown operation
        (20, 3, 0, &add),
        (34, 8, 0, &add),
        (1, 3, 4, &add), // not aligned
        (1, 3, 0, &add[..8]),
        (33, 8, 0, &add), // one operand
        (33, 2, 0, &add),
    ] {
        let refused = tell(code, element, offset, body);
        assert_eq!(refused, Err(Refusal::Malformed), "{code}, {element}, {offset}, {body:?}");
    }
    assert_eq!(tell(1, 3, 2 * PAGE as u64, &add), Err(Refusal::NotPermitted));
    assert_eq!(tell(1, 3, 4 * PAGE as u64, &add), Err(Refusal::OutOfBounds));
    assert_eq!(tell(1, 3, u64::MAX - 7, &add), Err(Refusal::OutOfBounds));
    assert_eq!(tell(1, 3, 0, &add), Ok(()));
    // An answer to nothing changes nothing. One of another length is refused.
    let token = act(&mut cluster, 0, 2 * PAGE as u64, 8, TargetOp::Read, &[]);
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    assert_eq!(coherence.receive(1, &head(TARGET_DONE, [9, 0, 0]), &[1; 8], machine), Ok(()));
    let short = coherence.receive(1, &head(TARGET_DONE, [0, 0, 0]), &[1; 7], machine);
    assert_eq!(short, Err(Refusal::Malformed));
    cluster.run_until_quiet();
    assert_eq!(cluster.take(0, token), Some(Ok(Value::Bytes(vec![0; 8]))));
}
