//! Wind: one peer, reliably, in three message classes (spec/wind.md).

mod message;
mod upper;

pub use message::{Body, Class, Head, HeadTooLong, Message, Segment, Token};
pub use upper::{Admission, Delivered, Refusal, Upper};
