//! Runs the tests that take hours.

use clap::Args;

use crate::command::cargo;
use crate::{fuzz, miri, test};

/// Amount of work of a soak.
#[derive(Args)]
pub struct Settings {
    /// Number of simulated clusters, and of programs of shared memory in each case of the model.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed, so that a second soak need not repeat the first.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of nodes to kill at random points with operations in flight. Nodes of a running
    /// program are killed a fifth as often.
    #[arg(long, default_value_t = 1_000)]
    kills: u32,
    /// Number of runs with a local peer that damages the shared memory.
    #[arg(long, default_value_t = 100_000)]
    hostile: u64,
    /// Number of registrations that begin and end while a peer writes.
    #[arg(long, default_value_t = 1_000_000)]
    registrations: u64,
    /// Number of arrays that are made and dropped.
    #[arg(long, default_value_t = 10_000)]
    arrays: u64,
    /// Number of jobs of three nodes to start over a path that loses three packets of ten.
    #[arg(long, default_value_t = 40)]
    joins: u64,
    /// Number of jobs whose datagrams are tampered with, with 4 s of traffic each.
    #[arg(long, default_value_t = 16)]
    tampered: u64,
    /// Seconds for each fuzz target; 0: none.
    #[arg(long, default_value_t = 600)]
    fuzz: u64,
}

/// Returns the arguments of cargo for a long test of a model in the protocol.
fn model(test: &str) -> [&str; 9] {
    ["test", "--release", "-p", "oikaze-protocol", "--lib", "--", "--ignored", "--nocapture", test]
}

/// Runs all of these tests.
///
/// # Errors
/// A test failed.
pub fn run(settings: &Settings) -> Result<(), String> {
    miri::run()?;
    test::some(cargo(&model("all_classes_for_long")))?;
    test::some(
        cargo(&model("programs_of_shared_memory_for_long"))
            .env("OIKAZE_MODEL_FIRST", settings.first.to_string())
            .env("OIKAZE_MODEL_SEEDS", settings.seeds.to_string()),
    )?;
    cargo(&["build", "--release", "-p", "oikaze-sim"]).run()?;
    test::simulate("release", settings.first, settings.seeds)?;
    let (seeds, registrations) = (2 * settings.seeds, (100 * settings.seeds).to_string());
    test::simulate_some(
        "release",
        "memory",
        settings.first,
        seeds,
        &["--registrations", &registrations],
    )?;
    often("oikaze", &["--test", "kills"], "OIKAZE_KILLS", settings.kills.into())?;
    often(
        "oikaze-apps",
        &["--test", "kill"],
        "OIKAZE_KILLS",
        u64::from(settings.kills).div_ceil(5),
    )?;
    often(
        "oikaze",
        &["--test", "memory", "registrations"],
        "OIKAZE_REGISTRATIONS",
        settings.registrations,
    )?;
    often("oikaze", &["--test", "arrays", "freeing"], "OIKAZE_ARRAYS", settings.arrays)?;
    often("oikaze-engine", &["--lib", "shm::hostile"], "OIKAZE_HOSTILE", settings.hostile)?;
    often("oikaze-engine", &["--lib", "tests::tampered"], "OIKAZE_TAMPERED", settings.hostile)?;
    often("oikaze-cli", &["--test", "network", "nodes_join"], "OIKAZE_JOINS", settings.joins)?;
    let serve_kills = 10 * u64::from(settings.kills);
    often("oikaze-cli", &["--test", "serve", "killed_clients"], "OIKAZE_SERVE_KILLS", serve_kills)?;
    let server_kills = u64::from(settings.kills).div_ceil(10);
    often(
        "oikaze-cli",
        &["--test", "serve", "whenever_their_server_is_killed"],
        "OIKAZE_SERVER_KILLS",
        server_kills,
    )?;
    let from = [("OIKAZE_TAMPERED_FROM", settings.first.to_string())];
    often_with(
        "oikaze-cli",
        &["--test", "network", "tampered::"],
        ("OIKAZE_TAMPERED_RUNS", settings.tampered),
        &from,
    )?;
    if settings.fuzz > 0 { fuzz::run(&fuzz::Settings::seconds(settings.fuzz)) } else { Ok(()) }
}

/// Runs tests that repeat something as often as a variable says, and print their progress.
fn often(package: &str, tests: &[&str], variable: &str, count: u64) -> Result<(), String> {
    often_with(package, tests, (variable, count), &[])
}

/// As [`often`], with more variables.
fn often_with(
    package: &str,
    tests: &[&str],
    (variable, count): (&str, u64),
    more: &[(&str, String)],
) -> Result<(), String> {
    println!("{package} {}: {count}", tests.join(" "));
    let command = cargo(&["test", "--release", "-p", package]).args(tests).args([
        "--",
        "--nocapture",
        "--test-threads=1",
    ]);
    let command = more.iter().fold(command, |command, (name, value)| command.env(name, value));
    test::some(command.env(variable, count.to_string())).map(drop)
}
