//! Helpers that the tests with real processes share.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Jobs run one at a time: each has more processes than this machine may have cores.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub const HIMENO: &str = env!("CARGO_BIN_EXE_himeno");

/// A test that cannot be run here. It is seen, and counted by `cargo xtask test`; where all must
/// run (OIKAZE_TEST_ALL), it is a failure.
#[allow(dead_code)]
pub fn skip(why: &str) {
    // Not by print, which the test harness keeps to itself.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}

/// The `oikaze` command, built as these programs were: it belongs to another package, for which
/// cargo sets no variable. Who has it says where (`cargo xtask test`): built for itself it lacks
/// the workspace's features, so that nearly all would be built again.
pub fn oikaze() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(command) = std::env::var_os("OIKAZE_TEST_COMMAND") {
            return command.into();
        }
        let folder = Path::new(HIMENO).parent().expect("a program lies in a folder");
        let target = folder.parent().expect("a profile's folder lies in the target folder");
        let release = folder.file_name().is_some_and(|name| name == "release");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "-p", "oikaze-cli", "--target-dir"])
            .arg(target)
            .args(release.then_some("--release"));
        let built = cargo.status().expect("cargo starts");
        assert!(built.success(), "{cargo:?}: {built}");
        folder.join("oikaze")
    })
}
