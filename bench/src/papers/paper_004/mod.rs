//! Paper 004 (Wind): throughput, barriers that bring updates, numbers of messages, and what the
//! paper leaves open.

pub mod barrier;
pub mod classes;
pub mod multicast;
pub mod reader;
pub mod table;
pub mod throughput;
