//! Threads that drive the engine: the election of the driver, the lock around the engine, spinning,
//! sleeping, and the helper thread.

pub(crate) mod announce;
pub(crate) mod drive;
pub(crate) mod election;
pub(crate) mod helper;
pub(crate) mod lock;
pub(crate) mod sleeper;
pub(crate) mod spin;
pub(crate) mod wait_policy;
pub(crate) mod waiters;
