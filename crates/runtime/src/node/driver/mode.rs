//! Modes of the engine: by which link a node sends and receives, and whether its engine has a
//! thread of its own.
//!
//! [`Drive`] has one implementation a mode. It is the only place that tells the modes apart. While
//! the node runs, [`Access`](crate::node::parts::access::Access) says what the calling thread may
//! do.

use oikaze_launch::environment::COMMAND;
use oikaze_os::cpu::{CpuId, Priority, parse_cores};
use oikaze_os::net::{self, Bind, Link};
use oikaze_protocol::Rank;
use oikaze_serve::OnDemand;
use std::fmt;
use std::str::FromStr;

/// Thread that runs a node's engine, and what sends and receives for it.
///
/// In text, as in `OIKAZE_ENGINE`: `inline`, `thread[:CORES]` (such as `thread:0,2-3`) or
/// `process[:NAME][@CORES]` (such as `process:io@3`).
///
/// ```
/// use oikaze::Job;
/// use oikaze::job::EngineMode;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let job = Job::builder().engine(EngineMode::thread_on([0])).join()?;
/// job.barrier()?;
/// assert_eq!("thread:0".parse::<EngineMode>()?, EngineMode::thread_on([0]));
/// assert!("thread:zero".parse::<EngineMode>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineMode(Mode);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Inline(Inline),
    Thread(OwnThread),
    Process(Served),
}

impl EngineMode {
    /// Returns the mode in which the threads that wait run the engine, the default.
    #[must_use]
    pub const fn inline() -> EngineMode {
        EngineMode(Mode::Inline(Inline))
    }

    /// Returns the mode in which the engine has a thread of its own. Only that thread sends and
    /// receives. A call of another thread writes its request into a queue, which takes as long for
    /// 8 bytes as for 64 MiB.
    #[must_use]
    pub const fn thread() -> EngineMode {
        EngineMode(Mode::Thread(OwnThread { cores: Vec::new() }))
    }

    /// Returns the mode in which the engine has a thread of its own on these cores. They may lie
    /// outside the affinity mask of the program. A core that the machine does not have is an error
    /// of joining. If the system forbids the cores (a cpuset), the node says so on stderr, and its
    /// engine runs where the program does.
    #[must_use]
    pub fn thread_on(cores: impl IntoIterator<Item = CpuId>) -> EngineMode {
        EngineMode(Mode::Thread(OwnThread { cores: cores.into_iter().collect() }))
    }

    /// Returns the mode in which the server of this name sends and receives. It serves the programs
    /// of a machine on cores of its own: see `oikaze serve --help`. The engine has a thread of its
    /// own, as in [`EngineMode::thread`], which makes no system call that sends or receives.
    /// Datagrams stay sealed for the server. A server that does not run is started on demand.
    /// Joining fails if none can be reached or started.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mode = oikaze::job::EngineMode::process("default")?;
    /// let job = oikaze::Job::builder().engine(mode).join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A server cannot have this name.
    pub fn process(server: &str) -> Result<EngineMode, String> {
        EngineMode::process_on(server, Vec::new())
    }

    fn process_on(server: &str, cores: Vec<CpuId>) -> Result<EngineMode, String> {
        oikaze_serve::check_name(server)?;
        Ok(EngineMode(Mode::Process(Served { server: server.to_owned(), cores })))
    }

    /// Returns the way in which the engine is driven.
    pub fn drive(&self) -> &dyn Drive {
        match &self.0 {
            Mode::Inline(inline) => inline,
            Mode::Thread(thread) => thread,
            Mode::Process(served) => served,
        }
    }

    /// Returns the processors to which the engine's own thread is bound.
    pub fn cores(&self) -> &[CpuId] {
        self.drive().own_thread().unwrap_or_default()
    }
}

impl Default for EngineMode {
    fn default() -> EngineMode {
        EngineMode::inline()
    }
}

impl FromStr for EngineMode {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineMode, String> {
        let unknown = || {
            "expected inline, thread, thread:CORES (such as thread:1 or thread:2-3) or process[:NAME][@CORES] (such as process:io@3)"
                .to_owned()
        };
        if let Some(list) = text.strip_prefix("thread:") {
            return parse_cores(list).map(EngineMode::thread_on).ok_or_else(unknown);
        }
        let (named, list) = text.split_once('@').map_or((text, None), |(a, b)| (a, Some(b)));
        let cores = list.map_or(Some(Vec::new()), parse_cores);
        match (named.split_once(':'), list) {
            (Some(("process", name)), _) => {
                EngineMode::process_on(name, cores.ok_or_else(unknown)?)
            }
            (None, _) if named == "process" => {
                EngineMode::process_on(oikaze_serve::DEFAULT_NAME, cores.ok_or_else(unknown)?)
            }
            (None, None) if named == "inline" => Ok(EngineMode::inline()),
            (None, None) if named == "thread" => Ok(EngineMode::thread()),
            _ => Err(unknown()),
        }
    }
}

/// Writes the words that [`FromStr`] reads.
impl fmt::Display for EngineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cores: &[CpuId]| {
            let cores: Vec<_> = cores.iter().map(CpuId::to_string).collect();
            cores.join(",")
        };
        match &self.0 {
            Mode::Inline(_) => f.write_str("inline"),
            Mode::Thread(OwnThread { cores }) if cores.is_empty() => f.write_str("thread"),
            Mode::Thread(OwnThread { cores }) => write!(f, "thread:{}", list(cores)),
            Mode::Process(Served { server, cores }) if cores.is_empty() => {
                write!(f, "process:{server}")
            }
            Mode::Process(Served { server, cores }) => {
                write!(f, "process:{server}@{}", list(cores))
            }
        }
    }
}

/// Way in which a node's engine is driven.
pub trait Drive {
    /// Returns the processors to which the engine's own thread is bound (none: those of the
    /// application). Returns `None` if the engine has no thread of its own.
    fn own_thread(&self) -> Option<&[CpuId]> {
        None
    }

    /// Opens the link by which node `rank` sends and receives. `priority` is that of a server that
    /// this node starts.
    fn open_link(
        &self,
        ask: &Bind,
        rank: Rank,
        priority: Option<Priority>,
    ) -> Result<Box<dyn Link>, NoLink> {
        let _ = (rank, priority);
        let refused = |error: net::BindError| NoLink {
            operation: "opening the UDP socket",
            why: error.to_string(),
        };
        Ok(Box::new(net::open(ask).map_err(refused)?))
    }
}

/// Error: the link could not be opened.
#[derive(Debug)]
pub struct NoLink {
    /// Operation that failed.
    pub operation: &'static str,
    /// Why the operation failed.
    pub why: String,
}

/// Mode `inline`: a thread that waits drives, and the helper when none does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inline;

impl Drive for Inline {}

/// Mode `thread`: a thread of its own drives. No other thread runs turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OwnThread {
    /// Processors to bind the thread to; those of the application if empty.
    cores: Vec<CpuId>,
}

impl Drive for OwnThread {
    fn own_thread(&self) -> Option<&[CpuId]> {
        Some(&self.cores)
    }
}

/// Mode `process`: a thread of its own drives. It leaves sending and receiving to a server of this
/// machine (`oikaze serve`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Served {
    /// Name of the server.
    server: String,
    /// Processors to bind the thread to, and a server that is started on demand.
    cores: Vec<CpuId>,
}

impl Drive for Served {
    fn own_thread(&self) -> Option<&[CpuId]> {
        Some(&self.cores)
    }

    fn open_link(
        &self,
        ask: &Bind,
        rank: Rank,
        priority: Option<Priority>,
    ) -> Result<Box<dyn Link>, NoLink> {
        let server = OnDemand {
            program: std::env::var_os(COMMAND).unwrap_or_else(|| "oikaze".into()),
            name: self.server.clone(),
            cores: self.cores.clone(),
            priority,
        };
        let operation = "connecting to the server of this machine";
        let link = server.connect(ask, rank).map_err(|why| NoLink { operation, why })?;
        Ok(Box::new(link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for text in ["inline", "thread", "thread:0", "thread:0,2,3", "process:io", "process:io@3"] {
            assert_eq!(text.parse::<EngineMode>().unwrap().to_string(), text);
        }
        let server = oikaze_serve::DEFAULT_NAME;
        assert_eq!("process".parse(), EngineMode::process(server));
        assert_eq!("process@1-2".parse(), EngineMode::process_on(server, vec![1, 2]));
    }

    #[test]
    fn a_mode_that_is_not_known_is_refused_with_those_that_are() {
        for text in ["", "Inline", "inline:1", "inline@1", "thread@1", "thread:", "process@one"] {
            let why = text.parse::<EngineMode>().unwrap_err();
            assert!(why.contains("expected inline, thread"), "{text}: {why}");
        }
        assert!("process:a/b".parse::<EngineMode>().is_err());
    }
}
