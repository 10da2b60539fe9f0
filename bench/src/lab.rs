//! Lab of two hosts on one machine: network namespaces joined by a veth pair, in *wire* mode by
//! default.
//!
//! Wire mode switches segmentation offload off at both ends, so that the kernel forms every
//! datagram and every TCP segment, as on a cable. In mode *whole*, veth passes buffers of 64 KiB
//! uncut, which no cable does. Measurements between two nodes of one machine need no namespaces,
//! only a core for each node.
//!
//! A separate process, the janitor, removes the lab when the bench ends, even if the bench is
//! killed. The janitor waits until the pipe that the bench holds is closed. It also holds a lock,
//! so that no second bench starts.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oikaze_os::cpu::{CpuId, Topology};
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::{Error, Tried};
use crate::process::own_program;
use crate::switch;

/// Addresses of the hosts, in the order of [`HOSTS`].
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Network of these addresses.
const NETWORK: &str = "10.77.0.0/24";
/// Two addresses of this machine, so that a launcher can tell its nodes apart.
const ADDRESSES_HERE: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
/// Host of clients and launchers.
pub const CLIENT: usize = 0;
/// Host of servers.
pub const SERVER: usize = 1;
/// Namespaces, in the order of ranks.
pub const HOSTS: [&str; 2] = ["oik-a", "oik-b"];
/// Ends of the cable.
pub const DEVICES: [&str; 2] = ["wa", "wb"];
/// Hardware addresses of the ends, of those that anybody may give out.
pub const CARDS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Hosts of a [`Fork`]: one with two network cards, and one at the other end of each.
const FORK_HOSTS: [&str; 3] = ["oik-s", "oik-r1", "oik-r2"];
/// Addresses of the two cables of a [`Fork`]: the end of the sender, and that of a receiver.
const FORK_ADDRESSES: [[&str; 2]; 2] = [["10.78.1.1", "10.78.1.2"], ["10.78.2.1", "10.78.2.2"]];
/// Lock of the janitor, so that there is only one lab.
const LOCK: &str = "/run/lock/oikaze-lab";
/// Time limit for a new device to come up.
const LINK_PATIENCE: Duration = Duration::from_secs(5);
/// Time limit to wait for a lab that is being removed.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Line that the janitor prints when it holds the lock.
const READY: &str = "ready";
/// Time limit of a node of a job in the lab.
const NODE_LIMIT: Duration = Duration::from_secs(60);

named! {
    /// Treatment of large buffers by the wire.
    pub enum WireMode {
        /// Every datagram and segment is really formed, as on a cable
        Wire = "wire",
        /// The kernel may pass up to 64 KiB uncut, as no cable does
        Whole = "whole",
    }
}

/// Place of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Between two hosts.
    Wire {
        /// MTU of the wire.
        mtu: u16,
        /// Treatment of large buffers by the wire.
        mode: WireMode,
    },
    /// Between two processes of this machine, each on a core of its own.
    Here,
}

impl Place {
    /// Returns the MTU and the mode of the wire, if there is one.
    pub fn wire(self) -> Option<(u16, WireMode)> {
        match self {
            Self::Wire { mtu, mode } => Some((mtu, mode)),
            Self::Here => None,
        }
    }

    /// Returns the MTU of the wire, or the largest MTU if there is no wire.
    pub fn mtu(self) -> u16 {
        self.wire().map_or(u16::MAX, |(mtu, _)| mtu)
    }

    /// Returns the addresses of the two ends.
    pub fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::Wire { .. } => ADDRESSES,
            Self::Here => ADDRESSES_HERE,
        }
    }

    /// Returns the addresses of the first `count` ends.
    ///
    /// # Errors
    /// There are fewer.
    pub fn first_addresses(self, count: usize) -> Result<Vec<&'static str>, Error> {
        let all = self.addresses();
        let first = all.get(..count).map(<[&str]>::to_vec);
        first.ok_or_else(|| Error::new(format!("the lab has {} hosts, not {count}", all.len())))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wire { mtu, .. } => write!(f, "mtu {mtu}"),
            Self::Here => f.write_str("one machine"),
        }
    }
}

/// Returns a core of this machine for each of `processes` processes, or `None` if there are fewer.
pub fn core_of_each(processes: usize) -> Option<Vec<CpuId>> {
    let Topology { mut cores, parallelism, .. } = Topology::detect().ok()?;
    cores.truncate(processes);
    (cores.len() == processes && processes <= parallelism).then_some(cores)
}

/// Congestion control of TCP between the hosts: Linux's default, whatever this machine has.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Running lab. Dropping it removes the lab.
pub struct Lab {
    janitor: Child,
    /// Place for which the lab was set up.
    pub place: Place,
}

impl Lab {
    /// Makes the two hosts. Removes what an earlier lab left first.
    ///
    /// # Errors
    /// The user is not root, a tool is missing, or another bench is running.
    pub fn up(place: Place) -> Result<Self, Error> {
        let lab = || Ok::<_, Error>(Self { janitor: hire_janitor()?, place });
        let Some((mtu, mode)) = place.wire() else { return lab() };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(
                "making two hosts of network namespaces needs root; run the bench as root (sudo -E)",
            ));
        }
        let lab = lab()?;
        remove()?;
        for host in HOSTS {
            tool("ip", &["netns", "add", host])?;
            tool("ip", &["-n", host, "link", "set", "lo", "up"])?;
        }
        let [a, b] = HOSTS;
        let [wa, wb] = DEVICES;
        tool(
            "ip",
            &["link", "add", wa, "netns", a, "type", "veth", "peer", "name", wb, "netns", b],
        )?;
        let mtu = mtu.to_string();
        for (((host, device), address), card) in
            HOSTS.into_iter().zip(DEVICES).zip(ADDRESSES).zip(CARDS)
        {
            let card = card.map(|byte| format!("{byte:02x}")).join(":");
            tool("ip", &["-n", host, "addr", "add", &format!("{address}/24"), "dev", device])?;
            let up = ["link", "set", device, "address", &card, "up", "mtu", &mtu];
            tool("ip", &[&["-n", host], &up[..]].concat())?;
            // A route's choice needs no permission of the machine.
            let route = ["route", "replace", NETWORK, "dev", device, "src", address, "congctl"];
            tool("ip", &[&["-n", host], &route[..], &[CONGESTION_CONTROL]].concat())?;
            let offload = if mode == WireMode::Wire { "off" } else { "on" };
            let wire =
                ["tso", offload, "gso", offload, "tx-udp-segmentation", offload, "gro", "on"];
            let ethtool = ["netns", "exec", host, "ethtool", "-K", device];
            tool("ip", &[ethtool.as_slice(), &wire].concat())?;
        }
        HOSTS
            .into_iter()
            .zip(DEVICES)
            .try_for_each(|(host, device)| wait_for_link(host, device))?;
        Ok(lab)
    }

    /// Returns a command on host 0 or 1, on a core of its own, with a time limit.
    pub fn on(&self, host: usize, limit: Duration, program: impl Into<OsString>) -> Command {
        let mut command = match self.place {
            Place::Wire { .. } => in_namespace(host, limit),
            Place::Here => limited(host, limit),
        };
        command.arg(program.into());
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take()); // closes the pipe, so the janitor removes the lab
        let _ = self.janitor.wait();
    }
}

/// Host with two network cards, and a receiving host at each. Dropping it removes the hosts.
///
/// Both ends form every datagram. The hosts have no cores of their own: programs choose.
pub struct Fork {
    /// Removes the hosts.
    _lab: Lab,
}

impl Fork {
    /// Host with two cards.
    pub const SENDER: usize = 0;

    /// Makes the hosts. With `rate`, each link carries as much, in the words of tc-tbf(8).
    ///
    /// # Errors
    /// As [`Lab::up`]; the kernel has no token bucket filter.
    pub fn up(mtu: u16, rate: Option<&str>) -> Result<Fork, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(
                "making three hosts of network namespaces needs root; run the bench as root (sudo -E)",
            ));
        }
        let fork = Fork { _lab: Lab { janitor: hire_janitor()?, place: Place::Here } };
        remove()?;
        for host in FORK_HOSTS {
            tool("ip", &["netns", "add", host])?;
            tool("ip", &["-n", host, "link", "set", "lo", "up"])?;
        }
        let mtu = mtu.to_string();
        let [sender, receivers @ ..] = FORK_HOSTS;
        for ((receiver, device), ends) in
            receivers.into_iter().zip(["f1", "f2"]).zip(FORK_ADDRESSES)
        {
            let other = ["type", "veth", "peer", "name", device, "netns", receiver];
            tool("ip", &[&["link", "add", device, "netns", sender], &other[..]].concat())?;
            for (host, address) in [sender, receiver].into_iter().zip(ends) {
                tool("ip", &["-n", host, "addr", "add", &format!("{address}/24"), "dev", device])?;
                tool("ip", &["-n", host, "link", "set", device, "up", "mtu", &mtu])?;
                let wire = ["tso", "off", "gso", "off", "tx-udp-segmentation", "off", "gro", "on"];
                let ethtool = ["netns", "exec", host, "ethtool", "-K", device];
                tool("ip", &[ethtool.as_slice(), &wire].concat())?;
                if let Some(rate) = rate {
                    // The queue is longer than what sockets may have under way: nothing is lost.
                    let filter = ["root", "tbf", "rate", rate, "burst", "16kb", "limit", "16mb"];
                    let device = ["-n", host, "qdisc", "add", "dev", device];
                    tool("tc", &[device.as_slice(), &filter].concat())?;
                }
            }
            wait_for_link(sender, device)?;
            wait_for_link(receiver, device)?;
        }
        Ok(fork)
    }

    /// Returns the receiving host of application 0 or 1.
    pub const fn receiver(application: usize) -> usize {
        1 + application % 2
    }

    /// Returns the addresses of the cable of application 0 or 1: of the sender and the receiver.
    pub const fn addresses(application: usize) -> [&'static str; 2] {
        FORK_ADDRESSES[application % 2]
    }

    /// Returns a command on a host, with a time limit and on all cores.
    pub fn on(&self, host: usize, limit: Duration, program: impl Into<OsString>) -> Command {
        let mut command = on_fork(host, limit);
        command.arg(program.into());
        command
    }
}

/// Returns the beginning of a command: `ip netns exec HOST timeout LIMIT`.
fn on_fork(host: usize, limit: Duration) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", FORK_HOSTS[host % FORK_HOSTS.len()], "timeout"]);
    command.args(["--kill-after=1", &limit.as_secs().to_string()]);
    command
}

/// Returns the host of a [`Fork`] with this address.
fn fork_host(address: &str) -> Option<usize> {
    let cable = FORK_ADDRESSES.iter().position(|ends| ends.contains(&address))?;
    let is_sender = FORK_ADDRESSES[cable][0] == address;
    Some(if is_sender { Fork::SENDER } else { Fork::receiver(cable) })
}

/// Waits until the kernel reports a device as up. A device carries datagrams some time earlier, but
/// UCX does not see it until then.
fn wait_for_link(host: &str, device: &str) -> Result<(), Error> {
    let started = Instant::now();
    while started.elapsed() < LINK_PATIENCE {
        if tool("ip", &["-n", host, "-brief", "link", "show", "dev", device])?
            .split_whitespace()
            .nth(1)
            == Some("UP")
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Error::new(format!(
        "device {device} on {host} was set up, but did not come up within {LINK_PATIENCE:?}"
    )))
}

/// Returns the beginning of a command: `timeout LIMIT taskset -c CORE`.
fn limited(host: usize, limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(limits(host, limit));
    command
}

/// Returns the beginning of a command: `ip netns exec HOST timeout LIMIT taskset -c CORE`.
fn in_namespace(host: usize, limit: Duration) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", HOSTS[host % HOSTS.len()], "timeout"]).args(limits(host, limit));
    command
}

/// Returns the arguments of `timeout`, up to the program.
fn limits(host: usize, limit: Duration) -> [String; 5] {
    let core = (host % HOSTS.len()).to_string();
    [
        "--kill-after=1".to_owned(),
        limit.as_secs().to_string(),
        "taskset".to_owned(),
        "-c".to_owned(),
        core,
    ]
}

/// Returns the command by which a launcher enters the hosts in place of ssh: the bench's own
/// program ([`enter`]).
///
/// # Errors
/// The program's path is not known.
pub fn remote_shell() -> Result<String, Error> {
    let me = own_program()?;
    Ok(format!("{} enter", me.display()))
}

/// Becomes a shell that runs `command` on the host with this address. A launcher calls it in place
/// of ssh.
///
/// # Errors
/// There is no such host, or the shell cannot be started.
pub fn enter(address: &str, command: &[OsString]) -> Result<(), Error> {
    if let Some(why) = switch::enter(address, command) {
        return Err(why);
    }
    let among = |addresses: [&str; 2]| addresses.iter().position(|&host| host == address);
    let in_lab = among(ADDRESSES).map(|host| in_namespace(host, NODE_LIMIT));
    let entered = in_lab.or_else(|| among(ADDRESSES_HERE).map(|host| limited(host, NODE_LIMIT)));
    let entered = entered.or_else(|| Some(on_fork(fork_host(address)?, NODE_LIMIT)));
    let mut entered = entered.ok_or_else(|| {
        Error::new(format!("{address} is not a host of the lab: {}", ADDRESSES.join(" and ")))
    })?;
    let why = entered.args(["sh", "-c"]).arg(command.join(std::ffi::OsStr::new(" "))).exec();
    Err(Error::io(
        format!("starting {:?} (packages iproute2, coreutils)", entered.get_program()),
        &why,
    ))
}

/// Starts the janitor in a process group of its own, so that a terminal's Ctrl-C does not reach it.
fn hire_janitor() -> Result<Child, Error> {
    let me = own_program()?;
    let mut janitor = Command::new(me)
        .arg("janitor")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .tried("starting the lab's janitor")?;
    let mut line = String::new();
    if let Some(stdout) = janitor.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).tried("listening to the lab's janitor")?;
    }
    if line.trim() == READY {
        return Ok(janitor);
    }
    let _ = janitor.wait();
    Err(Error::new(format!("another bench is at work (it holds {LOCK}); wait for its end")))
}

/// Runs the janitor: takes the lock, waits for the end of standard input, removes the lab.
///
/// # Errors
/// The lock cannot be opened, or the lab cannot be removed.
pub fn janitor() -> Result<(), Error> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let lock =
        rustix::fs::open(LOCK, flags, Mode::RUSR | Mode::WUSR).tried(format!("opening {LOCK}"))?;
    // The janitor of a bench that has just ended may still be removing its lab.
    let begun = Instant::now();
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begun.elapsed() > LOCK_PATIENCE {
            return Ok(()); // the bench gives up when the janitor does not print `READY`
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).tried("answering the bench")?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    remove()
}

/// Kills the processes on the two hosts, then removes the hosts, if they exist.
fn remove() -> Result<(), Error> {
    let present = tool("ip", &["netns", "list"])?;
    for host in HOSTS.into_iter().chain(FORK_HOSTS) {
        if !present.lines().any(|line| line.split_whitespace().next() == Some(host)) {
            continue;
        }
        for pid in tool("ip", &["netns", "pids", host])?.lines() {
            let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
            let _ =
                pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL)); // it may have ended by itself
        }
        tool("ip", &["netns", "del", host])?;
    }
    Ok(())
}

/// Runs `ip` or another tool of the system. Returns its output.
///
/// # Errors
/// The tool is not there, or fails.
pub fn tool(program: &str, arguments: &[&str]) -> Result<String, Error> {
    let tried = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|why| {
        Error::new(format!("{}: {why}; install the packages iproute2 and ethtool", tried()))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let hint = if why.contains("ethtool") { "; install the package ethtool" } else { "" };
    Err(Error::new(format!("{}: {}{hint}", tried(), why.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_fork_have_their_hosts() {
        for application in 0..2 {
            let [from, to] = Fork::addresses(application);
            assert_eq!(fork_host(from), Some(Fork::SENDER));
            assert_eq!(fork_host(to), Some(Fork::receiver(application)));
        }
        assert_eq!(fork_host("10.77.0.1"), None);
    }

    #[test]
    fn place_has_as_many_addresses_as_asked_for_or_fails() {
        let wire = Place::Wire { mtu: 9000, mode: WireMode::Wire };
        assert_eq!(wire.first_addresses(1).ok(), Some(ADDRESSES[..1].to_vec()));
        assert_eq!(wire.first_addresses(2).ok(), Some(ADDRESSES.to_vec()));
        assert!(wire.first_addresses(3).is_err_and(|error| error.to_string().contains("not 3")));
    }
}
