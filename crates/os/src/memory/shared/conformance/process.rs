//! What concerns the whole process: done in a child, so that this one survives.

use super::super::{PageSet, SharedError};
use super::*;
use oikaze_protocol::coherence::Pages;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const ROLE: &str = "OIKAZE_TEST_ROLE";

/// Run the named test of this file again, as a child in the given role. In the child: `None`.
fn in_child(test: &str, role: &str) -> Option<Output> {
    if std::env::var_os(ROLE).is_some_and(|r| r == role) {
        return None;
    }
    let path = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    Some(child.args(["--exact", &path, "--nocapture", "--test-threads=1"]).env(ROLE, role).output().unwrap())
}

#[test]
fn a_wild_pointer_still_ends_the_process_with_sigsegv() {
    let Some(output) = in_child("a_wild_pointer_still_ends_the_process_with_sigsegv", "wild") else {
        rustix::process::setrlimit(
            rustix::process::Resource::Core,
            rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
        )
        .unwrap();
        let tracker = choose::open(TrackerKind::Mprotect).unwrap();
        let _memory = array(&tracker, 0, 1);
        // SAFETY: none; the fault is the point, and the process ends by it.
        unsafe { std::ptr::with_exposed_provenance::<u8>(8).read_volatile() };
        return;
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

/// How many mappings a process may have, if that can be tried in a test.
fn limit_of_mappings() -> Option<u64> {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    if limit > 1 << 18 {
        println!("vm.max_map_count: not tried, the limit is {limit}");
        return None;
    }
    Some(limit)
}

/// Every other page is made readable: no two neighbours are alike. Past `populate`, so that it costs no memory. How that failed.
fn take_all_mappings(tracker: &dyn Tracker, memory: &SharedMemory, limit: u64) -> Option<SharedError> {
    (0..limit).find_map(|i| tracker.install(memory.view(), 2 * i..2 * i + 1, Access::Read).err())
}

#[test]
fn running_out_of_mappings_is_an_error_that_names_the_limit() {
    let Some(output) = in_child("running_out_of_mappings_is_an_error_that_names_the_limit", "mappings") else {
        let Some(limit) = limit_of_mappings() else { return };
        let tracker = choose::open(TrackerKind::Mprotect).unwrap();
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

/// COH-8.5: who sleeps on a page that cannot be mapped goes on, and the set says why.
#[test]
fn who_waits_for_a_page_that_cannot_be_mapped_goes_on() {
    let Some(output) = in_child("who_waits_for_a_page_that_cannot_be_mapped_goes_on", "waits") else {
        let Some(limit) = limit_of_mappings() else { return };
        let tracker = choose::open(TrackerKind::Mprotect).unwrap();
        let (memory, many) = (Arc::new(array(&tracker, 1, 5)), array(&tracker, 0, 2 * limit as usize));
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
        // Nothing is tracked any more, whatever the set is told.
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
    for kind in [TrackerKind::UserfaultfdFull, TrackerKind::UserfaultfdUserMode, TrackerKind::Mprotect] {
        with(kind, |tracker| {
            let memory = array(tracker, 0, 3);
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", memory.view_address() as usize);
            let flags = maps.lines().skip_while(|l| !l.starts_with(&start)).find_map(|l| l.strip_prefix("VmFlags:")).unwrap();
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
        for kind in [TrackerKind::UserfaultfdFull, TrackerKind::UserfaultfdUserMode, TrackerKind::Mprotect] {
            with(kind, |tracker| drop(array(tracker, 0, 3)));
        }
        assert_eq!(open(), before);
        return;
    };
    assert!(output.status.success(), "{output:?}");
}
