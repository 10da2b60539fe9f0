//! Where a node can be reached: what each publishes, which pairs of addresses to try first, and
//! what to say if none works.
//!
//! Nothing is guessed from a default route: every address of every interface that is up is
//! published, and the engine probes all candidates of a pair at once (a HELLO to each). The order
//! only decides who is asked first and who wins a tie.

mod choice;
mod unreachable;

use crate::job::{Bootstrap, JobError};
pub use choice::of_store;
use choice::{common_bits, spread};
use oikaze_os::cpu::{CpuId, parse_cpulist};
use oikaze_os::interfaces::{self, Interface};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
pub use unreachable::{Tried, Unreachable};

/// Candidates of one pair; each is called ten times a second until the peer is connected.
pub const CANDIDATES_MAX: usize = 32;
/// Addresses that a node publishes: they fit a value of the store.
const PUBLISHED_MAX: usize = 256;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface's name.
    pub interface: String,
    /// Its number, the scope of link-local addresses.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of its subnet.
    pub prefix: u8,
}

/// Which machine a process runs on, as far as another process can use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The kernel's boot id: equal for processes on the same running kernel.
    pub boot_id: String,
    /// Inode of the network namespace: equal if loopback is shared.
    pub network: u64,
    /// For messages only.
    pub name: String,
}

impl HostIdentity {
    /// This process's.
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

    /// Do both see the same loopback interface?
    #[must_use]
    pub fn shares_loopback(&self, other: &HostIdentity) -> bool {
        self.boot_id == other.boot_id && self.network == other.network
    }
}

/// Record that a node publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachable {
    /// Its machine.
    pub host: HostIdentity,
    /// The UDP port it is bound to, on all of its addresses.
    pub port: u16,
    /// All addresses of interfaces that are up.
    pub addresses: Vec<Address>,
    /// Where nodes of the same machine can call it, if it shares memory with them.
    #[serde(default)]
    pub callable: Option<Callable>,
    /// The processors it may run on, as the kernel writes them (`0-3,8`): nodes of one machine must
    /// not spin on each other's.
    #[serde(default)]
    pub processors: Option<String>,
    /// Addresses that were left out, because there were too many.
    #[serde(default)]
    pub left_out: u32,
}

/// Unix sockets at which a node is called by others on its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callable {
    /// The user it belongs to.
    pub user: u32,
    /// An abstract name, in its network namespace.
    pub name: String,
    /// The path of a file, in a directory that other namespaces may see, too.
    pub file: Option<String>,
}

impl Reachable {
    /// This process, bound to `port` on all addresses of the families it can receive on.
    ///
    /// # Errors
    /// The system does not list its interfaces.
    pub fn here(port: u16, ipv4: bool, ipv6: bool) -> Result<Reachable, JobError> {
        let all =
            interfaces::list().map_err(JobError::system("list this host's network interfaces"))?;
        let usable = |i: &Interface| {
            i.up && !i.address.is_unspecified() && if i.address.is_ipv4() { ipv4 } else { ipv6 }
        };
        let address = |i: Interface| Address {
            interface: i.name,
            index: i.index,
            address: i.address,
            prefix: i.prefix,
        };
        let all = all.into_iter().filter(usable).map(address).collect();
        Ok(Reachable::publishing(HostIdentity::here()?, port, all))
    }

    /// Keeps the best of these addresses, and every kind.
    fn publishing(host: HostIdentity, port: u16, mut all: Vec<Address>) -> Reachable {
        let kind = |one: &Address| {
            (
                is_virtual(&one.interface),
                is_link_local(one.address),
                one.address.is_loopback(),
                one.address.is_ipv6(),
            )
        };
        // The order of interfaces stays, but those of containers come last.
        all.sort_by_key(|one| is_virtual(&one.interface));
        let count = all.len();
        let addresses = spread(all, PUBLISHED_MAX, kind);
        let left_out = u32::try_from(count - addresses.len()).unwrap_or(u32::MAX);
        Reachable { host, port, addresses, callable: None, processors: None, left_out }
    }

    fn key(rank: u32) -> String {
        format!("reachable/{rank}")
    }

    /// Publish this under the node's rank.
    ///
    /// # Errors
    /// Those of the store.
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
    /// Those of the store, or something that cannot be understood.
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

/// How good a pair of addresses looks before it was tried; the smaller, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// Both on one host: the loopback interface.
    Loopback,
    /// Both in one subnet, on interfaces that look like cables.
    SameSubnet,
    /// Perhaps routed.
    Routed,
    /// An IPv6 link-local address, on one of our interfaces.
    LinkLocal,
    /// An address of a bridge for containers or virtual machines (docker0, virbr0): often the same
    /// on every host.
    Virtual,
}

/// One address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where to send.
    pub to: SocketAddr,
    /// The peer's interface that has this address.
    pub interface: String,
    /// How good it looks.
    pub likelihood: Likelihood,
}

/// Names that container engines and hypervisors give to their bridges and to the host's end of a
/// guest's cable.
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

/// Does the address mean something only with the number of an interface?
fn is_scoped(address: IpAddr) -> bool {
    address.is_ipv6() && is_link_local(address)
}

/// Are both in the subnet of `bits` bits?
fn same_subnet(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    bits > 0 && common_bits(a, b) >= u32::from(bits)
}

/// Addresses at which `mine` may reach `theirs`, the most promising first; the same list on every
/// call.
#[must_use]
pub fn candidates(mine: &Reachable, theirs: &Reachable) -> Vec<Candidate> {
    choose(mine, theirs).0
}

/// As [`candidates`], and how many more there would be.
pub(crate) fn choose(mine: &Reachable, theirs: &Reachable) -> (Vec<Candidate>, u32) {
    let mut found = Vec::new();
    let together = mine.host.shares_loopback(&theirs.host);
    for address in &theirs.addresses {
        found.extend(candidates_at(mine, theirs, address, together));
    }
    // Networks are numbered in blocks: of routed addresses the nearest to one of ours are the
    // likeliest.
    let distance = |candidate: &Candidate| match candidate.likelihood {
        Likelihood::Routed | Likelihood::Virtual => {
            let cables = mine.addresses.iter().filter(|own| !is_virtual(&own.interface));
            128 - cables.map(|own| common_bits(own.address, candidate.to.ip())).max().unwrap_or(0)
        }
        _ => 0,
    };
    // Stable: within a rank of likelihood, the order in which the peer lists its interfaces; IPv4
    // first, as its header is shorter.
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
    // Another host's address that is also ours (every docker0 has 172.17.0.1) would reach
    // ourselves.
    if !together
        && !is_scoped(address.address)
        && mine.addresses.iter().any(|own| own.address == address.address)
    {
        return Vec::new();
    }
    if let IpAddr::V6(v6) = address.address
        && v6.is_unicast_link_local()
    {
        return scoped(mine, v6, theirs.port)
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

/// A link-local address says nothing without a scope, and the peer's scope means nothing here: try
/// it on each of our own interfaces that looks like a cable and has a link-local address.
fn scoped(mine: &Reachable, v6: Ipv6Addr, port: u16) -> impl Iterator<Item = SocketAddr> {
    let linked = |own: &&Address| {
        own.address.is_ipv6() && is_link_local(own.address) && !is_virtual(&own.interface)
    };
    // An interface that has the address itself (bridges with equal MAC addresses do) would lead
    // back here.
    let own = move |index| {
        mine.addresses.iter().any(|own| own.index == index && own.address == IpAddr::V6(v6))
    };
    mine.addresses
        .iter()
        .filter(linked)
        .filter(move |linked| !own(linked.index))
        .map(move |own| SocketAddr::V6(SocketAddrV6::new(v6, port, 0, own.index)))
}

/// Loopback only, for a job of one host that publishes nothing else (tests, one node).
#[must_use]
pub fn loopback_only(host: HostIdentity, port: u16) -> Reachable {
    let lo =
        |address: IpAddr, prefix| Address { interface: "lo".into(), index: 1, address, prefix };
    Reachable {
        host,
        port,
        addresses: vec![lo(Ipv4Addr::LOCALHOST.into(), 8), lo(Ipv6Addr::LOCALHOST.into(), 128)],
        callable: None,
        processors: None,
        left_out: 0,
    }
}

/// For each other node of this machine the processors it may run on. Of one that does not say they
/// may be all of `mine`.
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
