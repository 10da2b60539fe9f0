//! Jobs: how n processes become n nodes.
//!
//! A process finds its job with [`find`], from the environment that `oikaze run` set. Without a
//! launcher the process is a job of one node. [`find`] returns a [`Bootstrap`]: rank, size, secret
//! and a small store, in which the nodes publish their addresses ([`addresses`]). The store
//! ([`store`]) lives in the launcher and is reached over TCP. [`launch`] is the launcher.

pub mod addresses;
pub mod bootstrap;
mod clock;
pub mod environment;
mod error;
pub mod foreign;
pub mod launcher;
mod listen;
pub mod pmi;
pub mod reason;
mod seal;
mod secret_file;
pub mod store;
mod stray;

pub use bootstrap::{Bootstrap, KEY_MAX, NodeEnd, SingleNode, VALUE_MAX};
pub use environment::Settings;
pub use error::JobError;
pub use oikaze_os::net::Ports;
pub use oikaze_os::secrets::secret::{SECRET_LEN, Secret};
pub use seal::Seal;

/// Time for the nodes of a job to find one another, unless the job has a time limit of its own
/// (`OIKAZE_TIMEOUT`).
pub const MEET_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Question of a launcher that was sent SIGQUIT to all nodes ([`Bootstrap::on_question`]). The
/// answer says what the node's threads wait for. A program with a handler of SIGQUIT gets the
/// signal, too (LAUNCH-4.2).
pub const REPORT: &str = "report";

/// Reads the user's settings from the environment.
///
/// # Errors
/// A variable that makes no sense.
pub fn settings() -> Result<Settings, JobError> {
    environment::read_settings(&variable)
}

/// Finds this process's job, which gets these settings. It is that of `oikaze run`, or of another
/// launcher. Without a launcher it is a job of one node.
///
/// # Errors
/// A launcher's variables make no sense, or are missing in a node of its job; the store cannot be
/// reached, or refuses this process.
pub fn find(settings: Settings) -> Result<Box<dyn Bootstrap>, JobError> {
    if let Some(started) = started_by_another()? {
        return foreign::join_started(&started, settings, &variable);
    }
    match environment::read_place(&variable)? {
        None => {
            stray::check()?;
            Ok(Box::new(SingleNode::new(settings)?))
        }
        Some(place) => Ok(Box::new(store::Client::connect(place, settings)?)),
    }
}

/// Returns `true` if a launcher has started this process as a node of a job.
///
/// # Errors
/// A launcher's variables make no sense.
pub fn is_launched() -> Result<bool, JobError> {
    let own = [environment::STORE, environment::RANK, environment::SIZE];
    Ok(own.iter().any(|name| std::env::var_os(name).is_some()) || started_by_another()?.is_some())
}

/// Returns the launcher of another project that has started this process. `oikaze run` may itself
/// be started by one, and its nodes are its own. `OIKAZE_LOCAL` asks for a job without a launcher.
fn started_by_another() -> Result<Option<foreign::table::Started>, JobError> {
    let has = |name| std::env::var_os(name).is_some();
    if has(environment::RANK) || has(environment::LOCAL) {
        return Ok(None);
    }
    // A job of one process, such as a shell of a batch system, needs no other process.
    Ok(foreign::table::find(&variable)?.filter(|started| started.size != Some(1)))
}

fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}
