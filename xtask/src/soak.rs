//! The tests that take hours.

use clap::Args;

use crate::command::cargo;
use crate::{fuzz, test};

/// How much of it.
#[derive(Args)]
pub struct Settings {
    /// Simulated clusters.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed, so that a second soak need not repeat the first.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Nodes killed at random points.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Registrations that begin and end while a peer writes.
    #[arg(long, default_value_t = 1_000_000)]
    registrations: u64,
    /// Seconds for each fuzz target; 0: none.
    #[arg(long, default_value_t = 600)]
    fuzz: u64,
}

/// Soaks.
///
/// # Errors
/// What failed.
pub fn run(settings: &Settings) -> Result<(), String> {
    test::model(&["all_classes_for_long"]).run()?;
    test::simulate("release", settings.first, settings.seeds)?;
    cargo(&["test", "--release", "-p", "oikaze-apps", "--test", "kill"]).env("OIKAZE_KILLS", settings.kills.to_string()).run()?;
    cargo(&["test", "--release", "-p", "oikaze", "--test", "registrations"])
        .env("OIKAZE_REGISTRATIONS", settings.registrations.to_string())
        .run()?;
    if settings.fuzz > 0 { fuzz::run(&fuzz::Settings::seconds(settings.fuzz)) } else { Ok(()) }
}
