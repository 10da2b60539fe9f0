//! Modes of the engine: by which link a node sends and receives, and whether its engine has a
//! thread of its own.
//!
//! [`Drive`] has one implementation a mode. It is the only place that tells the modes apart. While
//! the node runs, [`Access`](crate::node::access::Access) says what the calling thread may do.

use oikaze_launch::environment::COMMAND;
use oikaze_os::cpu::CpuId;
use oikaze_os::net::{self, Bind, Link};
use oikaze_protocol::Rank;
use oikaze_serve::OnDemand;

/// Way in which a node's engine is driven.
pub(crate) trait Drive {
    /// Returns the processors to which the engine's own thread is bound (none: those of the
    /// application). Returns `None` if the engine has no thread of its own.
    fn own_thread(&self) -> Option<&[CpuId]> {
        None
    }

    /// Opens the link by which node `rank` sends and receives.
    fn open_link(&self, ask: &Bind, rank: Rank) -> Result<Box<dyn Link>, NoLink> {
        let _ = rank;
        let refused = |error: net::BindError| NoLink {
            operation: "opening the UDP socket",
            why: error.to_string(),
        };
        Ok(Box::new(net::open(ask).map_err(refused)?))
    }
}

/// Error: the link could not be opened.
#[derive(Debug)]
pub(crate) struct NoLink {
    /// Operation that failed.
    pub operation: &'static str,
    /// Why the operation failed.
    pub why: String,
}

/// Mode `inline`: a thread that waits drives, and the helper when none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inline;

impl Drive for Inline {}

/// Mode `thread`: a thread of its own drives. No other thread runs turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnThread {
    /// Processors to bind the thread to; those of the application if empty.
    pub cores: Vec<CpuId>,
}

impl Drive for OwnThread {
    fn own_thread(&self) -> Option<&[CpuId]> {
        Some(&self.cores)
    }
}

/// Mode `process`: a thread of its own drives. It leaves sending and receiving to a server of this
/// machine (`oikaze serve`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Name of the server.
    pub server: String,
    /// Processors to bind the thread to, and a server that is started on demand.
    pub cores: Vec<CpuId>,
}

impl Drive for Served {
    fn own_thread(&self) -> Option<&[CpuId]> {
        Some(&self.cores)
    }

    fn open_link(&self, ask: &Bind, rank: Rank) -> Result<Box<dyn Link>, NoLink> {
        let server = OnDemand {
            program: std::env::var_os(COMMAND).unwrap_or_else(|| "oikaze".into()),
            name: self.server.clone(),
            cores: self.cores.clone(),
        };
        let operation = "connecting to the server of this machine";
        let link = server.connect(ask, rank).map_err(|why| NoLink { operation, why })?;
        Ok(Box::new(link))
    }
}
