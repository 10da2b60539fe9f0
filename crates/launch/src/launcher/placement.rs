//! Placement of a host's nodes on its cores (`oikaze run --bind`).
//!
//! A node inherits the cores of the thread that starts it. The thread is therefore bound for the
//! moment of the start. The engine's cores go into the node's environment, because its thread is
//! bound on its own.

use super::error::LaunchError;
use crate::environment::{BIND, ENGINE};
use oikaze_os::cpu::{CoreBinding, CpuId, Machine, Topology, bind_to_cores, cpulist};
use std::ffi::OsString;
use std::str::FromStr;

/// Choice of cores that the user made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindChoice {
    /// As `oikaze doctor` recommends for the host.
    Auto,
    /// The cores that the user named.
    At(CoreBinding),
}

impl FromStr for BindChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<BindChoice, String> {
        if text == "auto" { Ok(BindChoice::Auto) } else { text.parse().map(BindChoice::At) }
    }
}

/// Cores of the nodes of this host.
#[derive(Debug, Default)]
pub struct Placement {
    bind: CoreBinding,
    nodes: usize,
    /// Cores of the launcher itself.
    launcher: Vec<CpuId>,
    /// Engine mode that the environment asks for.
    mode: Option<String>,
}

impl Placement {
    /// Returns the placement of `nodes` nodes that this environment asks for, or else the
    /// launcher's own.
    ///
    /// # Errors
    /// The words make no sense, or the host has no such core.
    pub fn of(
        environment: &[(OsString, OsString)],
        nodes: usize,
    ) -> Result<Placement, LaunchError> {
        let given = |wanted: &str| {
            let set = environment.iter().rev().find(|(name, _)| name == wanted);
            set.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(wanted))
        };
        let mode = given(ENGINE).map(|mode| mode.to_string_lossy().into_owned());
        let Some(words) = given(BIND) else { return Ok(Placement::default()) };
        let words = words.to_string_lossy();
        let usage = |why: String| LaunchError::Usage(format!("--bind {words}: {why}"));
        let launcher =
            Topology::detect().map_err(LaunchError::system("read the cores of this process"))?.cpus;
        let machine = Machine::here();
        let bind = match words.parse().map_err(LaunchError::Usage)? {
            BindChoice::At(bind) => bind,
            BindChoice::Auto => {
                let advice = machine.clone().restricted_to(&launcher).advice(nodes);
                let bind = advice.bind.unwrap_or_default();
                let shown = bind.to_string();
                let shown = if shown.is_empty() { "nothing is bound" } else { &shown };
                eprintln!("oikaze: --bind auto: {shown} ({})", advice.why);
                bind
            }
        };
        let cpus = machine.cpus();
        match bind.outside(&cpus).filter(|_| !cpus.is_empty()) {
            None => Ok(Placement { bind, nodes, launcher, mode }),
            Some(why) => Err(usage(why.to_string())),
        }
    }

    /// Returns the value of `OIKAZE_ENGINE` for the node of this local rank, if its engine is
    /// placed.
    #[must_use]
    pub fn engine(&self, node: usize) -> Option<String> {
        let share = self.bind.share(node, self.nodes).engine;
        if share.is_empty() {
            return None;
        }
        let server = self.mode.as_deref().filter(|mode| mode.starts_with("process"));
        Some(match server {
            Some(mode) => {
                let named = mode.split_once('@').map_or(mode, |(named, _)| named);
                format!("{named}@{}", cpulist(&share))
            }
            None => format!("thread:{}", cpulist(&share)),
        })
    }

    /// Runs `start` with the calling thread bound to the application's cores of this node.
    ///
    /// # Errors
    /// The system forbids the cores (a cpuset).
    pub fn start<T>(&self, node: usize, start: impl FnOnce() -> T) -> Result<T, LaunchError> {
        let share = self.bind.share(node, self.nodes).app;
        if share.is_empty() {
            return Ok(start());
        }
        bind_to_cores(&share)
            .map_err(LaunchError::system(format!("bind node {node} (--bind {})", self.bind)))?;
        let started = start();
        if let Err(error) = bind_to_cores(&self.launcher) {
            eprintln!("oikaze: the launcher stays on the cores of node {node}: {error}");
        }
        Ok(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(words: &str, nodes: usize) -> Result<Placement, LaunchError> {
        Placement::of(&[(BIND.into(), "app=0".into()), (BIND.into(), words.into())], nodes)
    }

    #[test]
    fn thread_is_bound_for_the_start_alone() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before = Topology::detect().unwrap().cpus;
                let first = before[0];
                let placement = placed(&format!("app={first},engine={first}"), 2).unwrap();
                let during = placement.start(1, || Topology::detect().unwrap().cpus).unwrap();
                assert_eq!(during, [first]);
                assert_eq!(Topology::detect().unwrap().cpus, before);
                assert_eq!(placement.engine(1), Some(format!("thread:{first}")));
            });
        });
    }

    /// A server that is started on demand gets the cores of the engines.
    #[test]
    fn cores_of_the_engine_are_those_of_a_server_too() {
        for (mode, engine) in [
            ("process", "process@0"),
            ("process:io@5", "process:io@0"),
            ("inline", "thread:0"),
            ("thread:7", "thread:0"),
        ] {
            let environment =
                [(BIND.into(), "app=0,engine=0".into()), (ENGINE.into(), mode.into())];
            let placement = Placement::of(&environment, 1).unwrap();
            assert_eq!(placement.engine(0).as_deref(), Some(engine));
        }
    }

    #[test]
    fn without_words_nothing_is_bound() {
        let placement = Placement::of(&[], 2).unwrap();
        let before = Topology::detect().unwrap().cpus;
        assert_eq!(placement.start(0, || Topology::detect().unwrap().cpus).unwrap(), before);
        assert_eq!(placement.engine(0), None);
    }

    #[test]
    fn core_that_does_not_exist_is_named() {
        let why = placed("app=0,engine=1000", 1).unwrap_err().to_string();
        assert!(why.contains("this machine has no core 1000; its cores are 0"), "{why}");
        let why = placed("cpu=0", 1).unwrap_err().to_string();
        assert!(why.contains("expected app=CORES"), "{why}");
    }

    #[test]
    fn auto_binds_as_the_machine_is() {
        let placement = placed("auto", 1).unwrap();
        let machine = Machine::here().restricted_to(&Topology::detect().unwrap().cpus);
        assert_eq!(placement.bind, machine.advice(1).bind.unwrap_or_default());
    }
}
