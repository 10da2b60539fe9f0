//! Cores and waiting: how many this process may use, pinning to one, whether it is shared, what
//! ends a sleep, what lets one thread in at a time, what work has cost.

mod biased_lock;
mod event;
mod look;
mod preempted;
mod slack;
mod spent;
mod topology;

pub use biased_lock::{BiasedLock, BiasedLockGuard};
pub use event::Event;
pub use look::between_looks;
pub use preempted::preemptions;
pub use slack::TimerSlack;
pub use spent::Meter;
pub use topology::{CpuId, Topology, cpulist, parse_cpulist, pin_to_core, usable_cores};
