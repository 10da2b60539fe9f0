//! Agreement of all nodes on whether they can go on.

use oikaze::Job;
use oikaze::collective::Collectives;

/// Gives all nodes the error of the lowest rank that has one, so that none waits for a node that
/// cannot go on. Collective.
///
/// # Errors
/// A node has an error, or is lost.
pub fn agree(job: &Job, mine: Result<(), String>) -> Result<(), String> {
    let mine = mine.err().unwrap_or_default();
    let errors = job.all_gather_uneven(mine.as_bytes()).map_err(|error| error.to_string())?;
    match errors.iter().enumerate().find(|(_, error)| !error.is_empty()) {
        Some((rank, error)) => Err(format!("node {rank}: {}", String::from_utf8_lossy(error))),
        None => Ok(()),
    }
}
