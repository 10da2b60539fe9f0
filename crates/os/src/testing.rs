//! Tests, or parts of them, that cannot be run here. They are seen, and counted by `cargo xtask
//! test`.

use std::io::Write;

/// The machine lacks something.
pub(crate) fn skipped(why: &str) {
    // Not by print, which the test harness keeps to itself.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
}

/// The user may not: where all must run (OIKAZE_TEST_ALL), a failure.
pub(crate) fn skip(why: &str) {
    skipped(why);
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}
