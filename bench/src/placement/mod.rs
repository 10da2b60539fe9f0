//! Bench of where communication runs, and how its end is found (papers 000, 002 and 003): what a
//! post costs, the four forms, ways to detect an end, loaded cores, idle jobs, wake-ups, tasks that
//! await, more nodes than cores, and killed clients.
//!
//! All modes and waits stand in tables. A mode that the program refuses is left out, with the
//! reason. `docs/BENCH.md` says what each case measures.

pub mod cases;
pub mod collected;
pub mod fit;
mod goals;
pub mod modes;
pub mod programs;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};

use self::collected::Collected;
use self::modes::Mode;
use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::record::{table, write_lines};
use crate::suite::surroundings::Conditions;
use crate::suite::{goals as bounds, machine, warn_if_busy};

/// Wire of all cases that need one, but `form`.
pub const PLACE: Place = Place::Wire { mtu: 9000, mode: WireMode::Wire };
/// Rounds of a quick bench, and of a full one, unless the user names a number.
const ROUNDS: [u32; 2] = [1, 5];

/// Part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Cost of a put for its caller (000, 001)
    Post,
    /// Applications and communication, concentrated and distributed (002)
    Form,
    /// A request from an application to the engine and back (002)
    Request,
    /// Ways to find the end of a transfer (003)
    Detect,
    /// Latency and bandwidth beside computing threads (003)
    Loaded,
    /// Processor time of a job that only waits
    Idle,
    /// Wake-ups for several arrivals (000)
    Wake,
    /// Waits of tasks and event loops, beside blocking ones
    Await,
    /// More nodes than cores on one machine
    Crowd,
    /// Nodes of a server whose other clients are killed
    Kills,
}

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    /// Fewer sizes and one round: some minutes.
    #[arg(long)]
    quick: bool,
    /// Alternating rounds; the median is reported [default: 5, quick: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: Option<u32>,
    /// Writes the JSON lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these parts; repeated, or several separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    case: Vec<Part>,
}

/// Extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub quick: bool,
    pub rounds: u32,
}

/// Runs the bench.
///
/// # Errors
/// The user is not root; nothing could be measured; a file cannot be written.
pub fn bench(run: &Run) -> Result<(), Error> {
    programs::present()?;
    let before = warn_if_busy();
    let rounds = run.rounds.unwrap_or(ROUNDS[usize::from(!run.quick)]);
    let extent = Extent { quick: run.quick, rounds };
    let wanted = |part: &Part| run.case.is_empty() || run.case.contains(part);
    let mut all = Collected::new("placement");
    let begun = Instant::now();
    let parts: Vec<Part> =
        Part::value_variants().iter().filter(|part| wanted(part)).copied().collect();
    if parts.iter().any(|&part| part != Part::Form) {
        let lab = Lab::up(PLACE)?;
        let modes = modes::permitted(&lab, &mut all)?;
        for &part in parts.iter().filter(|&&part| part != Part::Form) {
            for round in 1..=rounds {
                let seconds = begun.elapsed().as_secs_f64();
                eprintln!("{part:?}, round {round} of {rounds} ({seconds:.0} s)");
                one_part(part, round, &lab, &modes, extent, &mut all);
            }
        }
    }
    if wanted(&Part::Form) {
        cases::form::measure(extent, &mut all)?;
    }
    let (records, fits, notes) = all.finish();
    if records.is_empty() {
        return Err(Error::new(format!("nothing could be measured: {}", notes.join("; "))));
    }
    write_lines(&records, &Conditions::since(before, run.quick), run.json.as_deref())?;
    print!("{}", table(&records, "udp"));
    fits.iter().for_each(|fit| println!("{fit}"));
    print!("{}", bounds::table(goals::goals(&records)));
    println!("\nWhat these figures are:\n- {}", machine());
    println!(
        "- Each host has one core. In mode thread the engine shares it with the application, except in `post` and `request`, where the engine has the other host's core."
    );
    notes.iter().for_each(|note| println!("- {note}"));
    Ok(())
}

/// Runs one round of a part. What fails is noted.
fn one_part(
    part: Part,
    number: u32,
    lab: &Lab,
    modes: &[&'static Mode],
    extent: Extent,
    all: &mut Collected,
) {
    match part {
        Part::Post => cases::post::round(lab, modes, extent, all),
        Part::Request => cases::request::round(lab, modes, extent, all),
        Part::Detect => cases::detect::round(lab, modes, extent, all),
        Part::Loaded => cases::loaded::round(lab, modes, extent, all),
        Part::Idle => cases::idle::round(lab, modes, extent, all),
        Part::Wake => cases::wake::round(lab, modes, extent, all),
        Part::Await => cases::awaiting::round(lab, modes, extent, all),
        Part::Crowd => cases::crowd::round(extent, all),
        Part::Kills => cases::kills::round(extent, number, all),
        Part::Form => {}
    }
}
