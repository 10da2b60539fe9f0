//! Requests and answers that were acknowledged and never arrived (COH-13). Questions find them, and
//! no wait lasts for ever.

use crate::cluster::{Cluster, Node};
use crate::updates::{hold_back, post};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, CoherenceEvent, Homes, KIND, Ownership, TargetOp, Value};
use oikaze_protocol::limits::{FAILURE_TIME, PAGE, VAIN_QUESTIONS_MAX};
use oikaze_protocol::random::Random;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Nonsense, Refusal, Token};

const FETCH: u8 = 1;
const PAGES: u8 = 2;
const ARRIVE: u8 = 4;
const DEPART: u8 = 5;
const ACQUIRE: u8 = 6;
const GRANT: u8 = 7;
const UNLOCK: u8 = 8;
const LEAVING: u8 = 10;
const QUESTION: u8 = 11;
const REPLY: u8 = 12;
const UPDATE: u8 = 13;
const PASSED: u8 = 20;

fn head(code: u8, fields: [u64; 3]) -> Vec<u8> {
    [KIND, code].into_iter().chain(fields.into_iter().flat_map(u64::to_le_bytes)).collect()
}

/// Runs this many rounds in which each node asks about its waits.
pub fn ask(cluster: &mut Cluster, clock: &mut Time, rounds: u32) {
    for _ in 0..rounds {
        *clock += FAILURE_TIME;
        for rank in 0..cluster.nodes.len() as Rank {
            cluster.nodes[rank as usize].coherence.ask(*clock, FAILURE_TIME);
            cluster.collect(rank);
        }
        cluster.run_until_quiet();
    }
}

/// Ends connections between nodes that contradict each other, as the engine does.
pub fn part(cluster: &mut Cluster) -> usize {
    let mut parted = 0;
    for rank in 0..cluster.nodes.len() {
        for other in std::mem::take(&mut cluster.nodes[rank].contradictions) {
            parted += 1;
            for (here, gone) in [(rank, other), (other as usize, rank as Rank)] {
                let node = &mut cluster.nodes[here];
                node.coherence.node_died(gone, &mut node.machine);
                cluster.collect(here as Rank);
            }
        }
    }
    cluster.run_until_quiet();
    parted
}

/// Begins operations that need a message of code `lost`, which is lost. Returns the operations that
/// must end.
fn begin(cluster: &mut Cluster, lost: u8) -> Vec<(Rank, Token)> {
    cluster.forged = Some(lost);
    match lost {
        FETCH | PAGES => {
            // The page's home is node 2.
            vec![(0, cluster.call(0, |c, token, m| c.touch(0, 2..3, Access::Read, token, m)))]
        }
        ARRIVE | DEPART => (0..3)
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
            .collect(),
        // Node 1 manages lock 4.
        _ => {
            let first = cluster.call(2, |c, token, m| c.lock(4, token, m));
            cluster.run_until_quiet();
            let mut tokens = vec![(2, first)];
            if lost == UNLOCK {
                tokens.push((2, cluster.call(2, |c, token, m| c.unlock(4, token, m))));
                cluster.run_until_quiet();
                tokens.push((1, cluster.call(1, |c, token, m| c.lock(4, token, m))));
            }
            tokens
        }
    }
}

/// Returns `true` if no node has a question.
fn nobody_waits(cluster: &Cluster) -> bool {
    cluster.nodes.iter().all(|node| node.coherence.next_question().is_none())
}

/// COH-13.1 and COH-13.3: whichever message is lost, the connection ends after `VAIN_QUESTIONS_MAX`
/// questions, and every wait ends with it.
#[test]
fn waits_for_what_was_lost_end() {
    for seed in 0..10 {
        for lost in [FETCH, PAGES, ARRIVE, DEPART, ACQUIRE, GRANT, UNLOCK] {
            let mut cluster = Cluster::with_array(3, seed, 3);
            let tokens = begin(&mut cluster, lost);
            cluster.run_until_quiet();
            assert_eq!(cluster.forged, None, "a message of code {lost} was sent");
            let mut clock = Time(0);
            // The first round begins to measure, the second sees the wait for the first time.
            ask(&mut cluster, &mut clock, 2 + VAIN_QUESTIONS_MAX);
            assert_eq!(part(&mut cluster), 0, "seed {seed}, code {lost}: given up too early");
            ask(&mut cluster, &mut clock, 1);
            assert_eq!(part(&mut cluster), 1, "seed {seed}, code {lost}");
            for (rank, token) in tokens {
                assert!(
                    cluster.take(rank, token).is_some(),
                    "seed {seed}, code {lost}: node {rank} hangs"
                );
            }
            ask(&mut cluster, &mut clock, 1);
            assert!(nobody_waits(&cluster), "code {lost}: nobody waits");
        }
    }
}

/// COH-13.1, COH-7.9: the grant of a holder, or its message to the manager, is lost.
#[test]
fn waits_for_a_lock_that_was_passed_on_end() {
    for (seed, lost) in (0..10).flat_map(|seed| [(seed, GRANT), (seed, PASSED)]) {
        let mut cluster = Cluster::with_array(3, seed, 3);
        // Node 1 manages lock 4.
        cluster.succeeds(2, |c, token, m| c.lock(4, token, m));
        let next = cluster.call(0, |c, token, m| c.lock(4, token, m));
        cluster.run_until_quiet();
        cluster.forged = Some(lost);
        cluster.succeeds(2, |c, token, m| c.unlock(4, token, m));
        assert_eq!(cluster.forged, None, "a message of code {lost} was sent");
        let mut clock = Time(0);
        ask(&mut cluster, &mut clock, 3 + VAIN_QUESTIONS_MAX);
        assert_eq!(part(&mut cluster), 1, "seed {seed}, code {lost}");
        let outcome = cluster.take(0, next).expect("the wait has ended");
        assert_eq!(outcome.is_ok(), lost == PASSED, "seed {seed}: {outcome:?}");
    }
}

/// COH-13.2: the grant of a holder is behind what it sends to the next holder, which may be much.
#[test]
fn waits_for_a_grant_on_its_way_go_on() {
    // Node 1 manages lock 4, and is the giver or not.
    for (seed, giver) in (0..10).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.succeeds(giver, |c, token, m| c.lock(4, token, m));
        let next = cluster.call(0, |c, token, m| c.lock(4, token, m));
        cluster.run_until_quiet();
        let Node { coherence, machine, .. } = &mut cluster.nodes[giver as usize];
        coherence.unlock(4, Token(1 << 32), machine);
        let grant = hold_back(&mut cluster, giver, GRANT);
        assert_eq!(grant.len(), 1, "seed {seed}");
        cluster.run_until_quiet();
        let mut clock = Time(0);
        ask(&mut cluster, &mut clock, 3 * VAIN_QUESTIONS_MAX);
        assert_eq!(part(&mut cluster), 0, "seed {seed}: given up too early");
        post(&mut cluster, giver, grant);
        cluster.run_until_quiet();
        cluster.all_succeeded([(0, next)]);
        ask(&mut cluster, &mut clock, 1);
        assert!(nobody_waits(&cluster), "seed {seed}");
    }
}

/// COH-13.1: an arrival or a departure is lost in a pair, or anywhere in a tree, at a barrier or
/// when all leave.
#[test]
fn waits_in_collectives_for_what_was_lost_end() {
    for nodes in [2, 12] {
        for seed in 0..48 {
            let (lost, leaves) = ([ARRIVE, DEPART][seed as usize % 2], seed % 4 < 2);
            if nodes == 2 && lost == DEPART && !leaves {
                continue; // there is no such message
            }
            let mut cluster = Cluster::with_array(nodes, seed, 3);
            cluster.forged = Some(lost);
            let calls: Vec<(Rank, Token)> = (0..nodes)
                .map(|rank| (rank + (seed / 4) as Rank) % nodes)
                .map(|rank| {
                    let token = cluster.call(rank, |c, token, m| {
                        if leaves { c.leave(token, m) } else { c.barrier(token, m) }
                    });
                    cluster.steps(seed % 5);
                    (rank, token)
                })
                .collect();
            cluster.run_until_quiet();
            assert_eq!(cluster.forged, None, "a message of code {lost} was sent");
            let mut clock = Time(0);
            ask(&mut cluster, &mut clock, 2 + VAIN_QUESTIONS_MAX);
            assert_eq!(part(&mut cluster), 0, "seed {seed}, code {lost}: given up too early");
            ask(&mut cluster, &mut clock, 1);
            // Both nodes of a pair ask, and both may find out.
            let parted = part(&mut cluster);
            assert!(
                parted == 1 || (parted == 2 && nodes == 2),
                "seed {seed}, {nodes} nodes, code {lost}: {parted}"
            );
            for (rank, token) in calls {
                assert!(
                    cluster.take(rank, token).is_some(),
                    "seed {seed}, code {lost}: node {rank} of {nodes} hangs"
                );
            }
        }
    }
}

/// COH-13.2: a wait lasts for as long as the asked peer confirms that it still owes the answer.
#[test]
fn waits_for_what_others_have_not_done_yet_go_on() {
    waits_of_others_go_on(3);
    // Node 1 has a child. Only rank 0 is missing.
    waits_of_others_go_on(12);
    // Both nodes of a pair ask.
    for missing in [0, 1] {
        let mut pair = Cluster::new(2, 5);
        let early = pair.call(1 - missing, |c, token, m| c.barrier(token, m));
        let mut clock = Time(0);
        ask(&mut pair, &mut clock, 30);
        assert_eq!(part(&mut pair), 0);
        pair.call(missing, |c, token, m| c.barrier(token, m));
        pair.run_until_quiet();
        assert_eq!(pair.take(1 - missing, early), Some(Ok(Value::None)));
        ask(&mut pair, &mut clock, 1);
        assert!(pair.nodes.iter().all(|node| node.coherence.next_question().is_none()));
    }
}

fn waits_of_others_go_on(nodes: u32) {
    let mut cluster = Cluster::with_array(nodes, 5, 3);
    let held = cluster.call(2, |c, token, m| c.lock(4, token, m));
    cluster.run_until_quiet();
    let waiting = [0, 1].map(|rank| (rank, cluster.call(rank, |c, token, m| c.lock(4, token, m))));
    let early: Vec<(Rank, Token)> = (1..nodes)
        .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
        .collect();
    cluster.run_until_quiet();
    let mut clock = Time(0);
    // Now and then a question or its reply is lost, too.
    let mut random = Random::new(7);
    for _ in 0..30 {
        cluster.forged = [None, Some(QUESTION), Some(REPLY)][random.below(3)];
        ask(&mut cluster, &mut clock, 1);
        cluster.forged = None;
        ask(&mut cluster, &mut clock, 1);
        assert_eq!(part(&mut cluster), 0);
    }
    let unlock = cluster.call(2, |c, token, m| c.unlock(4, token, m));
    cluster.run_until_quiet();
    for rank in [0, 1] {
        let unlock = cluster.call(rank, |c, token, m| c.unlock(4, token, m));
        cluster.run_until_quiet();
        let _ = cluster.take(rank, unlock);
    }
    let last = cluster.call(0, |c, token, m| c.barrier(token, m));
    cluster.run_until_quiet();
    cluster
        .all_succeeded([(2, held), (2, unlock), (0, last)].into_iter().chain(waiting).chain(early));
    ask(&mut cluster, &mut clock, 1);
    assert!(nobody_waits(&cluster), "nobody waits");
}

/// COH-13.1: a question that is not settled is not asked again.
#[test]
fn a_question_on_its_way_is_not_repeated() {
    let mut cluster = Cluster::new(2, 1);
    let node = &mut cluster.nodes[0];
    node.coherence.lock(1, Token(1), &mut node.machine);
    let mut questions = 0;
    for round in 0..20 {
        node.coherence.ask(Time(0) + FAILURE_TIME * round, FAILURE_TIME);
        questions += std::iter::from_fn(|| node.coherence.poll_message())
            .filter(|(_, one)| one.head[1] == QUESTION)
            .count();
    }
    assert_eq!(questions, 1);
    assert_eq!(node.coherence.poll_event(), None);
}

/// COH-9.1, COH-13.2: questions that are not permitted are refused.
#[test]
fn questions_that_make_no_sense_are_refused() {
    let mut cluster = Cluster::new(3, 1);
    let node = &mut cluster.nodes[1];
    let mut tell = |from, code, fields| {
        node.coherence.receive(from, &head(code, fields), &[], &mut node.machine)
    };
    // Questions to the wrong node: about a collective that rank 0 gathers, about another manager's
    // lock, and to a holder by a node that is not the manager. Then malformed ones: an unknown
    // kind, and a number where none belongs.
    for (from, fields) in [
        (2, [0, 0, 0]),
        (2, [1, 5, 0]),
        (0, [3, 5, 0]),
        (2, [6, 0, 0]),
        (2, [7, 0, 0]),
        (2, [8, 0, 0]),
        (2, [5, 0, 1]),
        (2, [4, 0, 1]),
        (2, [2, 0, 1]),
        (2, [1 << 8, 0, 0]),
    ] {
        assert_eq!(tell(from, QUESTION, fields), Err(Refusal::Malformed), "{fields:?}");
    }
    assert_eq!(tell(2, REPLY, [1 << 9, 0, 0]), Err(Refusal::Malformed));
    // A reply without a question changes nothing.
    assert_eq!(tell(2, REPLY, [1, 5, 0]), Ok(()));
    assert_eq!(tell(2, QUESTION, [2, 77, 0]), Ok(()));
    let (to, reply) = node.coherence.poll_message().unwrap();
    assert_eq!((to, &reply.head[..]), (2, &head(REPLY, [2, 77, 0])[..]));
}

/// COH-8.9: a refusal that no sound peer sends ends the connection. A refusal for lack of room does
/// not.
#[test]
fn a_refusal_that_makes_no_sense_is_a_contradiction() {
    for (refusal, ends) in
        [(Refusal::Malformed, true), (Refusal::UnknownObject, true), (Refusal::NoRoom, false)]
    {
        let mut cluster = Cluster::new(2, 1);
        let node = &mut cluster.nodes[0];
        node.coherence.lock(1, Token(1), &mut node.machine);
        let (_, acquire) = node.coherence.poll_message().unwrap();
        node.coherence.refused(acquire.token, refusal, &mut node.machine);
        let events: Vec<_> = std::iter::from_fn(|| node.coherence.poll_event()).collect();
        let contradiction = CoherenceEvent::Contradiction {
            rank: 1,
            nonsense: Nonsense::RefusedShared { refusal },
        };
        assert_eq!(events.contains(&contradiction), ends, "{events:?}");
        assert!(
            events
                .iter()
                .any(|event| matches!(event, CoherenceEvent::Failed { token: Token(1), .. }))
        );
    }
}

/// COH-7.4: a grant that names a collective which cannot have ended yet is refused. Otherwise the
/// acquirer would wait for ever.
#[test]
fn a_grant_from_the_future_is_refused() {
    let mut cluster = Cluster::new(2, 1);
    let node = &mut cluster.nodes[0];
    node.coherence.lock(1, Token(1), &mut node.machine);
    let grant = [0; 7];
    let early = node.coherence.receive(1, &head(GRANT, [1, 0, 1]), &grant, &mut node.machine);
    assert_eq!(early, Err(Refusal::Malformed));
    assert_eq!(
        node.coherence.receive(1, &head(GRANT, [1, 0, 0]), &grant, &mut node.machine),
        Ok(())
    );
}

/// END-4.3: a node also tells nodes that others have taken for dead that it leaves.
#[test]
fn a_node_that_counts_as_dead_hears_of_leaving() {
    let mut cluster = Cluster::new(3, 1);
    let node = &mut cluster.nodes[1];
    for late in [false, true] {
        if late {
            node.coherence.leave(Token(1), &mut node.machine);
        }
        let dead = if late { 0 } else { 2 };
        assert_eq!(
            node.coherence.receive(0, &head(9, [dead, 0, 0]), &[], &mut node.machine),
            Ok(())
        );
    }
    let notices: Vec<(Rank, u64)> = std::iter::from_fn(|| node.coherence.poll_message())
        .filter(|(_, message)| message.head[1] == LEAVING)
        .map(|(to, message)| (to, u64::from_le_bytes(message.head[10..18].try_into().unwrap())))
        .collect();
    for dead in [0, 2] {
        assert!(notices.contains(&(dead, 0)) && notices.contains(&(dead, 1)), "{notices:?}");
    }
}

/// COH-13.1: a barrier counts an update that was lost (COH-10.7).
#[test]
fn waits_for_updates_that_were_lost_end() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed);
        let array = cluster.declare("p", 3, Homes::Block);
        cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
        let Node { coherence, machine, .. } = &mut cluster.nodes[2];
        let page = 2 * PAGE as u64..3 * PAGE as u64;
        let write = coherence.begin_write(array, page, Ownership::Owned, machine).unwrap();
        cluster.forged = Some(UPDATE);
        let Node { coherence, machine, .. } = &mut cluster.nodes[2];
        coherence.end_write(write, &[0], machine);
        cluster.collect(2);
        assert_eq!(cluster.forged, None, "the update was sent");
        let tokens: Vec<Token> =
            (0..3).map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m))).collect();
        cluster.run_until_quiet();
        let mut clock = Time(0);
        ask(&mut cluster, &mut clock, 2 + VAIN_QUESTIONS_MAX);
        assert_eq!(part(&mut cluster), 0, "seed {seed}: given up too early");
        assert!(cluster.take(0, tokens[0]).is_none(), "node 0 waits for the update");
        ask(&mut cluster, &mut clock, 1);
        assert_eq!(part(&mut cluster), 1, "seed {seed}");
        assert!(matches!(cluster.take(0, tokens[0]), Some(Err(_))), "seed {seed}");
    }
}

/// COH-13.1: an operation on elements, or its answer, was lost (COH-12).
#[test]
fn waits_for_operations_on_elements_that_were_lost_end() {
    for (seed, lost) in (0..10).flat_map(|seed| [(seed, 16), (seed, 17)]) {
        let mut cluster = Cluster::new(3, seed);
        let array = cluster.declare("p", 3, Homes::Block);
        cluster.forged = Some(lost);
        let at = 2 * PAGE as u64;
        let token =
            cluster.call(0, |c, t, m| c.target(array, at, 8, TargetOp::Write, &[1; 8], t, m));
        cluster.run_until_quiet();
        let mut clock = Time(0);
        ask(&mut cluster, &mut clock, 2 + VAIN_QUESTIONS_MAX);
        assert_eq!(part(&mut cluster), 0, "seed {seed}: given up too early");
        assert!(cluster.take(0, token).is_none(), "node 0 waits for the answer");
        ask(&mut cluster, &mut clock, 1);
        assert_eq!(part(&mut cluster), 1, "seed {seed}");
        assert!(matches!(cluster.take(0, token), Some(Err(_))), "seed {seed}");
    }
}
