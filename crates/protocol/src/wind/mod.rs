//! Wind: reliable messages to one peer, in three message classes (spec/wind.md).
//!
//! [`Connection`] is the interface for users. Its parts are small and pure, and do not depend on
//! each other.

mod ack;
pub mod congestion;
mod connection;
mod death;
mod event;
pub(crate) mod handler;
mod handshake;
mod keepalive;
mod keys;
mod lanes;
mod metrics;
mod mtu;
pub mod multicast;
mod progress;
mod receive;
mod recovery;
mod recv;
pub(crate) mod send;
mod settings;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;

pub use crate::wire::{Introduction, Lane, Misfit};
pub use connection::Connection;
pub use death::{CloseReason, Death, HandshakeRefusal, Nonsense, Stuck};
pub use event::{Event, Fallback, PostError, Transmit};
pub use handler::{Admission, Delivered, Handler, Refusal};
pub use lanes::PerLane;
pub use metrics::counters::Statistics;
pub use metrics::histogram::{Histogram, Latency};
pub use metrics::snapshot::{FlowSnapshot, Latencies, Snapshot, Standing};
pub use recv::prediction::Expected;
pub use send::message::{Body, Charge, Class, Head, HeadTooLong, Message, Rows, Segment, Token};
pub use send::mode::SendMode;
pub use settings::{FlowCount, FlowCountSyntax, Settings};
