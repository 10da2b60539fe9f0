//! Arguments that the command understands, and their help texts.

use crate::perf::Perf;
use crate::seconds::seconds;
use crate::serve::Serve;
use crate::stats::Destination;
use crate::top::Top;
use clap::{Args, Parser, Subcommand as ClapSubcommand};
use clap_complete::Shell;
use oikaze_launch::environment::{BIND, KEEP_GOING, PRIORITY};
use oikaze_launch::launcher::hosts::agent;
use oikaze_launch::launcher::netns::Cabling;
use oikaze_launch::launcher::placement::BindChoice;
use oikaze_launch::launcher::plan::Host;
use oikaze_launch::launcher::{AgentChoice, CACHE_DIR, LaunchError, Options};
use oikaze_launch::{Ports, Seal, Settings};
use oikaze_os::cpu::Priority;
use oikaze_os::features::Feature;
use oikaze_os::net::FaultSettings;
use oikaze_os::replace_file::{FileRights, Output};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// Least and greatest rate of a network in bytes per second.
const RATES: RangeInclusive<u64> = 125_000..=50_000_000_000;

const EXAMPLES: &str = "\
Examples:
  oikaze run -n 4 -- himeno --size S            four nodes on this machine
  oikaze run --hosts a,b,c,d -- himeno          four machines, over ssh
  oikaze run --hosts a:4,b:4 -- ./program       eight nodes on two machines
  oikaze run --hosts a,b -- oikaze hello        can these hosts form a job?
  oikaze doctor                                 what this machine can do, and what to mend
  oikaze top                                    what the nodes on this machine do, live

A program finds its place by itself (oikaze::join() in Rust): without a launcher it is a job of one node.";

const RUN_EXAMPLES: &str = "\
Examples:
  oikaze run -n 4 -- himeno --size S
  oikaze run -n 4 --netns -- himeno             each node in a network namespace of its own (root)
  oikaze run --hosts a,b --ports 40000-40100 -- himeno
                                                through a firewall that leaves these ports open
  oikaze run -n 2 --fault loss=0.05,seed=7 -- himeno
                                                on a bad network
  oikaze run -n 2 --bind app=0-1,engine=2-3 -- himeno
                                                each node on a core, its communication on another
  oikaze run -n 4 --stats -- himeno             and print what the nodes have sent
  oikaze run --hosts a,b --ship himeno -- ./himeno
                                                and send the program to the hosts first
  oikaze run -n 4 -- ./mpi_program              a program of MPICH, without mpiexec
  OIKAZE_RSH='ssh -i key' oikaze run --hosts a,b -- himeno

Exit status: that of the first node that failed (128 + signal if it was killed), else 0.
  124  --timeout has passed      125  the job could not be started or a host was lost
  126  PROGRAM cannot be run     127  PROGRAM was not found

Programs also process what you set in their environment (with --hosts, too):
  OIKAZE_TIMEOUT=MS       time limit of waits that have none of their own [default: none; 30 s to join]
  OIKAZE_EXPLAIN_AFTER=MS explain on stderr each wait that has lasted this long, as --explain-after; 0: never [default: 5000]
  OIKAZE_WAIT=MODE        spin, poll:TIME (poll:10us), block or adaptive [default: adaptive: spin where cores are free and while that pays]
  OIKAZE_ENGINE=MODE      inline, thread, thread:CORES (thread:1) or process[:NAME][@CORES] (see oikaze serve): who moves the data [default: inline, the waiting thread]
  OIKAZE_SEAL=KIND        full, integrity, crc or header, as --seal [default: full]
  OIKAZE_PCAP=FILE        write all datagrams to FILE.RANK, for Wireshark; OIKAZE_TRACE=FILE: as text [OIKAZE_PCAP_LIMIT: 256M]
  OIKAZE_KEY_LOG=FILE     append the keys of connections to FILE, to open sealed captures by tools/open_capture.py
  OIKAZE_STATISTICS=off   do not show this node's numbers to `oikaze top` [default: on]
  OIKAZE_MACHINE=NAME     take a node to be on a machine of this name, as tests of hierarchies do [default: the real one]
  OIKAZE_CACHE_DIR=DIR    directory on --hosts for the command and the files that are sent there [default: ~/.cache/oikaze]
  OIKAZE_CONGESTION=KIND  congestion control algorithm, delay or cubic [default: delay]
  OIKAZE_FLOWS=N          source ports of bulk to one peer where the network caps each UDP flow: 1 to 16, or auto for as many as pay [default: 1]
  OIKAZE_WITHOUT=NAME,... switch features off, to test their replacements:
                          {features}

Node 0 reads standard input if that is not a terminal; with --hosts, no node does.
When a node fails, the others get the failure time and 2 s more to end by their own errors, then SIGTERM, then SIGKILL.
With --keep-going (or OIKAZE_KEEP_GOING=1) the others go on. The launcher reports each death once. Waits that need the
dead node fail on every node. The status is that of the first node that failed.
A node that aborts the job ends it for all nodes; the status is that of this node if it failed, else 1.
Ctrl-C is passed on; a second one kills. Ctrl-Z stops the whole job, `fg` continues it.";

/// Returns the help text with the words of all features.
fn run_examples() -> String {
    let words: Vec<_> = Feature::ALL.iter().map(|feature| feature.word()).collect();
    RUN_EXAMPLES.replace("{features}", &words.join(", "))
}

/// Version by which a launcher knows its agents.
static AGENT_VERSION: LazyLock<String> =
    LazyLock::new(|| agent::version(env!("CARGO_PKG_VERSION")));

/// Shared and remote memory for clusters on ordinary Ethernet.
#[derive(Debug, Parser)]
#[command(name = "oikaze", version = env!("OIKAZE_VERSION"), arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(Debug, ClapSubcommand)]
pub enum Subcommand {
    /// Start a program as the nodes of one job and wait for its end
    #[command(after_help = run_examples(), override_usage = "oikaze run [OPTIONS] [--] PROGRAM [ARGUMENTS]")]
    Run(Box<Run>),
    Perf(Perf),
    Top(Top),
    Serve(Serve),
    /// Check this machine, and print what was found, what is needed and how to mend it
    Doctor(Doctor),
    /// Connect to all other nodes and print their addresses: `oikaze run --hosts a,b -- oikaze
    /// hello` checks that a job can run there
    Hello(Hello),
    /// Print the completions of a shell: `oikaze completions bash >
    /// ~/.local/share/bash-completion/completions/oikaze`
    Completions(Completions),
    /// (For packages: writes the manual pages into a directory.)
    #[command(hide = true)]
    Manual(Manual),
    /// (Started by `run --hosts` on other hosts.)
    #[command(hide = true, version = AGENT_VERSION.as_str())]
    Agent,
    /// (Started by `run`: cleans up after a launcher that was killed.)
    #[command(hide = true)]
    Guard,
    /// (Started on hosts without sha256sum: prints the SHA-256 of standard input.)
    #[command(hide = true)]
    Digest,
}

#[derive(Debug, Args)]
pub struct Run {
    /// Number of nodes [default: one per host; 1 without hosts]
    #[arg(short = 'n', long = "nodes", value_name = "N")]
    nodes: Option<u32>,

    /// Hosts to run on, by ssh without password: NAME, USER@NAME, NAME:NODES, [IPV6]:NODES; ranks
    /// are given in blocks. A host that lacks this version of `oikaze` gets it (see --no-ship)
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    hosts: Vec<Host>,

    /// Run each node in a network namespace of its own, all joined by a bridge (needs root and
    /// iproute2)
    #[arg(long, conflicts_with = "hosts")]
    netns: bool,

    /// MTU of the cables between namespaces
    #[arg(long, value_name = "BYTES", default_value_t = 9000, requires = "netns", value_parser = clap::value_parser!(u16).range(1280..=65535))]
    mtu: u16,

    /// Rate of each cable between namespaces in each direction, e.g. 100mbit or 1gbit [default: as
    /// fast as this machine is]
    #[arg(long, value_name = "RATE", requires = "netns", value_parser = rate)]
    rate: Option<u64>,

    /// First two bytes of the namespaces' addresses
    #[arg(long, value_name = "A.B", default_value = "10.77", requires = "netns", value_parser = network)]
    network: [u8; 2],

    /// Use only these ports (TCP to the launcher, UDP between nodes), two for each node of a host
    #[arg(long, value_name = "A-B")]
    ports: Option<Ports>,

    /// Milliseconds of silence after which a node counts as dead [default: 5000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    failure_time: Option<u64>,

    /// Inject faults into the nodes' links, e.g.
    /// loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=7 (tamper=0.01 changes bytes and
    /// repairs the checksum)
    #[arg(long, value_name = "SPEC", value_parser = fault)]
    fault: Option<String>,

    /// Protection of datagrams between machines: full (encrypted), integrity (authenticated, but
    /// readable), crc (a checksum end to end), header (network cards check payloads, as for TCP)
    /// [default: full]
    #[arg(long, value_name = "KIND")]
    seal: Option<Seal>,

    /// Let the other nodes go on after one has died; the exit status is still that of the first
    /// node that failed
    #[arg(long)]
    keep_going: bool,

    /// End the job after this many seconds with status 124; print first what each node is doing
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Print on stderr when the job has ended: messages and bytes that each node has sent, by
    /// purpose, size and shared array. With FILE, write them there as lines of JSON instead
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,

    /// Explain on stderr each wait that has lasted for this many seconds; 0: never [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none)]
    explain_after: Option<Duration>,

    /// Bind nodes to cores: app=CORES,engine=CORES, e.g. app=0-2,engine=3, or auto (what `oikaze
    /// doctor` recommends). The nodes of a host divide each set. With engine=, a thread of its own
    /// moves the data
    #[arg(long, value_name = "CORES", value_parser = bind)]
    bind: Option<String>,

    /// Priority of the engine's thread over applications: fifo, fifo:N (real-time, 1 to 99) or
    /// nice:N (-20 to 19), and of a server that the job starts. A node that may not have it says so
    /// and runs without
    #[arg(long, value_name = "CLASS", value_parser = priority)]
    priority: Option<String>,

    /// Set a variable for all nodes; without VALUE, the launcher's own
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<OsString>,

    /// Pass the nodes' output unchanged, byte by byte, without [RANK] in front of each line
    #[arg(long)]
    no_prefix: bool,

    /// File with the job's secret, 64 hexadecimal digits, which only you can read [default: a new
    /// secret for each job]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// Pass the job's secret to nodes in OIKAZE_SECRET, not by an inherited descriptor. For
    /// programs whose starter closes descriptors (sudo, Python's subprocess). Child processes of
    /// the nodes get the secret, too
    #[arg(long)]
    secret_in_environment: bool,

    /// Send these files and directories to the hosts, too, e.g. the program. The nodes run in the
    /// directory that holds them there, which is removed at the end
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "hosts")]
    ship: Vec<PathBuf>,

    /// Send nothing to hosts: fail if one lacks this version of the oikaze command
    #[arg(long, requires = "hosts", conflicts_with = "ship")]
    no_ship: bool,

    /// Path of the oikaze command on other hosts, which must be there [default: the same path as
    /// here, or PATH, or what this command has sent before or sends now]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    agent: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print a JSON array instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Hello {
    /// Seconds to wait for the other nodes
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub limit: Duration,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell that shall complete the arguments
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct Manual {
    /// Directory for the pages, which exists
    pub directory: PathBuf,
}

impl Run {
    /// Returns the destination of the job's statistics, if the user wants them. A file is made now,
    /// so that a wrong path is an error before the job starts.
    pub fn stats(&self) -> Result<Option<Destination>, LaunchError> {
        Ok(match &self.stats {
            None => None,
            Some(None) => Some(Destination::Tables),
            Some(Some(path)) => {
                let output = Output::open(path, FileRights::Kept);
                let output = output.map_err(|source| LaunchError::System {
                    doing: format!("make {} (--stats)", path.display()),
                    source,
                })?;
                Some(Destination::Lines(output))
            }
        })
    }

    /// Returns the options in the launcher's form.
    pub fn options(self) -> Result<Options, LaunchError> {
        let own_path = own_path()?;
        // OIKAZE_TIMEOUT and the like, set by the user, reach the nodes with the rest of the
        // environment.
        let failure_time = self.failure_time.map(Duration::from_millis);
        let wished = std::env::var_os(KEEP_GOING).is_some_and(|value| value == "1");
        let (ports, fault, seal) = (self.ports, self.fault, self.seal);
        let (keep_going, explain_after) = (self.keep_going || wished, self.explain_after);
        let settings = Settings {
            ports,
            failure_time,
            fault,
            seal,
            keep_going,
            explain_after,
            ..Settings::default()
        };
        let mut environment: Vec<(OsString, OsString)> =
            self.environment.iter().map(|text| variable(text)).collect::<Result<_, _>>()?;
        for (name, value) in [(BIND, self.bind), (PRIORITY, self.priority)] {
            environment.extend(value.map(|value| (name.into(), value.into())));
        }
        let cabling = Cabling { network: self.network, mtu: self.mtu, rate: self.rate };
        Ok(Options {
            nodes: self.nodes,
            hosts: self.hosts,
            netns: self.netns.then_some(cabling),
            settings,
            prefix: !self.no_prefix,
            timeout: self.timeout,
            reports_traffic: self.stats.is_some(),
            environment,
            secret_file: self.secret_file,
            secret_in_environment: self.secret_in_environment,
            program: self.program,
            agent: self.agent.map_or_else(
                || AgentChoice::Same {
                    version: AGENT_VERSION.clone(),
                    cache: std::env::var_os(CACHE_DIR),
                    may_send: !self.no_ship,
                },
                AgentChoice::At,
            ),
            files: self.ship,
            own_path,
            rsh: std::env::var("OIKAZE_RSH").ok(),
        })
    }
}

/// Returns the path of this command itself.
fn own_path() -> Result<PathBuf, LaunchError> {
    std::env::current_exe().map_err(|source| LaunchError::System {
        doing: "find the oikaze command itself".into(),
        source,
    })
}

/// Parses `NAME=VALUE`, or `NAME` for the launcher's own value.
fn variable(text: &OsStr) -> Result<(OsString, OsString), LaunchError> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => {
            (bytes.get(..at), bytes.get(at + 1..).map(|value| OsStr::from_bytes(value).to_owned()))
        }
        None => (Some(bytes), std::env::var_os(text)),
    };
    let (name, shown) = (OsStr::from_bytes(name.unwrap_or_default()), text.display());
    match value {
        Some(value) if !name.is_empty() => Ok((name.to_owned(), value)),
        Some(_) => Err(LaunchError::Usage(format!(
            "--env {shown}: a variable has a name: write NAME=VALUE"
        ))),
        None => Err(LaunchError::Usage(format!(
            "--env {shown}: not set here; set it, or write {shown}=VALUE"
        ))),
    }
}

/// Checks the faults before anything is started, so that the user gets one error and not one from
/// every node.
fn fault(text: &str) -> Result<String, String> {
    text.parse::<FaultSettings>().map(|_| text.to_owned()).map_err(|why| why.to_string())
}

/// Checks the words of `--bind`. Each host checks its cores itself.
fn bind(text: &str) -> Result<String, String> {
    text.parse::<BindChoice>().map(|_| text.to_owned())
}

fn priority(text: &str) -> Result<String, String> {
    text.parse::<Priority>().map(|_| text.to_owned())
}

/// As [`seconds`]; 0 is allowed. Rounded up to whole milliseconds, so that only 0 means never.
fn seconds_or_none(text: &str) -> Result<Duration, String> {
    if text.parse() == Ok(0.0) {
        return Ok(Duration::ZERO);
    }
    let duration = seconds(text).map_err(|_| "a number of seconds, or 0".to_owned())?;
    Ok(duration.max(Duration::from_millis(1)))
}

/// Reads a rate of a network in bits per second. Returns bytes per second.
fn rate(text: &str) -> Result<u64, String> {
    let units = [("gbit", 1_000_000_000_u64), ("mbit", 1_000_000), ("kbit", 1000)];
    let number = |unit: &str| text.strip_suffix(unit)?.parse::<u64>().ok();
    units
        .into_iter()
        .find_map(|(unit, bits)| number(unit)?.checked_mul(bits).map(|bits| bits / 8))
        .filter(|bytes| RATES.contains(bytes))
        .ok_or_else(|| "a number with kbit, mbit or gbit, from 1mbit to 400gbit".to_owned())
}

fn network(text: &str) -> Result<[u8; 2], String> {
    let bytes = text.split_once('.').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    bytes
        .filter(|[a, _]| (1..=223).contains(a) && *a != 127)
        .ok_or_else(|| "two numbers such as 10.77".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn rates_are_read_in_bits_and_kept_in_bytes() {
        assert_eq!(
            (rate("1gbit"), rate("8mbit"), rate("2000kbit")),
            (Ok(125_000_000), Ok(1_000_000), Ok(250_000))
        );
        for bad in
            ["", "1", "gbit", "0gbit", "10kbit", "1.5gbit", "-1gbit", "500gbit", "99999999999gbit"]
        {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_leave_room_for_those_that_are_not_timed() {
        let parse = |count: &str| {
            Arguments::try_parse_from(["oikaze", "perf", "put", "--iterations", count]).is_ok()
        };
        assert!(parse("4000000000") && !parse("4294967295") && !parse("0"));
    }
}
