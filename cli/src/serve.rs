//! `oikaze serve`: sends and receives for the nodes of this machine.

use clap::Args;
use oikaze_os::cpu::{CpuId, Priority, cpulist, lift_affinity, parse_cores};
use oikaze_os::inherited::listening_socket;
use oikaze_os::process::raise_descriptor_limit;
use oikaze_os::standard_output;
use oikaze_serve::{DEFAULT_NAME, ServeError, ServeOptions, Server, check_name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Time after which a server that was started on demand ends, if it serves nobody.
const ON_DEMAND_TIME: Duration = Duration::from_secs(1);
/// Time for a service manager to start the server.
const START_TIME: Duration = Duration::from_secs(3);
/// First word of the line that says that the server listens.
const READY: &str = "serves";

const EXAMPLES: &str = "\
Examples:
  oikaze serve --cores 3                        serve this user's nodes, on core 3
  OIKAZE_ENGINE=process oikaze run -n 2 -- himeno
                                                nodes that leave sending and receiving to it
  oikaze serve io --user 1000 --priority fifo   a server named io, also for user 1000 (root)

A node in engine mode `process` makes no system call that sends or receives. It writes sealed
datagrams into a ring in shared memory, and the server sends them. The server knows no keys.
A server that is missing is started on demand by the first node, and ends 1 s after the last one.
Each user has servers of its own. A node uses that of its user, or else that of root.
With systemd, enable oikaze-serve.socket: the server then starts with the first node.
Exit status: 0, or 2 if the server could not start.";

/// Send and receive for the nodes of this machine (engine mode `process`)
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Name by which nodes find the server (OIKAZE_ENGINE=process:NAME)
    #[arg(default_value = DEFAULT_NAME, value_parser = name)]
    name: String,

    /// Cores to work on, one worker on each, such as 3 or 2-3 [default: one worker on any core]
    #[arg(long, value_name = "CORES", value_parser = cores)]
    cores: Option<Cores>,

    /// Priority of the workers: fifo, fifo:N (1 to 99) or nice:N (-20 to 19) [default: fifo:1 for a
    /// worker of --cores while it shares its core, where permitted]
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<Priority>,

    /// Serve this user (a number), too; repeated. Nodes accept a server of their user or of root
    #[arg(long = "user", value_name = "UID")]
    users: Vec<u32>,

    /// Maximum number of nodes
    #[arg(long, value_name = "N", default_value_t = 1024)]
    nodes: usize,

    /// Maximum number of nodes of one user, with its connections that have not yet asked for a link
    #[arg(long, value_name = "N", default_value_t = 256)]
    nodes_per_user: usize,

    /// Time in microseconds for which a worker polls before it sleeps
    #[arg(long, value_name = "US", default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    spin: u32,

    /// End when no node was there for this many milliseconds [default: never]
    #[arg(long, value_name = "MS")]
    idle_time: Option<u32>,

    /// Start in the background, and return when the server listens. It ends 1 s after its last node
    #[arg(long)]
    on_demand: bool,

    /// (Started by --on-demand.)
    #[arg(long, hide = true)]
    detached: bool,
}

/// A list of cores.
#[derive(Clone, Debug)]
struct Cores(Vec<CpuId>);

fn cores(text: &str) -> Result<Cores, String> {
    parse_cores(text)
        .map(Cores)
        .ok_or_else(|| "expected a list of cores, such as 3 or 2-3,6".to_owned())
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

/// Runs the server until it is ended by a signal, or by its idle time.
pub fn serve(arguments: &Serve) -> ExitCode {
    let outcome = if arguments.on_demand { start(arguments) } else { run(arguments) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "oikaze serve: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Serve) -> Result<(), String> {
    if arguments.detached {
        oikaze_os::process::leave_session();
        // SERVE-5.3: the mask is that of the node that has started this server.
        if let Err(why) = lift_affinity() {
            let _ = writeln!(
                std::io::stderr(),
                "oikaze serve: using all permitted cores: {why}; the server stays on the cores of the node that started it (choose others with --cores)"
            );
        }
    }
    // SERVE-5.4.
    if let Err(why) = raise_descriptor_limit() {
        let _ = writeln!(
            std::io::stderr(),
            "oikaze serve: raising the limit of open files: {why}; the server can serve fewer nodes (raise it with ulimit -n)"
        );
    }
    let result = Server::start(options(arguments)?);
    let mut server = match result {
        Ok(server) => server,
        // Another node was faster.
        Err(ServeError::Taken { .. }) if arguments.detached => return said(READY),
        Err(why) => {
            if arguments.detached {
                said(&why.to_string())?;
            }
            return Err(why.to_string());
        }
    };
    let cores = match &arguments.cores {
        Some(Cores(cores)) => format!(" on cores {}", cpulist(cores)),
        None => String::new(),
    };
    said(&format!("{READY} nodes as {:?}{cores}", arguments.name))?;
    server.run().map_err(|why| format!("the server has ended: {why}"))
}

/// Prints a line. A reader that has gone is not an error.
fn said(line: &str) -> Result<(), String> {
    standard_output::print(&format!("{line}\n"))
        .map_err(|why| format!("could not write to standard output: {why}"))
}

/// Starts the server as a process of its own session, and waits until it listens.
///
/// Where a service manager grants a scope, the server runs there (SERVE-5.5). A control group of a
/// job would otherwise end the server, or slow it down, for all other jobs.
fn start(arguments: &Serve) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|why| format!("could not find oikaze: {why}"))?;
    let is_root = oikaze_os::process::is_root();
    for wrapper in wrappers(is_root, std::env::var_os("XDG_RUNTIME_DIR").is_some()) {
        let mut words = wrapper.iter().map(OsStr::new).chain([own.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(own.as_os_str()));
        command.args(words).args(detached_arguments(arguments));
        match first_line(&mut command, !wrapper.is_empty())?.as_deref().map(str::trim) {
            Some(line) if line.starts_with(READY) => return Ok(()),
            // The service manager has refused, or does not run.
            None | Some("") if !wrapper.is_empty() => {}
            None | Some("") => break,
            Some(why) => return Err(why.to_owned()),
        }
    }
    Err("the server has ended before it listened".into())
}

/// Returns the commands that may start the server, best first: `systemd-run(1)`, which gives the
/// server a control group that outlives the job, and none.
fn wrappers(is_root: bool, has_runtime_directory: bool) -> Vec<Vec<&'static str>> {
    let scope = |of_user: Option<&'static str>| {
        let head = std::iter::once("systemd-run").chain(of_user);
        head.chain(["--scope", "--collect", "--quiet", "--description=Oikaze server", "--"])
            .collect()
    };
    let systemd = match (is_root, has_runtime_directory) {
        (true, _) => Some(scope(None)),
        (false, true) => Some(scope(Some("--user"))),
        // No manager of this user runs.
        (false, false) => None,
    };
    systemd.into_iter().chain([Vec::new()]).collect()
}

/// Returns the arguments of the server itself.
fn detached_arguments(arguments: &Serve) -> Vec<String> {
    let idle = arguments.idle_time.map_or(ON_DEMAND_TIME.as_millis(), u128::from);
    let mut words = vec!["serve".to_owned(), arguments.name.clone(), "--detached".to_owned()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("--idle-time", idle.to_string());
    add("--spin", arguments.spin.to_string());
    add("--nodes", arguments.nodes.to_string());
    add("--nodes-per-user", arguments.nodes_per_user.to_string());
    if let Some(Cores(cores)) = &arguments.cores {
        add("--cores", cpulist(cores));
    }
    if let Some(priority) = &arguments.priority {
        add("--priority", priority.to_string());
    }
    arguments.users.iter().for_each(|user| add("--user", user.to_string()));
    words
}

/// Starts a command, and returns the first line of its output. `None` if there is no such command,
/// or if it says nothing for long; it is ended then. `is_optional` says whether that is not an
/// error.
fn first_line(command: &mut Command, is_optional: bool) -> Result<Option<String>, String> {
    // The server outlives this process and its terminal. It needs nothing of the job's environment,
    // which may hold the job's secret.
    command.env_clear();
    for name in ["PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(_) if is_optional => return Ok(None),
        Err(why) => return Err(format!("could not start the server: {why}")),
    };
    let Some(out) = child.stdout.take() else { return Ok(None) };
    let limit = Timespec::try_from(START_TIME).map_err(|why| why.to_string())?;
    let came = poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&limit));
    if came.is_ok_and(|came| came == 0) && is_optional {
        let _ = child.kill();
        let _ = child.wait();
        return Ok(None);
    }
    let mut line = String::new();
    BufReader::new(out)
        .read_line(&mut line)
        .map_err(|why| format!("could not hear the server: {why}"))?;
    Ok(Some(line))
}

fn options(arguments: &Serve) -> Result<ServeOptions, String> {
    Ok(ServeOptions {
        cores: arguments.cores.clone().map(|Cores(cores)| cores).unwrap_or_default(),
        priority: arguments.priority,
        users: arguments.users.clone(),
        nodes_max: arguments.nodes,
        nodes_per_user_max: arguments.nodes_per_user,
        spin_time: Duration::from_micros(arguments.spin.into()),
        idle_time: arguments.idle_time.map(|time| Duration::from_millis(time.into())),
        inherited: listening_socket().map_err(|why| why.to_string())?,
        ..ServeOptions::named(&arguments.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SERVE-5.5.
    #[test]
    fn server_starts_in_a_scope_where_a_manager_may_grant_one_and_plainly_otherwise() {
        let words = |is_root, has_runtime| {
            wrappers(is_root, has_runtime).iter().map(|words| words.join(" ")).collect::<Vec<_>>()
        };
        let tail = "--scope --collect --quiet --description=Oikaze server --";
        assert_eq!(words(true, false), [format!("systemd-run {tail}"), String::new()]);
        assert_eq!(words(false, true), [format!("systemd-run --user {tail}"), String::new()]);
        assert_eq!(words(false, false), [String::new()]);
    }
}
