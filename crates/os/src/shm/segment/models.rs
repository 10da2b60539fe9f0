//! Models nodes that share a segment as threads ([`crate::models`]).

use super::area::{Area, ENTRIES_LEN, GuardEntry, HEAD};
use super::extent::{ArrayForm, Extent};
use super::groups::{GROUPS_LEN, Groups};
use crate::memory::tracking::GuardKind;
use crate::models::model;
use crate::shm::memory::Memory;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

/// Bytes of the entries that a model uses.
const ENTRIES: usize = if ENTRIES_LEN < 64 { ENTRIES_LEN } else { 64 };

fn areas() -> Arc<[Area; 2]> {
    let area = || Area::new(Memory::of(HEAD), Memory::of(ENTRIES));
    Arc::new([area(), area()])
}

fn guard(kind: GuardKind, lends: bool) -> GuardEntry {
    GuardEntry { kind, extent: Extent { bytes: 0..8, is_block: false }, lends, place: 0 }
}

/// Takes a guard of all bytes in entry 0, as a node does. Returns `true` if it is in place.
fn take(areas: &[Area; 2], me: usize, sequence: u64, kind: GuardKind) -> bool {
    let (form, own) = (ArrayForm::new(&[8], 1), guard(kind, true));
    areas[me].publish(0, sequence, &own, 1);
    let other = areas[1 - me]
        .find(|other| other.kind.conflicts(kind) && other.extent.meets(&own.extent, &form));
    if other.is_some() {
        areas[me].withdraw(0, 0);
    }
    other.is_none()
}

#[test]
fn loom_two_writers_are_never_both_in_place() {
    model(3, || {
        let (areas, inside) = (areas(), Arc::new(AtomicUsize::new(0)));
        let run = |me: usize| {
            let (areas, inside) = (Arc::clone(&areas), Arc::clone(&inside));
            move || {
                for sequence in 1..=2 - me as u64 {
                    if take(&areas, me, sequence, GuardKind::Write) {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two writers");
                        inside.fetch_sub(1, Ordering::Relaxed);
                        areas[me].withdraw(0, 0);
                    }
                }
            }
        };
        let other = thread::spawn(run(1));
        run(0)();
        other.join().unwrap();
    });
}

#[test]
fn loom_a_mark_and_a_guard_see_each_other() {
    model(3, || {
        let areas = areas();
        let (lent, stores) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let marker = {
            let (areas, lent, stores) =
                (Arc::clone(&areas), Arc::clone(&lent), Arc::clone(&stores));
            thread::spawn(move || {
                areas[1].set_mark(true);
                if areas[0].find(|other| other.lends).is_some() {
                    areas[1].set_mark(false);
                } else {
                    stores.store(1, Ordering::Relaxed);
                    assert_eq!(lent.load(Ordering::Relaxed), 0, "a store under a reference");
                }
            })
        };
        if take(&areas, 0, 1, GuardKind::Read) {
            if !areas[1].is_marked() {
                lent.store(1, Ordering::Relaxed);
                assert_eq!(stores.load(Ordering::Relaxed), 0, "a reference to what is stored");
                lent.store(0, Ordering::Relaxed);
            }
            areas[0].withdraw(0, 0);
        }
        marker.join().unwrap();
    });
}

#[test]
fn loom_an_entry_is_read_whole_or_not_at_all() {
    model(3, || {
        let areas = areas();
        let writer = {
            let areas = Arc::clone(&areas);
            thread::spawn(move || {
                for sequence in 1..=2u64 {
                    let extent = Extent { bytes: sequence..2 * sequence, is_block: false };
                    let kind = GuardKind::Write;
                    let entry = GuardEntry { kind, extent, lends: false, place: sequence as u16 };
                    areas[1].publish(0, sequence, &entry, 1);
                    areas[1].withdraw(0, 0);
                }
            })
        };
        if let Some(found) = areas[1].find(|_| true) {
            let number = u64::from(found.place);
            assert_eq!(found.extent.bytes, number..2 * number, "a torn entry");
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_operations_are_alone_in_a_group() {
    model(3, || {
        let memory = Memory::of(GROUPS_LEN);
        let counter = Arc::new(AtomicU64::new(0));
        let run = |me: u32| {
            let (groups, counter) = (Groups::new(memory.clone(), me), Arc::clone(&counter));
            move || {
                let entered = loop {
                    match groups.enter(&(0..8), |_| false) {
                        Ok(entered) => break entered,
                        Err(_) => thread::yield_now(),
                    }
                };
                let value = counter.load(Ordering::Relaxed);
                counter.store(value + 1, Ordering::Relaxed);
                drop(entered);
            }
        };
        let other = thread::spawn(run(1));
        run(0)();
        other.join().unwrap();
        assert_eq!(counter.load(Ordering::Relaxed), 2);
    });
}
