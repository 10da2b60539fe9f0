//! Requests and their outcomes: submission, posting to peers or to this node, events back.

pub(crate) mod dispatch;
pub(crate) mod events;
pub(crate) mod loopback;
pub(crate) mod post;
mod streams;
pub(crate) mod submit;
