//! Case `idle`: share of a core that a job uses while its nodes wait for each other.

use crate::lab::Lab;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::{Mode, WAITS};
use crate::placement::programs::{Setup, node, role};

/// Measures one round.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let milliseconds = if extent.quick { 1000 } else { 5000 };
    for mode in modes {
        for (wait, system) in WAITS.into_iter().zip(mode.systems) {
            let setup = Setup { engines: mode.engines, waits: wait, without: None };
            let found = node(lab, &setup, &role("idle", &[("milliseconds", milliseconds)]));
            let found = found.and_then(|values| {
                Ok(vec![(Key::new("idle", 0, system, "%"), values.get("share")?)])
            });
            all.add_all(&format!("idle, {system}"), found);
        }
    }
}
