//! One machine as several: a network namespace for each node. A bridge in a namespace of its own
//! joins them.
//!
//! Each name is `oik-<pid of the launcher>-<rank or bridge>`, so that a later launcher can tell
//! what a dead one left behind. This needs root and the `ip` command.

use super::error::LaunchError;
use super::guard::Guard;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory in which `ip netns` keeps its names.
const NAMES: &str = "/run/netns";
/// Bytes that wait at a port with a rate before some are lost: the buffer of a small switch.
const PORT_BUFFER: u32 = 1 << 20;
/// Maximum number of nodes that fit the subnet, less the bridge.
pub const NODES_MAX: u32 = 250 * 250;

/// Addresses and packet size of the namespaces' network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cabling {
    /// First two bytes of all addresses: a /16 network.
    pub network: [u8; 2],
    /// Maximum length of a packet in bytes.
    pub mtu: u16,
    /// Bytes per second that each port carries in each direction; `None` means as many as this
    /// machine can.
    pub rate: Option<u64>,
}

impl Default for Cabling {
    fn default() -> Self {
        Cabling { network: [10, 77], mtu: 9000, rate: None }
    }
}

impl Cabling {
    /// Returns the address of a node.
    #[must_use]
    pub fn address(&self, rank: u32) -> Ipv4Addr {
        let [a, b] = self.network;
        // The last byte is 1 to 250, so neither the network's own address nor broadcast is used.
        // The bridge's x.y.255.254 stays free.
        Ipv4Addr::new(
            a,
            b,
            u8::try_from(rank / 250).unwrap_or(u8::MAX),
            u8::try_from(rank % 250 + 1).unwrap_or(u8::MAX),
        )
    }

    fn bridge(&self) -> Ipv4Addr {
        let [a, b] = self.network;
        Ipv4Addr::new(a, b, 255, 254)
    }
}

/// Namespaces of one job. Dropping the value removes them.
pub struct Network {
    names: Vec<String>,
    cabling: Cabling,
    prefix: String,
}

impl Network {
    /// Removes namespaces that dead launchers left, then makes `nodes` namespaces.
    ///
    /// # Errors
    /// There is no `ip` command, the user is not root, or `ip` fails.
    pub fn make(nodes: u32, cabling: Cabling, guard: &mut Guard) -> Result<Network, LaunchError> {
        if nodes > NODES_MAX {
            return Err(LaunchError::Usage(format!(
                "--netns has addresses for {NODES_MAX} nodes, not {nodes}"
            )));
        }
        remove_leftovers();
        let mut network =
            Network { names: Vec::new(), cabling, prefix: format!("oik-{}", std::process::id()) };
        network.add("bridge", guard)?;
        let Cabling { mtu, .. } = network.cabling;
        let mut bridge =
            format!("link set lo up\nlink add br0 type bridge\nlink set br0 mtu {mtu} up\n");
        let _ = writeln!(bridge, "address add {}/16 dev br0", network.cabling.bridge());
        for rank in 0..nodes {
            network.add(&rank.to_string(), guard)?;
            let _ = writeln!(
                bridge,
                "link add n{rank} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}",
                network.name(rank)
            );
            let _ = writeln!(bridge, "link set n{rank} master br0 up");
        }
        ip(&["-n", &network.bridge_name(), "-batch", "-"], &bridge)?;
        for rank in 0..nodes {
            let commands = format!(
                "link set lo up\naddress add {}/16 dev eth0\nlink set eth0 up\n",
                network.cabling.address(rank)
            );
            ip(&["-n", &network.name(rank), "-batch", "-"], &commands)?;
        }
        if let Some(rate) = network.cabling.rate {
            network.shape(nodes, rate)?;
        }
        Ok(network)
    }

    /// Limits the rate of each port, in both directions.
    fn shape(&self, nodes: u32, rate: u64) -> Result<(), LaunchError> {
        let shaped = |device: &str| {
            format!(
                "qdisc add dev {device} root handle 1: htb default 1\n\
                 class add dev {device} parent 1: classid 1:1 htb rate {rate}bps burst 64kb cburst 64kb quantum 60000\n\
                 qdisc add dev {device} parent 1:1 bfifo limit {PORT_BUFFER}\n"
            )
        };
        let switch: String = (0..nodes).map(|rank| shaped(&format!("n{rank}"))).collect();
        tool("tc", &["-n", &self.bridge_name(), "-batch", "-"], &switch)?;
        (0..nodes).try_for_each(|rank| {
            tool("tc", &["-n", &self.name(rank), "-batch", "-"], &shaped("eth0"))
        })
    }

    fn add(&mut self, what: &str, guard: &mut Guard) -> Result<(), LaunchError> {
        let name = format!("{}-{what}", self.prefix);
        guard.namespace(&name);
        ip(&["netns", "add", &name], "")?;
        self.names.push(name);
        Ok(())
    }

    /// Returns the name of a node's namespace.
    #[must_use]
    pub fn name(&self, rank: u32) -> String {
        format!("{}-{rank}", self.prefix)
    }

    fn bridge_name(&self) -> String {
        format!("{}-bridge", self.prefix)
    }

    /// Opens a TCP socket that all nodes can reach, on the first free port of `ports`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or no port is free.
    pub fn listen(&self, ports: &[u16]) -> Result<TcpListener, LaunchError> {
        let path = Path::new(NAMES).join(self.bridge_name());
        let address = IpAddr::V4(self.cabling.bridge());
        let ports = ports.to_vec();
        // A thread of its own enters the namespace and ends there. The socket belongs to the
        // namespace for ever.
        let enter = move || {
            let namespace = std::fs::File::open(&path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            crate::listen::bind(address, &ports)
        };
        let listener = std::thread::spawn(enter)
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread failed")));
        listener.map_err(LaunchError::system("open the store's port inside the bridge's namespace"))
    }

    /// Returns the address at which nodes reach the store.
    #[must_use]
    pub fn store(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.cabling.bridge().into(), port)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| remove(name));
    }
}

/// Kills the processes that are still inside and removes a namespace. A missing namespace is not
/// an error.
pub fn remove(name: &str) {
    let inside = Command::new("ip").args(["netns", "pids", name]).stderr(Stdio::null()).output();
    let inside = inside
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    for pid in
        inside.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
    {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = Command::new("ip")
        .args(["netns", "del", name])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Returns the launcher whose namespace this is, or `None` for any other namespace.
fn launcher_of(name: &str) -> Option<u32> {
    let (pid, what) = name.strip_prefix("oik-")?.split_once('-')?;
    let ours = what == "bridge" || what.parse::<u32>().is_ok();
    pid.parse().ok().filter(|_| ours)
}

/// Removes the namespaces of launchers that no longer exist.
fn remove_leftovers() {
    let Ok(names) = std::fs::read_dir(NAMES) else { return };
    for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let dead =
            launcher_of(&name).is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists());
        if dead {
            remove(&name);
        }
    }
}

/// Runs `ip`, with `input` as its standard input.
fn ip(arguments: &[&str], input: &str) -> Result<(), LaunchError> {
    tool("ip", arguments, input)
}

/// Runs a program of iproute2, with `input` as its standard input.
fn tool(program: &str, arguments: &[&str], input: &str) -> Result<(), LaunchError> {
    let command = format!("{program} {}", arguments.join(" "));
    let failed = |why: String| LaunchError::Network { command: command.clone(), why };
    let mut child = match Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return Err(failed("was not found: install the package iproute2".into()));
        }
        Err(why) => return Err(failed(format!("cannot be started: {why}"))),
    };
    // If the program ends early, its standard error has the reason.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|why| failed(why.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let detail = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let hint = if detail.contains("not permitted") || detail.contains("ermission denied") {
        ": --netns needs root, try sudo"
    } else {
        ""
    };
    Err(failed(format!("failed ({detail}){hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_distinct_and_usable() {
        let cabling = Cabling::default();
        let all: std::collections::HashSet<_> =
            (0..1000).map(|rank| cabling.address(rank)).collect();
        assert_eq!(all.len(), 1000);
        assert!(!all.contains(&cabling.bridge()));
        assert_eq!(cabling.address(0), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(cabling.address(250), Ipv4Addr::new(10, 77, 1, 1));
        assert_eq!(cabling.address(NODES_MAX - 1), Ipv4Addr::new(10, 77, 249, 250));
    }

    #[test]
    fn only_our_own_names() {
        assert_eq!(launcher_of("oik-12-0"), Some(12));
        assert_eq!(launcher_of("oik-12-bridge"), Some(12));
        for other in ["oik-a", "oik-b", "oik-12", "oik-12-x", "oik-x-1", "12-1", ""] {
            assert_eq!(launcher_of(other), None, "{other}");
        }
    }
}
