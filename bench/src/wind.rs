//! The transport: message latency, put latency, put bandwidth.

use std::collections::HashSet;

use clap::ValueEnum;

use crate::Run;
use crate::error::Error;
use crate::floor;
use crate::lab::Lab;
use crate::peers::{oikaze, ucx};
use crate::record::{Record, median, table, write_lines};

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum System {
    /// Bare UDP: nothing that does more can be faster.
    FloorUdp,
    /// Bare UDP with a CRC32C of each payload at both ends, as Oikaze's datagrams have one.
    FloorUdpCrc,
    /// UCX over TCP.
    UcxTcp,
    /// This.
    Oikaze,
}

impl System {
    const ALL: [Self; 4] = [Self::FloorUdp, Self::FloorUdpCrc, Self::UcxTcp, Self::Oikaze];

    const fn name(self) -> &'static str {
        match self {
            Self::FloorUdp => "floor-udp",
            Self::FloorUdpCrc => "floor-udp-crc",
            Self::UcxTcp => "ucx-tcp",
            Self::Oikaze => "oikaze",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    MessageLatency,
    PutLatency,
    PutBandwidth,
}

const SMALL: usize = 8;
const LARGE: usize = 1 << 20;

impl Case {
    const ALL: [Self; 3] = [Self::MessageLatency, Self::PutLatency, Self::PutBandwidth];

    const fn name(self) -> &'static str {
        match self {
            Self::MessageLatency => "message_lat",
            Self::PutLatency => "put_lat",
            Self::PutBandwidth => "put_bw",
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::MessageLatency | Self::PutLatency => SMALL,
            Self::PutBandwidth => LARGE,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::MessageLatency | Self::PutLatency => "us",
            Self::PutBandwidth => "GB/s",
        }
    }
}

/// How much is done in one round.
#[derive(Clone, Copy)]
struct Effort {
    exchanges: u32,
    puts: u32,
    mebibytes: usize,
}

const THOROUGH: Effort = Effort { exchanges: 100_000, puts: 3000, mebibytes: 512 };
/// The floor's memory stays larger than any cache.
const QUICK: Effort = Effort { exchanges: 10_000, puts: 500, mebibytes: 256 };

/// Measures one system once; `None` where it has no such case.
fn measure(lab: &Lab, system: System, case: Case, effort: Effort) -> Result<Option<f64>, Error> {
    let size = case.size();
    let value = match (system, case) {
        (System::FloorUdp, Case::MessageLatency | Case::PutLatency) => floor::latency(lab, size, effort.exchanges)?,
        (System::FloorUdp, Case::PutBandwidth) => floor::bandwidth(lab, effort.mebibytes, false)?,
        (System::FloorUdpCrc, Case::PutBandwidth) => floor::bandwidth(lab, effort.mebibytes, true)?,
        (System::FloorUdpCrc, Case::MessageLatency | Case::PutLatency) => return Ok(None),
        (System::UcxTcp, Case::MessageLatency) => ucx::measure(lab, ucx::Test::TagLatency, size, effort.exchanges)?,
        (System::UcxTcp, Case::PutLatency) => ucx::measure(lab, ucx::Test::PutLatency, size, effort.exchanges)?,
        (System::UcxTcp, Case::PutBandwidth) => ucx::measure(lab, ucx::Test::PutBandwidth, size, effort.puts)?,
        (System::Oikaze, Case::MessageLatency) => oikaze::measure(lab, oikaze::Test::MessageLatency, size, effort.exchanges)?,
        (System::Oikaze, Case::PutLatency) => oikaze::measure(lab, oikaze::Test::PutLatency, size, effort.exchanges)?,
        (System::Oikaze, Case::PutBandwidth) => oikaze::measure(lab, oikaze::Test::PutBandwidth, size, effort.puts)?,
    };
    Ok(Some(value))
}

/// Runs the bench.
///
/// # Errors
/// No root, a peer that is missing, a system that failed.
pub fn bench(run: &Run) -> Result<(), Error> {
    let left_out: HashSet<System> = run.without.iter().copied().collect();
    let systems: Vec<System> = System::ALL.into_iter().filter(|system| !left_out.contains(system)).collect();
    if systems.contains(&System::UcxTcp) {
        ucx::present()?;
    }
    if systems.contains(&System::Oikaze) {
        oikaze::program()?;
    }
    warn_if_busy();
    let mut records = Vec::new();
    for &mtu in &run.mtu {
        let lab = Lab::up(mtu)?;
        records.extend(on_one_wire(&lab, run, &systems)?);
    }
    eprint!("{}", table(&records, System::FloorUdp.name()));
    write_lines(&records, run.json.as_deref())
}

/// The systems need both cores for themselves.
fn warn_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if let Some(load) = load.split_whitespace().next().and_then(|load| load.parse::<f32>().ok()).filter(|&load| load > 0.5) {
        eprintln!("warning: the machine is busy (load {load}); the figures will be worth little");
    }
}

/// All systems, taking turns, so that what disturbs the machine disturbs all of them.
fn on_one_wire(lab: &Lab, run: &Run, systems: &[System]) -> Result<Vec<Record>, Error> {
    let effort = if run.quick { QUICK } else { THOROUGH };
    let new = |case: Case, system: System| Record {
        bench: "wind",
        case: case.name(),
        size: case.size(),
        system: system.name(),
        value: 0.0,
        unit: case.unit(),
        rounds: Vec::new(),
        mtu: lab.mtu,
        mode: "wire",
    };
    let pairs: Vec<(Case, System)> =
        Case::ALL.iter().flat_map(|&case| systems.iter().map(move |&system| (case, system))).collect();
    let mut records: Vec<Record> = pairs.iter().map(|&(case, system)| new(case, system)).collect();
    for round in 1..=run.rounds {
        eprintln!("mtu {}, round {round} of {}", lab.mtu, run.rounds);
        for (&(case, system), record) in pairs.iter().zip(&mut records) {
            let what = format!("{} of {}, round {round}, mtu {}", case.name(), system.name(), lab.mtu);
            let value = measure(lab, system, case, effort).map_err(|why| Error::new(format!("{what}: {why}")))?;
            record.rounds.extend(value);
        }
    }
    records.retain_mut(|record| median(&record.rounds).map(|value| record.value = value).is_some());
    Ok(records)
}
