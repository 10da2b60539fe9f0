//! Datagram and frame formats (spec/wire.md): a checked view of bytes, and the owned values that go
//! to upper layers.
//!
//! A datagram is `header (24) | frames | payload of at most one bulk frame | tag (≤ 16)`
//! (WIRE-1.1). [`View::parse`] checks the outer lengths, and [`View::frames`] checks each frame as
//! it is reached. Neither ever panics, whatever the bytes are, and both only borrow. [`Builder`]
//! writes the same format. The engine owns the [`Seal`] that writes and checks the tag.

pub(crate) mod acknowledge;
pub(crate) mod build;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod header;
pub(crate) mod hello;
mod prefix;
pub(crate) mod seal;
#[cfg(test)]
mod tests;
pub(crate) mod versions;
pub(crate) mod view;

pub use acknowledge::{AckFields, Acknowledgement, RangesDescending, RefusalWalk, RefusedMessage};
pub use build::Builder;
pub use frame::{
    CloseReason, Fragment, Frame, Open, SmallMessage, Withdrawal, message_frame_len, open_frame_len,
};
pub use group::{Addressees, GroupAcknowledgement};
pub use header::{Flags, Header, Lane};
pub use hello::{Cookie, CookieReply, Hello, Introduction, Misfit, Refuse, Shown};
pub use seal::{Seal, SealKind};
pub use versions::Versions;
pub use view::{Frames, Malformed, View};

/// First datagram number. Numbers on the wire grow by one with each datagram.
pub const FIRST_NUMBER: u64 = 1;
