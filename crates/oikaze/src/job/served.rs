//! Engine mode `process`: the connection to the server of this machine, which is started on demand.

use oikaze_launch::environment::COMMAND;
use oikaze_os::cpu::{CpuId, cpulist};
use oikaze_os::net::Bind;
use oikaze_os::serve::{ConnectError, ServedLink};
use oikaze_protocol::Rank;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Number of times that a server is started. One that was started on demand may end before this
/// node has connected, on a busy machine.
const STARTS_MAX: u32 = 5;

/// Connects node `rank` to the server of this name, and to the next one should it end (SERVE-5.2).
///
/// # Errors
/// The text says why there is no link.
pub(super) fn open(
    name: &str,
    cores: &[CpuId],
    ask: &Bind,
    rank: Rank,
) -> Result<ServedLink, String> {
    let link = connect(name, cores, ask)?;
    let cores = cores.to_vec();
    Ok(link.reconnecting(Box::new(move |why, name, ask| {
        let next = connect(name, &cores, ask)?;
        oikaze_os::signals::say(&format!(
            "oikaze: node {rank}: {why}; another server takes over, and the node goes on"
        ));
        Ok(next)
    })))
}

/// Connects to the server of this name. Starts it first if it does not run (SERVE-5.3).
fn connect(name: &str, cores: &[CpuId], ask: &Bind) -> Result<ServedLink, String> {
    let mut starts = 0;
    loop {
        match ServedLink::connect(name, ask) {
            Err(missing @ ConnectError::Missing { .. }) if starts < STARTS_MAX => {
                start(name, cores).map_err(|why| format!("{missing}; {why}"))?;
            }
            // A server that was started on demand has ended just now.
            Err(ConnectError::Ended { .. }) if starts < STARTS_MAX => {}
            connected => return connected.map_err(|why| why.to_string()),
        }
        starts += 1;
    }
}

/// Starts a server in the background. Returns when it listens, or when another one does already.
fn start(name: &str, cores: &[CpuId]) -> Result<(), String> {
    let program = std::env::var_os(COMMAND).unwrap_or_else(|| OsString::from("oikaze"));
    let mut command = Command::new(&program);
    command.args(["serve", name, "--on-demand"]);
    if !cores.is_empty() {
        command.args(["--cores", &cpulist(cores)]);
    }
    let told = command.stdin(Stdio::null()).output().map_err(|why| {
        format!("none could be started by {}: {why}: install the command oikaze", program.display())
    })?;
    if told.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&told.stderr);
    Err(format!("none could be started: {}", why.trim()))
}
