//! Fuzzes each target of fuzz/fuzz_targets for a limited time, with libFuzzer on the stable
//! compiler.
//!
//! Runs what `cargo fuzz` runs, without the address sanitizer, which needs a nightly compiler. The
//! parsers are safe code, so they can fail by a panic, an endless loop or too much memory.
//! The fuzzer detects all three.

use std::fs;

use clap::Args;

use crate::command::{Step, cargo, root};

/// Amount of work of a fuzz run.
#[derive(Args)]
pub struct Settings {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
}

impl Settings {
    /// Returns settings for all targets, each with this time.
    pub const fn seconds(seconds: u64) -> Self {
        Self { seconds, target: None }
    }
}

/// Flags for libFuzzer's coverage, overflow checks and debug assertions.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Fuzzes the wanted targets.
///
/// # Errors
/// A target failed. The input that made it fail stays in fuzz/artifacts.
pub fn run(settings: &Settings) -> Result<(), String> {
    let fuzz = root().join("fuzz");
    let wanted = |name: &String| settings.target.as_ref().is_none_or(|target| target == name);
    let targets: Vec<String> = targets()?.into_iter().filter(wanted).collect();
    if targets.is_empty() {
        return Err(format!("no such fuzz target in {}", fuzz.join("fuzz_targets").display()));
    }
    // The target is named, so that the flags hold for the fuzzed code and not for build scripts.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let build = cargo(&[
        "build",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
        "fuzz/target",
        "--target",
        &triple,
    ]);
    build.env("RUSTFLAGS", FLAGS).run()?;
    for target in targets {
        let (corpus, artifacts) =
            (fuzz.join("corpus").join(&target), fuzz.join("artifacts").join(&target));
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder)
                .map_err(|why| format!("making {}: {why}", folder.display()))?;
        }
        println!("fuzzing {target} for {} s", settings.seconds);
        let program = fuzz.join("target").join(&triple).join("release").join(&target);
        let limits = [
            format!("-max_total_time={}", settings.seconds),
            "-timeout=10".into(),
            "-print_final_stats=1".into(),
        ];
        let place = format!("-artifact_prefix={}/", artifacts.display());
        Step::new(program).args(limits).args([place]).args([corpus]).run()?;
    }
    Ok(())
}

/// Returns the names of the targets. Each file of fuzz/fuzz_targets is one.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let files =
        fs::read_dir(&folder).map_err(|why| format!("reading {}: {why}", folder.display()))?;
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
