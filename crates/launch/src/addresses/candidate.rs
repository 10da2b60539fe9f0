//! Addresses to try.

use std::net::SocketAddr;

/// Likelihood that a pair of addresses works, before it was tried; the smaller, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// Both are on one host, and reach each other over the loopback interface.
    Loopback,
    /// Both are in one subnet, on interfaces that look like cables.
    SameSubnet,
    /// The pair is perhaps routed.
    Routed,
    /// An IPv6 link-local address, on one of our interfaces.
    LinkLocal,
    /// An address of a bridge for containers or virtual machines (docker0, virbr0): often the same
    /// on every host.
    Virtual,
}

/// Address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Address to send to.
    pub to: SocketAddr,
    /// Name of the peer's interface that has this address.
    pub interface: String,
    /// Likelihood that the address works.
    pub likelihood: Likelihood,
}
