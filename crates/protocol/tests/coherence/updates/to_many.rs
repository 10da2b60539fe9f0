//! Updates to several readers (COH-10): who gets which messages, and what these share.

use super::{
    UPDATE, all_at, barrier, fill, guarded, hold_back, pages, post, read, statistics, subscribe,
};
use crate::cluster::{Cluster, Node};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, Ownership};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::{Body, Message, Token};
use std::ops::Range;
use std::sync::Arc;

/// Number of bytes of a page that a test writes.
const PART: u64 = 128;

/// Writes a part of each of these pages at node 0, and takes the updates.
fn write_parts(cluster: &mut Cluster, range: Range<u64>) -> Vec<(Rank, Message)> {
    for page in range {
        let start = page * PAGE as u64;
        fill(cluster, 0, start..start + PART, 7, Ownership::Owned, &[]);
    }
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    coherence.barrier(Token::NONE, machine);
    hold_back(cluster, 0, UPDATE)
}

/// COH-10.2: changes are packed once for all nodes that read them.
#[test]
fn packed_changes_are_one_body_for_all_readers() {
    let mut cluster = guarded(5, 16, all_at(0, 16), 1);
    (1..4).for_each(|rank| subscribe(&mut cluster, rank, pages(0..16)));
    let sent = write_parts(&mut cluster, 0..16);
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 2, 3]);
    let bodies: Vec<&Arc<Vec<u8>>> = sent
        .iter()
        .map(|(_, message)| match &message.body {
            Body::Shared(bytes) => bytes,
            body => panic!("not shared: {body:?}"),
        })
        .collect();
    assert!(bodies.iter().all(|body| Arc::ptr_eq(body, bodies[0])));
    let tokens: Vec<u64> = sent.iter().map(|(_, message)| message.token.0).collect();
    assert!(tokens.is_sorted_by(|one, other| one < other), "a token for each");
    assert_eq!(statistics(&cluster, 0).updates_sent, 3);
}

/// COH-10.2: short changes for other sets of readers make no messages of their own.
#[test]
fn short_changes_of_many_sets_of_readers_are_one_message_a_reader() {
    for seed in 0..10 {
        let mut cluster = guarded(4, 7, all_at(0, 7), seed);
        // Page `p` goes to the nodes whose bits its number has.
        for page in 1..7 {
            for rank in (1..4).filter(|rank| page & (1 << (rank - 1)) != 0) {
                subscribe(&mut cluster, rank, pages(page..page + 1));
            }
        }
        let sent = write_parts(&mut cluster, 1..7);
        assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 2, 3], "seed {seed}");
        post(&mut cluster, 0, sent);
        for rank in 1..4 {
            cluster.call(rank, |c, token, m| c.barrier(token, m));
        }
        cluster.run_until_quiet();
        for page in 1..7 {
            for rank in 1..4 {
                assert_eq!(read(&mut cluster, rank, page * PAGE as u64), 7, "seed {seed}");
            }
        }
        barrier(&mut cluster);
    }
}

/// COH-10.2: each page has other readers, and its changes are short. A reader of many of them gets
/// several messages of bounded length.
#[test]
fn short_changes_for_one_reader_are_messages_of_bounded_length() {
    const NODES: Rank = 9;
    const LONGEST: usize = 33 << 10;
    let count = 1 << (NODES - 2);
    let mut cluster = Cluster::new(NODES, 1);
    cluster.declare("p", count, all_at(0, count));
    subscribe(&mut cluster, 1, pages(0..count));
    for page in 0..count {
        // Page `p` also goes to the nodes whose bits its number has.
        for rank in (2..NODES).filter(|rank| page & (1 << (rank - 2)) != 0) {
            subscribe(&mut cluster, rank, pages(page..page + 1));
        }
    }
    // A home makes twins of pages that it has mapped for loads.
    for access in [Access::Read, Access::Write] {
        cluster.succeeds(0, |c, token, m| c.touch(0, 0..count, access, token, m));
    }
    let machine = &mut cluster.nodes[0].machine;
    for page in 0..count as usize {
        assert!((0..120).all(|at| machine.store(0, page * PAGE + 8 * at, 8, u64::MAX)));
    }
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    coherence.barrier(Token::NONE, machine);
    let sent = hold_back(&mut cluster, 0, UPDATE);
    let lengths = sent.iter().filter(|(to, _)| *to == 1).map(|(_, update)| update.body.len());
    let lengths: Vec<usize> = lengths.map(|len| len as usize).collect();
    assert!(lengths.len() > 2 && lengths.iter().all(|len| *len <= LONGEST), "{lengths:?}");
}
