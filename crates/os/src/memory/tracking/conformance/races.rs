//! Cases of several threads at once.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

const INCREMENTS: u64 = 2_000;

/// Adds one to a word of the view repeatedly. Each store goes to memory.
fn count_up(memory: &SharedMemory, word: usize, times: u64) {
    for _ in 0..times {
        let mut guard = memory.slice_mut::<u64>(word..word + 1, GuardKind::Write).unwrap();
        guard[0] = std::hint::black_box(guard[0]) + 1;
    }
}

/// Does what a release does: protect, then diff. A store after the protection would be in no diff.
pub(super) fn after_protecting_nothing_changes_until_the_next_fault(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 1);
    memory.install(0..1, Access::Write).unwrap();
    // The page as it was when it was protected, while it is protected.
    let protected = Mutex::new(None::<Vec<u8>>);
    let snapshot = || {
        let mut page = vec![0; PAGE];
        memory.read(0, &mut page).unwrap();
        page
    };
    let changed = AtomicUsize::new(0);
    let answer = |_| {
        let mut protected = protected.lock().unwrap();
        if protected.take().is_some_and(|then| then != snapshot()) {
            changed.fetch_add(1, Ordering::Relaxed);
        }
        memory.set_access(0..1, Access::Write).unwrap();
    };
    let writers = AtomicUsize::new(3);
    serve(tracker, answer, || {
        std::thread::scope(|threads| {
            for word in [0, 1, WORDS - 1] {
                let (memory, writers) = (&memory, &writers);
                threads.spawn(move || {
                    count_up(memory, word, INCREMENTS);
                    writers.fetch_sub(1, Ordering::Release);
                });
            }
            while writers.load(Ordering::Acquire) > 0 {
                let mut protected = protected.lock().unwrap();
                memory.set_access(0..1, Access::Read).unwrap();
                let page = snapshot();
                for _ in 0..4 {
                    std::thread::yield_now();
                    if snapshot() != page {
                        changed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                *protected = Some(page);
                drop(protected);
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(changed.load(Ordering::Relaxed), 0);
    let page = snapshot();
    let words: &[u64] = bytemuck::cast_slice(&page);
    assert_eq!((words[0], words[1], words[WORDS - 1]), (INCREMENTS, INCREMENTS, INCREMENTS));
}

pub(super) fn invalidations_lose_no_increment(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 3);
    let writers = AtomicUsize::new(2);
    // Changes of a page are exclusive, as in the engine's turn.
    let turn = Mutex::new(());
    let answer = |fault: FaultAt| {
        let _turn = turn.lock().unwrap();
        memory.install(fault.page..fault.page + 1, fault.access.unwrap_or(Access::Read)).unwrap();
    };
    serve(tracker, answer, || {
        std::thread::scope(|threads| {
            for word in [WORDS, 2 * WORDS - 1] {
                let (memory, writers) = (&memory, &writers);
                threads.spawn(move || {
                    count_up(memory, word, INCREMENTS);
                    writers.fetch_sub(1, Ordering::Release);
                });
            }
            while writers.load(Ordering::Acquire) > 0 {
                let alone = turn.lock().unwrap();
                memory.invalidate(0..3).unwrap();
                drop(alone);
                std::thread::yield_now();
                let alone = turn.lock().unwrap();
                memory.set_access(0..3, Access::Read).unwrap();
                drop(alone);
                std::thread::yield_now();
            }
        });
    });
    let mut page = vec![0; PAGE];
    memory.read(PAGE, &mut page).unwrap();
    let words: &[u64] = bytemuck::cast_slice(&page);
    assert_eq!((words[0], words[WORDS - 1]), (INCREMENTS, INCREMENTS));
}

pub(super) fn many_threads_on_one_page(tracker: &Arc<dyn Tracker>) {
    let memory = array(tracker, 0, 1);
    const THREADS: usize = 16;
    let start = Barrier::new(THREADS);
    for round in 1..=8 {
        memory.invalidate(0..1).unwrap();
        serve(tracker, grant(&memory), || {
            std::thread::scope(|threads| {
                for word in 0..THREADS {
                    let (memory, start) = (&memory, &start);
                    threads.spawn(move || {
                        start.wait();
                        count_up(memory, word * 32, 1);
                    });
                }
            });
        });
        let mut page = vec![0; PAGE];
        memory.read(0, &mut page).unwrap();
        let words: &[u64] = bytemuck::cast_slice(&page);
        assert!((0..THREADS).all(|word| words[word * 32] == round));
    }
}

pub(super) fn many_threads_on_many_pages(tracker: &Arc<dyn Tracker>) {
    const THREADS: usize = 8;
    const PAGES: usize = 40;
    let memory = array(tracker, 0, PAGES);
    let start = Barrier::new(THREADS);
    let ((), faults) = serve(tracker, grant(&memory), || {
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                let (memory, start) = (&memory, &start);
                threads.spawn(move || {
                    start.wait();
                    // Each thread begins elsewhere, so that some share a page at a time and some do
                    // not.
                    for step in 0..PAGES {
                        let page = (thread * 5 + step) % PAGES;
                        count_up(memory, page * WORDS + thread, 3);
                    }
                });
            }
        });
    });
    assert_eq!(pages_of(&faults).len(), PAGES);
    for page in 0..PAGES {
        let mut bytes = vec![0; PAGE];
        memory.read(page * PAGE, &mut bytes).unwrap();
        let words: &[u64] = bytemuck::cast_slice(&bytes);
        assert!(words[..THREADS].iter().all(|&w| w == 3));
    }
}

/// More threads sleep, each on a page of its own, than one read of events takes. All of them sleep
/// before the first fault is answered.
pub(super) fn more_sleepers_than_a_pipe_holds_notes_of_one_read(tracker: &Arc<dyn Tracker>) {
    const THREADS: usize = 150;
    let memory = array(tracker, 0, THREADS);
    let mut waiting = Vec::new();
    let answer = |fault: FaultAt| {
        waiting.push(fault);
        if waiting.len() >= THREADS {
            for f in waiting.drain(..) {
                memory.install(f.page..f.page + 1, Access::Write).unwrap();
            }
        }
    };
    let ((), faults) = serve(tracker, answer, || {
        std::thread::scope(|threads| {
            for page in 0..THREADS {
                let memory = &memory;
                threads.spawn(move || store(memory, page, 1));
            }
        });
    });
    assert_eq!(pages_of(&faults).len(), THREADS);
    assert!((0..THREADS).all(|page| peek(&memory, page) == 1));
}
