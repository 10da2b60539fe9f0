//! Cases that affect the whole process, run in a child so that this process survives.

use super::super::{PageSet, SharedError};
use super::*;
use oikaze_protocol::coherence::Pages;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const ROLE: &str = "OIKAZE_TEST_ROLE";

/// Runs the named test of this file again, as a child in the given role. Returns `None` in the
/// child.
fn in_child(test: &str, role: &str) -> Option<Output> {
    if std::env::var_os(ROLE).is_some_and(|r| r == role) {
        return None;
    }
    let path = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    Some(
        child
            .args(["--exact", &path, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .output()
            .unwrap(),
    )
}

#[test]
fn a_wild_pointer_still_ends_the_process_with_sigsegv() {
    let Some(output) = in_child("a_wild_pointer_still_ends_the_process_with_sigsegv", "wild")
    else {
        rustix::process::setrlimit(
            rustix::process::Resource::Core,
            rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
        )
        .unwrap();
        let tracker = open(TrackerKind::Mprotect).unwrap();
        let _memory = array(&tracker, 0, 1);
        // SAFETY: none; the fault is the point, and the process ends by it.
        unsafe { std::ptr::with_exposed_provenance::<u8>(8).read_volatile() };
        return;
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

/// Returns the maximum number of mappings of a process, if a test can reach it.
fn limit_of_mappings() -> Option<u64> {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    if limit > 1 << 18 {
        println!("vm.max_map_count: not tried, the limit is {limit}");
        return None;
    }
    Some(limit)
}

/// Makes every other page readable, so that no two adjacent pages are alike. Bypasses `populate`,
/// so that it costs no memory. Returns the resulting failure.
fn take_all_mappings(
    tracker: &dyn Tracker,
    memory: &SharedMemory,
    limit: u64,
) -> Option<SharedError> {
    (0..limit).find_map(|i| tracker.install(memory.view(), 2 * i..2 * i + 1, Access::Read).err())
}

#[test]
fn running_out_of_mappings_is_an_error_that_names_the_limit() {
    let Some(output) =
        in_child("running_out_of_mappings_is_an_error_that_names_the_limit", "mappings")
    else {
        let Some(limit) = limit_of_mappings() else { return };
        let tracker = open(TrackerKind::Mprotect).unwrap();
        let memory = array(&tracker, 0, 2 * limit as usize);
        let failed = take_all_mappings(&*tracker, &memory, limit);
        // Printing needs memory, which may need a mapping.
        tracker.detach(memory.view());
        println!("{}", failed.unwrap());
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("vm.max_map_count"), "{output:?}");
}

/// COH-8.5: a thread that sleeps on a page that cannot be mapped goes on, and the set reports why.
#[test]
fn who_waits_for_a_page_that_cannot_be_mapped_goes_on() {
    let Some(output) = in_child("who_waits_for_a_page_that_cannot_be_mapped_goes_on", "waits")
    else {
        let Some(limit) = limit_of_mappings() else { return };
        let tracker = open(TrackerKind::Mprotect).unwrap();
        let (memory, many) =
            (Arc::new(array(&tracker, 1, 5)), array(&tracker, 0, 2 * limit as usize));
        let mut set = PageSet::new();
        set.insert(Arc::clone(&memory));
        poke(&memory, 1, 42);
        std::thread::scope(|threads| {
            let toucher = threads.spawn(|| load(&memory, 1));
            let mut faults = Vec::new();
            poll(&mut [PollFd::from_borrowed_fd(tracker.fd(), PollFlags::IN)], None).unwrap();
            tracker.faults(&mut faults).unwrap();
            assert_eq!(pages_of(&faults), [1]);
            assert!(take_all_mappings(&*tracker, &many, limit).is_some());
            set.install(1, 1..2, Access::Read);
            assert_eq!(toucher.join().unwrap(), 42);
        });
        // Nothing is tracked any more, whatever is called on the set.
        set.invalidate(1, 0..5);
        store(&memory, 3, 7);
        tracker.detach(many.view());
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        assert!(mappings < 1000, "{mappings} mappings");
        println!("{}", set.failure().unwrap());
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("vm.max_map_count"), "{output:?}");
}

#[test]
fn a_view_is_not_inherited_and_has_no_huge_pages() {
    for kind in
        [TrackerKind::UserfaultfdFull, TrackerKind::UserfaultfdUserMode, TrackerKind::Mprotect]
    {
        with(kind, |tracker| {
            let memory = array(tracker, 0, 3);
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", memory.view_address() as usize);
            let flags = maps
                .lines()
                .skip_while(|l| !l.starts_with(&start))
                .find_map(|l| l.strip_prefix("VmFlags:"))
                .unwrap();
            let flags: Vec<_> = flags.split_whitespace().collect();
            // `dc`: not copied on fork. `nh`: no huge pages.
            assert!(flags.contains(&"dc") && flags.contains(&"nh"), "{flags:?}");
        });
    }
}

#[test]
fn choosing_leaves_no_descriptor_behind() {
    let Some(output) = in_child("choosing_leaves_no_descriptor_behind", "descriptors") else {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for kind in
            [TrackerKind::UserfaultfdFull, TrackerKind::UserfaultfdUserMode, TrackerKind::Mprotect]
        {
            with(kind, |tracker| drop(array(tracker, 0, 3)));
        }
        assert_eq!(open(), before);
        return;
    };
    assert!(output.status.success(), "{output:?}");
}

/// Number of calls of each handler below.
static OLDER: AtomicU32 = AtomicU32::new(0);
static NEWER: AtomicU32 = AtomicU32::new(0);
/// Handler that the newer one replaced when it was installed.
static FOUND: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn older(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    OLDER.fetch_add(1, Ordering::Relaxed);
}

/// Passes on what it cannot explain, as crash reporters do.
extern "C" fn newer(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    NEWER.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the saved value is a handler of this type, stored by `install`.
    let found: Handler = unsafe { std::mem::transmute(FOUND.load(Ordering::Relaxed)) };
    found(signal, info, context);
}

/// Installs a SIGSEGV handler as a program does, and returns the one before it.
fn install(handler: Handler) -> usize {
    // SAFETY: a handler of the type that SA_SIGINFO asks for; zeros mean no flags and an empty
    // mask.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut before), 0);
        before.sa_sigaction
    }
}

/// COH-8.6: handlers installed over ours, and a blocked signal, do not prevent detection of
/// touches. A fault elsewhere goes to each of them once, the newest first, also where one passes it
/// back to us.
#[test]
fn handlers_installed_over_ours_are_chained() {
    let Some(output) = in_child("handlers_installed_over_ours_are_chained", "chained") else {
        install(older);
        let tracker = open(TrackerKind::Mprotect).unwrap();
        let memory = array(&tracker, 0, 3);
        poke(&memory, 1, 41);
        poke(&memory, 2, 42);
        FOUND.store(install(newer), Ordering::Relaxed);
        let answer =
            |fault: FaultAt| memory.install(fault.page..fault.page + 1, Access::Read).unwrap();
        for page in 1..3 {
            let touch = || {
                // SAFETY: blocks a signal in this thread.
                unsafe {
                    let mut set = std::mem::zeroed();
                    libc::sigaddset(&mut set, libc::SIGSEGV);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                }
                load(&memory, page)
            };
            assert_eq!(serve(&tracker, answer, touch).0, 40 + page as u64);
        }
        assert_eq!((NEWER.load(Ordering::Relaxed), OLDER.load(Ordering::Relaxed)), (0, 0));
        // SAFETY: a signal to this thread, which has handlers for it.
        unsafe { libc::raise(libc::SIGSEGV) };
        assert_eq!((NEWER.load(Ordering::Relaxed), OLDER.load(Ordering::Relaxed)), (1, 1));
        return;
    };
    assert!(output.status.success(), "{output:?}");
}

/// MEM-24.3: a touch in a child of fork ends the child, with a message, and never hangs.
#[test]
fn touch_in_child_of_fork_ends_the_child() {
    let Some(output) = in_child("touch_in_child_of_fork_ends_the_child", "forked") else {
        let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, no_core).unwrap();
        let tracker = open(TrackerKind::Mprotect).unwrap();
        let memory = array(&tracker, 0, 1);
        let address = memory.view_address();
        // SAFETY: none; the fault is the point, and the child ends by it.
        let touch = || i32::from(unsafe { address.read_volatile() });
        assert_eq!(
            crate::processes::process::in_child_of_fork(touch).unwrap(),
            128 + libc::SIGSEGV
        );
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("touched in a child of fork"), "{output:?}");
}
