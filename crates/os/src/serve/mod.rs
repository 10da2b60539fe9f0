//! Engine mode `process`: a server sends and receives for the nodes of its machine
//! (spec/serve.md).
//!
//! [`ServedLink`] is the node's end, a link as any other. [`Server`] is the other end. Between the
//! two are rings in a sealed memory file, the same as between local peers. A node's engine seals
//! what it sends, so the server needs no keys.

mod client;
mod counters;
mod link;
mod name;
mod record;
mod refusal_log;
mod server;
mod stall;
#[cfg(test)]
mod tests;

pub use link::{ConnectError, Reconnect, ServedLink};
pub use name::{DEFAULT_NAME, NAME_MAX, check_name};
pub use server::{ServeError, ServeOptions, Server};
