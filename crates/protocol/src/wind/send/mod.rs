//! Messages on their way out: the send queue, and the state of each message that is being sent.

pub(crate) mod message;
pub(crate) mod mode;
pub(crate) mod outgoing;
pub(crate) mod queue;
