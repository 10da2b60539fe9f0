//! Operating system interface of Oikaze, and all of its unsafe code.
//!
//! This crate holds the code that touches the machine, and every unsafe block of the project. Each
//! unsafe block states why it is sound. The crates `oikaze` and `oikaze-protocol` forbid unsafe
//! code.
//!
//! # Datagrams
//!
//! [`net`] sends and receives datagrams. It uses UDP with gather, GSO and GRO, and has wrappers
//! that bypass the kernel's UDP stack, inject faults or capture datagrams. [`interfaces`] lists the
//! network interfaces of this machine and their addresses. [`checksum`] computes CRC32C at the
//! speed of memory.
//!
//! # Memory
//!
//! [`memory`] holds the regions that peers may reach, the table that checks rights and bounds, and
//! memory that is borrowed for the length of a scope. [`shm`] connects local peers by shared memory
//! and a Unix socket.
//!
//! # Synchronization
//!
//! [`sync`] tracks threads that are using an object, so that teardown can wait for them. [`cpu`]
//! finds the processors that this process may use, pins threads, and has the lock and the event
//! that engines are built on.
//!
//! # Processes
//!
//! [`process`] reads signals as messages and starts children that cannot outlive their launcher.
//! [`signals`] starts threads that run none of the program's signal handlers. [`origin`] tells a
//! process from its children after fork(2). [`inherited`] hands a few bytes to child processes by a
//! descriptor. [`pmix`] asks the PMIx server of another launcher.
//!
//! # Secrets
//!
//! [`secrets::secret`] holds a job's secret, and [`secrets::protected`] keeps values out of core
//! dumps. [`secrets::seal`] agrees on keys and seals datagrams with them. [`secrets::key_log`]
//! writes keys down for who opens a capture.
//!
//! # Files
//!
//! [`replace_file`] writes files that appear under their names only when they are whole.
//! [`standard_output`] prints what commands say, and tells whether it was written.
//!
//! # Diagnosis and tests
//!
//! [`stats_page`] publishes a process's counters to other processes, which read them without
//! disturbing it. [`probe`] finds out which mechanisms this machine offers, for `oikaze doctor`.
//! [`remedy()`] suggests what to do when the system refuses a call. [`features`] reads the
//! mechanisms that the user has switched off, so that every fallback can be tested. [`counting`] is
//! an allocator that counts allocations in tests.
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod checksum;
pub mod counting;
pub mod cpu;
mod descriptor;
pub mod error_text;
pub mod features;
pub mod interfaces;
mod kernel_version;
pub mod memory;
#[cfg(all(test, loom))]
mod models;
pub mod net;
pub mod probe;
mod processes;
pub mod replace_file;
pub mod secrets;
pub mod shm;
pub mod standard_output;
pub mod stats_page;
pub mod sync;
mod testing;
pub mod valgrind;

pub use error_text::remedy;
pub use processes::{inherited, origin, pmix, process, sender, signals};
