//! Connection of a node to its server, which is started on demand (SERVE-5.2, SERVE-5.3).

use super::link::{ConnectError, ServedLink};
use oikaze_os::cpu::{CpuId, Priority, cpulist};
use oikaze_os::net::Bind;
use oikaze_protocol::Rank;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Number of times that a server is started. One that was started on demand may end before this
/// node has connected, on a busy machine.
const STARTS_MAX: u32 = 5;

/// Server that a node uses, and how to start it.
#[derive(Clone, Debug)]
pub struct OnDemand {
    /// Path of the command `oikaze`, which starts the server.
    pub program: OsString,
    /// Name of the server.
    pub name: String,
    /// Processors of a server that is started; any processor if empty.
    pub cores: Vec<CpuId>,
    /// Priority of a server that is started, if not its own default.
    pub priority: Option<Priority>,
}

impl OnDemand {
    /// Connects node `rank` to the server, and to the next one should it end (SERVE-5.2).
    ///
    /// # Errors
    /// The text says why there is no link.
    pub fn connect(self, ask: &Bind, rank: Rank) -> Result<ServedLink, String> {
        let link = self.link(&self.name, ask)?;
        Ok(link.reconnecting(Box::new(move |why, name, ask| {
            let next = self.link(name, ask)?;
            oikaze_os::signals::print_line(&format!(
                "oikaze: node {rank}: {why}; another server takes over, and the node goes on"
            ));
            Ok(next)
        })))
    }

    /// Connects to the server of this name. Starts it first if it does not run (SERVE-5.3).
    fn link(&self, name: &str, ask: &Bind) -> Result<ServedLink, String> {
        let mut starts = 0;
        loop {
            match ServedLink::connect(name, ask) {
                Err(missing @ ConnectError::Missing { .. }) if starts < STARTS_MAX => {
                    self.start(name).map_err(|why| format!("{missing}; {why}"))?;
                }
                // A server that was started on demand has ended just now.
                Err(ConnectError::Ended { .. }) if starts < STARTS_MAX => {}
                connected => return connected.map_err(|why| why.to_string()),
            }
            starts += 1;
        }
    }

    /// Starts a server in the background. Returns when it listens, or when another one does
    /// already.
    fn start(&self, name: &str) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(["serve", name, "--on-demand"]);
        if !self.cores.is_empty() {
            command.args(["--cores", &cpulist(&self.cores)]);
        }
        if let Some(priority) = self.priority {
            command.args(["--priority", &priority.to_string()]);
        }
        let output = command.stdin(Stdio::null()).output().map_err(|why| {
            format!(
                "none could be started by {}: {why}: install the command oikaze",
                self.program.display()
            )
        })?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("none could be started: {}", why.trim()))
    }
}
