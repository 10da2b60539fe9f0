//! Peers on the same machine. Their messages go through rings in shared memory, with the same heads
//! and bodies as over Wind, and the same outcomes (spec/memory.md, MEM-16). The connection stays
//! open beside the rings, for keepalive and for the goodbye.

mod channel;
mod exchange;
mod fast_path;
mod local_peer;
mod map;
mod memory;
mod rings;
mod socket;
mod socket_messages;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;
