//! Peers on the same machine. Their messages go through rings in shared memory, with the same heads
//! and bodies as over Wind, and the same outcomes (spec/memory.md, MEM-16). The connection stays
//! open beside the rings, for keepalive and for the goodbye.

mod credit;
mod exchange;
mod fast_path;
mod incoming;
mod local_peer;
pub(crate) mod local_peers;
mod map;
mod memory;
mod outgoing;
mod record;
mod ring_counters;
mod rings;
mod socket;
mod socket_messages;
#[cfg(test)]
pub(crate) mod tests;
mod unsettled;
