//! Access to pages whose home is elsewhere: fetches, and operations at the home.

pub(crate) mod fetch;
pub(crate) mod home;
pub(crate) mod prefetch;
pub(crate) mod targets;
pub(crate) mod touch;
