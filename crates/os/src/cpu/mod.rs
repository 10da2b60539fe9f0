//! Cores and waiting: how many this process may use, pinning to one, and what ends a sleep.

mod event;
mod topology;

pub use event::Event;
pub use topology::{CpuId, Topology, pin_to_core, usable_cores};
