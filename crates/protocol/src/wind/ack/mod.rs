//! Acknowledgements: which datagrams have arrived ([`received`], [`ranges`]), and when the peer
//! learns it (delayed ACK: [`delayed`]). An
//! acknowledgement from the peer may be processed after an answer ([`deferred`]).

pub(crate) mod deferred;
pub(crate) mod delayed;
pub(crate) mod ranges;
pub(crate) mod received;
