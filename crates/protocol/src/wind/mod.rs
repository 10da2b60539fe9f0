//! Wind: reliable messages to one peer, in three message classes (spec/wind.md).
//!
//! [`Connection`] is the interface for users. Its parts are small and pure, and do not depend on
//! each other.

mod assembly;
mod black_hole;
pub mod congestion;
mod connection;
mod death;
mod deferred_ack;
mod delayed_ack;
mod event;
mod expected;
mod flight;
mod handler;
mod handshake;
mod histogram;
mod inbox;
mod lanes;
mod liveness;
mod loss;
mod message;
mod mtu;
mod outbox;
mod outgoing;
mod path;
mod progress;
mod pto;
mod ranges;
mod receive;
mod receive_credit;
mod received_datagrams;
mod refusals;
mod reordering;
mod repair;
mod rtt;
mod send_mode;
mod settings;
mod snapshot;
mod spurious_loss;
mod statistics;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;

pub use crate::wire::{Introduction, Lane, Misfit};
pub use connection::Connection;
pub use death::{CloseReason, Death, HandshakeRefusal, Nonsense, Stuck};
pub use event::{Event, Fallback, PostError, Transmit};
pub use expected::{Expected, Forecast};
pub use handler::{Admission, Delivered, Handler, Refusal};
pub use histogram::{Histogram, Latency};
pub use lanes::PerLane;
pub use message::{Body, Class, Head, HeadTooLong, Message, Rows, Segment, Token};
pub use send_mode::SendMode;
pub use settings::Settings;
pub use snapshot::{Latencies, Snapshot, Standing};
pub use statistics::Statistics;
