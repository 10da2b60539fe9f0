//! Case `detect`: ways to find the end of a transfer (003, figure 4 and table 5).

use crate::lab::Lab;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::fit::Fit;
use crate::placement::modes::{ADAPTIVE, Mode};
use crate::placement::programs::{Setup, node, role};

/// Sizes of the figure.
pub const SIZES: [usize; 8] = [8, 32, 128, 256, 512, 1024, 2048, 4096];
pub const QUICK_SIZES: [usize; 4] = [8, 256, 1024, 4096];
/// Turns of the paper, and of a quick run.
const TURNS: [usize; 2] = [10_000, 2000];
/// Name of the case.
pub const CASE: &str = "detect";

/// A way to find the end, with the paper's lines for it.
pub struct Way {
    /// Name of the records.
    pub system: &'static str,
    waits: &'static str,
    second_message: bool,
    pub then: &'static [(&'static str, Fit)],
}

/// The paper's ways, and adaptive waiting. Its cases 1 and 2 differ in where bytes are received.
/// They are the same here, because a put of these sizes is one datagram, which is always received
/// elsewhere and copied.
pub const WAYS: [Way; 5] = [
    Way {
        system: "block",
        waits: "block",
        second_message: false,
        then: &[
            ("then 1, in place", Fit { slope: 0.016, base: 13.0 }),
            ("then 2, bounce", Fit { slope: 0.022, base: 46.0 }),
        ],
    },
    Way {
        system: "spin",
        waits: "spin",
        second_message: false,
        then: &[("then 3", Fit { slope: 0.041, base: 7.6 })],
    },
    Way {
        system: "poll:10us",
        waits: "poll:10us",
        second_message: false,
        then: &[("then 4", Fit { slope: 0.023, base: 12.0 })],
    },
    Way {
        system: "second message",
        waits: "spin",
        second_message: true,
        then: &[("then 5", Fit { slope: 0.015, base: 19.0 })],
    },
    Way { system: "adaptive", waits: "adaptive", second_message: false, then: &[] },
];

/// Way that is measured in other modes, too. Threads of two that spin on one core would only wait
/// for the scheduler.
const IN_ALL_MODES: usize = 4;

/// Measures one round: all ways inline, and adaptive waiting in other modes.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let sizes: &[usize] = if extent.quick { &QUICK_SIZES } else { &SIZES };
    for &size in sizes {
        for way in &WAYS {
            one(lab, ("inline", way.system), way, (size, extent), all);
        }
        for mode in modes.iter().filter(|mode| mode.name != "inline") {
            let system = mode.systems[ADAPTIVE];
            one(lab, (mode.engines, system), &WAYS[IN_ALL_MODES], (size, extent), all);
        }
    }
}

fn one(
    lab: &Lab,
    (engines, system): (&'static str, &'static str),
    way: &Way,
    (size, extent): (usize, Extent),
    all: &mut Collected,
) {
    let turns = TURNS[usize::from(extent.quick)];
    let mut arguments = role("ping", &[("size", size), ("turns", turns)]);
    arguments.extend(way.second_message.then(|| "--second-message".to_owned()));
    let setup = Setup { engines, waits: way.waits, without: None };
    let found = node(lab, &setup, &arguments)
        .and_then(|values| Ok(vec![(Key::new(CASE, size, system, "us"), values.get("one_way")?)]));
    all.add_all(&format!("{CASE} of {size} bytes, {system}"), found);
}

/// Returns the line through the medians of a way.
pub fn fit(all: &Collected, system: &str) -> Option<Fit> {
    let records = all.records(CASE);
    let points: Vec<(f64, f64)> = records
        .iter()
        .filter(|record| record.system == system)
        .map(|record| (record.size as f64, record.value))
        .collect();
    Fit::of(&points)
}

/// Adds a line for each way: now and then.
pub fn add_fits(all: &mut Collected) {
    for way in &WAYS {
        let Some(now) = fit(all, way.system) else { continue };
        let then: String = way.then.iter().map(|(_, then)| format!("; then {then}")).collect();
        all.fit(format!("fit of {}: {now} µs{then}", way.system));
    }
}
