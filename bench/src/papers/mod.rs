//! Measures the papers' figures on today's machine, and draws them beside the papers' results.

mod paper_000;
mod paper_000_packets;
mod paper_001;
mod paper_002;
mod paper_003;
mod paper_003_detection;
mod paper_004;
mod plot;
mod report;
mod summary;

use std::ops::Deref;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::error::{Error, Tried};
use crate::record::Record;
use crate::suite::cores::Wanted;
use crate::suite::surroundings::Surroundings;
use crate::suite::{Rounds, warn_if_busy};

/// Selection of figures, and their output.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    /// Only these figures; repeated, or several separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(FIGURES.map(|(name, _)| name)))]
    figure: Vec<String>,
    /// Directory of the results, as JSON and SVG.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/papers")]
    out: PathBuf,
    /// Remark about the measurement, such as other load, which stands in the figures.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Measures only while the two cores have a cache in common (near), or have none (far): a
    /// hypervisor moves them. 000-figure-3, 002-figure-5, 003-figure-4, 003-registration,
    /// 004-figure-7, 004-classes, 004-multicast, 004-reader and 004-table-2 take the cores as they
    /// are.
    #[arg(long, value_enum, default_value_t)]
    cores: Wanted,
    /// Measures nothing, and writes the table of `README.md` from the figures in the directory.
    #[arg(long, conflicts_with_all = ["figure", "note"])]
    summary: bool,
}

/// Measurement of one figure.
struct Measuring<'r> {
    run: &'r Run,
    /// State of the machine before it.
    before: Surroundings,
}

impl Deref for Measuring<'_> {
    type Target = Run;

    fn deref(&self) -> &Run {
        self.run
    }
}

/// Function that measures a figure and draws it.
type Measure = fn(&Measuring<'_>) -> Result<Vec<Record>, Error>;

/// All figures: name and function.
const FIGURES: [(&str, Measure); 19] = [
    ("000-figure-3", paper_000::exchange),
    ("000-figure-5", paper_000_packets::throughput),
    ("000-figure-6", paper_000_packets::processor),
    ("000-figure-7", paper_000_packets::round_trip),
    ("000-io-request", paper_000_packets::request),
    ("001-figure-5", paper_001::throughput),
    ("001-figure-6", paper_001::latency),
    ("001-double-buffering", paper_001::double_buffering),
    ("002-figure-5", paper_002::forms),
    ("003-figure-4", paper_003_detection::ends),
    ("003-placement", paper_003_detection::placement),
    ("003-registration", paper_003_detection::registration),
    ("003-figure-5", paper_003::consecutive),
    ("004-figure-6", paper_004::throughput::throughput),
    ("004-figure-7", paper_004::barrier::updates),
    ("004-classes", paper_004::classes::classes),
    ("004-multicast", paper_004::multicast::multicast),
    ("004-reader", paper_004::reader::reader),
    ("004-table-2", paper_004::table::messages),
];

/// Measures the figures that the user asks for.
///
/// # Errors
/// The user is not root, or something could not be run or written.
pub fn bench(run: &Run) -> Result<(), Error> {
    std::fs::create_dir_all(&run.out).tried(format!("making {}", run.out.display()))?;
    if run.summary {
        return summary::write(&run.out);
    }
    let before = warn_if_busy();
    let wanted =
        |name: &str| run.figure.is_empty() || run.figure.iter().any(|figure| figure == name);
    let mut records = Vec::new();
    for (_, measure) in FIGURES.iter().filter(|(name, _)| wanted(name)) {
        records.extend(measure(&Measuring { run, before: Surroundings::now() })?);
    }
    summary::write(&run.out)?;
    run.rounds.write(&records, before)
}
