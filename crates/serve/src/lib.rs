//! Engine mode `process`: a server sends and receives for the nodes of its machine
//! (spec/serve.md).
//!
//! [`ServedLink`] is the node's end, a link as any other. [`Server`] is the other end. Between the
//! two are rings in a sealed memory file, the same as between local peers. A node's engine seals
//! what it sends, so the server needs no keys. [`OnDemand`] starts a server that is missing.
//!
//! The crate knows neither the engine nor the runtime: it links a node's datagrams to a machine's
//! sockets, and nothing else.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod client;
mod counters;
mod link;
mod name;
mod on_demand;
mod record;
mod refusal_log;
mod server;
mod stall;
#[cfg(test)]
mod tests;

pub use link::{ConnectError, Reconnect, ServedLink};
pub use name::{DEFAULT_NAME, NAME_MAX, check_name};
pub use on_demand::OnDemand;
pub use server::{ServeError, ServeOptions, Server};
