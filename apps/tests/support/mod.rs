//! Helpers of the tests with real processes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Makes jobs run one at a time, because each has more processes than this machine may have cores.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub const HIMENO: &str = env!("CARGO_BIN_EXE_himeno");

/// Reports a test that cannot run here. `cargo xtask test` counts it. It is a failure where all
/// tests must run (OIKAZE_TEST_ALL).
#[allow(dead_code)]
pub fn skip(why: &str) {
    // The test harness captures the output of `print`.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}

/// Returns a command that starts a Python with NumPy. `make test` installs both.
#[allow(dead_code)]
pub fn python() -> Command {
    let has_numpy = |python: &&str| {
        let import = Command::new(python).args(["-c", "import numpy"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    // The system's Python has the system's packages, whatever comes first in the path.
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_numpy);
    Command::new(found.expect("Python with NumPy is missing: install the package python3-numpy"))
}

/// Returns the `oikaze` command, built with the profile of these programs. It belongs to another
/// package, so cargo sets no variable for it. `cargo xtask test` passes its path instead, because a
/// build of that package alone lacks the workspace's features and would build nearly everything
/// again.
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
