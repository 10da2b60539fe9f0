//! Collectives of all nodes: arrivals are gathered, and a departure ends each.

pub(crate) mod agreement;
pub(crate) mod collective;
pub(crate) mod departure;
pub(crate) mod gather;
pub(crate) mod leaving;
pub(crate) mod tree;
