//! Bench of bulk over several flows (WIND-14): on a wire that caps each flow, as clouds do, and on
//! one that does not.

use clap::Args;

use crate::error::Error;
use crate::lab::{self, CLIENT, DEVICES, HOSTS, Lab, Place, WireMode};
use crate::peers::oikaze::{Oikaze, Seal};
use crate::peers::tcp::Tcp;
use crate::peers::{Effort, System as _, only};
use crate::record::{Record, median, table};
use crate::suite::case::{self, MIB, Test};
use crate::suite::goals::{Bound, Found, Goal};
use crate::suite::selection::Selection;
use crate::suite::{Rounds, goals as bounds, machine, once_more, warn_if_busy};

/// Rate of each flow where flows are capped, in the words of tc(8).
const RATE: &str = "1gbit";
/// Bytes moved over a wire that caps flows.
const CAPPED_VOLUME: usize = 256 << 20;

named! {
    /// Figure of the bench.
    pub enum Case {
        /// Bandwidth of puts of 1 MiB where each flow is capped.
        CappedBw = "capped_bw",
        /// Bandwidth of puts of 1 MiB where no flow is capped.
        OpenBw = "open_bw",
        /// Half the time of a put of 8 bytes and the answering put, where no flow is capped.
        OpenLat = "open_lat",
    }
}

named! {
    /// System that the bench measures.
    pub enum System {
        /// Plain TCP by one connection. It sends messages in place of puts.
        Tcp = "tcp",
        /// Oikaze with its defaults: one flow.
        One = "oikaze",
        /// Oikaze over two flows.
        Two = "oikaze-flows-2",
        /// Oikaze over four flows.
        Four = "oikaze-flows-4",
    }
}

/// All systems, the baseline first.
const ALL: [System; 4] = [System::Tcp, System::One, System::Two, System::Four];

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    selection: Selection<Case, System>,
}

impl Case {
    const fn size(self) -> usize {
        match self {
            Self::CappedBw | Self::OpenBw => MIB,
            Self::OpenLat => 8,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::CappedBw | Self::OpenBw => "GB/s",
            Self::OpenLat => "us",
        }
    }
}

impl System {
    fn present(self) -> Result<(), Error> {
        match self {
            Self::Tcp => Tcp.present(),
            _ => OIKAZE.present(),
        }
    }

    fn measure(self, lab: &Lab, case: Case, quick: bool) -> Result<f64, Error> {
        let effort = if quick { Effort::QUICK } else { Effort::THOROUGH };
        let volume = if case == Case::CappedBw { CAPPED_VOLUME } else { effort.volume };
        let effort = Effort { volume, ..effort };
        let test = match (case, self) {
            (Case::OpenLat, Self::Tcp) => Test::MessageLatency,
            (Case::OpenLat, _) => Test::PutLatency,
            (_, Self::Tcp) => Test::MessageBandwidth,
            _ => Test::PutBandwidth,
        };
        let case = case::Case { test, size: case.size() };
        let flows = match self {
            Self::Tcp => return only(Tcp.measure(lab, case, effort)?),
            Self::One => "1",
            Self::Two => "2",
            Self::Four => "4",
        };
        only(OIKAZE.run(lab, case, effort, &[("OIKAZE_FLOWS", flows)])?)
    }
}

/// Number of classes among which flows are divided, by their source ports. Two flows share one now
/// and then, which the median of the rounds leaves out.
const CLASSES: u16 = 64;

/// Caps on the flows from the first host of a wire. Dropping it lifts them.
struct FlowCaps(());

impl FlowCaps {
    /// Lets each flow that leaves the first host of this wire carry at most [`RATE`]. A flow is
    /// what one source port sends.
    ///
    /// # Errors
    /// The kernel lacks HTB or u32.
    fn set(_wire: &Lab) -> Result<FlowCaps, Error> {
        tc(&["qdisc", "add"], &["root", "handle", "1:", "htb"])?;
        let caps = FlowCaps(());
        for class in 0..CLASSES {
            // Class 0 would be the queue itself.
            let (id, port) = (format!("1:{:x}", class + 1), class.to_string());
            tc(&["class", "add"], &["parent", "1:", "classid", &id, "htb", "rate", RATE])?;
            let mask = format!("0x{:x}", CLASSES - 1);
            let by = ["match", "ip", "sport", &port, &mask, "flowid", &id];
            let filter = ["parent", "1:", "protocol", "ip", "prio", "1", "u32"];
            tc(&["filter", "add"], &[&filter[..], &by[..]].concat())?;
        }
        Ok(caps)
    }
}

impl Drop for FlowCaps {
    fn drop(&mut self) {
        // The whole host is removed later in any case.
        let _ = tc(&["qdisc", "del"], &["root"]);
    }
}

/// Runs tc for the network card of the first host.
fn tc(what: &[&str], how: &[&str]) -> Result<(), Error> {
    let card = ["dev", DEVICES[CLIENT]];
    lab::tool("tc", &[&["-n", HOSTS[CLIENT]], what, &card, how].concat()).map(drop)
}

/// As in the other benches. The launcher passes the number of flows on to the nodes.
const OIKAZE: Oikaze = Oikaze { seal: Seal::Crc, class: "ordered" };

/// One system's part in one case, over all rounds.
struct Series {
    case: Case,
    system: System,
    rounds: Vec<f64>,
    /// Cause for which the series ended early.
    failed: Option<String>,
}

impl Series {
    fn measure(&mut self, lab: &Lab, quick: bool, round: u32) {
        let (case, system) = (self.case, self.system);
        let what = format!("{}, {}", system.name(), case.name());
        match once_more(&what, || system.measure(lab, case, quick)) {
            Ok(value) => self.rounds.push(value),
            Err(why) => {
                self.failed = Some(format!("{what}, round {round}: {why}"));
                eprintln!("warning: {what}, round {round}: {why}");
            }
        }
    }

    fn record(&self, mtu: u16) -> Option<Record> {
        Some(Record {
            bench: "flows",
            case: self.case.name(),
            size: self.case.size(),
            system: self.system.name(),
            value: median(&self.rounds)?,
            unit: self.case.unit(),
            rounds: self.rounds.clone(),
            mtu: Some(mtu),
            mode: Some(WireMode::Wire.name()),
            ..Record::default()
        })
    }
}

/// Runs the bench.
///
/// # Errors
/// The user is not root, or a tool is missing. A system that fails in a case is left out there and
/// noted. If that system is Oikaze, the bench fails after all others have been measured and
/// reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    use clap::ValueEnum;
    let cases = Case::value_variants().iter().copied();
    let mut series: Vec<Series> = cases
        .filter(|case| run.selection.has_case(case))
        .flat_map(|case| {
            let systems = run.selection.systems(ALL);
            systems.map(move |system| Series { case, system, rounds: Vec::new(), failed: None })
        })
        .collect();
    if series.is_empty() {
        return Err(Error::new("none of these systems has such a case; `--help` lists both"));
    }
    series.iter().try_for_each(|one| one.system.present())?;
    let before = warn_if_busy();
    let place = Place::Wire { mtu: run.selection.mtu, mode: WireMode::Wire };
    {
        let lab = Lab::up(place)?;
        let mut failed = Ok(());
        run.rounds.run(place, |round| {
            for capped in [true, false] {
                let in_turn = |one: &&mut Series| (one.case == Case::CappedBw) == capped;
                let mut here =
                    series.iter_mut().filter(in_turn).filter(|one| one.failed.is_none()).peekable();
                if here.peek().is_none() {
                    continue;
                }
                let caps = capped.then(|| FlowCaps::set(&lab)).transpose();
                match caps {
                    Ok(_caps) => here.for_each(|one| one.measure(&lab, run.rounds.quick, round)),
                    Err(why) => failed = Err(why),
                }
            }
        });
        failed?;
    }
    let complete = series.iter().filter(|one| one.failed.is_none());
    let records: Vec<Record> = complete.filter_map(|one| one.record(run.selection.mtu)).collect();
    run.rounds.write(&records, before)?;
    print!("{}", table(&records, System::Tcp.name()));
    print!("{}", bounds::table(goals(&records)));
    println!("\nWhat these figures are:\n- {}", machine());
    println!("- capped_bw: each source port of the first host carries {RATE} (htb).");
    println!("- tcp: one connection, messages in place of puts. Seal of Oikaze: crc.");
    let failures: Vec<&Series> = series.iter().filter(|one| one.failed.is_some()).collect();
    for why in failures.iter().filter_map(|one| one.failed.as_deref()) {
        println!("- left out: {why}");
    }
    let ours = failures.iter().find(|one| one.system != System::Tcp);
    ours.and_then(|one| one.failed.clone()).map_or(Ok(()), |why| Err(Error::new(why)))
}

/// Minimum bandwidth of four capped flows, in times of one.
const GAIN: f64 = 3.7;
/// Minimum bandwidth of four flows where none is capped, in times of one.
const OPEN: f64 = 0.97;
/// Maximum latency with four flows, in times of that with one.
const LATENCY: f64 = 1.03;

fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, system: System| {
        records.iter().find(|one| (one.case, one.system) == (case.name(), system.name()))
    };
    let four = |case| Found::ratio((of(case, System::Four), of(case, System::One)));
    let goal = |case: Case, bound| (format!("{}, 4 flows / 1", case.name()), four(case), bound);
    vec![
        goal(Case::CappedBw, Bound::AtLeast(GAIN)),
        goal(Case::OpenBw, Bound::AtLeast(OPEN)),
        goal(Case::OpenLat, Bound::AtMost(LATENCY)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_four_flows_with_one() {
        let record = |case: Case, system: System, value| Record {
            system: system.name(),
            value,
            rounds: vec![value],
            ..Record::example(case.name(), case.size())
        };
        let records = [
            record(Case::CappedBw, System::One, 0.125),
            record(Case::CappedBw, System::Four, 0.5),
            record(Case::OpenLat, System::One, 2.0),
            record(Case::OpenLat, System::Tcp, 9.0),
        ];
        let values: Vec<_> =
            goals(&records).into_iter().map(|(_, found, _)| found.map(|one| one.value)).collect();
        assert_eq!(values, [Some(4.0), None, None]);
    }
}
