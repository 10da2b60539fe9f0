//! Case `wake`: sleeps of a thread that waits for k messages, which come 20 µs apart (000: one
//! wake-up for k inputs). The size of a record is k.

use crate::error::Error;
use crate::lab::Lab;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::{Mode, WAITS};
use crate::placement::programs::{Setup, Values, node, options, role, sockets};

/// Numbers of messages.
const COUNTS: [usize; 3] = [1, 8, 64];
/// Time between two messages in µs.
const APART: usize = 20;
/// Waits that sleep, by their index in [`WAITS`].
const SLEEPING: [usize; 2] = [2, 3];

/// Measures one round.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let turns = if extent.quick { 50 } else { 300 };
    for count in COUNTS {
        let settings = [("count", count), ("turns", turns), ("apart", APART)];
        for mode in modes {
            for wait in SLEEPING {
                let (waits, system) = (WAITS[wait], mode.systems[wait]);
                let setup = Setup { engines: mode.engines, waits, without: None };
                for (cases, each) in [
                    (["wake", "wake_all"], None),
                    (["wake_each", "wake_each_all"], Some("--one-by-one".to_owned())),
                ] {
                    let arguments =
                        role("wake", &settings).into_iter().chain(each).collect::<Vec<_>>();
                    let found = node(lab, &setup, &arguments).and_then(keys(cases, count, system));
                    all.add_all(&format!("{} {count}, {system}", cases[0]), found);
                }
            }
        }
        let arguments: Vec<String> =
            options(&settings).into_iter().chain(["--block".to_owned()]).collect();
        let found = sockets(lab, "wake", &arguments);
        let found = found.and_then(keys(["wake_each", "wake_each_all"], count, "udp"));
        all.add_all(&format!("wake {count}, UDP"), found);
    }
}

fn keys(
    [own, all]: [&'static str; 2],
    count: usize,
    system: &'static str,
) -> impl Fn(Values) -> Result<Vec<(Key, f64)>, Error> {
    move |values| {
        let key = |case| Key::new(case, count, system, "sleeps");
        Ok(vec![(key(own), values.get("own")?), (key(all), values.get("all")?)])
    }
}
