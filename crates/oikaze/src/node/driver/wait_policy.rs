//! Waiting policy of a node's threads: spin only where cores are free, otherwise block at once.

use super::limits::SPIN_TIME;
use std::time::Duration;

/// Thread that runs the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// A thread that waits; the helper when none does.
    Inline,
    /// A thread of its own, bound to `core` if given.
    Thread {
        /// Core to bind the thread to.
        core: Option<usize>,
    },
}

/// Waiting policy of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Time for which a thread spins before it blocks, on a core of its own.
    pub spin: Duration,
    /// Thread that runs the turns.
    pub mode: EngineMode,
}

/// Settings of waiting from the environment.
#[derive(Clone, Copy, Debug)]
pub struct WaitSettings {
    /// Time to spin; `None` to spin as there is room.
    spin: Option<Duration>,
    mode: EngineMode,
}

impl WaitSettings {
    /// Returns the given settings. Those that are not given are read from `OIKAZE_WAIT` = `spin`,
    /// `block` or `adaptive` (default), and `OIKAZE_ENGINE` = `inline` (default), `thread` or
    /// `thread:CORE`.
    ///
    /// # Errors
    /// The text says what is wrong with a variable, or with the core.
    pub fn given(mode: Option<EngineMode>, spin: Option<Option<Duration>>) -> Result<Self, String> {
        let mode = match mode {
            Some(mode @ EngineMode::Thread { core: Some(core) }) => {
                check_core(core, "engine_thread_on")?;
                mode
            }
            Some(mode) => mode,
            None => Self::mode_of_env()?,
        };
        Ok(Self { spin: spin.map_or_else(Self::spin_of_env, Ok)?, mode })
    }

    fn mode_of_env() -> Result<EngineMode, String> {
        Ok(match std::env::var("OIKAZE_ENGINE").ok().as_deref() {
            None | Some("inline") => EngineMode::Inline,
            Some("thread") => EngineMode::Thread { core: None },
            Some(text) => match text.strip_prefix("thread:").map(str::parse) {
                Some(Ok(core)) => {
                    check_core(core, &format!("OIKAZE_ENGINE={text}"))?;
                    EngineMode::Thread { core: Some(core) }
                }
                _ => {
                    return Err(format!(
                        "OIKAZE_ENGINE={text}: expected inline, thread or thread:CORE"
                    ));
                }
            },
        })
    }

    fn spin_of_env() -> Result<Option<Duration>, String> {
        Ok(match std::env::var("OIKAZE_WAIT").ok().as_deref() {
            None | Some("adaptive") => None,
            Some("block") => Some(Duration::ZERO),
            Some("spin") => Some(Duration::MAX),
            Some(text) => {
                return Err(format!("OIKAZE_WAIT={text}: expected spin, block or adaptive"));
            }
        })
    }

    /// Returns the policy. `has_room_for` says whether the machine has room for this many spinning
    /// threads, in this node and each of its local peers.
    pub fn policy(self, has_room_for: impl FnOnce(usize) -> bool) -> WaitPolicy {
        let threads = if self.mode == EngineMode::Inline { 1 } else { 2 };
        let adaptive = || if has_room_for(threads) { SPIN_TIME } else { Duration::ZERO };
        WaitPolicy { spin: self.spin.unwrap_or_else(adaptive), mode: self.mode }
    }
}

/// Refuses a core on which this process may not run.
fn check_core(core: usize, setting: &str) -> Result<(), String> {
    match oikaze_os::cpu::Topology::detect() {
        Ok(machine) if !machine.cpus.contains(&core) => {
            Err(format!("{setting}: this process may run on cores {:?} only", machine.cpus))
        }
        _ => Ok(()),
    }
}
