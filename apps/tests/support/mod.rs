//! Helpers of the tests with real processes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Makes jobs run one at a time, because each has more processes than this machine may have cores.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Declares the programs' paths.
macro_rules! programs {
    ($($name:ident = $variable:literal;)*) => {$(
        #[allow(dead_code)] // Some tests run one program.
        pub const $name: &str = env!($variable);
    )*};
}
programs! {
    HIMENO = "CARGO_BIN_EXE_himeno";
    LU = "CARGO_BIN_EXE_lu";
    CG = "CARGO_BIN_EXE_cg";
    HEAT = "CARGO_BIN_EXE_heat";
    TRANSPOSE = "CARGO_BIN_EXE_transpose";
    HISTOGRAM = "CARGO_BIN_EXE_histogram";
    SORT = "CARGO_BIN_EXE_sort";
}

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

/// Returns the `oikaze` command, which a build of the workspace has put beside these programs.
/// `cargo xtask test` passes its path.
pub fn oikaze() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let given = std::env::var_os("OIKAZE_TEST_COMMAND").map(PathBuf::from);
        let command = given.unwrap_or_else(|| Path::new(HIMENO).with_file_name("oikaze"));
        let remedy = "run `cargo build --workspace --bin oikaze` first";
        assert!(command.exists(), "{} is missing: {remedy}", command.display());
        command
    })
}
