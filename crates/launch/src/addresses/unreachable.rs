//! Error of a node that another one does not reach: each address that was tried, with cause and
//! remedy.

use super::candidate::Candidate;
use crate::reason::{Reason, Transport, remedies};
use oikaze_os::net::narrow_path;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Time to wait for errors that the network reports, such as a closed port. The addresses were
/// called for seconds before.
const REPORT_TIME: Duration = Duration::from_millis(300);

/// One line of the matrix of what was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Rank that sent.
    pub from: u32,
    /// Rank that was to be reached.
    pub to: u32,
    /// Address of that rank.
    pub address: SocketAddr,
    /// The peer's interface with that address.
    pub interface: String,
    /// Outcome of the try, e.g. `no answer in 3 s`.
    pub result: String,
}

/// No pair of addresses works between some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreachable {
    /// Ranks that were not reached.
    pub peers: Vec<u32>,
    /// Everything that was tried, in order.
    pub tried: Vec<Tried>,
    /// Remedies of the causes.
    pub remedy: String,
    /// Addresses of these peers that were left out: each side keeps a bounded number of every kind.
    pub left_out: u32,
}

impl Unreachable {
    /// Notes a peer that did not connect. `cause` is the cause for all its addresses, if one is
    /// known. Otherwise the cause of each address is looked up.
    pub fn add(
        &mut self,
        from: u32,
        to: u32,
        candidates: &[Candidate],
        left_out: u32,
        silence: Duration,
        cause: Option<&str>,
    ) {
        self.peers.push(to);
        self.left_out = self.left_out.saturating_add(left_out);
        let addresses: Vec<SocketAddr> = candidates.iter().map(|candidate| candidate.to).collect();
        let reasons = match cause {
            Some(cause) => addresses.iter().map(|_| Reason::System(cause.to_owned())).collect(),
            None => look_into(&addresses),
        };
        let mut causes: Vec<(SocketAddr, &Reason)> = Vec::new();
        for (candidate, reason) in candidates.iter().zip(&reasons) {
            let result = match reason {
                Reason::NoAnswer => format!("no answer within {} s", silence.as_secs()),
                other => other.to_string(),
            };
            let (address, interface) = (candidate.to, candidate.interface.clone());
            self.tried.push(Tried { from, to, address, interface, result });
            causes.push((candidate.to, reason));
        }
        let remedy = remedies(causes, Transport::Udp);
        if !remedy.is_empty() && !self.remedy.contains(&remedy) {
            let gap = if self.remedy.is_empty() { "" } else { "; " };
            self.remedy = format!("{}{gap}{remedy}", self.remedy);
        }
    }
}

/// Asks the kernel for the cause of each address's silence: its route, and the errors that the
/// network reports.
fn look_into(addresses: &[SocketAddr]) -> Vec<Reason> {
    let probe = |to: SocketAddr| -> io::Result<UdpSocket> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(
            family,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        connect(&socket, &to)?;
        let socket = UdpSocket::from(socket);
        // This is not a datagram of Wind, so the peer drops it.
        socket.send(&[0])?;
        Ok(socket)
    };
    let probes: Vec<(SocketAddr, io::Result<UdpSocket>)> =
        addresses.iter().map(|&to| (to, probe(to))).collect();
    if probes.iter().any(|(_, probe)| probe.is_ok()) {
        std::thread::sleep(REPORT_TIME);
    }
    let cause = |(to, probe): (SocketAddr, io::Result<UdpSocket>)| match probe
        .and_then(|probe| probe.take_error())
    {
        Ok(None) => narrow_path(to).map_or(Reason::NoAnswer, Reason::Narrow),
        Ok(Some(why)) | Err(why) => Reason::of(&why, to.ip()),
    };
    probes.into_iter().map(cause).collect()
}

impl std::error::Error for Unreachable {}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<String> = self.peers.iter().map(u32::to_string).collect();
        let plural = if peers.len() > 1 { "s" } else { "" };
        let peers = peers.join(", ");
        if self.tried.is_empty() {
            return write!(
                f,
                "joining the job: node{plural} {peers} cannot be reached over UDP: no address of a family that this node has, \
                 and none that this node has itself. What to do: give all hosts addresses in a network that they share \
                 (`ip address`)"
            );
        }
        writeln!(f, "joining the job: node{plural} {peers} cannot be reached over UDP. Tried:")?;
        let address = self
            .tried
            .iter()
            .map(|tried| tried.address.to_string().len())
            .max()
            .unwrap_or(0)
            .max(7);
        let interface =
            self.tried.iter().map(|tried| tried.interface.len()).max().unwrap_or(0).max(9);
        writeln!(f, "  from    to  {:address$}  {:interface$}  result", "address", "interface")?;
        for tried in &self.tried {
            let to = tried.address.to_string();
            writeln!(
                f,
                "  {:>4}  {:>4}  {to:address$}  {:interface$}  {}",
                tried.from, tried.to, tried.interface, tried.result
            )?;
        }
        if self.left_out > 0 {
            writeln!(
                f,
                "Left out: {} addresses more, so many have these hosts; switch off interfaces that no node needs",
                self.left_out
            )?;
        }
        match self.remedy.is_empty() {
            true => f.write_str("What to do: see the output of the nodes that are missing"),
            false => write!(f, "What to do: {}", self.remedy),
        }
    }
}
