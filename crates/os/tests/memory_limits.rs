//! Limits of the process, met with an error and not with a signal. One test, since limits concern
//! the whole process.

use oikaze_os::memory::{MemoryError, Region};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs `attempt` under a limit, and puts the old one back.
fn limited<R>(resource: Resource, limit: u64, attempt: impl FnOnce() -> R) -> R {
    let old = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(limit), maximum: old.maximum }).unwrap();
    let answer = attempt();
    setrlimit(resource, old).unwrap();
    answer
}

fn refused(answer: Result<Region, MemoryError>, why: Errno, words: &[&str]) {
    let error = answer.unwrap_err();
    assert!(matches!(error, MemoryError::System { why: got, .. } if got == why), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn every_limit_is_an_error_that_says_what_to_do() {
    const SIZE: usize = 64 << 20;
    // Address space: a quarter of the size is left, so that the test itself can go on allocating.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let space = pages * rustix::param::page_size() as u64 + SIZE as u64 / 4;
    refused(
        limited(Resource::As, space, || Region::private(SIZE)),
        Errno::NOMEM,
        &["could not map private memory", "ulimit -v"],
    );
    refused(
        limited(Resource::As, space, || Region::shared(SIZE)),
        Errno::NOMEM,
        &["could not map shared memory", "ulimit -v"],
    );
    // File size: the kernel would send SIGXFSZ, which ends the process.
    refused(
        limited(Resource::Fsize, 4096, || Region::shared(SIZE)),
        Errno::FBIG,
        &["67108864 bytes", "ulimit -f"],
    );
    assert!(limited(Resource::Fsize, 4096, || Region::shared(4096)).is_ok());
    // Descriptors.
    refused(
        limited(Resource::Nofile, 0, || Region::shared(4096)),
        Errno::MFILE,
        &["create a memory file", "ulimit -n"],
    );
    // And all is well again afterwards.
    Region::shared(SIZE).unwrap().write(SIZE as u64 - 1, &[1]).unwrap();
}
