//! Exchanges pages, and compares exchanges with copies of the same bytes. The memory fits no cache.
//! The bench runs alone and beside a busy thread.

mod goals;
pub mod pools;

use clap::{Args, ValueEnum};

use self::pools::{Act, Pools};
use crate::error::{Error, Tried};
use crate::record::{Record, median, table};
use crate::suite::case::{KIB, MIB};
use crate::suite::{Rounds, goals as bounds, machine, warn_if_busy};
use oikaze::memory::PageSize;
use oikaze_os::memory::placement::Placement;

named! {
    /// Operation on the pages.
    pub enum Case {
        /// Exchange two ranges and keep both contents: three moves a page.
        Exchange = "exchange",
        /// `exchange` in huge pages.
        ExchangeHuge = "exchange_huge",
        /// Move pages into an empty place: one move a page.
        Move = "move",
        /// `move` in huge pages.
        MoveHuge = "move_huge",
        /// Map bytes that are already in memory.
        Install = "install",
        /// `install` in huge pages.
        InstallHuge = "install_huge",
        /// Place bytes where pages are mapped already, in the way that the runtime expects to be
        /// the quickest.
        Auto = "auto",
        /// `auto` in huge pages.
        AutoHuge = "auto_huge",
    }
}

impl Case {
    fn pages(self) -> PageSize {
        match self {
            Self::ExchangeHuge | Self::MoveHuge | Self::InstallHuge | Self::AutoHuge => {
                PageSize::Huge
            }
            _ => PageSize::Small,
        }
    }

    fn act(self) -> Act {
        match self {
            Self::Exchange | Self::ExchangeHuge => Act::Exchange,
            Self::Move | Self::MoveHuge => Act::Move,
            Self::Install | Self::InstallHuge => Act::Install,
            Self::Auto | Self::AutoHuge => Act::Auto,
        }
    }

    /// Returns `true` if the case has this size. Exchanges and moves of huge pages have no size
    /// that would cut a huge page.
    fn has(self, size: usize) -> bool {
        size >= 2 * MIB || !matches!(self, Self::ExchangeHuge | Self::MoveHuge)
    }
}

named! {
    /// Amount of memory that is read after each operation.
    pub enum Mode {
        /// Read one word a page.
        Touch = "touch",
        /// Read all bytes.
        Full = "full",
    }
}

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    /// Only these cases; repeated, or several separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    case: Vec<Case>,
    /// Only these sizes, in bytes; whole pages.
    #[arg(long, value_delimiter = ',')]
    size: Vec<usize>,
    /// Busy threads of the process: 1, or 2.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u32).range(1..=2))]
    threads: Vec<u32>,
    /// How much is read afterwards; a quick bench reads one word a page unless it is asked.
    #[arg(long, value_delimiter = ',', value_enum)]
    mode: Vec<Mode>,
}

const SIZES: [usize; 8] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 8 * MIB, 64 * MIB];
const QUICK_SIZES: [usize; 5] = [4 * KIB, 64 * KIB, 256 * KIB, 2 * MIB, 64 * MIB];

impl Run {
    fn sizes(&self) -> Result<Vec<usize>, Error> {
        let page = oikaze::memory::page_size();
        match self
            .size
            .iter()
            .find(|size| **size == 0 || !size.is_multiple_of(page) || **size > pools::POOL)
        {
            Some(bad) => Err(Error::new(format!(
                "--size {bad}: only whole pages of {page} bytes change place, up to {}",
                pools::POOL
            ))),
            None if !self.size.is_empty() => Ok(self.size.clone()),
            None => Ok(if self.rounds.quick { QUICK_SIZES.into() } else { SIZES.into() }),
        }
    }

    fn modes(&self) -> Vec<Mode> {
        match (self.mode.is_empty(), self.rounds.quick) {
            (false, _) => self.mode.clone(),
            (true, true) => vec![Mode::Touch],
            (true, false) => vec![Mode::Touch, Mode::Full],
        }
    }
}

/// Runs the bench.
///
/// # Errors
/// No memory for the pools; the kernel does not move pages; a file cannot be written.
pub fn bench(run: &Run) -> Result<(), Error> {
    if let Some(why) = Placement::of_this_process().why_not() {
        return Err(Error::new(format!(
            "pages are not moved here: {why}; `oikaze doctor` says more"
        )));
    }
    let sizes = run.sizes()?;
    let before = warn_if_busy();
    // Calibrates before the first walk, and with all cores.
    let _ = Placement::of_this_process().calibration();
    let _ = oikaze_os::cpu::pin_to_core(0);
    let mut records = Vec::new();
    for pages in [PageSize::Small, PageSize::Huge] {
        let wanted = |case: &&Case| {
            case.pages() == pages && (run.case.is_empty() || run.case.contains(case))
        };
        let cases: Vec<Case> = Case::value_variants().iter().filter(wanted).copied().collect();
        if !cases.is_empty() {
            records.extend(of_one_page_size(run, pages, &cases, &sizes)?);
        }
    }
    run.rounds.write(&records, before)?;
    print!("{}", table(&records, "copy"));
    print!("{}", bounds::table(goals::goals(&records)));
    println!("\nWhat these figures are:\n- {}", machine());
    println!(
        "- Pools of {} MiB, walked through; afterwards one word a page (touch) or all bytes (full) are read.",
        pools::POOL >> 20
    );
    Ok(())
}

/// Runs all rounds in pools of one size of pages.
fn of_one_page_size(
    run: &Run,
    pages: PageSize,
    cases: &[Case],
    sizes: &[usize],
) -> Result<Vec<Record>, Error> {
    let volume = if run.rounds.quick { pools::POOL / 4 } else { pools::POOL };
    let pools = Pools::new(pages)?;
    let mut records: Vec<(Case, Mode, Record)> = Vec::new();
    for &threads in &run.threads {
        for (&case, mode) in
            cases.iter().flat_map(|case| run.modes().into_iter().map(move |mode| (case, mode)))
        {
            for &size in sizes.iter().filter(|&&size| case.has(size)) {
                for system in ["oikaze", "copy"] {
                    let (rounds, mtu) = (Vec::new(), None);
                    let (mode_name, threads) = (Some(mode.name()), Some(threads));
                    let (bench, case_name, unit) = ("exchange", case.name(), "us");
                    let record = Record {
                        bench,
                        case: case_name,
                        size,
                        system,
                        unit,
                        rounds,
                        mtu,
                        mode: mode_name,
                        threads,
                        ..Record::default()
                    };
                    records.push((case, mode, record));
                }
            }
        }
    }
    for &threads in &run.threads {
        let _busy =
            (threads > 1).then(pools::Busy::start).transpose().tried("starting a busy thread")?;
        for round in 1..=run.rounds.count {
            eprintln!("{pages:?} pages, {threads} threads, round {round} of {}", run.rounds.count);
            for (case, mode, record) in
                records.iter_mut().filter(|(_, _, record)| record.threads == Some(threads))
            {
                let act = if record.system == "copy" { Act::Copy } else { case.act() };
                let measured = pools.measure(act, record.size, volume, *mode == Mode::Full);
                record.rounds.push(measured.map_err(|why| {
                    Error::new(format!("{} of {} bytes: {why}", record.case, record.size))
                })?);
            }
        }
    }
    let all = records.into_iter().map(|(_, _, record)| record);
    Ok(all.filter_map(|record| Some(Record { value: median(&record.rounds)?, ..record })).collect())
}
