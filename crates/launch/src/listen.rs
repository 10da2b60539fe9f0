//! Sockets on which a job's store listens.

use crate::{JobError, Ports, addresses};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Nodes that a store serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of this host, by the loopback interface.
    ThisHost,
    /// Those of all hosts.
    AllHosts,
}

/// Opens the store's socket at the first free port of the user's range, or at any port. Returns the
/// addresses at which the nodes reach it, too.
pub(crate) fn open_store(
    range: Option<Ports>,
    reach: Reach,
) -> Result<(TcpListener, Vec<SocketAddr>), JobError> {
    let ports = ports_of(range);
    let opened = match reach {
        Reach::ThisHost => bind(Ipv4Addr::LOCALHOST.into(), &ports),
        Reach::AllHosts => bind_everywhere(&ports),
    };
    let doing = "open a TCP port for the job's store";
    let listener = opened.map_err(|why| match range {
        Some(range) => JobError::PortsInUse { range: range.to_string(), last: why.to_string() },
        None => JobError::system(doing)(why),
    })?;
    let at = listener.local_addr().map_err(JobError::system(doing))?;
    let addresses = match reach {
        Reach::ThisHost => vec![at],
        Reach::AllHosts => addresses::of_store(at.port())?,
    };
    Ok((listener, addresses))
}

/// Returns the ports of a range. Without one, the system chooses.
pub(crate) fn ports_of(range: Option<Ports>) -> Vec<u16> {
    range.map_or_else(|| vec![0], |range| range.iter().collect())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_whose_ports_are_taken_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let open = |range| open_store(range, Reach::ThisHost);
        let why = open(Ports::range(port, port)).unwrap_err().to_string();
        assert!(why.contains(&port.to_string()) && why.contains("OIKAZE_PORTS"), "{why}");
        let (listener, at) = open(None).unwrap();
        assert_eq!(at, [listener.local_addr().unwrap()]);
        let (listener, at) = open_store(None, Reach::AllHosts).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!at.is_empty() && at.iter().all(|at| at.port() == port), "{at:?}");
    }
}
