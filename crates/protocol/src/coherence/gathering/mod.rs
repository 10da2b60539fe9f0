//! Collectives of all nodes: arrivals are gathered, and a departure ends each (COH-6).

pub(crate) mod agreement;
pub(crate) mod arrivals;
pub(crate) mod begin;
pub(crate) mod calls;
pub(crate) mod departure;
pub(crate) mod end;
pub(crate) mod freeing;
pub(crate) mod gather;
pub(crate) mod holding;
pub(crate) mod leaving;
pub(crate) mod move_rounds;
pub(crate) mod state;
pub(crate) mod tree;
