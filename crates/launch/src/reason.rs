//! Causes for which an address cannot be reached, over TCP or UDP, and the remedy of each.

use oikaze_os::interfaces;
use oikaze_os::net::NarrowPath;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of addresses that an error lists one by one.
const LISTED_MAX: usize = 12;

/// Cause of a failed attempt to reach one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The loopback interface is off.
    LoopbackDown,
    /// No route leads to the network.
    NoRoute,
    /// This host has no address to send from, or no free port.
    NoSource,
    /// The last router finds no host there.
    NoHost,
    /// No process listens at the port.
    Closed,
    /// No process listens at the loopback address of this host. The store has addresses for other
    /// hosts too.
    Elsewhere,
    /// This host has the address itself, so the attempt did not leave it.
    Own,
    /// This host forbids the attempt.
    Forbidden,
    /// The kernel lacks the address family.
    NoFamily,
    /// Nothing at all came back.
    NoAnswer,
    /// The path carries no packets of the size that every path must carry.
    Narrow(NarrowPath),
    /// The connection opened, but the handshake did not end.
    Silent,
    /// The other end closed the connection during the handshake.
    Dropped,
    /// Another service or another job answered, in these words.
    Foreign(String),
    /// The name has no address, in the system's words.
    NoName(String),
    /// Another error of the system, with its remedy if there is one.
    System(String),
}

impl Reason {
    /// Derives the cause from the error of a system call that names `to`.
    pub fn of(error: &io::Error, to: IpAddr) -> Reason {
        let errno = Errno::from_io_error(error);
        let local = matches!(
            errno,
            Some(Errno::ADDRNOTAVAIL | Errno::NETUNREACH | Errno::NETDOWN | Errno::INVAL)
        );
        if local && to.is_loopback() && loopback_is_down() {
            return Reason::LoopbackDown;
        }
        match errno {
            Some(Errno::NETUNREACH | Errno::NETDOWN) => Reason::NoRoute,
            Some(Errno::ADDRNOTAVAIL) => Reason::NoSource,
            Some(Errno::HOSTUNREACH | Errno::HOSTDOWN) => Reason::NoHost,
            Some(Errno::CONNREFUSED) if !to.is_loopback() && is_own(to) => Reason::Own,
            Some(Errno::CONNREFUSED) => Reason::Closed,
            Some(Errno::PERM | Errno::ACCESS) => Reason::Forbidden,
            Some(Errno::AFNOSUPPORT) => Reason::NoFamily,
            Some(Errno::TIMEDOUT) => Reason::NoAnswer,
            Some(Errno::CONNRESET | Errno::PIPE) => Reason::Dropped,
            _ => Reason::System(format!("{error}{}", oikaze_os::error_text::remedy_of(error))),
        }
    }

    /// Returns `false` if another attempt may end otherwise.
    pub fn is_final(&self) -> bool {
        !matches!(self, Reason::NoAnswer | Reason::Silent | Reason::Dropped | Reason::NoHost)
            && !self.is_doubtful()
    }

    /// Returns `true` for causes on this host that may pass within seconds, while an interface
    /// comes up.
    pub fn is_doubtful(&self) -> bool {
        matches!(self, Reason::NoRoute | Reason::NoSource)
    }

    fn remedy(&self, to: SocketAddr, transport: Transport) -> Option<String> {
        let address = to.ip();
        Some(match (self, transport) {
            (Reason::LoopbackDown, _) => "lo is down: ip link set lo up".to_owned(),
            (Reason::NoRoute, _) => format!("give this host a route: `ip route get {address}` shows what is missing"),
            (Reason::NoSource, _) => {
                "give this host an address of that family (`ip address`); if it has one, its ports are used up \
                 (`sysctl net.ipv4.ip_local_port_range`)"
                    .to_owned()
            }
            (Reason::NoHost, _) => format!("check cable, switch and VLAN: `ping {address}`"),
            (Reason::Closed, Transport::Tcp) => "the launcher has ended: its output says why".to_owned(),
            (Reason::Closed, Transport::Udp) => "the node there has ended: its output says why".to_owned(),
            (Reason::Own, _) => {
                format!("give the hosts different addresses, or a network that they share: both have {address}")
            }
            (Reason::Forbidden, _) => {
                "a firewall or sandbox of this host forbids it: `nft list ruleset`, `oikaze doctor`".to_owned()
            }
            (Reason::NoFamily, _) => "use addresses of a family that this kernel has".to_owned(),
            (Reason::NoAnswer, _) => format!(
                "check with `ping {address}` that the hosts share a network; if they do, a firewall drops {transport} between \
                 them (`oikaze run --ports A-B` keeps to a range that a firewall can leave open)"
            ),
            (Reason::Narrow(NarrowPath { interface, needed, .. }), _) => {
                let interface = interface.as_deref().unwrap_or("INTERFACE");
                format!("give the interface a larger MTU, at least {needed}: `ip link set {interface} mtu 1500`")
            }
            (Reason::Silent | Reason::Dropped, _) => {
                "the launcher is stopped or overloaded, or the path loses many packets: `ping` shows the loss".to_owned()
            }
            (Reason::Elsewhere | Reason::Foreign(_) | Reason::NoName(_) | Reason::System(_), _) => {
                return None;
            }
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Reason::Narrow(NarrowPath { interface, mtu, needed }) = self {
            let of =
                interface.as_ref().map_or_else(String::new, |name| format!(" of interface {name}"));
            return write!(f, "the MTU{of} is {mtu} bytes, and {needed} are needed");
        }
        f.write_str(match self {
            Reason::LoopbackDown => "the loopback interface is down",
            Reason::NoRoute => "no route to that network",
            Reason::NoSource => "no local address to send from",
            Reason::NoHost => "no such host on the network",
            Reason::Closed => "nobody listens there",
            Reason::Elsewhere => "the launcher is not on this host",
            Reason::Own => "nobody listens there; this host has the same address",
            Reason::Forbidden => "not permitted on this host",
            Reason::NoFamily => "address family not supported",
            Reason::NoAnswer | Reason::Narrow(_) => "no answer",
            Reason::Silent => "connected, but no answer to the handshake",
            Reason::Dropped => "closed during the handshake",
            Reason::Foreign(what) | Reason::NoName(what) | Reason::System(what) => what,
        })
    }
}

/// Transport protocol of an attempt, for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP to the store.
    Tcp,
    /// UDP between nodes.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// Lists attempts in one line. The first of each cause comes before the others, because the list is
/// cut.
pub fn listed(tried: &[(String, Reason)]) -> String {
    let is_first = |at: usize| {
        let earlier = tried.get(..at).unwrap_or_default();
        tried.get(at).is_some_and(|(_, reason)| !earlier.iter().any(|(_, other)| other == reason))
    };
    let (first, rest): (Vec<usize>, Vec<usize>) = (0..tried.len()).partition(|&at| is_first(at));
    let order = first.into_iter().chain(rest).filter_map(|at| tried.get(at));
    let mut text = order
        .take(LISTED_MAX)
        .map(|(what, why)| format!("{what}: {why}"))
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = tried.len().checked_sub(LISTED_MAX).filter(|&more| more > 0) {
        text += &format!(", and {more} addresses more");
    }
    text
}

/// Returns one remedy for each distinct cause.
pub fn remedies<'a>(
    tried: impl IntoIterator<Item = (SocketAddr, &'a Reason)>,
    transport: Transport,
) -> String {
    let mut seen: Vec<&Reason> = Vec::new();
    let mut remedies: Vec<String> = Vec::new();
    for (to, reason) in tried {
        if !seen.contains(&reason) {
            seen.push(reason);
            remedies.extend(reason.remedy(to, transport));
        }
    }
    remedies.join("; ")
}

/// Returns what to do about names of the store that have no address, if there are any.
pub fn remedy_of_names(unresolved: &[(String, Reason)]) -> Option<String> {
    let (text, _) = unresolved.first()?;
    let name = text.rsplit_once(':').map_or(&**text, |(name, _)| name);
    Some(format!(
        "correct the name in OIKAZE_STORE, or let this host resolve it: `getent hosts {name}` \
         shows whether it does"
    ))
}

/// Returns `true` if no loopback interface of this network namespace is up with an address.
pub fn loopback_is_down() -> bool {
    interfaces::list().is_ok_and(|all| !all.iter().any(|one| one.up && one.address.is_loopback()))
}

/// Returns `true` if an interface of this host has the address.
pub fn is_own(address: IpAddr) -> bool {
    interfaces::list().is_ok_and(|all| all.iter().any(|one| one.address == address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn remedy_follows_the_cause() {
        let cases = [
            (Errno::CONNREFUSED, "the launcher has ended"),
            (Errno::NETUNREACH, "ip route get 192.0.2.1"),
            (Errno::HOSTUNREACH, "cable"),
            (Errno::PERM, "forbids it"),
            (Errno::ADDRNOTAVAIL, "an address of that family"),
            (Errno::TIMEDOUT, "firewall drops TCP"),
        ];
        for (errno, words) in cases {
            let to = at("192.0.2.1:9");
            let reason = Reason::of(&errno.into(), to.ip());
            let text = remedies([(to, &reason)], Transport::Tcp);
            assert!(text.contains(words), "{errno}: {text}");
            assert_eq!(
                text.contains("firewall"),
                words.contains("firewall") || errno == Errno::PERM,
                "{text}"
            );
        }
        let descriptors = Reason::of(&Errno::MFILE.into(), at("192.0.2.1:9").ip());
        assert!(descriptors.to_string().contains("ulimit -n"), "{descriptors}");
    }

    #[test]
    fn list_of_many_addresses_shows_each_cause() {
        let mut tried: Vec<_> =
            (0..70).map(|at| (format!("172.17.{at}.1:9"), Reason::NoAnswer)).collect();
        tried.push(("10.88.0.1:9".into(), Reason::NoHost));
        let text = listed(&tried);
        assert!(text.contains("10.88.0.1:9: no such host"), "{text}");
        assert!(text.ends_with("and 59 addresses more"), "{text}");
    }
}
