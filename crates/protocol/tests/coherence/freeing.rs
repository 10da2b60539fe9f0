//! The end of arrays (COH-14).

use crate::cluster::{Cluster, Node, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, ArrayId, CoherenceError, CoherenceEvent, Homes, Ownership,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::Token;
use std::collections::BTreeMap;

const PAGES: u64 = 6;

fn barrier(cluster: &mut Cluster) {
    let nodes = cluster.nodes.len() as Rank;
    let call = |rank| cluster.call(rank, |c, token, m| c.barrier(token, m));
    let tokens: Vec<Token> = (0..nodes).map(call).collect();
    cluster.run_until_quiet();
    cluster.all_succeeded((0..).zip(tokens));
}

/// Does something with an array on one node: writes, reads, prefetches or subscribes.
fn use_array(cluster: &mut Cluster, rank: Rank, array: ArrayId, random: &mut Random) {
    let page = random.below(PAGES as usize) as u64;
    let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
    match random.below(4) {
        0 => coherence.prefetch(array, std::slice::from_ref(&(page..PAGES)), machine),
        1 => {
            let bytes = page * PAGE as u64..(page + 1) * PAGE as u64;
            coherence.subscribe(array, bytes, random.chance(0.7), machine).unwrap();
        }
        _ => {
            // Each node has a word of each page, so there is no race.
            let word = page * PAGE as u64 + 8 * u64::from(rank);
            cluster.succeeds(rank, |c, t, m| c.touch(array, page..page + 1, Access::Write, t, m));
            let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
            let guard = coherence.begin_write(array, word..word + 8, Ownership::Owned, machine);
            let push = [(rank + 1) % 3];
            machine.store(array, word as usize, 8, 7);
            coherence.end_write(guard.unwrap(), &push, machine);
        }
    }
}

/// COH-14.1 to 14.4: an array ends at the first barrier before which all nodes have dropped it, in
/// any order of messages, and no message about it is refused.
#[test]
fn arrays_end_when_all_nodes_have_dropped_them() {
    for seed in seeds(0, 60) {
        let mut random = Random::new(seed);
        let nodes = [2, 3, 11][random.below(3)];
        let mut cluster = Cluster::new(nodes, seed);
        // Number of nodes that hold each array.
        let mut holders: BTreeMap<ArrayId, Vec<Rank>> = BTreeMap::new();
        for step in 0..12 {
            let array =
                cluster.declare(&format!("a{}", step % 4 + step / 4 * 100), PAGES, Homes::Block);
            cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
            holders.insert(array, (0..nodes).collect());
            for _ in 0..20 {
                let array = random.pick(&holders.keys().copied().collect::<Vec<_>>());
                let rank = random.below(nodes as usize) as Rank;
                let held = holders.get_mut(&array).unwrap();
                if !held.contains(&rank) {
                    continue;
                }
                if random.chance(0.3) {
                    held.retain(|other| *other != rank);
                    cluster.nodes[rank as usize].coherence.drop_array(array);
                } else {
                    use_array(&mut cluster, rank, array, &mut random);
                }
                cluster.collect(rank);
                cluster.steps(random.below(4) as u64);
            }
            // Without pages on their way, the barrier frees what all have dropped.
            cluster.run_until_quiet();
            barrier(&mut cluster);
            for (array, held) in &holders {
                for rank in 0..nodes {
                    let node = &cluster.nodes[rank as usize];
                    assert_eq!(node.machine.has(*array), !held.is_empty(), "seed {seed}, {rank}");
                    assert_eq!(node.coherence.array(*array).is_some(), !held.is_empty());
                }
            }
            holders.retain(|_, held| !held.is_empty());
        }
        for node in &cluster.nodes {
            assert_eq!(node.coherence.statistics().refused, 0, "seed {seed}");
        }
    }
}

/// COH-14.2: an array with pages on their way is not freed, and `free` waits for them.
#[test]
fn pages_on_their_way_keep_an_array() {
    for with_free in [false, true] {
        let mut cluster = Cluster::new(2, 5);
        let array = cluster.declare("a", PAGES, Homes::Block);
        let Node { coherence, machine, .. } = &mut cluster.nodes[1];
        coherence.prefetch(array, std::slice::from_ref(&(0..1)), machine);
        if with_free {
            let call = |rank| cluster.call(rank, |c, token, m| c.free(array, token, m));
            let tokens: Vec<Token> = (0..2).map(call).collect();
            cluster.run_until_quiet();
            cluster.all_succeeded((0..).zip(tokens));
        } else {
            cluster.nodes.iter_mut().for_each(|node| node.coherence.drop_array(array));
            barrier(&mut cluster);
            assert!(cluster.nodes.iter().all(|node| node.machine.has(array)), "page 0 is fetched");
            barrier(&mut cluster);
        }
        assert!(cluster.nodes.iter().all(|node| !node.machine.has(array)));
        // A name whose array is gone is free, and numbers are used once.
        assert_eq!(cluster.declare("a", 1, Homes::Block), array + 1);
        let token = cluster.call(0, |c, token, m| c.free(array, token, m));
        let outcome = cluster.take(0, token);
        assert!(matches!(outcome, Some(Err(CoherenceError::UnknownArray { .. }))), "{outcome:?}");
    }
}

/// COH-10.14: nodes that write the same bytes away from their home are found, too. (Their diffs are
/// made before the interval is closed.)
#[test]
fn guards_of_real_nodes_over_one_byte_fail_the_barrier() {
    let mut cluster = Cluster::new(3, 1);
    let array = cluster.declare("a", 3, Homes::Explicit(vec![0; 3]));
    cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    for (rank, bytes) in [(1, 0..16), (2, 8..24)] {
        cluster.succeeds(rank, |c, t, m| c.touch(array, 0..1, Access::Write, t, m));
        let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
        let guard = coherence.begin_write(array, bytes, Ownership::Owned, machine).unwrap();
        coherence.end_write(guard, &[], machine);
    }
    let call = |rank| cluster.call(rank, |c, token, m| c.barrier(token, m));
    let tokens: Vec<Token> = (0..3).map(call).collect();
    cluster.run_until_quiet();
    for (rank, token) in (0..).zip(tokens) {
        let text = cluster.take(rank, token).unwrap().unwrap_err().to_string();
        assert!(text.contains("nodes 1 and 2 both wrote bytes 8..16 of array \"a\""), "{text}");
    }
    assert_eq!(cluster.nodes[0].coherence.poll_event(), None::<CoherenceEvent>);
}
