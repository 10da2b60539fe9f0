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

/// A way to find the end, with the paper's line if it has one.
pub struct Way {
    /// Name of the records.
    pub system: &'static str,
    waits: &'static str,
    /// Mechanism that the way does without: bodies are received elsewhere and copied.
    without: Option<&'static str>,
    second_message: bool,
    pub then: Option<(&'static str, Fit)>,
}

/// Makes a line of table 5.
const fn then(name: &'static str, slope: f64, base: f64) -> Option<(&'static str, Fit)> {
    Some((name, Fit { slope, base }))
}

/// The paper's five cases, polling without a bounce buffer, and adaptive waiting.
pub const WAYS: [Way; 7] = [
    Way {
        system: "1 in place, block",
        waits: "block",
        without: None,
        second_message: false,
        then: then("then 1", 0.016, 13.0),
    },
    Way {
        system: "2 bounce, block",
        waits: "block",
        without: Some("direct-placement"),
        second_message: false,
        then: then("then 2", 0.022, 46.0),
    },
    Way {
        system: "3 bounce, spin",
        waits: "spin",
        without: Some("direct-placement"),
        second_message: false,
        then: then("then 3", 0.041, 7.6),
    },
    Way {
        system: "4 bounce, poll:10us",
        waits: "poll:10us",
        without: Some("direct-placement"),
        second_message: false,
        then: then("then 4", 0.023, 12.0),
    },
    Way {
        system: "5 second message",
        waits: "spin",
        without: None,
        second_message: true,
        then: then("then 5", 0.015, 19.0),
    },
    Way {
        system: "in place, spin",
        waits: "spin",
        without: None,
        second_message: false,
        then: None,
    },
    Way {
        system: "in place, adaptive",
        waits: "adaptive",
        without: None,
        second_message: false,
        then: None,
    },
];

/// Way that is measured in other modes, too. Threads of two that spin on one core would only wait
/// for the scheduler.
const IN_ALL_MODES: usize = 6;

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
    let setup = Setup { engines, waits: way.waits, without: way.without };
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
        let then = way.then.map_or_else(String::new, |(_, then)| format!("; then {then}"));
        all.fit(format!("fit of {}: {now} µs{then}", way.system));
    }
}
