//! Seals of datagrams: keys, sessions, and batches of datagrams to be sealed.

pub mod seal;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod tx_batch;
