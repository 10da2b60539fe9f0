//! # A whole cluster on one thread, from one seed
//!
//! The real engine, the real protocol; link, clock, memory tracking and programs are simulated, so
//! that a run is a function of its seed: [`run::run`] with the same seed has the same events, whose
//! hash the tests compare.
//!
//! From the bottom up: [`random`] numbers; the [`net`]work and its faults; the [`pages`] of shared
//! arrays; [`program`]s, what nodes do; the [`oracle`], what must be true; a [`cluster`], moved
//! from event to event by its [`plan`]; a [`run`] of one seed, a [`hunt`]([`hunt::hunt`]) through
//! many, and the [`planted`] bugs that prove the oracle's sight.
//!
//! Congestion is looked at in a [`fabric`] of hosts and a switch, where lines have rates and queues
//! have ends. A [`crowd`] is another cluster: one node amid a thousand peers.
//!
//! Real threads, links and processes test what the simulator cannot reach: sockets and
//! the port for bulk (here all lanes have one mailbox), local peers and their rings (here all nodes
//! are reached over the network), userfaultfd, waiting threads.
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
