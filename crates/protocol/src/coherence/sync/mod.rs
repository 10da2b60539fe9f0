//! Synchronisation: collectives, locks, and the release of writes that both need.

pub(crate) mod agreement;
pub(crate) mod collective;
pub(crate) mod departure;
pub(crate) mod gather;
pub(crate) mod leaving;
pub(crate) mod lock;
pub(crate) mod lock_manager;
pub(crate) mod release;
pub(crate) mod team;
pub(crate) mod tree;
