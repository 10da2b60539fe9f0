//! Table of the launchers that Oikaze's programs may be started by, and of the variables by which a
//! process knows its launcher (LAUNCH-9.1).

use crate::JobError;
use crate::environment::{LAUNCHER, Lookup, SIZE, number, required};
use oikaze_protocol::limits::NODES_MAX;

/// Launcher of another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignLauncher {
    /// Any launcher with a PMIx server: Open MPI's `mpirun`, PRRTE, `srun --mpi=pmix`.
    Pmix,
    /// Any launcher with a PMI-1 server: MPICH's `mpiexec`, `srun --mpi=pmi2`, Flux.
    Pmi,
    /// `torchrun` of PyTorch.
    Torchrun,
    /// Kubernetes, which numbers the pods of an indexed job.
    Kubernetes,
    /// `srun` without a server for exchange.
    Slurm,
}

/// Variables by which a process knows a launcher.
struct Row {
    launcher: ForeignLauncher,
    /// Value of [`LAUNCHER`] that chooses it.
    name: &'static str,
    /// The launcher has started this process if all of these are set.
    marks: &'static [&'static str],
    /// Variable of the rank. Without one, the launcher's server tells the rank.
    rank: Option<&'static str>,
    /// Variable of the number of processes. Without one, the launcher's server tells the number.
    size: Option<&'static str>,
}

/// All of them, in the order in which they are looked for. A launcher with a server comes before
/// those that only number their processes.
const LAUNCHERS: [Row; 6] = [
    Row {
        launcher: ForeignLauncher::Pmix,
        name: "pmix",
        marks: &["PMIX_NAMESPACE", "PMIX_RANK"],
        rank: Some("PMIX_RANK"),
        size: None,
    },
    Row {
        launcher: ForeignLauncher::Pmi,
        name: "pmi",
        marks: &["PMI_FD"],
        rank: Some("PMI_RANK"),
        size: Some("PMI_SIZE"),
    },
    Row {
        launcher: ForeignLauncher::Pmi,
        name: "pmi",
        marks: &["PMI_PORT", "PMI_ID"],
        rank: None,
        size: None,
    },
    Row {
        launcher: ForeignLauncher::Torchrun,
        name: "torchrun",
        marks: &["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"],
        rank: Some("RANK"),
        size: Some("WORLD_SIZE"),
    },
    Row {
        launcher: ForeignLauncher::Kubernetes,
        name: "kubernetes",
        marks: &["JOB_COMPLETION_INDEX", SIZE],
        rank: Some("JOB_COMPLETION_INDEX"),
        size: Some(SIZE),
    },
    Row {
        launcher: ForeignLauncher::Slurm,
        name: "slurm",
        marks: &["SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        rank: Some("SLURM_PROCID"),
        size: Some("SLURM_STEP_NUM_TASKS"),
    },
];

/// Value of [`LAUNCHER`] for a process that shall have no other launcher than Oikaze's.
const OIKAZE: &str = "oikaze";
/// Values of [`LAUNCHER`].
const NAMES: &str = "auto, oikaze, pmix, pmi, torchrun, kubernetes or slurm";

/// Launcher of this process, with the place that its variables give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Launcher that started it.
    pub by: ForeignLauncher,
    /// Rank of this process, if a variable tells it.
    pub rank: Option<u32>,
    /// Number of processes, if a variable tells it.
    pub size: Option<u32>,
}

/// Finds the launcher of another project that has started this process.
///
/// # Errors
/// A variable of the launcher makes no sense, or [`LAUNCHER`] names a launcher that is not there.
pub fn find(lookup: Lookup<'_>) -> Result<Option<Started>, JobError> {
    let is_set = |name: &str| lookup(name).is_some_and(|text| !text.is_empty());
    let is_there = |row: &&Row| row.marks.iter().all(|name| is_set(name));
    let chosen = lookup(LAUNCHER).filter(|text| !text.is_empty() && text != "auto");
    let row = match chosen.as_deref() {
        Some(OIKAZE) => return Ok(None),
        None => LAUNCHERS.iter().find(is_there),
        Some(name) => {
            let wrong = |needed| JobError::Environment {
                name: LAUNCHER,
                found: format!("{name:?}"),
                needed,
            };
            let mut rows = LAUNCHERS.iter().filter(|row| row.name == name).peekable();
            if rows.peek().is_none() {
                return Err(wrong(NAMES));
            }
            let absent = "a launcher that has started this process (its variables are not set)";
            Some(rows.find(is_there).ok_or_else(|| wrong(absent))?)
        }
    };
    let Some(row) = row else { return Ok(None) };
    let count = |text: &str| number(text, 1, NODES_MAX);
    let size = row.size.map(|name| required(lookup, name, "1 to 4096", count)).transpose()?;
    let most = size.map_or(NODES_MAX, |size| size) - 1;
    let below = "a rank below the number of processes";
    let rank = |name| required(lookup, name, below, |text| number(text, 0, most));
    let rank = row.rank.map(rank).transpose()?;
    Ok(Some(Started { by: row.launcher, rank, size }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(text: &str) -> Result<Option<Started>, JobError> {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        let map: HashMap<&str, &str> = pairs.collect();
        find(&|name| map.get(name).map(|value| (*value).to_owned()))
    }

    /// LAUNCH-9.1.
    #[test]
    fn launcher_is_known_by_its_variables_and_servers_come_first() {
        use ForeignLauncher::*;
        let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4";
        let torch = "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500";
        for (text, by, rank, size) in [
            ("PMIX_NAMESPACE=x PMIX_RANK=2", Pmix, Some(2), None),
            ("PMI_FD=5 PMI_RANK=1 PMI_SIZE=2", Pmi, Some(1), Some(2)),
            ("PMI_PORT=a:1 PMI_ID=1", Pmi, None, None),
            ("PMI_PORT=a:1 PMI_ID=1 OIKAZE_LAUNCHER=pmi", Pmi, None, None),
            (torch, Torchrun, Some(1), Some(2)),
            ("JOB_COMPLETION_INDEX=4 OIKAZE_SIZE=5", Kubernetes, Some(4), Some(5)),
            (slurm, Slurm, Some(3), Some(4)),
            (&format!("{slurm} PMI_FD=5 PMI_RANK=1 PMI_SIZE=2"), Pmi, Some(1), Some(2)),
            (&format!("{slurm} {torch}"), Torchrun, Some(1), Some(2)),
            (&format!("{slurm} {torch} OIKAZE_LAUNCHER=slurm"), Slurm, Some(3), Some(4)),
        ] {
            assert_eq!(found(text).unwrap(), Some(Started { by, rank, size }), "{text}");
        }
        for text in ["", "SLURM_PROCID=0 SLURM_NTASKS=4", "RANK=1", "PMI_RANK=0 PMI_SIZE=1"] {
            assert_eq!(found(text).unwrap(), None, "{text}");
        }
        assert_eq!(found(&format!("{torch} OIKAZE_LAUNCHER=oikaze")).unwrap(), None);
    }

    #[test]
    fn nonsense_is_named() {
        for (text, name) in [
            ("PMI_FD=5 PMI_RANK=2 PMI_SIZE=2", "PMI_RANK"),
            ("PMI_FD=5 PMI_SIZE=2", "PMI_RANK"),
            ("PMI_FD=5 PMI_RANK=0 PMI_SIZE=0", "PMI_SIZE"),
            ("PMIX_NAMESPACE=x PMIX_RANK=-1", "PMIX_RANK"),
            ("JOB_COMPLETION_INDEX=x OIKAZE_SIZE=2", "JOB_COMPLETION_INDEX"),
            ("OIKAZE_LAUNCHER=pmix", "OIKAZE_LAUNCHER"),
            ("OIKAZE_LAUNCHER=lsf", "OIKAZE_LAUNCHER"),
        ] {
            let why = found(text).unwrap_err().to_string();
            assert!(why.contains(name), "{text}: {why}");
        }
    }
}
