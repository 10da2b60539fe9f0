//! Acknowledgements: which datagrams have arrived ([`received`], [`ranges`]), and when the peer
//! learns it (delayed ACK: [`delayed`]).

pub(crate) mod delayed;
pub(crate) mod ranges;
pub(crate) mod received;
