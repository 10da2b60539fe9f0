//! Sockets on which the launcher listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// Opens a TCP socket on the first free port of `ports`.
pub(crate) fn bind(address: IpAddr, ports: &[u16]) -> io::Result<TcpListener> {
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
pub(crate) fn bind_everywhere(ports: &[u16]) -> io::Result<TcpListener> {
    bind(Ipv6Addr::UNSPECIFIED.into(), ports).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into(), ports))
}
