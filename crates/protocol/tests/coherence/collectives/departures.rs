//! Departures that say what their receivers need (COH-6.18 to 6.21), and bytes of barriers of many
//! nodes.

use crate::cluster::{Cluster, programs, seeds};
use crate::updates::{ARRIVE, DEPART, barrier, fill, guarded, holds, pages, read};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Homes, Ownership};
use oikaze_protocol::limits::PAGE;

/// Pages of each node.
const SHARE: u64 = 4;

/// Returns the nodes beside a node.
fn beside(rank: Rank, nodes: u32) -> (Option<Rank>, Option<Rank>) {
    (rank.checked_sub(1), Some(rank + 1).filter(|next| *next < nodes))
}

/// Each node writes its pages, and pushes the first and the last one to the nodes beside it. Then
/// each node reads what was pushed to it. Returns the bytes of departures of each node.
fn step(cluster: &mut Cluster, value: u64) -> Vec<u64> {
    let nodes = cluster.nodes.len() as u32;
    for rank in 0..nodes {
        let own = u64::from(rank) * SHARE..u64::from(rank + 1) * SHARE;
        let (before, after) = beside(rank, nodes);
        let parts = [
            (own.start..own.start + 1, before),
            (own.start + 1..own.end - 1, None),
            (own.end - 1..own.end, after),
        ];
        for (part, reader) in parts {
            let readers: Vec<Rank> = reader.into_iter().collect();
            fill(cluster, rank, pages(part), value + u64::from(rank), Ownership::Owned, &readers);
        }
        cluster.collect(rank);
    }
    cluster.posted.clear();
    barrier(cluster);
    for rank in 0..nodes {
        let (before, after) = beside(rank, nodes);
        for (other, page) in [
            (before, (u64::from(rank) * SHARE).wrapping_sub(1)),
            (after, u64::from(rank + 1) * SHARE),
        ] {
            let Some(other) = other else { continue };
            assert!(holds(cluster, rank, page..page + 1), "node {rank} has page {page}");
            assert_eq!(read(cluster, rank, page * PAGE as u64), value + u64::from(other));
        }
    }
    (0..nodes).map(|rank| cluster.posted.get(&(DEPART, rank)).copied().unwrap_or(0)).collect()
}

/// COH-6.20: a page of which the parent was not told is invalid after the barrier.
#[test]
fn a_page_that_was_fetched_while_its_node_waited_is_fetched_again() {
    seeds(9_000_000, 50).for_each(programs::fetch_while_waiting);
}

/// COH-6.20: a collective at which no other node has told an interval makes no page invalid.
#[test]
fn a_page_that_was_fetched_while_its_node_waited_stays_if_nothing_was_written() {
    for writes in [false, true] {
        let mut cluster = guarded(4, 3, Homes::Explicit(vec![0, 1, 2]), 5);
        if writes {
            fill(&mut cluster, 1, pages(2..3), 7, Ownership::Owned, &[]);
        }
        cluster.call(1, |c, token, m| c.barrier(token, m));
        cluster.run_until_quiet();
        assert_eq!(read(&mut cluster, 1, 0), 0);
        for rank in [0, 2, 3] {
            cluster.call(rank, |c, token, m| c.barrier(token, m));
        }
        cluster.run_until_quiet();
        assert!(holds(&cluster, 1, 0..1), "node 1 writes: {writes}");
    }
}

/// COH-6.19, COH-10.9: a page that two nodes have brought whole, ordered by a lock, is told.
#[test]
fn a_page_of_two_writers_under_a_lock_is_right_at_its_reader() {
    seeds(9_000_000, 100).for_each(programs::crossed_writers);
}

/// COH-6.18, COH-6.19, COH-6.21: a departure has what its receivers need, and not what all nodes
/// wrote. Pages that were pushed are valid after it. Of 1,024 nodes, rank 0 has 8 children, and
/// these have 127 or 128 nodes below them.
#[test]
fn bytes_of_a_departure_do_not_grow_with_the_nodes() {
    for nodes in [8, 64, 1024] {
        let mut cluster = guarded(nodes, u64::from(nodes) * SHARE, Homes::Block, 3);
        (0..3).for_each(|number| drop(step(&mut cluster, number * 10_000)));
        let bytes = step(&mut cluster, 70_000);
        // Each interval has about 50 bytes, so all of them would have 8 × 50 bytes a node.
        let most = bytes.iter().max().unwrap();
        assert!(*most < 8 * 100, "{nodes} nodes: {most} bytes to 8 children");
        let arrivals = cluster.posted.iter().filter(|((code, _), _)| *code == ARRIVE);
        let longest = arrivals.map(|(_, bytes)| *bytes).max().unwrap();
        println!("{nodes} nodes: departures {most}, longest arrival {longest} bytes");
    }
}
