//! Conformance suite of trackers, run for each one that this machine permits.
//!
//! Each test is its own fault service: a thread polls the tracker and answers. Nothing sleeps and
//! nothing is timed. A tracker that loses a fault or a wakeup hangs the test.

mod cases;
mod model;
mod process;
mod races;
mod signals;

use std::io;
use std::sync::{Arc, Mutex};

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;
use rustix::event::{PollFd, PollFlags, poll};

use super::{FaultAt, GuardKind, SharedMemory, Tracker, TrackerKind, open};

/// Number of words in a page.
const WORDS: usize = PAGE / 8;

macro_rules! for_each_tracker {
    ($($module:ident :: $case:ident),* $(,)?) => {
        mod full { $(#[test] fn $case() { super::with(super::TrackerKind::UserfaultfdFull, super::$module::$case); })* }
        mod user_mode { $(#[test] fn $case() { super::with(super::TrackerKind::UserfaultfdUserMode, super::$module::$case); })* }
        mod mprotect { $(#[test] fn $case() { super::with(super::TrackerKind::Mprotect, super::$module::$case); })* }
    };
}

for_each_tracker! {
    cases::a_load_from_an_unmapped_page_faults_once,
    cases::a_store_to_an_unmapped_page_faults,
    cases::a_store_to_a_readable_page_faults_once,
    cases::a_hole_faults_like_any_unmapped_page_and_reads_as_zeros,
    cases::a_run_is_installed_and_its_adjacent_ones_are_not,
    cases::invalidated_pages_fault_again_with_their_bytes_and_diffs,
    cases::set_access_leaves_unmapped_pages_unmapped,
    cases::install_over_mapped_pages_changes_their_access,
    cases::faults_name_their_array,
    cases::a_sleeper_whose_page_is_invalidated_faults_again,
    cases::detach_lets_sleepers_go,
    cases::system_calls_work_on_valid_pages,
    cases::a_system_call_on_an_unmapped_page_waits_or_fails_with_efault,
    cases::a_system_call_that_stores_to_a_readable_page_waits_or_fails_with_efault,
    cases::empty_ranges_do_nothing_and_wrong_ones_are_refused,
    races::after_protecting_nothing_changes_until_the_next_fault,
    races::many_threads_on_one_page,
    races::many_threads_on_many_pages,
    races::invalidations_lose_no_increment,
    races::more_sleepers_than_a_pipe_holds_notes_of_one_read,
    signals::a_signal_handler_may_touch_pages_while_its_thread_sleeps_on_one,
    model::any_sequence_of_calls_traps_what_a_model_says,
}

/// Runs a case on a fresh tracker, or prints that this machine does not permit that kind.
fn with(kind: TrackerKind, case: impl FnOnce(&Arc<dyn Tracker>)) {
    match open(kind) {
        Ok(tracker) => case(&tracker),
        Err(e) if kind != TrackerKind::Mprotect => eprintln!("not run with {kind}: {e}"),
        Err(e) => panic!("{kind}: {e}"),
    }
}

/// Returns an array of this many pages.
fn array(tracker: &Arc<dyn Tracker>, number: ArrayId, pages: usize) -> SharedMemory {
    SharedMemory::new(number, "test", pages * PAGE, tracker.clone()).unwrap()
}

/// Runs `body` while a thread answers faults. Returns the result of `body` and all faults. The
/// service ends when `body` returns or panics.
fn serve<R>(
    tracker: &Arc<dyn Tracker>,
    mut answer: impl FnMut(FaultAt) + Send,
    body: impl FnOnce() -> R,
) -> (R, Vec<FaultAt>) {
    let (stop, stopper) = io::pipe().unwrap();
    std::thread::scope(|threads| {
        let service = threads.spawn(move || {
            let (mut all, mut faults) = (Vec::new(), Vec::new());
            loop {
                let mut wait = [
                    PollFd::from_borrowed_fd(tracker.fd(), PollFlags::IN),
                    PollFd::new(&stop, PollFlags::IN),
                ];
                poll(&mut wait, None).unwrap();
                let stopped = !wait[1].revents().is_empty();
                let got = tracker.faults(&mut faults).unwrap();
                assert_eq!(got, faults.len());
                faults.iter().copied().for_each(&mut answer);
                all.append(&mut faults);
                if stopped {
                    return all;
                }
            }
        });
        let result = {
            let _stop_on_return_or_panic = stopper;
            body()
        };
        (result, service.join().unwrap())
    })
}

/// Returns the plain answer: map the page for the access that was tried.
fn grant(memory: &SharedMemory) -> impl FnMut(FaultAt) + Send + '_ {
    move |fault| {
        memory.install(fault.page..fault.page + 1, fault.access.unwrap_or(Access::Read)).unwrap()
    }
}

/// Loads the first word of a page through the view.
fn load(memory: &SharedMemory, page: usize) -> u64 {
    std::hint::black_box(memory.slice::<u64>(page * WORDS..page * WORDS + 1).unwrap()[0])
}

/// Stores the first word of a page through the view.
fn store(memory: &SharedMemory, page: usize, value: u64) {
    memory.slice_mut::<u64>(page * WORDS..page * WORDS + 1, GuardKind::Write).unwrap()[0] =
        std::hint::black_box(value);
}

/// Returns the first word of a page as the alias shows it.
fn peek(memory: &SharedMemory, page: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.read(page * PAGE, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Sets the first word of a page through the alias.
fn poke(memory: &SharedMemory, page: usize, value: u64) {
    memory.write(page * PAGE, &value.to_ne_bytes()).unwrap();
}

/// Returns the pages that faulted, once each, in order of their first fault.
fn pages_of(faults: &[FaultAt]) -> Vec<u64> {
    let mut pages: Vec<u64> = faults.iter().map(|f| f.page).collect();
    let mut seen = std::collections::BTreeSet::new();
    pages.retain(|p| seen.insert(*p));
    pages
}
