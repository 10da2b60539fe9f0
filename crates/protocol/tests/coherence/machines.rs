//! Machines that fail to change the mapping of pages (COH-8.5). No thread sleeps for ever, and
//! every node gets the error.

use crate::cluster::Cluster;
use crate::cluster::threads::{Cell, Op, Thread};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockMode;

const WHY: &str = "out of mappings";

/// Checks that the operation fails at this node with the machine's error text.
fn fails(
    cluster: &mut Cluster,
    rank: Rank,
    op: impl FnOnce(&mut Cluster) -> oikaze_protocol::wind::Token,
) {
    let token = op(cluster);
    cluster.run_until_quiet();
    let (seed, outcome) = (cluster.seed, cluster.take(rank, token));
    match outcome {
        Some(Err(error)) if error.to_string().contains(WHY) => {}
        other => panic!("seed {seed}: node {rank}: {other:?}"),
    }
}

fn barriers_fail(cluster: &mut Cluster) {
    let tokens = [0, 1, 2].map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
    for (rank, token) in (0..).zip(tokens) {
        fails(cluster, rank, |_| token);
    }
}

/// COH-8.5.
#[test]
fn a_page_that_cannot_be_mapped_is_told_to_all_nodes() {
    for seed in 0..30 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.nodes[1].machine.fail_next = true;
        let what =
            if seed % 2 == 0 { Op::Load(Cell::word(2, 0)) } else { Op::Store(Cell::word(1, 0), 5) };
        cluster.run(vec![Thread::new(1, vec![what])]);
        barriers_fail(&mut cluster);
        barriers_fail(&mut cluster);
    }
}

/// COH-8.5: a program without collectives gets the error too.
#[test]
fn locks_fail_where_a_page_could_not_be_changed() {
    for seed in 0..30 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.succeeds(1, |c, token, m| c.lock(3, token, m));
        cluster.run(vec![Thread::new(1, vec![Op::Store(Cell::word(2, 0), 5)])]);
        // The machine fails to protect the page from further stores.
        cluster.nodes[1].machine.fail_next = true;
        fails(&mut cluster, 1, |cluster| cluster.call(1, |c, token, m| c.unlock(3, token, m)));
        fails(&mut cluster, 1, |cluster| cluster.call(1, |c, token, m| c.lock(4, token, m)));
        barriers_fail(&mut cluster);
    }
}

/// COH-7.15, COH-8.5: a request that writes, of a node that cannot go on, holds up none that reads.
#[test]
fn requests_that_read_pass_by_one_of_a_node_that_cannot_continue() {
    let reads = LockMode { tries: false, reads: true };
    for seed in 0..30 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.succeeds(0, |c, token, m| c.lock_in_mode(3, reads, token, m));
        let writer = cluster.call(2, |c, token, m| c.lock(3, token, m));
        cluster.run_until_quiet();
        let reader = cluster.call(1, |c, token, m| c.lock_in_mode(3, reads, token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(1, reader), None, "seed {seed}: node 2 waits to write");
        cluster.nodes[2].machine.fail_next = true;
        cluster.run(vec![Thread::new(2, vec![Op::Load(Cell::word(1, 0))])]);
        fails(&mut cluster, 2, |_| writer);
        cluster.all_succeeded([(1, reader)]);
    }
}

/// COH-8.5: a machine fails to unmap a page at an acquire. The acquire fails, so that the program
/// does not take old bytes for new ones.
#[test]
fn an_acquire_that_cannot_unmap_a_page_fails() {
    for seed in 0..30 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.run(vec![Thread::new(1, vec![Op::Load(Cell::word(2, 0))])]);
        let by_lock = seed % 2 == 0;
        let write = [Op::Lock(5), Op::Store(Cell::word(2, 0), 5), Op::Unlock(5)];
        cluster.run(vec![Thread::new(2, write.into())]);
        cluster.nodes[1].machine.fail_next = true;
        if by_lock {
            fails(&mut cluster, 1, |cluster| cluster.call(1, |c, token, m| c.lock(5, token, m)));
            barriers_fail(&mut cluster);
        } else {
            let tokens =
                [0, 1, 2].map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
            fails(&mut cluster, 1, |_| tokens[1]);
            barriers_fail(&mut cluster);
        }
        // The lock that was granted to the failed node goes on to other nodes.
        let token = cluster.call(0, |c, token, m| c.lock(5, token, m));
        cluster.run_until_quiet();
        assert!(cluster.take(0, token).is_some(), "seed {seed}");
    }
}

/// COH-8.5: a home that cannot place a diff does not acknowledge it, and the writer gets an error.
#[test]
fn a_diff_that_cannot_be_placed_fails_its_writer() {
    for seed in 0..30 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        cluster.nodes[2].machine.fail_next = true;
        for rank in [0, 1] {
            cluster.succeeds(rank, |c, token, m| c.lock(rank.into(), token, m));
            cluster.run(vec![Thread::new(rank, vec![Op::Store(Cell::word(2, 0), 5)])]);
            let token = cluster.call(rank, |c, token, m| c.unlock(rank.into(), token, m));
            cluster.run_until_quiet();
            let text = cluster.take(rank, token).unwrap().unwrap_err().to_string();
            assert!(text.contains("node 2 refused"), "seed {seed}: {text}");
        }
    }
}
