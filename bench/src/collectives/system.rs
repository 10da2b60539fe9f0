//! Systems of the bench: Oikaze, MPI, and the model.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::case::{Case, Mode};
use crate::dsm::mpi;
use crate::error::Error;
use crate::lab::{Lab, core_of_each};
use crate::peers::oikaze::{self, Seal};
use crate::process::alone;

/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(60);
/// Name of the program in `bench/mpi`.
const PROGRAM: &str = "collectives";

named! {
    /// System that the bench measures.
    pub enum System {
        /// Open MPI, over TCP or shared memory.
        Mpi = "mpi",
        /// Oikaze, by `oikaze perf collectives`.
        Oikaze = "oikaze",
        /// The same with the default seal, which encrypts.
        Full = "oikaze-full",
        /// Oikaze's plans in a model of a network.
        Model = "model",
    }
}

/// All systems, the baseline first.
pub const ALL: [System; 4] = [System::Mpi, System::Full, System::Oikaze, System::Model];

/// One run of a program, which measures all sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    pub case: Case,
    pub mode: Mode,
    pub nodes: u32,
}

/// Number of operations of each size, and maximum of their bytes.
#[derive(Clone, Copy)]
struct Effort {
    iterations: u32,
    volume: usize,
}

const QUICK: Effort = Effort { iterations: 2000, volume: 32 << 20 };
const THOROUGH: Effort = Effort { iterations: 5000, volume: 64 << 20 };

/// Line of JSON that both programs print for each size.
#[derive(Deserialize)]
struct Line {
    size: usize,
    us: f64,
}

impl Measurement {
    /// Returns `true` if there are more processes than cores.
    pub fn is_oversubscribed(self) -> bool {
        self.mode == Mode::Machine && core_of_each(self.nodes as usize).is_none()
    }
}

impl System {
    /// Returns `true` if the system can be measured there.
    pub fn has(self, mode: Mode) -> bool {
        match self {
            Self::Mpi | Self::Oikaze => mode != Mode::Simulated,
            Self::Full => mode == Mode::Wire,
            Self::Model => mode == Mode::Simulated,
        }
    }

    /// Checks that the programs can be started, and builds the one in C.
    ///
    /// # Errors
    /// A compiler or a program is missing. The error names it and its package.
    pub fn prepare(self) -> Result<(), Error> {
        match self {
            Self::Mpi => mpi::OPEN_MPI.build(PROGRAM).map(drop),
            Self::Oikaze | Self::Full => oikaze::program().map(drop),
            Self::Model => Ok(()),
        }
    }

    /// Measures sizes in one run. Returns size and µs of each.
    ///
    /// # Errors
    /// The program fails, its result is wrong, or its output lacks a size.
    pub fn measure(
        self,
        lab: &Lab,
        what: Measurement,
        sizes: &[usize],
        quick: bool,
    ) -> Result<Vec<(usize, f64)>, Error> {
        let effort = if quick { QUICK } else { THOROUGH };
        let printed = alone(self.command(lab, what, sizes, effort)?)?;
        found(sizes, &printed)
            .ok_or_else(|| Error::new(format!("a time is missing in: {}", printed.trim())))
    }

    fn command(
        self,
        lab: &Lab,
        what: Measurement,
        sizes: &[usize],
        effort: Effort,
    ) -> Result<Command, Error> {
        let Measurement { case, nodes, .. } = what;
        let list = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command;
        if self == Self::Mpi {
            command = mpi::launcher(lab, nodes as usize, LIMIT)?;
            command.arg(mpi::OPEN_MPI.build(PROGRAM)?).args(["--sizes", &list]);
        } else {
            let seal = if self == Self::Full { Seal::Full } else { Seal::Crc };
            command = oikaze::job(lab, nodes as usize, LIMIT, seal)?;
            command.arg("--").arg(oikaze::program()?).args(["perf", "collectives", "--json"]);
            if case != Case::Barrier {
                command.arg(format!("--sweep={list}"));
            }
        }
        let Effort { iterations, volume } = effort;
        command.args(["--case", case.name()]);
        command.args(["--iterations", &iterations.to_string(), "--volume", &volume.to_string()]);
        Ok(command)
    }

    /// Returns a note that a reader of the system's figures must know.
    pub const fn note(self) -> &'static str {
        match self {
            Self::Mpi => {
                "mpi: Open MPI, over TCP with messages of up to 1 MiB sent eagerly, or through shared memory with its defaults. Each process of one machine has a core of its own. It polls without sleeping. More processes than cores are not bound, and yield while they wait."
            }
            Self::Oikaze => {
                "oikaze: oikaze perf collectives, with its defaults on one machine, bound to cores as mpi is, and with --seal crc over the wire."
            }
            Self::Full => "oikaze-full: oikaze with the default seal, which encrypts.",
            Self::Model => {
                "model: the plans of all nodes in a network of constant latency and bandwidth, whose links carry one message at a time."
            }
        }
    }
}

/// Returns the time of each size in a program's output, or `None` if one is missing.
fn found(sizes: &[usize], printed: &str) -> Option<Vec<(usize, f64)>> {
    let lines: Vec<Line> =
        printed.lines().filter_map(|line| serde_json::from_str(line.trim()).ok()).collect();
    let of = |&size: &usize| {
        let line = lines.iter().find(|line| line.size == size)?;
        (line.us.is_finite() && line.us > 0.0).then_some((size, line.us))
    };
    sizes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_both_programs_is_understood() {
        let mpi = "warning\n{\"case\":\"barrier\",\"size\":0,\"nodes\":2,\"us\":9.5}\n";
        assert_eq!(found(&[0], mpi), Some(vec![(0, 9.5)]));
        let oikaze = "{\"size\":8,\"us\":1.5}\n{\"size\":256,\"us\":2.5}\n";
        assert_eq!(found(&[8, 256], oikaze), Some(vec![(8, 1.5), (256, 2.5)]));
        assert_eq!(found(&[8, 4096], oikaze), None, "a size is missing");
        assert_eq!(found(&[8], "{\"size\":8,\"us\":0}"), None);
    }

    #[test]
    fn only_the_model_is_simulated() {
        for system in ALL {
            assert_ne!(system.has(Mode::Simulated), system.has(Mode::Wire));
            assert_eq!(system.has(Mode::Machine), system.has(Mode::Wire) && system != System::Full);
        }
    }
}
