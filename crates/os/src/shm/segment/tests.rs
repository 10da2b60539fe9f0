//! Guards, marks and merges of several nodes over one segment, in one process.

use super::area::GUARDS_MAX;
use super::shared::{Segment, SegmentMembers, segment_file_len};
use super::{ArrayForm, OwnedOverlap, SegmentTable};
use crate::memory::tracking::{Attempt, Begun, GuardBytes, GuardKind, OtherNodes, sparse_file};
use oikaze_protocol::Rank;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the array.
const BYTES: usize = 1000;

/// Nodes that map one array. None of their processes has ended at first.
struct Nodes {
    segments: Vec<Arc<Segment>>,
    tables: Vec<SegmentTable>,
    /// Rank of the node whose process has ended.
    ended: Arc<AtomicU32>,
}

impl Nodes {
    fn new(nodes: u32) -> Nodes {
        let file = sparse_file("tests", segment_file_len(BYTES, nodes).unwrap()).unwrap();
        let (file, ended) = (Arc::new(file), Arc::new(AtomicU32::new(u32::MAX)));
        let tables: Vec<_> = (0..nodes).map(|_| SegmentTable::default()).collect();
        let segment = |(me, table): (Rank, &SegmentTable)| {
            let ended = Arc::clone(&ended);
            let has_ended = Arc::new(move |rank: Rank| rank == ended.load(Ordering::Relaxed));
            let members = SegmentMembers { me, nodes, has_ended };
            let form = ArrayForm::new(&[BYTES], 1);
            let segment = Segment::new(&file, ("tests", BYTES), form, members, table.notes());
            let segment = segment.unwrap();
            table.add(&segment);
            segment
        };
        Nodes { segments: (0..).zip(&tables).map(segment).collect(), tables, ended }
    }

    /// Ends the process of a node.
    fn end_process(&self, rank: Rank) {
        self.ended.store(rank, Ordering::Relaxed);
    }

    fn begin(&self, rank: usize, kind: GuardKind, bytes: Range<u64>) -> Result<Begun, String> {
        let guard = GuardBytes { kind, bytes, is_block: false, lends: true, taken_at: None };
        self.segments[rank].begin(&guard)
    }

    /// Takes a guard of a node in place. Returns its entry.
    #[track_caller]
    fn take(&self, rank: usize, kind: GuardKind, bytes: Range<u64>) -> usize {
        match self.begin(rank, kind, bytes) {
            Ok(Begun::InPlace(entry)) => entry,
            other => panic!("node {rank}: {other:?}"),
        }
    }

    fn end(&self, rank: usize, entry: usize) {
        self.segments[rank].end(entry);
    }

    /// Returns `true` if a node may write these bytes now.
    fn may_write(&self, rank: usize, bytes: Range<u64>) -> bool {
        let begun = self.begin(rank, GuardKind::Write, bytes);
        if let Ok(Begun::InPlace(entry)) = begun {
            self.end(rank, entry);
        }
        begun.is_ok()
    }
}

use GuardKind::{Read, Write};

/// COH-16.6
#[test]
fn guards_end_in_any_order() {
    let order = |number: usize| {
        let mut left = vec![0, 1, 2, 3];
        [number % 4, number / 4 % 3, number / 12, 0].map(|at| left.remove(at))
    };
    for number in 0..24 {
        let nodes = Nodes::new(2);
        let guards = [0, 10, 20, 30].map(|start| nodes.take(0, Write, start..start + 10));
        let mut ended = [false; 4];
        for guard in order(number) {
            nodes.end(0, guards[guard]);
            ended[guard] = true;
            let is_free = |at: usize| nodes.may_write(1, 10 * at as u64 + 4..10 * at as u64 + 5);
            assert_eq!([0, 1, 2, 3].map(is_free), ended, "order {number}");
        }
    }
}

/// COH-16.6
#[test]
fn guard_that_is_refused_is_in_nobodys_way() {
    let nodes = Nodes::new(3);
    let guard = nodes.take(0, Read, 0..10);
    let refused = nodes.begin(1, Write, 5..15).unwrap_err();
    assert!(refused.contains("a guard of node 0 that reads bytes 0..10"), "{refused}");
    assert!(nodes.may_write(2, 10..15));
    nodes.end(0, guard);
    assert!(nodes.may_write(2, 0..15));
}

/// COH-16.6
#[test]
fn guard_of_an_ended_process_is_in_nobodys_way() {
    let nodes = Nodes::new(2);
    nodes.take(0, Write, 0..10);
    assert!(!nodes.may_write(1, 5..6));
    nodes.end_process(0);
    assert!(nodes.may_write(1, 5..6));
    nodes.segments[1].mark().unwrap();
}

/// COH-16.6
#[test]
fn guard_behind_that_of_an_ended_process_counts() {
    let nodes = Nodes::new(3);
    nodes.take(0, Read, 0..10);
    let guard = nodes.take(1, Read, 0..10);
    nodes.end_process(0);
    let refused = nodes.begin(2, Write, 5..6).unwrap_err();
    assert!(refused.contains("node 1"), "{refused}");
    assert!(nodes.segments[2].mark().unwrap_err().contains("node 1"));
    nodes.end(1, guard);
    assert!(nodes.may_write(2, 5..6));
}

/// COH-16.7
#[test]
fn bytes_are_merged_while_the_others_know_of_it() {
    let nodes = Nodes::new(2);
    // More runs than are published at once.
    let runs: Vec<_> = (0..100).map(|at| 10 * at..10 * at + 3).collect();
    let mut stored = Vec::new();
    let race = nodes.segments[0].merge(&runs, None, &mut |run| {
        let refused = nodes.begin(1, Read, run.start + 1..run.start + 2).unwrap_err();
        assert!(refused.contains("a guard of node 0 that merges"), "{refused}");
        assert!(nodes.may_write(1, run.end..run.end + 7), "gaps are free");
        stored.push(run.clone());
    });
    assert_eq!((race, stored), (None, runs));
    assert!(nodes.may_write(1, 0..BYTES as u64), "the merge is over");
}

/// COH-16.7
#[test]
fn runs_are_merged_beside_one_that_a_guard_is_in_the_way_of() {
    let nodes = Nodes::new(3);
    nodes.take(1, Read, 4..6);
    nodes.take(2, Write, 30..31);
    let runs = [0..4, 5..8, 10..20, 30..40, 50..51];
    let mut stored = Vec::new();
    let race = nodes.segments[0].merge(&runs, None, &mut |run| stored.push(run.clone()));
    assert_eq!(stored, [0..4, 10..20, 50..51]);
    assert!(race.unwrap().contains("a guard of node 1 that reads bytes 4..6"), "the first one");
    assert!(nodes.may_write(1, 0..4));
}

/// COH-16.7: a merge without room would lose what the guard has stored.
#[test]
fn merge_has_room_beside_as_many_guards_as_there_can_be() {
    let nodes = Nodes::new(2);
    let guards: Vec<_> = (0..GUARDS_MAX).map(|_| nodes.take(0, Read, 0..10)).collect();
    let refused = nodes.begin(0, Read, 0..10).unwrap_err();
    assert!(refused.contains("no room for one more"), "{refused}");
    let mut stored = 0;
    let runs: Vec<_> = (10..110).map(|at| 2 * at..2 * at + 1).collect();
    assert_eq!(nodes.segments[0].merge(&runs, None, &mut |_| stored += 1), None);
    assert_eq!(stored, runs.len());
    assert!(!nodes.may_write(1, 0..1) && nodes.may_write(1, 20..220));
    nodes.end(0, guards[100]);
    nodes.take(0, Read, 0..10);
    assert!(nodes.begin(0, Read, 0..10).is_err());
}

/// COH-16.8
#[test]
fn mark_that_is_refused_is_taken_back() {
    let nodes = Nodes::new(3);
    let guard = nodes.take(0, Read, 0..10);
    let refused = nodes.segments[1].mark().unwrap_err();
    assert!(refused.contains("a guard of node 0 that reads bytes 0..10"), "{refused}");
    nodes.take(2, Read, 0..10);
    nodes.end(0, guard);
    assert!(nodes.segments[1].mark().unwrap_err().contains("node 2"));
    nodes.take(0, Write, 10..20);
}

/// COH-16.8
#[test]
fn guard_of_a_marked_array_lends_a_copy() {
    let nodes = Nodes::new(2);
    nodes.segments[1].mark().unwrap();
    for rank in [0, 1] {
        assert_eq!(nodes.begin(rank, Read, 0..10), Ok(Begun::Copies));
        assert_eq!(nodes.begin(rank, Write, 0..10), Ok(Begun::Copies));
    }
    // A second mark finds nothing in the way, because guards with copies have no entries.
    nodes.segments[0].mark().unwrap();
    nodes.segments[1].mark().unwrap();
}

/// COH-16.9
#[test]
fn operation_is_in_the_way_of_guards_as_long_as_it_lasts() {
    let nodes = Nodes::new(2);
    for (kind, may_read) in [(GuardKind::ReadOperation, true), (GuardKind::Operation, false)] {
        let bytes = 8..16;
        let guard = GuardBytes { kind, bytes, is_block: false, lends: false, taken_at: None };
        let done = nodes.segments[0].operate(&guard, &mut || {
            let read = nodes.begin(1, Read, 10..11);
            assert_eq!(read.is_ok(), may_read, "{kind:?}");
            if let Ok(Begun::InPlace(entry)) = read {
                nodes.end(1, entry);
            }
            assert!(!nodes.may_write(1, 10..11), "{kind:?}");
            // An operation of the other node waits for the group, without an error.
            let waits = nodes.segments[1].operate(&guard, &mut || panic!("two are inside"));
            assert_eq!(waits, Ok(Attempt::Waits(Some(0))), "{kind:?}");
        });
        assert_eq!(done, Ok(Attempt::Done(())));
        assert!(nodes.may_write(1, 8..16));
        assert_eq!(nodes.segments[1].operate(&guard, &mut || ()), Ok(Attempt::Done(())));
    }
}

impl Nodes {
    /// Notes that a guard of a node owns these bytes.
    fn own(&self, rank: usize, bytes: Range<u64>) {
        self.segments[rank].note_owned(std::slice::from_ref(&bytes));
    }

    /// Lets all nodes come to a collective. Returns what all of them find.
    fn come(&self, number: u64) -> Option<OwnedOverlap> {
        self.tables.iter().for_each(|table| table.end_interval().tell(number));
        let found = self.tables.iter().map(|table| OwnedOverlap::of(&table.all(), number));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        found.into_iter().next().flatten()
    }
}

/// COH-16.3, COH-10.14
#[test]
fn bytes_that_two_nodes_owned_are_found_by_all() {
    let nodes = Nodes::new(3);
    nodes.own(0, 0..10);
    nodes.own(1, 10..20);
    nodes.own(2, 15..30);
    let overlap = OwnedOverlap { array: "tests".to_owned(), ranks: [1, 2], bytes: 15..20 };
    assert_eq!(nodes.come(1), Some(overlap));
    assert_eq!(nodes.come(2), None);
    // Bytes that a node owned before an earlier collective do not count.
    for number in 3..9 {
        let rank = number as usize % 3;
        nodes.own(rank, 0..500);
        nodes.own((rank + 1) % 3, 500..1000);
        assert_eq!(nodes.come(number), None, "collective {number}");
    }
}

/// COH-16.3
#[test]
fn bytes_that_were_owned_under_a_lock_are_not_compared() {
    let nodes = Nodes::new(2);
    let own_both = || (0..2).for_each(|rank| nodes.own(rank, 0..10));
    nodes.tables[0].took_lock();
    own_both();
    nodes.tables[0].gave_lock_back();
    assert_eq!(nodes.come(1), None, "an unlock ends the interval");
    nodes.tables[0].took_lock();
    own_both();
    assert_eq!(nodes.come(2), None, "the lock is held");
    own_both();
    assert_eq!(nodes.come(3), None, "the lock is still held");
    nodes.tables[0].gave_lock_back();
    own_both();
    assert!(nodes.come(4).is_some(), "the lock was given back before");
}
