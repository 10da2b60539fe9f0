//! Links: the interface through which datagrams are sent and received.
//!
//! A [`Link`] carries datagrams unreliably. It may lose, repeat or delay what it accepts, and every
//! layer above copes with that. [`UdpLink`] is the plain link for Ethernet, and [`open`] wraps it
//! by the paths around the kernel's UDP stack ([`bypass`]). [`Fault`] wraps any link and loses,
//! repeats, reorders, damages and delays datagrams by a seed. [`Tap`] records what goes through
//! another link.

#[macro_use]
mod forward;

mod addresses;
pub mod bypass;
mod capture;
pub mod conformance;
mod datagram;
mod fault;
pub mod floor;
pub mod ip;
mod link;
mod packet_socket;
mod sink;
mod stack;
mod statistics;
mod udp;

pub use addresses::{
    LocalAddress, NarrowPath, datagram_max_to, local_addresses, narrow_path, path_mtu,
};
pub use capture::{
    CapturedDatagram, Pcapng, Recorder, TRACE_VARIABLE, Tap, TapSettings, TapSyntax, Trace,
};
pub use capture::{PCAP_LIMIT_VARIABLE, PCAP_VARIABLE};
pub use datagram::{Arrival, Outgoing};
pub use fault::{
    Corruption, FAULT_VARIABLE, Fate, Fault, FaultDecision, FaultPlan, FaultSettings, FaultSyntax,
    Reseal, Tampering,
};
pub use link::{Group, Link, LinkProperties, LinkStall, PayloadForm, ReceiveEach, TooBig};
pub use oikaze_protocol::wind::SendMode;
pub use packet_socket::packet_socket;
pub use sink::{Predicted, Scattered, Sink};
pub use stack::{LinkStack, open};
pub use statistics::{Offload, Statistics};
pub use udp::{Bind, BindError, Ports, PortsSyntax, UdpLink};
