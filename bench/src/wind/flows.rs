//! Bench of bulk over several flows (WIND-14): on a wire that caps each flow, as clouds do, on one
//! that also loses datagrams of one flow, and on one that does neither.

use std::process::Command;

use clap::Args;

use crate::error::Error;
use crate::lab::{CLIENT, DEVICES, HOSTS, Lab, Place, SERVER, WireMode, tool};
use crate::peers::oikaze::{Oikaze, Seal};
use crate::peers::tcp::Tcp;
use crate::peers::{Effort, System as _, only};
use crate::process::with_input;
use crate::record::Record;
use crate::suite::case::{self, MIB, Test};
use crate::suite::goals::{Bound, Found, Goal};
use crate::suite::selection::Selection;
use crate::suite::series::{AllSeries, Part};
use crate::suite::{Rounds, once_more, warn_if_busy};

/// Rate of each flow where flows are capped, in the words of tc(8).
const RATE: &str = "1gbit";
/// Bytes moved over a wire that caps flows.
const CAPPED_VOLUME: usize = 256 << 20;

named! {
    /// Figure of the bench.
    pub enum Case {
        /// Bandwidth of puts of 1 MiB where each flow is capped.
        CappedBw = "capped_bw",
        /// `capped_bw` where the network also loses datagrams of one flow.
        LossyBw = "lossy_bw",
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
        /// Oikaze over as many flows as pay.
        Auto = "oikaze-flows-auto",
    }
}

/// All systems, the baseline first.
const ALL: [System; 5] = [System::Tcp, System::One, System::Two, System::Four, System::Auto];

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
            Self::CappedBw | Self::LossyBw | Self::OpenBw => MIB,
            Self::OpenLat => 8,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::CappedBw | Self::LossyBw | Self::OpenBw => "GB/s",
            Self::OpenLat => "us",
        }
    }

    /// Makes the wire treat flows as the case wants, until the result is dropped.
    ///
    /// # Errors
    /// As those of the makers of [`FlowRules`].
    fn rules(self) -> Result<Option<FlowRules>, Error> {
        match self {
            Self::CappedBw => FlowRules::capping().map(Some),
            Self::LossyBw => FlowRules::capping()?.losing_of_one().map(Some),
            Self::OpenBw | Self::OpenLat => Ok(None),
        }
    }
}

impl System {
    /// Returns `true` if the system has the case. What one lossy flow costs is seen where there are
    /// others.
    fn has(self, case: Case) -> bool {
        case != Case::LossyBw || self == Self::Four
    }

    fn present(self) -> Result<(), Error> {
        match self {
            Self::Tcp => Tcp.present(),
            _ => OIKAZE.present(),
        }
    }

    fn measure(self, lab: &Lab, case: Case, quick: bool) -> Result<f64, Error> {
        let effort = if quick { Effort::QUICK } else { Effort::THOROUGH };
        let rules = case.rules()?;
        let volume = if rules.is_some() { CAPPED_VOLUME } else { effort.volume };
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
            Self::Auto => "auto",
        };
        only(OIKAZE.run(lab, case, effort, &[("OIKAZE_FLOWS", flows)])?)
    }
}

/// Number of classes among which flows are divided, by their source ports. Two flows share one now
/// and then, which the median of the rounds leaves out.
const CLASSES: u16 = 64;

/// Datagrams that the network loses of a lossy flow, in percent.
const LOSS: u32 = 5;
/// Minimum length of a packet of bulk, in bytes.
const BULK_MIN: u32 = 1200;

/// Treatment of what the first host of a wire sends, by source ports. Dropping it lifts the rules.
struct FlowRules {
    loses: bool,
}

impl FlowRules {
    /// Lets each flow carry at most [`RATE`]. A flow is what one source port sends.
    ///
    /// # Errors
    /// The kernel lacks HTB or u32.
    fn capping() -> Result<FlowRules, Error> {
        let card = DEVICES[CLIENT];
        let mut script = format!("qdisc add dev {card} root handle 1: htb\n");
        for class in 0..CLASSES {
            // Class 0 would be the queue itself.
            let id = format!("1:{:x}", class + 1);
            let mask = CLASSES - 1;
            script += &format!(
                "class add dev {card} parent 1: classid {id} htb rate {RATE}\n\
                 filter add dev {card} parent 1: protocol ip prio 1 u32 \
                 match ip sport {class} {mask:#x} flowid {id}\n"
            );
        }
        let rules = FlowRules { loses: false };
        let mut tc = Command::new("tc");
        tc.args(["-n", HOSTS[CLIENT], "-batch", "-"]);
        with_input(tc, &script).map(|_| rules)
    }

    /// Loses [`LOSS`] percent of the datagrams of one flow: the first one that carries bulk. The
    /// second host loses them, because the first one would be told of a loss by its own rules.
    ///
    /// # Errors
    /// The command nft is missing, or the kernel lacks numgen.
    fn losing_of_one(mut self) -> Result<FlowRules, Error> {
        self.loses = true;
        receive_offload("off")?;
        let script = format!(
            "table inet {TABLE} {{\n\
             set lossy {{ type inet_service; size 1; flags dynamic; }}\n\
             chain in {{ type filter hook input priority 0;\n\
             meta l4proto udp meta length >= {BULK_MIN} add @lossy {{ udp sport }}\n\
             udp sport @lossy numgen random mod 100 < {LOSS} drop\n}}\n}}\n"
        );
        nft(&script).map(|()| self)
    }
}

impl Drop for FlowRules {
    fn drop(&mut self) {
        // The hosts are removed later in any case.
        let _ = tool("tc", &["-n", HOSTS[CLIENT], "qdisc", "del", "dev", DEVICES[CLIENT], "root"]);
        if self.loses {
            let _ = nft(&format!("delete table inet {TABLE}\n"));
            let _ = receive_offload("on");
        }
    }
}

/// Name of the bench's table of nft(8).
const TABLE: &str = "bench";

/// Gives the second host rules of nft(8).
fn nft(script: &str) -> Result<(), Error> {
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", HOSTS[SERVER], "nft", "-f", "-"]);
    let hint = |why| Error::new(format!("{why}; install the package nftables, or pass --case"));
    with_input(nft, script).map(drop).map_err(hint)
}

/// Sets whether the card of the second host joins datagrams (GRO). A rule that loses a datagram
/// would lose all those that were joined with it.
fn receive_offload(is: &str) -> Result<(), Error> {
    let ethtool = ["netns", "exec", HOSTS[SERVER], "ethtool", "-K", DEVICES[SERVER], "gro", is];
    tool("ip", &ethtool).map(drop)
}

/// As in the other benches. The launcher passes the number of flows on to the nodes.
const OIKAZE: Oikaze = Oikaze { seal: Seal::Crc, class: "ordered" };

/// One system's part in one case.
struct FlowPart {
    case: Case,
    system: System,
}

impl Part for FlowPart {
    fn name(&self) -> String {
        format!("{}, {}", self.system.name(), self.case.name())
    }

    fn is_ours(&self) -> bool {
        self.system != System::Tcp
    }
}

impl FlowPart {
    /// Measures one round, on a wire of this MTU. Repeats a run that failed once.
    fn measure(&self, lab: &Lab, quick: bool, mtu: u16) -> Result<Record, Error> {
        let &Self { case, system } = self;
        Ok(Record {
            bench: "flows",
            case: case.name(),
            size: case.size(),
            system: system.name(),
            value: once_more(&self.name(), || system.measure(lab, case, quick))?,
            unit: case.unit(),
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
    let asked = cases.filter(|case| run.selection.has_case(case));
    let mut all = AllSeries::new(asked.flat_map(|case| {
        let systems = run.selection.systems(ALL).filter(move |system| system.has(case));
        systems.map(move |system| FlowPart { case, system })
    }))?;
    all.parts().try_for_each(|one| one.system.present())?;
    let before = warn_if_busy();
    let mtu = run.selection.mtu;
    let place = Place::Wire { mtu, mode: WireMode::Wire };
    let measure = |one: &FlowPart, lab: &Lab| Ok(vec![one.measure(lab, run.rounds.quick, mtu)?]);
    all.run(&run.rounds, &[place], |_, _| true, measure)?;
    let notes = [
        format!("capped_bw: each source port of the first host carries {RATE} (htb)."),
        format!(
            "lossy_bw: {LOSS} % of the datagrams of one of these ports are lost as well (nft)."
        ),
        "tcp: one connection, messages in place of puts. Seal of Oikaze: crc.".to_owned(),
    ];
    all.report(&run.rounds, before, System::Tcp.name(), goals, notes)
}

/// Minimum bandwidth of four capped flows, in times of one.
const GAIN: f64 = 3.7;
/// Minimum bandwidth of as many capped flows as pay, in times of one. They are tried one number
/// after the other, while the bytes move.
const AUTO_GAIN: f64 = 2.5;
/// Minimum bandwidth of four capped flows of which one loses datagrams, in times of four that lose
/// none: what three carry.
const LOSSY: f64 = 0.75;
/// Minimum bandwidth of four flows where none is capped, in times of one.
const OPEN: f64 = 0.97;
/// Maximum latency with four flows, in times of that with one.
const LATENCY: f64 = 1.03;

fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, system: System| {
        records.iter().find(|one| (one.case, one.system) == (case.name(), system.name()))
    };
    let beside_one = |case: Case, system: System, bound| {
        let flows = system.name().trim_start_matches("oikaze-flows-");
        let found = Found::ratio((of(case, system), of(case, System::One)));
        (format!("{}, {flows} flows / 1", case.name()), found, bound)
    };
    let lossy = Found::ratio((of(Case::LossyBw, System::Four), of(Case::CappedBw, System::Four)));
    vec![
        beside_one(Case::CappedBw, System::Four, Bound::AtLeast(GAIN)),
        ("lossy_bw / capped_bw, 4 flows".to_owned(), lossy, Bound::AtLeast(LOSSY)),
        beside_one(Case::OpenBw, System::Four, Bound::AtLeast(OPEN)),
        beside_one(Case::OpenLat, System::Four, Bound::AtMost(LATENCY)),
        beside_one(Case::CappedBw, System::Auto, Bound::AtLeast(AUTO_GAIN)),
        beside_one(Case::OpenBw, System::Auto, Bound::AtLeast(OPEN)),
        beside_one(Case::OpenLat, System::Auto, Bound::AtMost(LATENCY)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_four_flows_with_one_and_with_a_lossy_one() {
        let record = |case: Case, system: System, value| Record {
            system: system.name(),
            value,
            rounds: vec![value],
            ..Record::example(case.name(), case.size())
        };
        let records = [
            record(Case::CappedBw, System::One, 0.125),
            record(Case::CappedBw, System::Four, 0.5),
            record(Case::CappedBw, System::Auto, 0.375),
            record(Case::LossyBw, System::Four, 0.4),
            record(Case::OpenLat, System::One, 2.0),
            record(Case::OpenLat, System::Tcp, 9.0),
        ];
        let values: Vec<_> =
            goals(&records).into_iter().map(|(_, found, _)| found.map(|one| one.value)).collect();
        assert_eq!(values, [Some(4.0), Some(0.8), None, None, Some(3.0), None, None]);
    }
}
