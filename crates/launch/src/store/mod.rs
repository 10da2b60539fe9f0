//! Store of a job: a small table of published values and fences, embedded in the launcher, reached
//! over TCP.
//!
//! - [`protocol`]: frames and what they mean; bounded, checked, sealed by a key that both ends
//!   derive from the job's secret.
//! - `seal`: frames cut from a stream, sealed by the session's key.
//! - [`table`]: what the store decides, without I/O or clock.
//! - `questions` and `surveys`: questions to nodes on their way. `client::answering`: a node's
//!   thread that answers them.
//! - `places`: which process holds which rank. `patience`: TCP's options for paths that lose
//!   packets.
//! - [`server`]: one thread that polls all connections. [`client`]: a node's end.

pub mod client;
mod patience;
mod places;
pub mod protocol;
mod questions;
pub mod seal;
pub mod server;
mod surveys;
pub mod table;

pub use client::Client;
pub use server::Server;
pub use table::Notice;

#[cfg(test)]
mod tests;
