//! Secrets of a job, and the keys that seal its datagrams.

pub mod key_log;
pub mod protected;
pub mod seal;
pub mod secret;
pub mod stream;
