//! Loss recovery: datagrams in flight, loss detection, probe timeouts, retransmission.

pub(crate) mod in_flight;
pub(crate) mod loss;
pub(crate) mod pto;
pub(crate) mod reordering;
pub(crate) mod retransmit;
pub(crate) mod rtt;
pub(crate) mod spurious;
