//! A channel to a local peer: two rings, with what is in flight in each.

pub(in crate::shm) mod credit;
pub(in crate::shm) mod incoming;
pub(in crate::shm) mod outgoing;
pub(in crate::shm) mod record;
pub(in crate::shm) mod ring_counters;
pub(in crate::shm) mod unsettled;
