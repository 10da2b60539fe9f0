//! Acknowledgements: which datagrams have arrived, and when the peer is told.

pub(crate) mod delayed;
pub(crate) mod ranges;
pub(crate) mod received;
