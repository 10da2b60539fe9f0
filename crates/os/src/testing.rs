//! Reports tests, or parts of tests, that cannot run on this machine. `cargo xtask test` shows and
//! counts them.

#[cfg(test)]
pub(crate) mod namespaces;

use std::io::Write;

/// Reports a test as skipped because the machine lacks something.
pub(crate) fn skipped(why: &str) {
    // The test harness captures what `print` writes.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
}

/// Skips a test for want of permission. Fails where all tests must run (`OIKAZE_TEST_ALL`).
#[cfg(test)]
pub(crate) fn skip(why: &str) {
    skipped(why);
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}
