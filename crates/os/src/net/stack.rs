//! The link of a node: UDP sockets, and all paths around the kernel's UDP stack that work here.

use super::bypass::raw_tx::RawTx;
use super::bypass::splice::Splice;
use super::bypass::tcx::TcxRx;
use super::udp::UdpLink;
use super::udp::{Bind, BindError};
use crate::net::link::Link;

/// A socket link and its wrappers. The type is fixed, so that no datagram costs a dynamic call. A
/// wrapper that is switched off or not permitted forwards everything.
#[derive(Debug)]
pub struct LinkStack(pub(super) TcxRx<RawTx<Splice<UdpLink>>>);

impl Link for LinkStack {
    forward_link!(self => (self.0): send receive_into receive_again local_addresses properties);
    forward_link!(self => (self.0): prefers watch next_wakeup poll_too_big report_silence stall notice);
    forward_link!(self => (self.0): join_group leave_group route_group statistics);
}

/// Opens sockets, and every path around the kernel that is neither switched off nor refused.
/// [`Link::statistics`] says which are in use.
///
/// # Errors
/// As [`UdpLink::bind`].
pub fn open(ask: &Bind) -> Result<LinkStack, BindError> {
    let udp = UdpLink::bind(ask)?;
    Ok(LinkStack(TcxRx::open(RawTx::new(Splice::open(udp, ask), ask), ask)))
}
