//! Case `await`: an addition at the peer, awaited by a future and by an event loop, beside a
//! blocking call. The peer's helper or engine does the addition, as for all systems.

use crate::lab::Lab;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::{ADAPTIVE, Mode, WAITS};
use crate::placement::programs::{Setup, node, role};

/// Name of the case, by the way to wait in the words of the node's program.
pub const CASES: [(&str, &str); 3] =
    [("await_block", "block"), ("await_future", "future"), ("await_descriptor", "descriptor")];
/// Waits that are measured, by their index in [`WAITS`].
const OF: [usize; 2] = [2, ADAPTIVE];

/// Measures one round.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let turns = if extent.quick { 2000 } else { 10_000 };
    for mode in modes {
        for wait in OF {
            let (waits, system) = (WAITS[wait], mode.systems[wait]);
            for (case, way) in CASES {
                let setup = Setup { engines: mode.engines, waits, without: None };
                let mut arguments = role("await", &[("turns", turns)]);
                arguments.extend(["--way".to_owned(), way.to_owned()]);
                let found = node(lab, &setup, &arguments).and_then(|values| {
                    Ok(vec![(Key::new(case, 8, system, "us"), values.get("latency")?)])
                });
                all.add_all(&format!("{case}, {system}"), found);
            }
        }
    }
}
