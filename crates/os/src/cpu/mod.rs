//! Processors and waiting.
//!
//! This module finds how many cores this process may use, pins threads, and detects whether a core
//! is shared. It also has the event that ends a sleep, a lock, and a meter of processor time.

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
pub use slack::{TimerSlack, make_timers_exact};
pub use spent::Meter;
pub use topology::{
    CpuId, Topology, bind_to_cores, cpulist, online_cpus, parse_cpulist, pin_to_core, usable_cores,
};
