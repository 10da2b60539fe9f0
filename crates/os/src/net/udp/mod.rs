//! UDP over IPv4 and IPv6.
//!
//! [`bind`](sockets::bind) opens the sockets. [`transmit`] chooses the socket of each datagram, and
//! [`send`] gathers datagrams into as few calls as the kernel permits (GSO). [`recv`] takes bursts
//! and cuts what the kernel has joined (GRO). [`poll`] decides which sockets are polled. Bulk has
//! sockets of its own on a second port, so that bulk fills no buffer that small messages need, and
//! small messages pass it.
//!
//! [`UdpLink`] knows no path around the kernel's UDP stack. Those are wrappers in
//! [`bypass`](super::bypass), which use the functions that are visible in `crate::net`.

mod drain;
mod groups;
mod link;
pub(super) mod plain_only;
mod poll;
pub(crate) mod recv;
mod recv_direct;
mod refusals;
mod schedule;
pub(crate) mod send;
pub(crate) mod sockets;
#[cfg(test)]
mod tests;
mod transmit;
mod watch;

pub(super) use drain::SMALL_POLL_DATAGRAMS;
pub use link::UdpLink;
pub(super) use poll::{SmallPoll, WAITING_POLLS};
pub use sockets::bind::{Bind, BindError, Ports, PortsSyntax};
pub(super) use sockets::connected::CONNECTED_MAX;
