//! Loss recovery: datagrams in flight ([`in_flight`]), loss detection ([`loss`], [`reordering`],
//! [`spurious`]), the retransmission timer ([`pto`], from the round trips of [`rtt`]),
//! retransmission ([`retransmit`]), what is known of each flow ([`flow`]), and numbers that expose
//! false acknowledgements ([`skips`]).

pub(crate) mod flow;
pub(crate) mod in_flight;
pub(crate) mod loss;
pub(crate) mod pto;
pub(crate) mod reordering;
pub(crate) mod retransmit;
pub(crate) mod rtt;
mod skips;
pub(crate) mod spurious;
