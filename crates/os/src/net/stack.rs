//! The link of a node: UDP sockets, and all paths around the kernel's UDP stack that work here.

use super::bypass::raw_tx::RawTx;
use super::bypass::splice::Splice;
use super::bypass::tcx::TcxRx;
use super::udp::UdpLink;
use super::{Bind, BindError, Link};

/// A socket link and its wrappers. The type is fixed, so that no datagram costs a dynamic call. A
/// wrapper that is switched off or not permitted forwards everything.
pub(crate) type LinkStack = TcxRx<RawTx<Splice<UdpLink>>>;

/// Opens sockets, and every path around the kernel that is neither switched off nor refused.
/// [`Link::statistics`] says which are in use.
///
/// # Errors
/// As [`UdpLink::bind`].
pub fn open(ask: &Bind) -> Result<impl Link + std::fmt::Debug + use<>, BindError> {
    open_stack(ask)
}

/// Opens the link like [`open`], with its type.
pub(crate) fn open_stack(ask: &Bind) -> Result<LinkStack, BindError> {
    let udp = UdpLink::bind(ask)?;
    Ok(TcxRx::open(RawTx::new(Splice::open(udp, ask), ask), ask))
}
