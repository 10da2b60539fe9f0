//! # A whole cluster on one thread, from one seed
//!
//! The engine and the protocol are real. Link, clock, memory tracking and programs are simulated,
//! so a run is a function of its seed. [`run::run`] with the same seed has the same events, whose
//! hash the tests compare.
//!
//! The parts from the bottom up:
//!
//! - [`random`] numbers, the [`net`]work and its faults, and the [`pages`] of shared arrays.
//! - [`program`]s that the nodes run, and the [`oracle`] of what must be true.
//! - A [`cluster`], which a [`plan`] moves from event to event.
//! - A [`run`] of one seed, a [`hunt`]([`hunt::hunt`]) through many seeds, and the [`planted`] bugs
//!   that prove that the oracle notices.
//!
//! A [`fabric`] of hosts and a switch tests congestion, with rates of lines and ends of queues. A
//! [`crowd`] is another cluster: one node with a thousand peers.
//!
//! Real threads, links and processes test what the simulator cannot reach. These are sockets and
//! the port for bulk (here all lanes have one mailbox), local peers and their rings (here all nodes
//! use the network), userfaultfd, and waiting threads.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cluster;
pub mod crowd;
pub mod death;
pub mod fabric;
pub mod fire;
pub mod hunt;
pub mod net;
pub mod oracle;
pub mod pages;
pub mod plan;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod program;
pub mod random;
pub mod run;
pub mod trace;
pub mod violation;
