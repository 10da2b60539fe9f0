//! Chores: `cargo xtask test | test-all | models | soak | fuzz | miri | dist | deb | wheel | header
//! | api | install | python | clauses | prose | imports | folders | names | bench`.
#![forbid(unsafe_code)]

mod api;
mod checks;
mod command;
mod deb;
mod dist;
mod fuzz;
mod header;
mod install;
mod miri;
mod python;
mod soak;
mod test;
mod test_all;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the project.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 120)]
struct Options {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// All tests: of the workspace, of its concurrency (loom), of simulated clusters.
    Test {
        /// Number of simulated clusters.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
    },
    /// All tests, and those of what is handed to others: the static command, packages, ssh.
    TestAll(test_all::Settings),
    /// The tests that only compute: loom, models, simulated clusters. `test` runs them, too.
    Models {
        /// Number of simulated clusters.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
    },
    /// Build the static command, its manual pages and its completions into dist/.
    Dist,
    /// Build a Debian package into dist/.
    Deb,
    /// Build the wheels of the Python package, with command and C library, into dist/.
    Wheel(wheel::Settings),
    /// The tests that take hours: many simulated clusters, many killed nodes, hostile bytes.
    Soak(soak::Settings),
    /// Fuzz every parser.
    Fuzz(fuzz::Settings),
    /// Parts of the tests under Miri; skipped where Miri is not installed.
    Miri,
    /// Check that code and tests cite every clause of spec/.
    Clauses,
    /// Check words, openers, width and length of prose, and commit subjects.
    Prose,
    /// Check that circles and upward imports of modules become fewer.
    Imports,
    /// Check that folders hold few files, and no name stands beside its plural.
    Folders,
    /// Check that types of a crate have names of their own, and that these are nouns.
    Names,
    /// Write the header of the C binding.
    Header {
        /// Only check that the header is what the sources say.
        #[arg(long)]
        check: bool,
    },
    /// Write the faces of Rust and Python to docs/api.
    Api {
        /// Only check that the files are what the sources say.
        #[arg(long)]
        check: bool,
    },
    /// Install the C libraries, the header and oikaze.pc.
    Install(install::Settings),
    /// The tests of the Python package: type stubs, and `bindings/python/tests`.
    Python {
        /// Run the tests that take long, too: notebooks.
        #[arg(long)]
        all: bool,
        /// Further arguments of pytest.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure Oikaze beside its peers: `cargo xtask bench wind [--quick] [--json FILE]`.
    Bench {
        /// Bench to run, and its options; see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Options::parse().chore {
        Chore::Test { seeds } => test::run(seeds),
        Chore::TestAll(settings) => test_all::run(&settings),
        Chore::Models { seeds } => test::models(seeds),
        Chore::Dist => dist::run().map(drop),
        Chore::Deb => deb::run().map(drop),
        Chore::Wheel(settings) => wheel::run(&settings).map(drop),
        Chore::Soak(settings) => soak::run(&settings),
        Chore::Fuzz(settings) => fuzz::run(&settings),
        Chore::Miri => miri::run(),
        Chore::Clauses => checks::clauses::run(),
        Chore::Prose => checks::prose::run(),
        Chore::Imports => checks::imports::run(),
        Chore::Folders => checks::folders::run(),
        Chore::Names => checks::names::run(),
        Chore::Header { check } => header::run(check),
        Chore::Api { check } => api::run(check),
        Chore::Install(settings) => install::run(&settings),
        Chore::Python { all, arguments } => python::run(all, &arguments),
        Chore::Bench { arguments } => bench(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the bench and the programs that it measures. Runs the bench outside cargo, so that no
/// other process competes for the cores.
fn bench(arguments: &[String]) -> Result<(), String> {
    command::cargo(&["build", "--quiet", "--release", "-p", "oikaze-bench", "-p", "oikaze-cli"])
        .run()?;
    let mut bench = command::Step::new(command::target().join("release/oikaze-bench"));
    match arguments.first().map(String::as_str) {
        Some("dsm" | "papers") => build_programs()?,
        Some("python") => bench = bench.env("OIKAZE_BENCH_PYTHON", python::for_bench()?),
        _ => {}
    }
    bench.args(arguments).run()
}

/// Builds the programs of `apps` for this machine's processor, as the bench builds their
/// counterparts in C, and the libraries that the counterparts are linked with. The options apply to
/// these packages only, so that no other library is built twice.
fn build_programs() -> Result<(), String> {
    let folder = command::root().join("apps/src");
    let failed = |why: std::io::Error| format!("reading {}: {why}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.path().join("main.rs").is_file() {
            continue;
        }
        let name = entry.file_name();
        let program =
            name.to_str().ok_or_else(|| format!("{name:?} is not a name of a program"))?;
        build_for_processor(&["-p", "oikaze-apps", "--bin", program])?;
    }
    build_for_processor(&["-p", "oikaze-kernels-c", "--lib"])?;
    command::cargo(&["build", "--quiet", "--release", "-p", "oikaze-c"]).run()
}

/// Builds one target for this machine's processor.
fn build_for_processor(target: &[&str]) -> Result<(), String> {
    let (build, options) = (["rustc", "--quiet", "--release"], ["--", "-C", "target-cpu=native"]);
    command::cargo(&[build.as_slice(), target, options.as_slice()].concat()).run()
}
