//! Access to pages whose home is elsewhere: fetches, and operations at the home.

pub(crate) mod fetch;
pub(crate) mod home;
pub(crate) mod limits;
pub(crate) mod prefetch;
pub(crate) mod runs;
pub(crate) mod streams;
pub(crate) mod target_op;
pub(crate) mod targets;
pub(crate) mod touch;
