//! Paper 004, figure 6: throughput of TCP, UDP and Wind by size.
//!
//! The paper used Pentium III machines with gigabit Ethernet, and Wind's asynchronous messages that
//! are reliable only (here: unordered). Its text gives no numbers for the figure, but clear
//! results. TCP is highest nearly throughout, because it packs up to the MTU and merges
//! acknowledgements. Wind about equals UDP as received. UDP as sent exceeds UDP as received by the
//! loss.

use std::time::Duration;

use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::papers::Measuring;
use crate::papers::plot::Scale;
use crate::papers::report::Figure;
use crate::peers::oikaze::{Oikaze, Seal};
use crate::peers::tcp::Tcp;
use crate::peers::{Effort, System, only, udp};
use crate::record::Record;
use crate::suite::case::{Case, Test};

/// Sizes of the paper's table 2. The largest is the maximum of a datagram.
const SIZES: [usize; 11] =
    [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, udp::LARGEST];
const QUICK_SIZES: [usize; 5] = [64, 256, 1024, 8192, 32_768];
/// Wire with frames as long as those of the paper's network.
const PLACE: Place = Place::Wire { mtu: 1500, mode: WireMode::Wire };
const SYSTEMS: [&str; 5] = ["tcp", "udp-sent", "udp-received", "oikaze", "oikaze-unchecked"];

const WIND: Oikaze = Oikaze { seal: Seal::Crc, class: "unordered" };
const WIND_UNCHECKED: Oikaze = Oikaze { seal: Seal::Header, class: "unordered" };

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "004-figure-6",
        title: "Paper 004, figure 6, measured again: throughput by size",
        across: "bytes of a message, datagram or call",
        up: "GB/s",
        scale: Scale::Linear,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, every datagram really formed."
        ),
        then: "TCP highest nearly throughout; Wind about equal to UDP (received); UDP (sent) above UDP (received)",
        then_machine: "Pentium III, gigabit Ethernet, about 2002",
        seal: Some(WIND.seal.word().to_owned()),
        then_lines: Vec::new(),
        panels: &[&SYSTEMS],
        base: "udp-received",
    };
    let quick = run.rounds.quick;
    let sizes: &[usize] = if quick { &QUICK_SIZES } else { &SIZES };
    figure.measure_in_lab(run, PLACE, sizes, |lab, size| one_round(lab, size, quick))
}

/// Measures all systems with one size, one after the other.
fn one_round(lab: &Lab, size: usize, quick: bool) -> Result<Vec<(&'static str, f64)>, Error> {
    let operations = if quick { 50_000 } else { 300_000 };
    let volume = (size * operations).min(if quick { 128 << 20 } else { 512 << 20 });
    let effort = Effort { volume, ..Effort::QUICK };
    let case = Case { test: Test::MessageBandwidth, size };
    let of = |system: &dyn System| only(system.measure(lab, case, effort)?);
    let (sent, received) =
        udp::flood(lab, size, Duration::from_millis(if quick { 100 } else { 300 }))?;
    let [tcp, udp_sent, udp_received, wind, unchecked] = SYSTEMS;
    Ok(vec![
        (tcp, of(&Tcp)?),
        (udp_sent, sent),
        (udp_received, received),
        (wind, of(&WIND)?),
        (unchecked, of(&WIND_UNCHECKED)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_some_of_the_sizes() {
        assert!(QUICK_SIZES.iter().all(|size| SIZES.contains(size)));
    }
}
