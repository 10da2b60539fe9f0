//! Cases of one operation at a time.

use super::*;
use std::io::{Read, Write};

pub(super) fn a_load_from_an_unmapped_page_faults_once(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 3, 4);
    poke(&memory, 2, 42);
    let ((), faults) = serve(tracker, grant(&memory), || {
        assert_eq!(load(&memory, 2), 42);
        assert_eq!(load(&memory, 2), 42);
    });
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].array, faults[0].page), (3, 2));
    assert_ne!(faults[0].access, Some(Access::Write));
}

pub(super) fn a_store_to_an_unmapped_page_faults(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 2);
    poke(&memory, 1, 1);
    let ((), faults) = serve(tracker, grant(&memory), || store(&memory, 1, 5));
    assert_eq!(pages_of(&faults), [1]);
    assert_eq!(faults.last().unwrap().access, Some(Access::Write));
    assert_eq!(peek(&memory, 1), 5);
}

pub(super) fn a_store_to_a_readable_page_faults_once(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 2);
    poke(&memory, 0, 6);
    memory.install(0..2, Access::Read).unwrap();
    let ((), faults) = serve(
        tracker,
        |f| memory.set_access(f.page..f.page + 1, Access::Write).unwrap(),
        || {
            assert_eq!(load(&memory, 0), 6);
            store(&memory, 0, 7);
            store(&memory, 0, 8);
        },
    );
    assert_eq!(faults, [FaultAt { array: 0, page: 0, access: Some(Access::Write) }]);
    assert_eq!(peek(&memory, 0), 8);
}

pub(super) fn a_hole_faults_like_any_unmapped_page_and_reads_as_zeros(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 3);
    let ((), faults) = serve(tracker, grant(&memory), || {
        assert_eq!(load(&memory, 1), 0);
        store(&memory, 2, 1);
    });
    assert_eq!(pages_of(&faults), [1, 2]);
    assert_eq!(peek(&memory, 2), 1);
}

pub(super) fn a_run_is_installed_and_its_adjacent_ones_are_not(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 16);
    (0..16).for_each(|page| poke(&memory, page, page as u64));
    memory.install(4..9, Access::Write).unwrap();
    // Install a run of which some pages are mapped already.
    memory.install(3..11, Access::Write).unwrap();
    let ((), faults) = serve(tracker, grant(&memory), || {
        for page in 3..11 {
            assert_eq!(load(&memory, page), page as u64);
            store(&memory, page, 100);
        }
        assert_eq!((load(&memory, 2), load(&memory, 11)), (2, 11));
        assert_eq!((load(&memory, 0), load(&memory, 15)), (0, 15));
    });
    assert_eq!(pages_of(&faults), [2, 11, 0, 15]);
}

pub(super) fn invalidated_pages_fault_again_with_their_bytes_and_diffs(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 4);
    memory.install(0..4, Access::Write).unwrap();
    (0..4).for_each(|page| store(&memory, page, 10 + page as u64));
    memory.invalidate(1..3).unwrap();
    assert_eq!(peek(&memory, 1), 11);
    // A diff changes other bytes of the page.
    memory.write(PAGE + 64, &99_u64.to_ne_bytes()).unwrap();
    let ((), faults) = serve(tracker, grant(&memory), || {
        assert_eq!((0..4).map(|page| load(&memory, page)).collect::<Vec<_>>(), [10, 11, 12, 13]);
        assert_eq!(memory.slice::<u64>(WORDS + 8..WORDS + 9).unwrap()[0], 99);
    });
    assert_eq!(pages_of(&faults), [1, 2]);
    // Read-only, then invalid, then writable: no protection is left.
    memory.set_access(0..4, Access::Read).unwrap();
    memory.invalidate(0..4).unwrap();
    memory.install(0..4, Access::Write).unwrap();
    let ((), faults) =
        serve(tracker, grant(&memory), || (0..4).for_each(|page| store(&memory, page, 1)));
    assert_eq!(faults, []);
}

pub(super) fn set_access_leaves_unmapped_pages_unmapped(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 6);
    (0..6).for_each(|page| poke(&memory, page, 1));
    memory.install(2..4, Access::Read).unwrap();
    for access in [Access::Read, Access::Write] {
        memory.set_access(0..6, access).unwrap();
    }
    let ((), faults) = serve(tracker, grant(&memory), || {
        (0..6).for_each(|page| assert_eq!(load(&memory, page), 1));
        store(&memory, 2, 1);
        store(&memory, 3, 1);
    });
    assert_eq!(pages_of(&faults), [0, 1, 4, 5]);
    // Protected while unmapped, then mapped for writing: writable.
    memory.invalidate(5..6).unwrap();
    memory.set_access(5..6, Access::Read).unwrap();
    memory.install(5..6, Access::Write).unwrap();
    let ((), faults) = serve(tracker, grant(&memory), || store(&memory, 5, 1));
    assert_eq!(faults, []);
}

pub(super) fn install_over_mapped_pages_changes_their_access(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 3);
    memory.install(0..3, Access::Read).unwrap();
    memory.install(0..3, Access::Write).unwrap();
    let ((), faults) = serve(tracker, grant(&memory), || store(&memory, 1, 1));
    assert_eq!(faults, []);
    memory.install(0..3, Access::Read).unwrap();
    let ((), faults) = serve(tracker, grant(&memory), || store(&memory, 1, 2));
    assert_eq!(faults, [FaultAt { array: 0, page: 1, access: Some(Access::Write) }]);
}

pub(super) fn faults_name_their_array(tracker: &Arc<dyn Tracker>) {
    let arrays = [array(tracker, 7, 3), array(tracker, 1, 5), array(tracker, 4_000_000_000, 1)];
    let answer = |fault: FaultAt| {
        let memory = arrays.iter().find(|m| m.array() == fault.array).unwrap();
        memory.install(fault.page..fault.page + 1, Access::Read).unwrap();
    };
    let ((), faults) = serve(tracker, answer, || {
        let touched: u64 = [(0, 2), (1, 4), (2, 0), (1, 0)]
            .into_iter()
            .map(|(a, page)| load(&arrays[a], page))
            .sum();
        assert_eq!(touched, 0);
    });
    let named: Vec<_> = faults.iter().map(|f| (f.array, f.page)).collect();
    assert_eq!(named, [(7, 2), (1, 4), (4_000_000_000, 0), (1, 0)]);
}

pub(super) fn a_sleeper_whose_page_is_invalidated_faults_again(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 1);
    memory.install(0..1, Access::Read).unwrap();
    let mut count = 0;
    let answer = |fault: FaultAt| {
        count += 1;
        match count {
            1 => memory.invalidate(0..1).unwrap(),
            _ => memory.install(0..1, fault.access.unwrap_or(Access::Read)).unwrap(),
        }
    };
    let ((), faults) = serve(tracker, answer, || store(&memory, 0, 3));
    assert!(faults.len() >= 2);
    assert_eq!(peek(&memory, 0), 3);
}

pub(super) fn detach_lets_sleepers_go(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 2);
    poke(&memory, 0, 4);
    memory.install(1..2, Access::Read).unwrap();
    let view = memory.view();
    let ((), faults) = serve(
        tracker,
        |_| tracker.detach(view),
        || {
            assert_eq!(load(&memory, 0), 4);
            store(&memory, 1, 5);
            store(&memory, 0, 6);
        },
    );
    assert_eq!(faults.first().map(|f| f.page), Some(0));
    assert_eq!((peek(&memory, 0), peek(&memory, 1)), (6, 5));
}

/// Reads four bytes from a pipe by read(2) directly into the view.
fn read_into(memory: &SharedMemory, page: usize) -> io::Result<usize> {
    let (mut from, mut to) = io::pipe().unwrap();
    to.write_all(b"wind").unwrap();
    let mut bytes = memory.slice_mut::<u8>(page * PAGE..page * PAGE + 4, GuardKind::Write).unwrap();
    from.read(&mut bytes)
}

pub(super) fn system_calls_work_on_valid_pages(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 2);
    memory.install(0..1, Access::Write).unwrap();
    let (got, faults) = serve(tracker, grant(&memory), || read_into(&memory, 0));
    assert_eq!(got.unwrap(), 4);
    assert_eq!(faults, []);
    assert_eq!(&peek(&memory, 0).to_ne_bytes()[..4], b"wind");
    memory.set_access(0..1, Access::Read).unwrap();
    let (mut from, mut to) = io::pipe().unwrap();
    to.write_all(&memory.slice::<u8>(0..4).unwrap()).unwrap();
    let mut back = [0; 4];
    from.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"wind");
}

fn waits_or_fails(tracker: &Arc<dyn Tracker>, memory: &SharedMemory) {
    let (got, faults) = serve(tracker, grant(memory), || read_into(memory, 0));
    if tracker.kind().traps_system_calls() {
        assert_eq!(got.unwrap(), 4);
        assert_eq!(pages_of(&faults), [0]);
        assert_eq!(&peek(memory, 0).to_ne_bytes()[..4], b"wind");
    } else {
        // The program must make the range valid first (`SharedArray::prefault` and friends).
        assert_eq!(got.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        assert_eq!(faults, []);
    }
}

pub(super) fn a_system_call_on_an_unmapped_page_waits_or_fails_with_efault(
    tracker: &Arc<dyn Tracker>,
) {
    let memory = array(tracker, 0, 1);
    waits_or_fails(tracker, &memory);
}

pub(super) fn a_system_call_that_stores_to_a_readable_page_waits_or_fails_with_efault(
    tracker: &Arc<dyn Tracker>,
) {
    let memory = array(tracker, 0, 1);
    memory.install(0..1, Access::Read).unwrap();
    waits_or_fails(tracker, &memory);
}

pub(super) fn empty_ranges_do_nothing_and_wrong_ones_are_refused(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 4);
    for at in [0, 2, 4] {
        memory.install(at..at, Access::Write).unwrap();
        memory.set_access(at..at, Access::Read).unwrap();
        memory.invalidate(at..at).unwrap();
    }
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..5, 4..6, 3..2, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
        assert!(memory.install(range.clone(), Access::Write).is_err());
        assert!(memory.set_access(range.clone(), Access::Read).is_err());
        assert!(memory.invalidate(range).is_err());
    }
}
