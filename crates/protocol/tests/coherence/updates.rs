//! Updates: written bytes that travel to readers with the barrier (COH-10). One behaviour a test.

mod granted;
mod to_many;

use crate::cluster::{Cluster, Node, Outcome};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, CoherenceError, CoherenceStatistics, Homes, KIND, Ownership, Value,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::{Admission, Class, Message, Token};
use std::ops::Range;

const PAGES: u8 = 2;
const DIFF: u8 = 3;
pub const ARRIVE: u8 = 4;
pub const DEPART: u8 = 5;
pub const UPDATE: u8 = 13;

/// Number of pages of a guard that is long enough to be sent before the barrier.
const EARLY: u64 = 4;

/// Returns a cluster with one array, which all nodes write under guards alone.
pub fn guarded(nodes: u32, pages: u64, homes: Homes, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(nodes, seed);
    let array = cluster.declare("p", pages, homes);
    cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    cluster
}

pub fn all_at(rank: Rank, pages: u64) -> Homes {
    Homes::Explicit(vec![rank; pages as usize])
}

pub fn statistics(cluster: &Cluster, rank: Rank) -> CoherenceStatistics {
    *cluster.nodes[rank as usize].coherence.statistics()
}

pub fn pages(range: Range<u64>) -> Range<u64> {
    range.start * PAGE as u64..range.end * PAGE as u64
}

/// Fills whole words with `value` under a write guard, which ends then. No message is delivered,
/// except those that make the pages valid.
pub fn fill(
    cluster: &mut Cluster,
    rank: Rank,
    bytes: Range<u64>,
    value: u64,
    ownership: Ownership,
    push: &[Rank],
) {
    let guard = loop {
        let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
        if let Some(guard) = coherence.begin_write(0, bytes.clone(), ownership, machine) {
            break guard;
        }
        let touched = bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64);
        cluster.succeeds(rank, |c, token, m| c.touch(0, touched, Access::Write, token, m));
    };
    let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
    for at in bytes.step_by(8) {
        assert!(machine.store(0, at as usize, 8, value), "the page is mapped for stores");
    }
    coherence.end_write(guard, push, machine);
}

/// As [`fill`], by a guard that owns its bytes. The messages go to the network.
pub fn write(cluster: &mut Cluster, rank: Rank, bytes: Range<u64>, value: u64) {
    fill(cluster, rank, bytes, value, Ownership::Owned, &[]);
    cluster.collect(rank);
}

/// Reads a word under a guard. Fetches the page if it is not valid.
pub fn read(cluster: &mut Cluster, rank: Rank, at: u64) -> u64 {
    let page = at / PAGE as u64;
    while !cluster.nodes[rank as usize].coherence.begin_read(0, page..page + 1) {
        cluster.succeeds(rank, |c, token, m| c.touch(0, page..page + 1, Access::Read, token, m));
    }
    cluster.nodes[rank as usize].machine.load(0, at as usize, 8).unwrap()
}

/// Subscribes to these bytes, and fetches their pages.
pub fn subscribe(cluster: &mut Cluster, rank: Rank, bytes: Range<u64>) {
    (bytes.start..bytes.end).step_by(PAGE).for_each(|at| {
        read(cluster, rank, at);
    });
    let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
    coherence.subscribe(0, bytes, true, machine).unwrap();
    cluster.collect(rank);
    cluster.run_until_quiet();
}

/// Runs a barrier of all nodes, and returns its outcome on each.
fn outcomes(cluster: &mut Cluster) -> Vec<Option<Outcome>> {
    let ranks = 0..cluster.nodes.len() as Rank;
    let tokens: Vec<Token> =
        ranks.map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m))).collect();
    cluster.run_until_quiet();
    (0..).zip(tokens).map(|(rank, token)| cluster.take(rank, token)).collect()
}

pub fn barrier(cluster: &mut Cluster) {
    let seed = cluster.seed;
    let ended = outcomes(cluster).into_iter().all(|outcome| outcome == Some(Ok(Value::None)));
    assert!(ended, "seed {seed}");
}

pub fn holds(cluster: &Cluster, rank: Rank, range: Range<u64>) -> bool {
    cluster.nodes[rank as usize].coherence.holds(0, range, Access::Read)
}

/// Takes the messages of this code that a node posts. All others go to the network.
pub fn hold_back(cluster: &mut Cluster, rank: Rank, code: u8) -> Vec<(Rank, Message)> {
    let Cluster { nodes, network, random, .. } = cluster;
    let node = &mut nodes[rank as usize];
    let mut held = Vec::new();
    while let Some((to, message)) = node.coherence.poll_message() {
        if message.head[1] == code {
            held.push((to, message));
        } else {
            network.post(rank, to, message, random, &node.machine);
        }
    }
    cluster.collect(rank);
    held
}

/// Lets node 1 ask node 0 for page 0, and holds the answer back. Returns the token of the request.
pub fn ask_and_hold_back(cluster: &mut Cluster) -> (Token, Vec<(Rank, Message)>) {
    let reader = &mut cluster.nodes[1];
    let token = reader.token();
    reader.coherence.touch(0, 0..1, Access::Read, token, &mut reader.machine);
    let (_, fetch) = reader.coherence.poll_message().expect("a request");
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    coherence.receive(1, &fetch.head, fetch.body.bytes(), machine).unwrap();
    (token, hold_back(cluster, 0, PAGES))
}

/// Posts messages that were held back.
pub fn post(cluster: &mut Cluster, rank: Rank, held: Vec<(Rank, Message)>) {
    let Cluster { nodes, network, random, .. } = cluster;
    for (to, message) in held {
        network.post(rank, to, message, random, &nodes[rank as usize].machine);
    }
}

pub fn head(code: u8, fields: [u64; 3]) -> Vec<u8> {
    [KIND, code].into_iter().chain(fields.into_iter().flat_map(u64::to_le_bytes)).collect()
}

/// First field of an update of array 0, of one range.
pub fn first_field(epoch: u64, flags: u64) -> u64 {
    flags << 32 | epoch << 48
}

/// COH-4.4: a notice that names a whole array makes the pages invalid that this node has, the first
/// and the last one included.
#[test]
fn a_notice_of_a_whole_array_ends_the_copies_that_are_there() {
    const MANY: u64 = 600;
    let mut cluster = guarded(2, MANY, all_at(0, MANY), 5);
    for page in [0, 5, 6, 300, MANY - 1] {
        assert_eq!(read(&mut cluster, 1, page * PAGE as u64), 0);
    }
    let held: Vec<u64> = (0..MANY).filter(|page| holds(&cluster, 1, *page..page + 1)).collect();
    assert!(held.len() >= 5 && held.len() < MANY as usize / 2, "{held:?}");
    write(&mut cluster, 0, pages(0..MANY), 7);
    barrier(&mut cluster);
    assert!(held.iter().all(|page| !holds(&cluster, 1, *page..page + 1)), "{held:?}");
    assert_eq!(statistics(&cluster, 1).invalidated_pages, held.len() as u64);
    for page in [0, 5, 6, 300, MANY - 1] {
        assert_eq!(read(&mut cluster, 1, page * PAGE as u64), 7);
    }
}

/// COH-10.7, COH-10.9, COH-10.10, COH-10.18: after the reader has demanded the page after two
/// changes, updates bring it. The home never stops to send them while they are used.
#[test]
fn page_read_after_each_change_is_not_fetched_again() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 3, Homes::Block, seed);
        for round in 1..40 {
            write(&mut cluster, 0, 8..24, round);
            barrier(&mut cluster);
            assert_eq!(read(&mut cluster, 1, 16), round, "seed {seed}");
            barrier(&mut cluster);
        }
        let (home, reader) = (statistics(&cluster, 0), statistics(&cluster, 1));
        assert_eq!((reader.fetches, reader.fetched_pages), (2, 2), "seed {seed}");
        assert_eq!((home.updates_sent, reader.updates_received), (37, 37));
        assert_eq!(reader.updates_wasted, 0);
        assert_eq!(reader.invalidated_pages, 1, "by the second write alone");
    }
}

/// COH-10.1, COH-10.18: two writers of one page, whose home is a third node. The home tells each of
/// the other one's subscription, and an update carries no byte of the other writer.
#[test]
fn writers_of_one_page_update_each_other() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 3, all_at(2, 3), seed);
        for round in 1..20 {
            for rank in [0, 1] {
                write(&mut cluster, rank, u64::from(rank) * 8..u64::from(rank) * 8 + 8, round);
            }
            barrier(&mut cluster);
            for rank in [0, 1, 2] {
                let words = [0, 8].map(|at| read(&mut cluster, rank, at));
                assert_eq!(words, [round; 2], "seed {seed}, node {rank}");
            }
            barrier(&mut cluster);
        }
        for rank in [0, 1] {
            let s = statistics(&cluster, rank);
            assert!(s.fetches <= 4, "seed {seed}: {} fetches", s.fetches);
            assert!(s.updates_sent >= 15 && s.diffs == 19, "seed {seed}: {s:?}");
        }
    }
}

/// COH-10.2: the writer arrives only after the home has acknowledged its diff, although the reader
/// has got an update.
#[test]
fn arrival_waits_for_the_diff_of_a_subscribed_page() {
    let mut cluster = guarded(3, 3, all_at(2, 3), 1);
    subscribe(&mut cluster, 1, 0..8);
    for round in [1, 2] {
        // The home tells the writer of the subscription after its first diff.
        write(&mut cluster, 0, 0..8, round);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 1, 0), round);
    }
    write(&mut cluster, 0, 0..8, 3);
    let tokens = [0, 1, 2].map(|rank| {
        let node = &mut cluster.nodes[rank as usize];
        let token = node.token();
        node.coherence.barrier(token, &mut node.machine);
        token
    });
    let diff = hold_back(&mut cluster, 0, DIFF);
    assert_eq!(diff.len(), 1);
    (1..3).for_each(|rank| cluster.collect(rank));
    cluster.run_until_quiet();
    assert_eq!(statistics(&cluster, 1).updates_received, 2);
    assert_eq!(cluster.nodes[2].coherence.gathered(), []);
    assert_eq!(cluster.nodes[0].coherence.gathered(), [1, 2], "node 0 itself has not arrived");
    post(&mut cluster, 0, diff);
    cluster.run_until_quiet();
    cluster.all_succeeded((0..).zip(tokens));
    assert!(holds(&cluster, 1, 0..1));
    assert_eq!(read(&mut cluster, 1, 0), 3);
}

/// COH-10.3, COH-10.4: what a writer sends after it has arrived is of the next epoch. A reader that
/// is still in this epoch holds it.
#[test]
fn update_of_the_next_epoch_is_held() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 12, Homes::Block, seed);
        subscribe(&mut cluster, 1, pages(0..EARLY));
        assert_eq!(read(&mut cluster, 1, 0), 0);
        barrier(&mut cluster);
        let first = cluster.call(0, |c, token, m| c.barrier(token, m));
        write(&mut cluster, 0, pages(0..EARLY), 7);
        cluster.run_until_quiet();
        let s = statistics(&cluster, 1);
        assert!(s.updates_held >= 1 && s.updates_held == s.updates_received, "seed {seed}: {s:?}");
        assert_eq!(read(&mut cluster, 1, 0), 0, "seed {seed}: still the old bytes");
        let others = [1, 2].map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
        cluster.run_until_quiet();
        cluster.all_succeeded([(0, first), (1, others[0]), (2, others[1])]);
        barrier(&mut cluster);
        let before = statistics(&cluster, 1).fetches;
        assert_eq!(read(&mut cluster, 1, 0), 7, "seed {seed}");
        assert_eq!(statistics(&cluster, 1).fetches, before, "seed {seed}");
    }
}

/// COH-10.4, COH-10.5: a reader holds at most 4 MiB of one writer. It drops the rest, and the pages
/// are invalid after the barrier that ends the epoch of the update.
#[test]
fn early_updates_beyond_the_limit_are_dropped_and_their_pages_renewed() {
    let mut cluster = guarded(2, 4096, all_at(0, 4096), 3);
    let limit = 4 << 20;
    let places = [0, limit, limit + (2 << 20)];
    places.into_iter().for_each(|at| assert_eq!(read(&mut cluster, 1, at), 0));
    let first = cluster.call(1, |c, token, m| c.barrier(token, m));
    let node = &mut cluster.nodes[1];
    let mebibyte = vec![7; 1 << 20];
    // The other node has passed the declaration and, as this node has arrived, may have passed the
    // barrier, too.
    let fields = |number: u64| [first_field(2, 0), number << 20, 1];
    for number in 0..6 {
        let head = head(UPDATE, fields(number));
        assert_eq!(node.coherence.receive(0, &head, &mebibyte, &mut node.machine), Ok(()));
    }
    let s = *node.coherence.statistics();
    assert_eq!((s.updates_received, s.updates_held), (6, 4));
    // An update of several fragments without room is dropped fragment by fragment.
    let head = head(UPDATE, fields(6));
    assert_eq!(node.coherence.admit(0, 5, &head, 1 << 20), Admission::Place);
    node.coherence.place(0, 5, 0, &mebibyte, &mut node.machine);
    assert_eq!(node.coherence.arrived(0, 5, &head, &mut node.machine), Ok(()));
    assert!(node.machine.alias(0).iter().all(|byte| *byte == 0), "nothing is applied yet");
    cluster.call(0, |c, token, m| c.barrier(token, m));
    cluster.run_until_quiet();
    assert_eq!(cluster.take(1, first), Some(Ok(Value::None)));
    let held = places.map(|at| cluster.nodes[1].machine.alias(0)[at as usize]);
    assert_eq!(held, [7, 0, 0]);
    barrier(&mut cluster);
    let valid = places.map(|at| at / PAGE as u64).map(|page| holds(&cluster, 1, page..page + 1));
    assert_eq!(valid, [true, false, false]);
}

/// COH-10.4: an update of an interval that the reader knows by a lock is counted and not applied.
#[test]
fn update_of_a_known_interval_is_dropped() {
    let mut cluster = guarded(3, 12, Homes::Block, 4);
    subscribe(&mut cluster, 1, pages(0..EARLY));
    let lock = |cluster: &mut Cluster, rank| {
        cluster.succeeds(rank, |c, token, m| c.lock(9, token, m));
    };
    lock(&mut cluster, 0);
    fill(&mut cluster, 0, pages(0..EARLY), 1, Ownership::Owned, &[]);
    let late = hold_back(&mut cluster, 0, UPDATE);
    assert!(!late.is_empty());
    cluster.call(0, |c, token, m| c.unlock(9, token, m));
    cluster.run_until_quiet();
    lock(&mut cluster, 1);
    write(&mut cluster, 1, 0..8, 2);
    post(&mut cluster, 0, late);
    cluster.run_until_quiet();
    assert_eq!(statistics(&cluster, 1).updates_received, 1);
    assert_eq!(read(&mut cluster, 1, 0), 2, "the later write under the lock");
    cluster.call(1, |c, token, m| c.unlock(9, token, m));
    cluster.run_until_quiet();
    barrier(&mut cluster);
    for rank in 0..3 {
        assert_eq!([0, 8].map(|at| read(&mut cluster, rank, at)), [2, 1], "node {rank}");
    }
}

/// COH-10.5, COH-10.6: the reader has no copy when the update comes, and fetches the page in the
/// same epoch. Nothing says which of the two is newer, so the page ends with the epoch.
#[test]
fn page_fetched_after_its_update_is_invalid_after_the_barrier() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 12, Homes::Block, seed);
        subscribe(&mut cluster, 1, pages(0..EARLY));
        // A notice alone tells of the bytes that a merging guard writes at home.
        fill(&mut cluster, 0, 0..8, 4, Ownership::Merged, &[]);
        cluster.collect(0);
        barrier(&mut cluster);
        assert!(!holds(&cluster, 1, 0..1) && holds(&cluster, 1, 1..EARLY));
        read(&mut cluster, 2, 0); // the page still has a copy somewhere, so it is sent
        write(&mut cluster, 0, pages(0..EARLY), 5);
        cluster.run_until_quiet();
        assert_eq!(statistics(&cluster, 1).updates_received, 1);
        // A race, whose value is not looked at.
        read(&mut cluster, 1, 0);
        assert!(holds(&cluster, 1, 0..1));
        barrier(&mut cluster);
        assert!(!holds(&cluster, 1, 0..1) && holds(&cluster, 1, 1..EARLY), "seed {seed}");
        assert_eq!(read(&mut cluster, 1, 0), 5);
    }
}

/// Lets node 0 write for node 1, and both arrive at a barrier. The update is held back, so node 1
/// waits. Returns the tokens of both calls, and the update.
fn barrier_without_update(seed: u64) -> (Cluster, Token, Token, Vec<(Rank, Message)>) {
    let mut cluster = guarded(2, 2, Homes::Block, seed);
    subscribe(&mut cluster, 1, 0..8);
    write(&mut cluster, 0, 0..8, 3);
    let node = &mut cluster.nodes[0];
    let here = node.token();
    node.coherence.barrier(here, &mut node.machine);
    let updates = hold_back(&mut cluster, 0, UPDATE);
    assert_eq!(updates.len(), 1);
    let there = cluster.call(1, |c, token, m| c.barrier(token, m));
    cluster.run_until_quiet();
    assert_eq!(cluster.take(1, there), None, "seed {seed}");
    (cluster, here, there, updates)
}

/// COH-10.7: a node leaves the barrier when all updates that were counted for it are here.
#[test]
fn barrier_waits_for_its_updates() {
    for seed in 0..20 {
        let (mut cluster, here, there, updates) = barrier_without_update(seed);
        assert_eq!(cluster.take(0, here), Some(Ok(Value::None)));
        post(&mut cluster, 0, updates);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(1, there), Some(Ok(Value::None)), "seed {seed}");
        assert!(holds(&cluster, 1, 0..1));
        assert_eq!(read(&mut cluster, 1, 0), 3);
    }
}

/// COH-10.8: the later of two updates of one byte in one epoch is of class *sync*. So it arrives
/// behind the earlier one.
#[test]
fn second_update_of_the_same_bytes_is_ordered_behind_the_first() {
    let mut cluster = guarded(2, 16, Homes::Block, 5);
    subscribe(&mut cluster, 1, pages(0..8));
    let mut classes = Vec::new();
    for range in [0..4, 4..8, 3..7] {
        fill(&mut cluster, 0, pages(range), 1, Ownership::Owned, &[]);
        let node = &mut cluster.nodes[0];
        let sent = std::iter::from_fn(|| node.coherence.poll_message());
        classes.extend(sent.map(|(_, message)| message.class));
    }
    assert_eq!(classes, [Class::Unordered, Class::Unordered, Class::Sync]);
}

/// COH-10.9: a page of which the reader lacks a part is named. Here a merging guard has written the
/// other part.
#[test]
fn page_that_was_shared_in_part_is_named() {
    let mut cluster = guarded(2, 2, Homes::Block, 6);
    subscribe(&mut cluster, 1, 0..8);
    assert_eq!(read(&mut cluster, 1, 0), 0);
    write(&mut cluster, 0, 0..8, 4);
    fill(&mut cluster, 0, 64..72, 5, Ownership::Merged, &[]);
    cluster.collect(0);
    barrier(&mut cluster);
    assert!(!holds(&cluster, 1, 0..1));
    assert_eq!([0, 64].map(|at| read(&mut cluster, 1, at)), [4, 5]);
}

/// COH-10.13: pages of a guarded array are mapped for stores, so nothing traps. Plain stores are
/// tracked from the switch on.
#[test]
fn array_becomes_plain_when_its_pages_are_tracked() {
    let mut cluster = guarded(2, 2, Homes::Block, 7);
    assert_eq!(read(&mut cluster, 1, 0), 0);
    assert_eq!(cluster.nodes[1].machine.mapped(0, 0), Some(Access::Write));
    write(&mut cluster, 1, 8..16, 1);
    let Node { coherence, machine, .. } = &mut cluster.nodes[1];
    coherence.track_by_pages(0, machine);
    assert!(!coherence.is_guarded(0));
    // The page is dirty already, and a twin finds what plain stores add.
    assert!(machine.store(0, 16, 8, 2));
    barrier(&mut cluster);
    assert_eq!(cluster.nodes[1].machine.mapped(0, 0), Some(Access::Read));
    assert_eq!([8, 16].map(|at| read(&mut cluster, 0, at)), [1, 2]);
    // One run: the word of the guard, and the byte that the plain store has changed.
    assert_eq!(statistics(&cluster, 1).diff_bytes, 5 + 8 + 1);
}

/// COH-10.14: the error has array, bytes and both nodes. It is the same on all nodes, and the
/// memory is synchronised nevertheless.
#[test]
fn owned_ranges_that_overlap_fail_the_barrier_on_all_nodes() {
    let mut cluster = guarded(3, 2, all_at(0, 2), 8);
    // Nodes 1 and 2 tell one interval each: page 1, and the bytes that a guard owned.
    for (rank, first) in [(1, 0), (2, 8)] {
        let node = &mut cluster.nodes[0];
        let written = [rank, 1, 0, 4, 1, 0, 1, 1, 0, 1, 0, 64 + first, 16];
        // The node has become a holder of page 1.
        let body = [&[1, 0, 1, rank, 1, 1][..], &written, &[0, 0, 1, 0, 1, 1, 0]].concat();
        let head = head(ARRIVE, [1, 0, 0]);
        let from = Rank::from(rank);
        assert_eq!(node.coherence.receive(from, &head, &body, &mut node.machine), Ok(()));
    }
    let node = &mut cluster.nodes[0];
    let token = node.token();
    node.coherence.barrier(token, &mut node.machine);
    let departures = hold_back(&mut cluster, 0, DEPART);
    let text = cluster.take(0, token).unwrap().unwrap_err().to_string();
    let expected = "nodes 1 and 2 both wrote bytes 72..80 of array \"p\" under guards since the last \
                    barrier";
    assert!(text.starts_with(expected) && text.contains("write_merged"), "{text}");
    assert_eq!(departures.len(), 2);
    for (to, departure) in departures {
        let body = departure.body.bytes();
        assert_eq!(body[..2], [1, 0], "a mismatch");
        assert!(body.windows(text.len()).any(|part| part == text.as_bytes()));
        // The base rises at two nodes. The other one's interval has no owned bytes.
        let told = [1, 1, 2, 1, 1, 3 - to as u8, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0];
        assert!(body.ends_with(&told), "{body:?}");
    }
}

/// COH-6.12: a node is told only of updates that nodes of its subtree got.
#[test]
fn departures_count_updates_for_their_receivers_only() {
    let mut cluster = guarded(4, 2, all_at(0, 2), 8);
    fill(&mut cluster, 0, pages(0..1), 7, Ownership::Owned, &[1]);
    let node = &mut cluster.nodes[0];
    for rank in [1, 2, 3] {
        let body = [1, 0, 1, rank, 1, 0, 0, 0, 0, 0];
        let arrived =
            node.coherence.receive(rank.into(), &head(ARRIVE, [1, 0, 0]), &body, &mut node.machine);
        assert_eq!(arrived, Ok(()));
    }
    let token = node.token();
    node.coherence.barrier(token, &mut node.machine);
    let departures = hold_back(&mut cluster, 0, DEPART);
    let bodies: Vec<Vec<u8>> = departures.iter().map(|(_, m)| m.body.bytes().to_vec()).collect();
    let [first, second, third] = &bodies[..] else { panic!("a departure for each node") };
    assert!(first.ends_with(&[1, 0, 1, 1, 0]), "one update of node 0 to node 1: {first:?}");
    let untold = [0, 0, 1, 0, 1, 1, 0, 0, 0];
    assert!(second == third && second[..] == untold, "{second:?}");
}

/// COH-10.14: the homes of the bytes make no difference. Node 0 writes a page that is private to it
/// then; the nodes after it write pages homed here and elsewhere.
#[test]
fn overlapping_guards_are_found_wherever_the_pages_are_homed() {
    for writers in [[1, 2], [0, 1], [0, 2]] {
        for seed in 0..5 {
            let mut cluster = guarded(3, 2, all_at(0, 2), seed);
            for rank in writers {
                write(&mut cluster, rank, 64..80, u64::from(rank) + 1);
            }
            let [first, second] = writers;
            let expected = std::format!("nodes {first} and {second} both wrote bytes 64..80");
            for outcome in outcomes(&mut cluster) {
                let text = outcome.expect("the barrier ends").unwrap_err().to_string();
                assert!(text.starts_with(&expected), "seed {seed}: {text}");
            }
            barrier(&mut cluster);
        }
    }
}

/// COH-10.14: a page that a guard has written may become invalid before the release. Node 1 gets
/// the page while it waits in a barrier before which node 2 writes it.
#[test]
fn overlapping_guards_are_found_on_a_page_that_became_invalid() {
    for seed in 0..5 {
        let mut cluster = guarded(3, 1, all_at(0, 1), seed);
        let waits = cluster.call(1, |c, token, m| c.barrier(token, m));
        cluster.run_until_quiet();
        write(&mut cluster, 1, 64..80, 1);
        write(&mut cluster, 2, 200..208, 2);
        let others = [0, 2].map(|rank| (rank, cluster.call(rank, |c, t, m| c.barrier(t, m))));
        cluster.run_until_quiet();
        cluster.all_succeeded(others.into_iter().chain([(1, waits)]));
        assert!(!holds(&cluster, 1, 0..1), "seed {seed}: the page is invalid");
        write(&mut cluster, 2, 72..88, 3);
        for outcome in outcomes(&mut cluster) {
            let text = outcome.expect("the barrier ends").unwrap_err().to_string();
            assert!(text.starts_with("nodes 1 and 2 both wrote bytes 72..80"), "{text}");
        }
    }
}

/// COH-10.14: no error if a lock orders the writes, if they merge, or if a barrier lies between.
#[test]
fn guards_over_the_same_bytes_are_permitted_with_a_lock_or_a_barrier_between() {
    let mut cluster = guarded(3, 3, Homes::Block, 9);
    for rank in 0..3 {
        cluster.succeeds(rank, |c, token, m| c.lock(1, token, m));
        write(&mut cluster, rank, 0..8, u64::from(rank) + 1);
        cluster.call(rank, |c, token, m| c.unlock(1, token, m));
        cluster.run_until_quiet();
    }
    barrier(&mut cluster);
    assert_eq!(read(&mut cluster, 0, 0), 3);
    for rank in 0..3 {
        write(&mut cluster, rank, 0..8, 7);
        barrier(&mut cluster);
    }
    for rank in 0..3 {
        // Each changes another word of the range that its guard covers.
        let at = 8 * u64::from(rank);
        fill(&mut cluster, rank, at..at + 8, 9, Ownership::Merged, &[]);
        fill(&mut cluster, rank, 0..0, 0, Ownership::Merged, &[]);
        cluster.collect(rank);
    }
    barrier(&mut cluster);
    assert_eq!([0, 8, 16].map(|at| read(&mut cluster, 1, at)), [9; 3]);
}

/// COH-10.15: pages that were pushed whole are valid after the barrier, without a fetch. Of a page
/// that was pushed in part nothing is kept.
#[test]
fn pages_pushed_whole_become_valid_without_a_fetch() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 24, Homes::Block, seed);
        let bytes = pages(0..5).start..pages(0..5).end + 512;
        fill(&mut cluster, 0, bytes, 6, Ownership::Owned, &[2, 0, 2]);
        cluster.collect(0);
        barrier(&mut cluster);
        assert!(holds(&cluster, 2, 0..5) && !holds(&cluster, 2, 5..6), "seed {seed}");
        assert!(!holds(&cluster, 1, 0..1), "pushed to node 2 alone");
        let s = statistics(&cluster, 2);
        assert_eq!((s.kept_pages, s.fetches), (5, 0), "seed {seed}");
        for at in [0, 4 * PAGE as u64 + 8, 5 * PAGE as u64] {
            assert_eq!(read(&mut cluster, 2, at), 6, "seed {seed}");
        }
        assert_eq!(statistics(&cluster, 2).fetched_pages, 1, "the page that came in part");
        // A page that the departure names is not kept.
        let start = pages(6..7).start;
        fill(&mut cluster, 0, pages(6..7), 7, Ownership::Owned, &[2]);
        fill(&mut cluster, 0, start..start + 8, 8, Ownership::Merged, &[]);
        cluster.collect(0);
        barrier(&mut cluster);
        assert!(!holds(&cluster, 2, 6..7), "seed {seed}");
        assert_eq!([start, start + 8].map(|at| read(&mut cluster, 2, at)), [8, 7]);
    }
}

/// COH-10.15: in a plain array, a twin does not show bytes that a push has sent and that have their
/// old value again.
#[test]
fn bytes_that_change_back_after_a_push_are_sent_again() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 2, all_at(0, 2));
        subscribe(&mut cluster, 2, pages(0..1));
        // The second barrier tells the writer who is subscribed.
        for value in [4, 5] {
            fill(&mut cluster, 1, pages(0..1), value, Ownership::Owned, &[]);
            barrier(&mut cluster);
        }
        fill(&mut cluster, 1, pages(0..1), 7, Ownership::Owned, &[2]);
        cluster.collect(1);
        assert!(cluster.nodes[1].machine.store(0, 24, 8, 5), "the page is mapped for stores");
        cluster.collect(1);
        barrier(&mut cluster);
        assert_eq!([24, 32].map(|at| read(&mut cluster, 2, at)), [5, 7], "seed {seed}");
    }
}

/// COH-10.15: so it is in a guarded array, where a guard that merges has made a twin.
#[test]
fn bytes_that_a_merging_guard_changes_back_are_sent_again() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 2, all_at(0, 2), seed);
        subscribe(&mut cluster, 2, pages(0..1));
        for value in [4, 5] {
            fill(&mut cluster, 1, pages(0..1), value, Ownership::Owned, &[]);
            barrier(&mut cluster);
        }
        fill(&mut cluster, 1, 8..16, 6, Ownership::Merged, &[]);
        fill(&mut cluster, 1, pages(0..1), 7, Ownership::Owned, &[2]);
        cluster.collect(1);
        fill(&mut cluster, 1, 24..32, 5, Ownership::Merged, &[]);
        cluster.collect(1);
        barrier(&mut cluster);
        assert_eq!([24, 32].map(|at| read(&mut cluster, 2, at)), [5, 7], "seed {seed}");
    }
}

/// COH-10.15: so it is with bytes that an answer to a fetch has shown in between.
#[test]
fn bytes_that_a_fetch_has_shown_in_between_are_sent_again() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 1, all_at(0, 1));
        subscribe(&mut cluster, 1, pages(0..1));
        let store = |cluster: &mut Cluster, node: Rank, at, value| {
            while !cluster.nodes[node as usize].machine.store(0, at, 8, value) {
                cluster.succeeds(node, |c, token, m| c.touch(0, 0..1, Access::Write, token, m));
            }
        };
        for value in [1, 2, 3, 0x0101] {
            store(&mut cluster, 0, 24, value);
            barrier(&mut cluster);
            assert_eq!(read(&mut cluster, 1, 24), value, "seed {seed}");
        }
        store(&mut cluster, 0, 24, 0x0202);
        // A lock makes the page of the reader invalid, while the interval of the home is open. Its
        // grant does not have what was written under another lock (COH-10.17).
        cluster.succeeds(2, |c, token, m| c.lock(2, token, m));
        store(&mut cluster, 2, 48, 5);
        cluster.succeeds(2, |c, token, m| c.unlock(2, token, m));
        cluster.succeeds(2, |c, token, m| c.lock(1, token, m));
        cluster.succeeds(2, |c, token, m| c.unlock(1, token, m));
        cluster.succeeds(1, |c, token, m| c.lock(1, token, m));
        cluster.succeeds(1, |c, token, m| c.unlock(1, token, m));
        assert!(!holds(&cluster, 1, 0..1), "seed {seed}");
        assert_eq!(read(&mut cluster, 1, 48), 5, "seed {seed}");
        store(&mut cluster, 0, 24, 0x0301);
        barrier(&mut cluster);
        assert!(holds(&cluster, 1, 0..1), "seed {seed}");
        assert_eq!(read(&mut cluster, 1, 24), 0x0301, "seed {seed}");
    }
}

/// COH-10.21: an answer that is read from memory late may show such bytes, too.
#[test]
fn a_new_subscriber_keeps_no_bytes_of_an_open_interval() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 1, all_at(0, 1));
        let store = |cluster: &mut Cluster, value| {
            while !cluster.nodes[0].machine.store(0, 24, 8, value) {
                cluster.succeeds(0, |c, token, m| c.touch(0, 0..1, Access::Write, token, m));
            }
        };
        let begin = |cluster: &mut Cluster, rank: Rank| {
            let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
            coherence.subscribe(0, pages(0..1), true, machine).unwrap();
            cluster.collect(rank);
        };
        store(&mut cluster, 0x0101);
        let (token, answer) = ask_and_hold_back(&mut cluster);
        // Another subscriber makes the home keep a twin.
        begin(&mut cluster, 2);
        cluster.run_until_quiet();
        if seed.is_multiple_of(2) {
            begin(&mut cluster, 1);
            cluster.run_until_quiet();
        }
        store(&mut cluster, 0x0202);
        post(&mut cluster, 0, answer);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(1, token), Some(Ok(Value::None)));
        begin(&mut cluster, 1);
        cluster.run_until_quiet();
        store(&mut cluster, 0x0301);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 1, 24), 0x0301, "seed {seed}");
    }
}

/// COH-10.21: so may an update, which shows bytes of the next interval.
#[test]
fn bytes_that_a_late_update_has_shown_are_not_kept() {
    for (seed, changes_another) in (0..40).zip([false, true].into_iter().cycle()) {
        let mut cluster = guarded(3, 1, all_at(0, 1), seed);
        subscribe(&mut cluster, 2, pages(0..1));
        for value in [4, 5] {
            write(&mut cluster, 1, pages(0..1), value);
            barrier(&mut cluster);
            assert_eq!(read(&mut cluster, 2, 8), value, "seed {seed}");
        }
        fill(&mut cluster, 1, pages(0..1), 6, Ownership::Owned, &[]);
        let Node { coherence, machine, .. } = &mut cluster.nodes[1];
        let token = Token(1 << 32);
        coherence.barrier(token, machine);
        let update = hold_back(&mut cluster, 1, UPDATE);
        assert_eq!(update.len(), 1, "seed {seed}");
        let others =
            [0, 2].map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))));
        cluster.run_until_quiet();
        // The reader is still in the barrier when the writer goes on.
        fill(&mut cluster, 1, 8..16, 7, Ownership::Merged, &[]);
        post(&mut cluster, 1, update);
        cluster.run_until_quiet();
        cluster.all_succeeded(others.into_iter().chain([(1, token)]));
        fill(&mut cluster, 1, 8..16, 6, Ownership::Merged, &[]);
        if changes_another {
            fill(&mut cluster, 1, 24..32, 9, Ownership::Merged, &[]);
        }
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 2, 8), 6, "seed {seed}");
    }
}

/// COH-10.16: a dead node will not send what its arrival has counted, so the barrier fails.
#[test]
fn barrier_fails_if_a_counted_writer_is_dead() {
    for seed in 0..20 {
        let (mut cluster, _, there, _) = barrier_without_update(seed);
        cluster.kill(0);
        cluster.run_until_quiet();
        let outcome = cluster.take(1, there);
        let is_dead = matches!(outcome, Some(Err(CoherenceError::NodeDead { rank: 0, .. })));
        assert!(is_dead, "seed {seed}: {outcome:?}");
        let next = cluster.call(1, |c, token, m| c.barrier(token, m));
        assert!(matches!(cluster.take(1, next), Some(Err(_))));
    }
}

/// COH-10.19: updates that no guard uses end, unless the program has subscribed.
#[test]
fn subscription_ends_after_updates_that_are_not_used() {
    for declares in [false, true] {
        let mut cluster = guarded(2, 2, Homes::Block, 10);
        for round in 1..3 {
            write(&mut cluster, 0, 0..8, round);
            barrier(&mut cluster);
            assert_eq!(read(&mut cluster, 1, 0), round);
            barrier(&mut cluster);
        }
        if declares {
            subscribe(&mut cluster, 1, 0..8);
        }
        for round in 3..43 {
            write(&mut cluster, 0, 0..8, round);
            barrier(&mut cluster);
        }
        let sent = statistics(&cluster, 0).updates_sent;
        if declares {
            assert_eq!(sent, 40);
        } else {
            // Some were wasted until the reader has seen that 8 in a row are, and one more may have
            // been sent before the home knew.
            assert!((9..=11).contains(&sent), "{sent}");
        }
        assert_eq!(read(&mut cluster, 1, 0), 42);
    }
}

/// COH-10.5, COH-10.13: once all readers are subscribed, an epoch of guards, updates and diffs
/// changes no mapping and fetches no page. So a real machine makes no system call for memory, and
/// takes no fault.
#[test]
fn epochs_with_updates_change_no_mapping_and_fetch_no_page() {
    const PAGES: u64 = 12;
    for seed in 0..5 {
        let mut cluster = guarded(3, PAGES, Homes::Block, seed);
        // Node 0 writes pages of all homes, so that the other nodes get updates and diffs.
        (1..3).for_each(|rank| subscribe(&mut cluster, rank, pages(0..PAGES)));
        let epoch = |cluster: &mut Cluster, value| {
            write(cluster, 0, pages(0..PAGES), value);
            barrier(cluster);
            for (rank, page) in (1..3).flat_map(|rank| (0..PAGES).map(move |page| (rank, page))) {
                assert_eq!(read(cluster, rank, page * PAGE as u64 + 8 * page), value);
            }
        };
        let counts = |cluster: &Cluster| -> Vec<(u64, u64)> {
            let of = |node: &Node| {
                (node.machine.mapping_changes, node.coherence.statistics().fetched_pages)
            };
            cluster.nodes.iter().map(of).collect()
        };
        (1..4).for_each(|value| epoch(&mut cluster, value));
        let before = counts(&cluster);
        assert!(before.iter().all(|(changes, fetched)| *changes > 0 && *fetched > 0), "{before:?}");
        (4..200).for_each(|value| epoch(&mut cluster, value));
        assert_eq!(counts(&cluster), before, "seed {seed}");
    }
}
