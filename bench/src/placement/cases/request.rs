//! Case `request`: what it costs to ask the engine for something, without a network (002: 5 µs).

use crate::error::Error;
use crate::lab::{CLIENT, Lab};
use crate::peers::oikaze;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::{Mode, WAITS};
use crate::placement::programs::{LIMIT, Values, role};
use crate::process::{alone, own_program, seal};

/// Pauses between two requests in µs, and the case: an engine is awake, or asleep.
const PAUSES: [(usize, &str); 2] = [(0, "request"), (2000, "request_asleep")];

/// Measures one round: a job of one node, whose engine has the other core.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    for mode in modes {
        for (wait, system) in WAITS.iter().zip(mode.systems) {
            for (apart, case) in PAUSES {
                let times = match (apart, extent.quick) {
                    (0, true) => 5000,
                    (0, false) => 50_000,
                    (_, true) => 200,
                    (_, false) => 1000,
                };
                let found = one(lab, mode, wait, times, apart).and_then(|values| {
                    Ok(vec![(Key::new(case, 8, system, "us"), values.get("request")?)])
                });
                all.add_all(&format!("{case}, {system}"), found);
            }
        }
    }
}

fn one(lab: &Lab, mode: &Mode, wait: &str, times: usize, apart: usize) -> Result<Values, Error> {
    let me = own_program()?;
    let mut command = lab.on(CLIENT, LIMIT, oikaze::program()?);
    command.args(["run", "--no-prefix", "--seal", &seal(), "-n", "1", "--"]).arg(me);
    command.args(["node", "--engines", mode.apart, "--waits", wait]);
    command.args(role("request", &[("times", times), ("apart", apart)]));
    Values::of(&alone(command)?)
}
