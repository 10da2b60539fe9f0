//! Jobs: how n processes become n nodes.
//!
//! A process finds its job with [`find`], from the environment that `oikaze run` set. Without a
//! launcher the process is a job of one node. [`find`] returns a [`Bootstrap`]: rank, size, secret
//! and a small store, in which the nodes publish their addresses ([`addresses`]). The store
//! ([`store`]) lives in the launcher and is reached over TCP. [`launch`] is the launcher.

pub mod addresses;
pub mod bootstrap;
mod checksum;
mod clock;
pub mod environment;
mod error;
pub mod launcher;
pub mod reason;
pub mod store;

pub use bootstrap::{Alone, Bootstrap, KEY_MAX, NodeEnd, VALUE_MAX};
pub use checksum::Checksum;
pub use environment::Settings;
pub use error::JobError;
pub use oikaze_os::net::Ports;
pub use oikaze_os::secret::{SECRET_LEN, Secret};

/// Time for the nodes of a job to find one another, unless the job has a time limit of its own
/// (`OIKAZE_TIMEOUT`).
pub const MEET_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Finds this process's job. Without a launcher it is a job of one node.
///
/// # Errors
/// A launcher's variables make no sense; the store cannot be reached, or refuses this process.
pub fn find() -> Result<Box<dyn Bootstrap>, JobError> {
    find_in(&|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
}

/// Finds the job as [`find`] does, with the variables given.
///
/// # Errors
/// As [`find`].
pub fn find_in(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Bootstrap>, JobError> {
    let settings = environment::read_settings(lookup)?;
    match environment::read_place(lookup)? {
        None => Ok(Box::new(Alone::new(settings)?)),
        Some(place) => Ok(Box::new(store::Client::connect(place, settings)?)),
    }
}
