//! State of the machine beside a measurement: what else it does, and where its cores are.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cores::distance;

/// Load of the machine, and distance of the two cores of a measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Surroundings {
    /// Mean number of runnable tasks in the last minute. `None` if the kernel does not say it.
    pub load: Option<f64>,
    /// Time in ns that a cache line takes from one core to the other, and `true` if they share a
    /// cache. `None` if there is one core.
    pub line: Option<(u64, bool)>,
}

impl Surroundings {
    /// Returns the state now. It takes some milliseconds.
    pub fn now() -> Surroundings {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        Surroundings { load, line: distance().ok() }
    }
}

impl fmt::Display for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load {
            Some(load) => write!(f, "load {load}")?,
            None => f.write_str("load unknown")?,
        }
        match self.line {
            Some((ns, true)) => write!(f, " and cores with a common cache ({ns} ns)"),
            Some((ns, false)) => write!(f, " and cores without a common cache ({ns} ns)"),
            None => f.write_str(" and cores at an unknown distance"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said() {
        let near = Surroundings { load: Some(0.25), line: Some((35, true)) };
        assert_eq!(near.to_string(), "load 0.25 and cores with a common cache (35 ns)");
        let unknown = Surroundings { load: None, line: None };
        assert_eq!(unknown.to_string(), "load unknown and cores at an unknown distance");
    }
}
