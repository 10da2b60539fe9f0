//! Selection of addresses and ports.

use super::socket::Socket;
use crate::features::DisabledFeatures;
use core::fmt;
use core::str::FromStr;
use oikaze_protocol::limits::{SOCKET_BUFFER, SOCKET_BUFFER_LEAST};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Attempts at a port of the kernel's choice that is free for both families.
const ATTEMPTS: usize = 16;

/// Settings of a [`UdpLink`](crate::net::UdpLink). The default is every address, both families, any
/// port.
#[derive(Clone, Debug)]
pub struct Bind {
    /// Local addresses to be reached at; empty means all.
    pub addresses: Vec<IpAddr>,
    /// Ports to try, in order.
    pub ports: Ports,
    /// Exact port for bulk, such as that of an earlier link. `None` means one of `ports`.
    pub bulk_port: Option<u16>,
    /// Number of links of this machine that are to find room in `ports`.
    pub sharers: usize,
    /// Features not to use: `gso`, `gro`, `lanes`, `connect`, `tcx`, `raw-tx`, `ipv6`.
    pub without: DisabledFeatures,
    /// Only the UDP checksum covers the bytes of a datagram.
    pub checked_by_udp: bool,
    /// Kernel buffer to ask for in each direction, in bytes.
    pub buffer: usize,
}

impl Default for Bind {
    fn default() -> Bind {
        let without = DisabledFeatures::default();
        Bind {
            addresses: Vec::new(),
            ports: Ports::ANY,
            bulk_port: None,
            sharers: 1,
            without,
            checked_by_udp: false,
            buffer: SOCKET_BUFFER,
        }
    }
}

/// A port, a range of ports, or any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// One port of the kernel's choice.
    pub const ANY: Ports = Ports { first: 0, last: 0 };

    /// Ports from `first` to `last`, both included. Returns `None` if that is not a range.
    #[must_use]
    pub const fn range(first: u16, last: u16) -> Option<Ports> {
        if first == 0 && last != 0 || first > last { None } else { Some(Ports { first, last }) }
    }

    /// Returns the first and the last port.
    #[must_use]
    pub fn ends(self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Iterates over the ports in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u16> {
        self.first..=self.last
    }

    /// Returns `true` if `sharers` links have room for two ports each.
    fn hold_two_for(self, sharers: usize) -> bool {
        self == Ports::ANY || usize::from(self.last - self.first) + 1 >= sharers.saturating_mul(2)
    }
}

/// Error for a text that is neither a port nor a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is neither a port nor a range of ports; write 7000 or 7000-7015 (1 to 65535)")]
pub struct PortsSyntax(String);

impl FromStr for Ports {
    type Err = PortsSyntax;

    fn from_str(text: &str) -> Result<Ports, PortsSyntax> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port != 0);
        port(first)
            .zip(port(last))
            .and_then(|(first, last)| Ports::range(first, last))
            .ok_or_else(|| PortsSyntax(text.to_owned()))
    }
}

/// Writes what [`FromStr`] reads, except for [`Ports::ANY`].
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (0, _) => write!(f, "of any number"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// Error of opening a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Every requested port is taken.
    #[error(
        "UDP port {ports} at {address}: in use by another program; give a wider range (--ports A-B), stop the other program (ss -ulpn shows it), or leave the port to the system"
    )]
    InUse {
        /// Ports that were tried.
        ports: Ports,
        /// Address at which they were tried.
        address: IpAddr,
    },
    /// No interface of this machine has the address.
    #[error(
        "cannot be reached at {address}: no interface of this machine has that address (ip address shows what there is)"
    )]
    NotOurs {
        /// Address that was requested.
        address: IpAddr,
    },
    /// A port below 1024 without the privilege.
    #[error("UDP port {port} at {address}: not permitted ({why}); use a port from 1024 on")]
    Forbidden {
        /// Address of the attempt.
        address: IpAddr,
        /// Port that was refused.
        port: u16,
        /// Error of the system call.
        why: Errno,
    },
    /// A system call failed.
    #[error("could not {what}: {why}{}", crate::error_text::remedy(*why))]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system call.
        why: Errno,
    },
}

impl BindError {
    /// Explains why `bind` refused this address.
    pub(super) fn of(at: SocketAddr, why: Errno) -> BindError {
        let address = at.ip();
        match why {
            Errno::ADDRINUSE => {
                BindError::InUse { ports: Ports { first: at.port(), last: at.port() }, address }
            }
            Errno::ADDRNOTAVAIL => BindError::NotOurs { address },
            Errno::ACCESS | Errno::PERM => BindError::Forbidden { address, port: at.port(), why },
            why => BindError::System { what: "bind a UDP socket", why },
        }
    }
}

/// Sockets of a link.
pub(crate) struct Opened {
    /// Sockets on the link's port.
    pub(crate) small: Vec<Socket>,
    /// Sockets at the same addresses on another port. If there are none, bulk goes through the
    /// small ones.
    pub(crate) bulk: Vec<Socket>,
    /// Messages for the user.
    pub(crate) notices: Vec<String>,
}

/// Opens what is asked for.
pub(crate) fn open(ask: &Bind) -> Result<Opened, BindError> {
    let small = open_one_of(ask.ports.iter(), ask)?;
    let mut notices = Vec::new();
    let bulk = if ask.without.lanes { Ok(Vec::new()) } else { open_for_bulk(ask) };
    let bulk = bulk.unwrap_or_else(|why| {
        notices.push(format!(
            "no port of its own for bulk ({why}): small messages will wait behind it"
        ));
        Vec::new()
    });
    notices.extend(small_buffer(small.iter().chain(&bulk), ask.buffer));
    Ok(Opened { small, bulk, notices })
}

/// Opens the sockets for bulk from the other end of the range, so that later links still find a
/// first port.
fn open_for_bulk(ask: &Bind) -> Result<Vec<Socket>, String> {
    if let Some(port) = ask.bulk_port {
        open_one_of(std::iter::once(port), ask).map_err(|why| why.to_string())
    } else if ask.ports.hold_two_for(ask.sharers) {
        open_one_of(ask.ports.iter().rev(), ask).map_err(|why| why.to_string())
    } else {
        Err(format!(
            "{} leaves room for one port each; give two for each node of a machine",
            ask.ports
        ))
    }
}

/// Opens sockets on the first of these ports that is free at all addresses.
fn open_one_of(ports: impl Iterator<Item = u16>, ask: &Bind) -> Result<Vec<Socket>, BindError> {
    let mut refused = None;
    for port in ports {
        for _ in 0..if port == 0 { ATTEMPTS } else { 1 } {
            match if ask.addresses.is_empty() {
                open_everywhere(port, ask)
            } else {
                open_at(port, ask)
            } {
                Err(BindError::InUse { address, .. }) => {
                    refused = Some(BindError::InUse { ports: ask.ports, address })
                }
                done => return done,
            }
        }
    }
    Err(refused.unwrap_or(BindError::System {
        what: "open any socket: no port to bind to",
        why: Errno::ADDRNOTAVAIL,
    }))
}

/// Opens all addresses of both families with one socket. On a machine without IPv6 the socket is
/// IPv4 only.
fn open_everywhere(port: u16, ask: &Bind) -> Result<Vec<Socket>, BindError> {
    let open = |ip: IpAddr, both| {
        Socket::open(SocketAddr::new(ip, port), both, ask.buffer, &ask.without).map(|one| vec![one])
    };
    if !ask.without.ipv6 {
        match open(Ipv6Addr::UNSPECIFIED.into(), true) {
            Err(BindError::System { why: Errno::AFNOSUPPORT, .. } | BindError::NotOurs { .. }) => {}
            opened => return opened,
        }
    }
    open(Ipv4Addr::UNSPECIFIED.into(), false)
}

/// Opens the requested addresses on one port.
fn open_at(mut port: u16, ask: &Bind) -> Result<Vec<Socket>, BindError> {
    let mut sockets: Vec<Socket> = Vec::new();
    for address in ask.addresses.iter().filter(|address| address.is_ipv4() || !ask.without.ipv6) {
        let socket =
            Socket::open(SocketAddr::new(*address, port), false, ask.buffer, &ask.without)?;
        port = socket.local.port();
        sockets.push(socket);
    }
    if sockets.is_empty() {
        return Err(BindError::System {
            what: "find an address to bind to",
            why: Errno::AFNOSUPPORT,
        });
    }
    Ok(sockets)
}

fn small_buffer<'s>(sockets: impl Iterator<Item = &'s Socket>, asked: usize) -> Option<String> {
    // The kernel reports twice the requested size, because its own bookkeeping is included.
    let smallest = sockets.map(|socket| socket.receive_buffer.min(socket.send_buffer) / 2).min()?;
    (smallest < SOCKET_BUFFER_LEAST.min(asked)).then(|| {
        format!(
            "the system grants socket buffers of {smallest} bytes only: bursts will be lost and repeated; raise it with \
             sysctl -w net.core.rmem_max={SOCKET_BUFFER} net.core.wmem_max={SOCKET_BUFFER} (oikaze doctor says more)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        assert_eq!("7000".parse(), Ok(Ports { first: 7000, last: 7000 }));
        assert_eq!(
            "7000-7003".parse::<Ports>().unwrap().iter().collect::<Vec<_>>(),
            [7000, 7001, 7002, 7003]
        );
        for text in ["", "0", "7-6", "70000", "-", "1-", "a-b", "0-5", "1-2-3"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
        for text in ["7000", "7000-7003"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!(Ports::ANY.iter().collect::<Vec<_>>(), [0]);
        let eight: Ports = "7000-7007".parse().unwrap();
        assert!(eight.hold_two_for(4) && !eight.hold_two_for(5));
        assert!(Ports::ANY.hold_two_for(usize::MAX));
    }
}
