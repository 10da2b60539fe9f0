//! Runs all tests, and those that need what is handed to others. They take minutes more.

use crate::command::{Step, cargo};
use crate::{deb, dist, python, test, wheel};
use clap::Args;
use clap::builder::PossibleValuesParser;

/// Part of the tests, with its name. It returns what the report says of it.
type Part = (&'static str, fn() -> Result<String, String>);

/// Parts beyond `cargo xtask test`, in the order in which they run. A part that needs a release
/// build belongs here, and what repeats tests in more cases.
const PARTS: [Part; 6] = [
    ("ways", ways),
    ("packages", packages),
    ("ssh", ssh),
    ("launchers", launchers),
    ("wheels", wheels),
    ("notebooks", notebooks),
];

/// Choice of tests.
#[derive(Args)]
pub struct Settings {
    /// Number of simulated clusters.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Run only these parts of what `test` lacks.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(PARTS.map(|part| part.0)))]
    only: Vec<String>,
}

/// Runs all tests. Goes on after a failure, so that all failures are reported.
///
/// # Errors
/// A test failed.
pub fn run(settings: &Settings) -> Result<(), String> {
    let mut report = test::Report::default();
    let all = settings.only.is_empty();
    if all {
        test::add(&mut report, settings.seeds);
    }
    for (name, part) in PARTS {
        if all || settings.only.iter().any(|only| only == name) {
            report.saying(name, part);
        }
    }
    report.end()
}

/// Runs the tests of collectives and of random programs in all ways of exchange. `cargo xtask test`
/// runs each of them in some.
fn ways() -> Result<String, String> {
    let tests = |filter: &[&str], files: &[&str]| {
        let mut step = cargo(&["test", "--workspace", "--no-fail-fast"]);
        for file in files {
            step = step.args(["--test", file]);
        }
        test::some(step.args(["--"]).args(filter).env("OIKAZE_TEST_WAYS", "all"))
    };
    let said = tests(&[], &["collective", "collective_faults", "messages"])?;
    let more = tests(&["random_programs"], &["arrays", "processes"])?;
    Ok(format!("{said};{}", more.trim_start_matches(':')))
}

/// Builds the static command and the Debian package, and tests both.
fn packages() -> Result<String, String> {
    let package = deb::run()?;
    test::some(long_test("packages").env("OIKAZE_TEST_PACKAGE", package))
}

/// Builds the wheels, and tries each of them in an empty environment.
fn wheels() -> Result<String, String> {
    wheel::run(&wheel::Settings::default())?.iter().try_for_each(wheel::test)?;
    Ok(String::new())
}

/// Runs the notebooks, and checks the type stubs against the package.
fn notebooks() -> Result<String, String> {
    python::run(true, &["-m".to_owned(), "long".to_owned()])?;
    Ok(String::new())
}

/// Starts a job through a real sshd.
fn ssh() -> Result<String, String> {
    dist::run()?;
    test::some(long_test("sshd"))
}

/// Starts jobs by launchers of other projects.
fn launchers() -> Result<String, String> {
    test::some(long_test("launchers"))
}

/// Returns a step for the ignored tests of a file of `cli/tests`. They find what `cargo xtask dist`
/// has built.
fn long_test(file: &str) -> Step {
    // A package chosen by name would have other features, and all crates would be built again.
    let all = ["test", "--workspace", "--test", file, "--", "--ignored", "--test-threads=1"];
    cargo(&all).env("OIKAZE_TEST_DIST", dist::folder())
}
