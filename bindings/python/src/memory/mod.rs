//! Memory of this node and of its peers, the peers, and what arrives from them.

pub mod arrival;
pub mod block;
pub mod fifo;
pub mod peer;
pub mod region;
pub mod remote;
