//! # Oikaze's hands
//!
//! Everything that touches the machine, and all unsafe code of the project (each block says why it
//! is sound):
//!
//! - [`board`]: numbers that a process shows to others, who look without disturbing it.
//! - [`checksum`]: CRC32C at the speed of memory.
//! - [`counting`]: an allocator for tests that say what is kept and that nothing is allocated.
//! - [`cpu`]: which processors we may use, pinning, events, polling, how long to spin.
//! - [`hazard`]: who is inside something that may end.
//! - [`interfaces`]: the network interfaces of this machine.
//! - [`link`]: datagrams in and out. UDP with gather, GSO and GRO; the fault wrapper.
//! - [`memory`]: regions that peers may reach, the table that checks them, memory borrowed for the
//!   length of a scope.
//! - [`local_peer`]: nodes of one machine, with memory and a Unix socket between them.
//! - [`origin`]: the identity of a process across fork.
//! - [`probe`]: what this machine offers, for `oikaze doctor`.
//! - [`process`]: signals as messages, children that cannot outlive their launcher.
//! - [`remedy()`]: what to do about what the system refuses.
//! - [`ring`]: submission and completion rings.
//! - [`signals`]: threads that run no signal handler of the program's.
//! - [`without`]: mechanisms switched off by the user, so that every fallback can be tried.
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod board;
mod bpf;
pub mod checksum;
pub mod counting;
pub mod cpu;
mod descriptor;
pub mod hazard;
pub mod inherited;
pub mod interfaces;
pub mod link;
pub mod memory;
#[cfg(all(test, loom))]
mod models;
pub mod origin;
pub mod probe;
pub mod process;
mod remedy;
pub mod ring;
pub mod shm;
pub mod signals;
#[cfg(test)]
mod testing;
pub mod without;

pub use remedy::remedy;
