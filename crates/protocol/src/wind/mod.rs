//! Wind: one peer, reliably, in three message classes (spec/wind.md).
//!
//! [`Connection`] is the whole of it for users; its parts are small and pure and do not know of each other.

mod connection;
mod event;
mod message;
mod settings;
mod statistics;
mod upper;

pub use crate::wire::{Introduction, Misfit};
pub use connection::Connection;
pub use event::{Death, Event, HandshakeRefusal, PostError, Transmit};
pub use message::{Body, Class, Head, HeadTooLong, Message, Segment, Token};
pub use settings::Settings;
pub use statistics::Statistics;
pub use upper::{Admission, Delivered, Refusal, Upper};
