//! Network namespaces of tests. Only as root.

use super::skip;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

/// Makes a network namespace, and leaves this thread in it. Returns `None` and skips the test if
/// that is not permitted.
pub(crate) fn namespace() -> Option<File> {
    // SAFETY: concerns this thread alone, which ends with the test.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        skip("network namespaces take root");
        return None;
    }
    Some(File::open("/proc/thread-self/ns/net").unwrap())
}

/// Returns the name by which `ip` finds the namespace.
pub(crate) fn path_of(namespace: &File) -> String {
    let fd = std::os::fd::AsRawFd::as_raw_fd(namespace);
    format!("/proc/{}/fd/{fd}", std::process::id())
}

/// Moves this thread to a namespace.
pub(crate) fn go_to(namespace: &File) {
    move_into_link_name_space(AsFd::as_fd(namespace), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Runs `ip` in the namespace of this thread.
pub(crate) fn ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
}

/// Runs a test in a thread of its own, which may be in another namespace afterwards.
pub(crate) fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().unwrap();
}
