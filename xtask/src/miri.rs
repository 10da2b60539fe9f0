//! Parts of the tests under Miri, which finds undefined behaviour that a processor hides.

use std::process::{Command, Stdio};

use crate::command::Step;

/// Tests that make no system call Miri lacks, by package.
const PARTS: [(&str, &[&str]); 2] = [
    ("oikaze-os", &["memory::tracking::borrows", "memory::tracking::pending"]),
    ("oikaze-protocol", &["coherence::clock::notices", "coherence::array", "coherence::diff"]),
];

/// Runs the tests that Miri can run. Reports that Miri is missing, and does nothing, where it is
/// not installed.
///
/// # Errors
/// Miri finds undefined behaviour, or a test fails.
pub fn run() -> Result<(), String> {
    let has = |tool: &[&str]| {
        let tried =
            Command::new("cargo").args(tool).stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    if !has(&["+nightly", "miri", "--version"]) {
        println!(
            "skipped: Miri is not installed; install it with rustup component add --toolchain nightly miri rust-src"
        );
        return Ok(());
    }
    for (package, tests) in PARTS {
        for test in tests {
            println!("Miri: {package} {test}");
            let command = Step::new("cargo")
                .args(["+nightly", "miri", "test", "-p", package, "--lib", "--", test]);
            // Started through rustup, which alone knows toolchains by name. The number of cases is
            // small, because Miri is some hundred times slower. Proptest reads the working
            // directory, which isolation forbids.
            command
                .env("PROPTEST_CASES", "8")
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .run()?;
        }
    }
    Ok(())
}
