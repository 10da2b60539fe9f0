//! Modes of the engine and ways to wait, as data.

use super::collected::{Collected, reason};
use super::programs::{Setup, node};
use crate::error::Error;
use crate::lab::Lab;

/// Mode of the engine.
#[derive(Debug)]
pub struct Mode {
    pub name: &'static str,
    /// Engines of both nodes in the words of `OIKAZE_ENGINE`, on the nodes' own cores, separated by
    /// a comma.
    pub engines: &'static str,
    /// Engines where that of node 0 has the core of node 1, whose own thread does the work there.
    pub apart: &'static str,
    /// Names of the records, in the order of [`WAITS`].
    pub systems: [&'static str; WAITS.len()],
    /// Name of the records of the default wait.
    pub system: &'static str,
}

/// Ways to wait, in the words of `OIKAZE_WAIT`.
pub const WAITS: [&str; 4] = ["spin", "poll:10us", "block", "adaptive"];
/// Index of the default in [`WAITS`].
pub const ADAPTIVE: usize = 3;

/// Makes a mode, with the names of its records.
macro_rules! mode {
    ($name:literal, $engines:literal, $apart:literal) => {
        Mode {
            name: $name,
            engines: $engines,
            apart: $apart,
            systems: [
                concat!($name, " spin"),
                concat!($name, " poll:10us"),
                concat!($name, " block"),
                concat!($name, " adaptive"),
            ],
            system: concat!("oikaze ", $name),
        }
    };
}

/// All modes. What the program refuses is left out of a measurement.
pub static MODES: [Mode; 3] = [
    mode!("inline", "inline", "inline"),
    mode!("thread", "thread", "thread:1,inline"),
    // The hosts share a machine, but each needs a server in its own network.
    mode!("process", "process:bench-a@0,process:bench-b@1", "process:bench-c@1,inline"),
];

/// Returns the modes that jobs may have here. Notes the reason for each other one.
///
/// # Errors
/// No mode is permitted.
pub fn permitted(lab: &Lab, all: &mut Collected) -> Result<Vec<&'static Mode>, Error> {
    let mut modes = Vec::new();
    for mode in &MODES {
        let setup = Setup { engines: mode.engines, waits: "adaptive", without: None };
        match node(lab, &setup, &["probe".into()]) {
            Ok(_) => modes.push(mode),
            Err(why) => all.note(format!("mode {} is left out: {}", mode.name, reason(&why))),
        }
    }
    if modes.is_empty() { Err(Error::new("no mode of the engine is permitted")) } else { Ok(modes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_waits() {
        for mode in &MODES {
            for (system, wait) in mode.systems.iter().zip(WAITS) {
                assert_eq!(*system, format!("{} {wait}", mode.name));
            }
        }
        assert_eq!(WAITS[ADAPTIVE], "adaptive");
    }
}
