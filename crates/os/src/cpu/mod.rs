//! Processors and waiting.
//!
//! This module finds the cores of the machine and those that this process may use, binds threads,
//! sets their priority, detects whether a core is shared, and hands it over. It also has the event
//! that ends a sleep, one descriptor for several, a lock, and a meter of processor time.

mod any_readable;
mod biased_lock;
mod core_binding;
mod event;
mod hand_over;
mod look;
mod machine;
mod preempted;
mod priority;
mod slack;
mod spent;
mod topology;

pub use any_readable::AnyReadable;
pub use biased_lock::{BiasedLock, BiasedLockGuard};
pub use core_binding::CoreBinding;
pub use event::Event;
pub use hand_over::{begin_to_spin, core_is_shared, may_yield, raise_on_shared_core, yield_core};
pub use look::between_looks;
pub use machine::{Advice, Cache, Machine, MisplacedInterrupts, Nic};
pub use preempted::preemptions;
pub use priority::{Priority, may_be_real_time};
pub use slack::{TimerSlack, make_timers_exact};
pub use spent::Meter;
pub use topology::{
    CpuId, NoCore, Topology, bind_to_cores, cpulist, lift_affinity, online_cpus, parse_cores,
    parse_cpulist, permitted_cpus, pin_to_core, usable_cores,
};
