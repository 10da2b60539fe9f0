//! Cores and waiting: how many this process may use, pinning to one, what ends a sleep, and how long to spin before it.

mod event;
mod poller;
mod spin;
mod topology;

pub use event::Event;
pub use poller::{Interest, Poller, READY_MAX};
pub use spin::{Spin, relax};
pub use topology::{CpuId, Topology, pin_to_core, usable_cores};
