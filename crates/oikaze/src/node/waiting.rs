//! How threads of this node wait: spin only where cores are free, else block at once.

use std::time::Duration;

/// Who runs the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// Whoever waits; the helper when nobody does.
    Inline,
    /// A thread of its own, on this core if one is named.
    Thread {
        /// The core.
        core: Option<usize>,
    },
}

/// The waiting policy of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For how long a thread spins before it blocks, on a core of its own.
    pub spin: Duration,
    /// Who runs the turns.
    pub mode: EngineMode,
}

/// Spinning pays while it is shorter than being put to sleep and woken, tens of microseconds here; a waiter that has been
/// spinning for this long blocks.
const SPIN_LIMIT: Duration = Duration::from_millis(2);

impl Waiting {
    /// From what the user says: `OIKAZE_WAIT` = `spin`, `block` or `adaptive` (default), `OIKAZE_ENGINE` = `inline` (default), `thread` or
    /// `thread:CORE`; and from whether the machine has room for so many threads that spin, in this node and each of its neighbours.
    ///
    /// # Errors
    /// A text that says what is wrong with a variable.
    pub fn choose(has_room_for: impl Fn(usize) -> bool) -> Result<Self, String> {
        let mode = match std::env::var("OIKAZE_ENGINE").ok().as_deref() {
            None | Some("inline") => EngineMode::Inline,
            Some("thread") => EngineMode::Thread { core: None },
            Some(text) => match text.strip_prefix("thread:").map(str::parse) {
                Some(Ok(core)) => match oikaze_os::cpu::Topology::detect() {
                    Ok(machine) if !machine.cpus.contains(&core) => {
                        return Err(format!("OIKAZE_ENGINE={text}: this process may run on cores {:?} only", machine.cpus));
                    }
                    _ => EngineMode::Thread { core: Some(core) },
                },
                _ => return Err(format!("OIKAZE_ENGINE={text}: expected inline, thread or thread:CORE")),
            },
        };
        let threads = if mode == EngineMode::Inline { 1 } else { 2 };
        let spin = match std::env::var("OIKAZE_WAIT").ok().as_deref() {
            None | Some("adaptive") if has_room_for(threads) => SPIN_LIMIT,
            None | Some("adaptive" | "block") => Duration::ZERO,
            Some("spin") => Duration::MAX,
            Some(text) => return Err(format!("OIKAZE_WAIT={text}: expected spin, block or adaptive")),
        };
        Ok(Self { spin, mode })
    }
}
