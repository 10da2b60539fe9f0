//! The launcher: `oikaze run`.
//!
//! - [`plan`]: which nodes run where. [`program`]: what they run. [`netns`]: one machine as
//!   several.
//! - `crew`: child processes on this host. [`hosts`]: child processes on other hosts, by `ssh` and
//!   an agent, with the command and the files that are sent there.
//! - [`policy`]: decides when the launcher passes on signals, waits, terminates and kills.
//!   [`guard`]: cleans up after a launcher that was killed itself.
//! - [`output`]: lines of many nodes on one terminal. `sources`: where they come from. [`ending`]:
//!   exit statuses.

mod crew;
pub mod ending;
mod error;
pub mod guard;
pub mod hosts;
pub mod netns;
pub mod output;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod program;
mod run;
mod sources;
mod word;

pub use error::LaunchError;
pub use hosts::directory::CACHE_DIR;
pub use hosts::install::binary::digest;
pub use run::{AgentChoice, Finished, Options, run};

use oikaze_os::process::Signals;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::mpsc::Sender;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;
const SIGTTIN: i32 = 21;
const SIGTTOU: i32 = 22;
const SIGXFSZ: i32 = 25;

/// Event that the main thread of a launcher or agent waits for.
enum Event {
    /// A signal to pass on, or SIGCHLD if a child has ended.
    Signal(i32),
    /// An output stream of a local node has ended.
    Drained,
    /// An agent reports that a node has ended.
    Ended(usize, oikaze_protocol::Rank, ending::Ending),
    /// The remote shell of a host has ended, perhaps with a reason to report.
    HostClosed(usize, Option<HostFailure>),
    /// A node has a request to the launcher.
    Notice(crate::store::Notice),
    /// Answers of the nodes about their present activity, before the time limit ends them.
    Answers(Vec<(oikaze_protocol::Rank, Option<String>)>),
    /// Answers of the nodes about their present activity, for the user.
    Report(Vec<(oikaze_protocol::Rank, Option<String>)>),
    /// The launcher has closed its end of the pipe. Only an agent receives this event.
    LauncherGone,
}

/// Reason why a host cannot take part.
enum HostFailure {
    /// The pipe ended too early, or was not an agent's.
    Broken(String),
    /// No agent could be started there. The text has the remedy.
    NoAgent(String),
}

/// Blocks the signals that a launcher handles, and returns a descriptor from which it reads them
/// (`signalfd(2)`). Called before any thread is started.
fn take_signals() -> Result<Signals, LaunchError> {
    // SIGXFSZ is taken so that a write beyond `ulimit -f` fails with EFBIG, and does not kill
    // (LAUNCH-5.3). SIGTTOU is taken too: a launcher in the background writes its nodes' output to
    // the terminal even after `stty tostop`.
    let all = [
        SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN,
        SIGTTOU, SIGXFSZ,
    ];
    Signals::take(&all).map_err(LaunchError::system("take over signals"))
}

/// Returns `true` for the signals of job control that stop a process.
fn stops(signal: i32) -> bool {
    matches!(signal, SIGTSTP | SIGTTIN | SIGTTOU)
}

/// Stops this process until SIGCONT. Uses SIGSTOP, because the kernel ignores SIGTSTP in an
/// orphaned process group (POSIX).
fn stop_myself() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

/// Starts a thread that turns signals into events.
fn forward_signals(signals: Signals, events: Sender<Event>) -> Result<(), LaunchError> {
    let forward = move || {
        while let Ok(signal) = signals.wait() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(forward)
        .map_err(LaunchError::system("start a thread"))?;
    Ok(())
}

/// Opens a TCP socket on the first free port of `ports`.
fn bind(address: IpAddr, ports: &[u16]) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for &port in ports {
        match TcpListener::bind((address, port)) {
            Ok(listener) => return Ok(listener),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Binds to all addresses of both families, or of IPv4 where the kernel has no IPv6.
fn bind_everywhere(ports: &[u16]) -> io::Result<TcpListener> {
    bind(Ipv6Addr::UNSPECIFIED.into(), ports).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into(), ports))
}
