//! Addresses at which a node can be reached: the published list, the order of candidate pairs, and
//! the error if none works.
//!
//! A node publishes every address of every interface that is up, and guesses nothing from a default
//! route. The engine probes all candidates of a pair at once (a HELLO to each). The order only
//! decides which is called first and which wins a tie.

mod candidate;
mod choice;
pub(crate) mod unreachable;

pub use candidate::{Candidate, Likelihood};

use super::bootstrap::Bootstrap;
use super::error::JobError;
use choice::{common_bits, spread};
pub use choice::{of_store, scoped_store};
use oikaze_os::cpu::{CpuId, parse_cpulist};
use oikaze_os::interfaces::{self, Interface};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
pub use unreachable::{Tried, Unreachable};

/// Maximum number of candidates of one pair. Each is called ten times a second until the peer is
/// connected.
pub const CANDIDATES_MAX: usize = 32;
/// Maximum number of addresses that a node publishes, so that they fit a value of the store.
const PUBLISHED_MAX: usize = 256;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface's name.
    pub interface: String,
    /// Number of the interface, the scope of link-local addresses.
    pub index: u32,
    /// Address of the interface.
    pub address: IpAddr,
    /// Bits of its subnet.
    pub prefix: u8,
}

impl From<Interface> for Address {
    fn from(one: Interface) -> Address {
        let Interface { name, index, address, prefix, .. } = one;
        Address { interface: name, index, address, prefix }
    }
}

/// Identity of the machine that a process runs on, as far as another process can use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Boot id of the kernel: equal for processes on the same running kernel.
    pub boot_id: String,
    /// Inode of the network namespace: equal if the processes share loopback.
    pub network: u64,
    /// Name of the host, for messages only.
    pub name: String,
}

impl HostIdentity {
    /// Returns the identity of this process's machine.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn here() -> Result<HostIdentity, JobError> {
        let boot_id = "/proc/sys/kernel/random/boot_id";
        let network = "/proc/self/ns/net";
        let read = std::fs::read_to_string(boot_id)
            .map_err(JobError::system(format!("read {boot_id} (is /proc mounted?)")))?;
        let inode = std::fs::metadata(network)
            .map_err(JobError::system(format!("look at {network} (is /proc mounted?)")))?
            .ino();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(HostIdentity {
            boot_id: read.trim().to_owned(),
            network: inode,
            name: name.trim().to_owned(),
        })
    }

    /// Returns `true` if both see the same loopback interface.
    #[must_use]
    pub fn shares_loopback(&self, other: &HostIdentity) -> bool {
        self.boot_id == other.boot_id && self.network == other.network
    }
}

/// Record that a node publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachable {
    /// Machine of the node.
    pub host: HostIdentity,
    /// UDP port that the node is bound to, on all of its addresses.
    pub port: u16,
    /// All addresses of interfaces that are up.
    pub addresses: Vec<Address>,
    /// Sockets at which nodes of the same machine can call this node, if it shares memory with
    /// them.
    #[serde(default)]
    pub callable: Option<Callable>,
    /// Processors that the node may run on, as the kernel writes them (`0-3,8`). Nodes of one
    /// machine must not spin on each other's.
    #[serde(default)]
    pub processors: Option<String>,
    /// Number of addresses that were left out, because there were too many.
    #[serde(default)]
    pub left_out: u32,
    /// Name of the machine that the node takes itself to be on, if the user gives one.
    #[serde(default)]
    pub machine: Option<String>,
}

/// Unix sockets at which other nodes of the machine call a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callable {
    /// User of the process.
    pub user: u32,
    /// Abstract name of a socket, in the process's network namespace.
    pub name: String,
    /// Path of a socket file, in a directory that other namespaces may see, too.
    pub file: Option<String>,
}

impl Reachable {
    /// Returns `true` if the two nodes are on one machine, also according to the names that the
    /// user gives to machines.
    #[must_use]
    pub fn shares_machine(&self, other: &Reachable) -> bool {
        self.host.boot_id == other.host.boot_id && self.machine == other.machine
    }

    /// Returns the record of this process, bound to `port` on all addresses of the families it can
    /// receive on.
    ///
    /// # Errors
    /// The system does not list its interfaces.
    pub fn here(port: u16, ipv4: bool, ipv6: bool) -> Result<Reachable, JobError> {
        let all =
            interfaces::list().map_err(JobError::system("list this host's network interfaces"))?;
        let usable = |i: &Interface| {
            i.up && !i.address.is_unspecified() && if i.address.is_ipv4() { ipv4 } else { ipv6 }
        };
        let all = all.into_iter().filter(usable).map(Address::from).collect();
        Ok(Reachable::publishing(HostIdentity::here()?, port, all))
    }

    /// Keeps the best of these addresses, and some of every kind.
    fn publishing(host: HostIdentity, port: u16, mut all: Vec<Address>) -> Reachable {
        let kind = |one: &Address| {
            (
                is_virtual(&one.interface),
                is_link_local(one.address),
                one.address.is_loopback(),
                one.address.is_ipv6(),
            )
        };
        // The order of interfaces stays, except that those of containers come last.
        all.sort_by_key(|one| is_virtual(&one.interface));
        let count = all.len();
        let addresses = spread(all, PUBLISHED_MAX, kind);
        let left_out = u32::try_from(count - addresses.len()).unwrap_or(u32::MAX);
        Reachable {
            host,
            port,
            addresses,
            callable: None,
            processors: None,
            left_out,
            machine: None,
        }
    }

    fn key(rank: u32) -> String {
        format!("reachable/{rank}")
    }

    /// Publishes this record under the node's rank.
    ///
    /// # Errors
    /// The store fails.
    pub fn publish(&self, job: &dyn Bootstrap) -> Result<(), JobError> {
        let text = serde_json::to_vec(self).map_err(|why| JobError::System {
            doing: "write this node's addresses as JSON".into(),
            source: std::io::Error::other(why),
        })?;
        job.put(&Reachable::key(job.rank()), &text)
    }

    /// Returns the record that node `rank` published, and waits for it.
    ///
    /// # Errors
    /// The store fails, or the record cannot be understood.
    pub fn of(job: &dyn Bootstrap, rank: u32, timeout: Duration) -> Result<Reachable, JobError> {
        let key = Reachable::key(rank);
        let text = job.get(&key, timeout).map_err(|why| match why {
            JobError::TimedOut { limit, .. } => JobError::NotJoined { rank, limit },
            JobError::NodeEnded { rank, how, .. } => {
                let (how, what) =
                    (format!("{how} before it had joined"), "joining the job".to_owned());
                JobError::NodeEnded { rank, how, what }
            }
            other => other,
        })?;
        let malformed = |why: String| JobError::Malformed { rank, what: "its addresses", why };
        let mut read: Reachable =
            serde_json::from_slice(&text).map_err(|why| malformed(why.to_string()))?;
        if read.port == 0 {
            return Err(malformed("port 0".into()));
        }
        read.addresses.truncate(PUBLISHED_MAX);
        Ok(read)
    }
}

/// Returns `true` for names that container engines and hypervisors give to their bridges and to the
/// host's end of a guest's cable.
fn is_virtual(interface: &str) -> bool {
    const PREFIXES: [&str; 11] = [
        "docker", "virbr", "br-", "veth", "cni", "flannel", "cali", "lxcbr", "lxdbr", "podman",
        "vmnet",
    ];
    PREFIXES.iter().any(|prefix| interface.starts_with(prefix))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns `true` if the address means something only with the number of an interface.
fn is_scoped(address: IpAddr) -> bool {
    address.is_ipv6() && is_link_local(address)
}

/// Returns `true` if both are in the same subnet of `bits` bits.
fn same_subnet(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    bits > 0 && common_bits(a, b) >= u32::from(bits)
}

/// Returns the addresses at which `mine` may reach `theirs`, the most promising first. Each call
/// returns the same list.
#[must_use]
pub fn candidates(mine: &Reachable, theirs: &Reachable) -> Vec<Candidate> {
    choose(mine, theirs).0
}

/// Returns the candidates as [`candidates`] does, and the number of those left out.
pub fn choose(mine: &Reachable, theirs: &Reachable) -> (Vec<Candidate>, u32) {
    let mut found = Vec::new();
    let together = mine.host.shares_loopback(&theirs.host);
    for address in &theirs.addresses {
        found.extend(candidates_at(mine, theirs, address, together));
    }
    // Networks are numbered in blocks, so the routed address nearest to one of this node's is the
    // likeliest.
    let distance = |candidate: &Candidate| match candidate.likelihood {
        Likelihood::Routed | Likelihood::Virtual => {
            let cables = mine.addresses.iter().filter(|own| !is_virtual(&own.interface));
            128 - cables.map(|own| common_bits(own.address, candidate.to.ip())).max().unwrap_or(0)
        }
        _ => 0,
    };
    // A stable sort: within a likelihood, the peer's order of interfaces stays. IPv4 comes first,
    // because its header is shorter.
    found.sort_by_cached_key(|candidate| {
        (candidate.likelihood, candidate.to.is_ipv6(), distance(candidate))
    });
    let mut seen = std::collections::HashSet::new();
    found.retain(|candidate| seen.insert(candidate.to));
    let count = found.len();
    let kept =
        spread(found, CANDIDATES_MAX, |candidate| (candidate.likelihood, candidate.to.is_ipv6()));
    let left_out = u32::try_from(count - kept.len()).unwrap_or(u32::MAX);
    (kept, left_out.saturating_add(theirs.left_out))
}

/// Returns the candidates over networks that both hosts are attached to, as indices: for each
/// family with several networks a list, with one candidate for each interface of `mine`
/// (WIND-14.8).
#[must_use]
pub fn networks(mine: &Reachable, candidates: &[Candidate]) -> Vec<Vec<u8>> {
    let of_family = |is_ipv6: bool| {
        let mut seen = Vec::new();
        let mut network: Vec<u8> = Vec::new();
        for (at, candidate) in (0..).zip(candidates) {
            let ip = candidate.to.ip();
            let near = |own: &&Address| same_subnet(own.address, ip, own.prefix);
            let own = mine.addresses.iter().find(near).map(|own| &own.interface);
            // Nodes of one host are in the subnets of all its interfaces.
            let is_here = mine.addresses.iter().any(|own| own.address == ip);
            let is_on_link = candidate.likelihood == Likelihood::SameSubnet && !is_here;
            if is_on_link && ip.is_ipv6() == is_ipv6 && !seen.contains(&own) {
                seen.push(own);
                network.push(at);
            }
        }
        network
    };
    [false, true].map(of_family).into_iter().filter(|network| network.len() > 1).collect()
}

fn candidates_at(
    mine: &Reachable,
    theirs: &Reachable,
    address: &Address,
    together: bool,
) -> Vec<Candidate> {
    let candidate = |to: SocketAddr, likelihood| Candidate {
        to,
        interface: address.interface.clone(),
        likelihood,
    };
    let plain = SocketAddr::new(address.address, theirs.port);
    if address.address.is_loopback() {
        return if together { vec![candidate(plain, Likelihood::Loopback)] } else { Vec::new() };
    }
    // An address of another host that this host has too (every docker0 has 172.17.0.1) would lead
    // back to this host.
    if !together
        && !is_scoped(address.address)
        && mine.addresses.iter().any(|own| own.address == address.address)
    {
        return Vec::new();
    }
    if let IpAddr::V6(v6) = address.address
        && v6.is_unicast_link_local()
    {
        return scopes(&mine.addresses, v6)
            .map(|scope| SocketAddrV6::new(v6, theirs.port, 0, scope).into())
            .map(|to| candidate(to, Likelihood::LinkLocal))
            .collect();
    }
    let near = |own: &&Address| same_subnet(own.address, address.address, own.prefix);
    let likelihood = match mine.addresses.iter().find(near) {
        _ if is_virtual(&address.interface) => Likelihood::Virtual,
        Some(own) if is_virtual(&own.interface) => Likelihood::Virtual,
        _ if is_link_local(address.address) => Likelihood::LinkLocal,
        Some(_) => Likelihood::SameSubnet,
        None => Likelihood::Routed,
    };
    vec![candidate(plain, likelihood)]
}

/// Returns the possible scopes of another host's link-local address. The scope there means nothing
/// here. So the address is tried on each of this host's interfaces that looks like a cable and has
/// a link-local address.
fn scopes(mine: &[Address], v6: Ipv6Addr) -> impl Iterator<Item = u32> {
    let linked = |own: &&Address| is_scoped(own.address) && !is_virtual(&own.interface);
    // An interface that has the address itself (bridges with equal MAC addresses do) would lead
    // back here.
    let own =
        move |index| mine.iter().any(|own| own.index == index && own.address == IpAddr::V6(v6));
    mine.iter().filter(linked).map(|own| own.index).filter(move |index| !own(*index))
}

/// Returns the processors that each other node of this machine may run on. A node that does not
/// publish them may run on all of `mine`.
pub fn processors_here<'a>(
    me: &'a Reachable,
    others: &'a [Option<Reachable>],
    mine: &'a [CpuId],
) -> impl Iterator<Item = Vec<CpuId>> + 'a {
    let here = others.iter().flatten().filter(|theirs| theirs.host.boot_id == me.host.boot_id);
    here.map(|theirs| {
        theirs.processors.as_deref().and_then(parse_cpulist).unwrap_or_else(|| mine.to_vec())
    })
}

#[cfg(test)]
mod tests;
