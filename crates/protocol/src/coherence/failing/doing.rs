//! Operations, as errors name them.

use crate::Rank;
use alloc::string::String;
use core::fmt;

/// Operation that was being tried, for messages to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Doing {
    Barrier,
    TeamBarrier,
    /// Notification of this node.
    Notify(Rank),
    /// Wait for a notification of this node.
    WaitNotify(Rank),
    Reduce,
    /// Step of this operation, which takes several collectives.
    Step(String),
    Declare(String),
    Free(String),
    Leave,
    Lock(u64),
    Unlock(u64),
    Diff,
    Fetch,
    Update,
    Subscribe,
    Target,
    Message,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doing::Barrier => f.write_str("barrier"),
            Doing::TeamBarrier => f.write_str("team barrier"),
            Doing::Notify(to) => write!(f, "notification of node {to}"),
            Doing::WaitNotify(from) => write!(f, "wait for a notification of node {from}"),
            Doing::Reduce => f.write_str("barrier_reduce"),
            Doing::Step(call) => f.write_str(call),
            Doing::Declare(name) => write!(f, "declare array \"{name}\""),
            Doing::Free(name) => write!(f, "free array \"{name}\""),
            Doing::Leave => f.write_str("leave"),
            Doing::Lock(lock) => write!(f, "lock {lock}"),
            Doing::Unlock(lock) => write!(f, "unlock {lock}"),
            Doing::Diff => f.write_str("bring written pages home"),
            Doing::Fetch => f.write_str("fetch pages"),
            Doing::Update => f.write_str("send updates of written pages"),
            Doing::Subscribe => f.write_str("subscribe to updates"),
            Doing::Target => f.write_str("read elements at their home"),
            Doing::Message => f.write_str("read a message of shared memory"),
        }
    }
}
