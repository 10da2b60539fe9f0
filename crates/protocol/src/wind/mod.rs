//! Wind: one peer, reliably, in three message classes (spec/wind.md).
//!
//! [`Connection`] is the whole of it for users; its parts are small and pure and do not know of
//! each other.

mod arrivals;
mod assembly;
mod beside;
pub mod congestion;
mod connection;
mod death;
mod doubtful;
mod event;
mod evidence;
mod expected;
mod flight;
mod granted;
mod handshake;
mod histogram;
mod inbox;
mod interactive;
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
mod refusals;
mod reordering;
mod repair;
mod rtt;
mod send_mode;
mod settings;
mod snapshot;
mod statistics;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod upper;

pub use crate::wire::{Introduction, Lane, Misfit};
pub use connection::Connection;
pub use death::{CloseReason, Death, HandshakeRefusal, Nonsense, Stuck};
pub use event::{Event, Fallback, PostError, Transmit};
pub use expected::{Expected, Forecast};
pub use histogram::{Histogram, Latency};
pub use lanes::PerLane;
pub use message::{Body, Class, Head, HeadTooLong, Message, Rows, Segment, Token};
pub use send_mode::SendMode;
pub use settings::Settings;
pub use snapshot::{Latencies, Snapshot, Standing};
pub use statistics::Statistics;
pub use upper::{Admission, Delivered, Refusal, Upper};
