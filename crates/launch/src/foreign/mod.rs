//! Jobs that launchers of other projects start (LAUNCH-9).
//!
//! `oikaze run` has a store, which all nodes reach. Under any other launcher, rank 0 has the store,
//! and the launcher's means serve for one thing only: all processes learn the store's address and
//! the job's secret. [`table`] knows the launchers, [`exchange`] is for those with a server, and
//! `rendezvous` for the others.

mod caller;
pub mod exchange;
mod hosts;
mod pmi;
mod pmix;
mod rendezvous;
mod store_here;
pub mod table;
#[cfg(test)]
mod tests;

pub use caller::Gather;

use crate::bootstrap::{Bootstrap, SingleNode};
use crate::environment::{Lookup, NodePlace, Settings, new_incarnation};
use crate::store::Client;
use crate::store::client::ForeignJob;
use crate::{JobError, MEET_TIME};
use caller::Caller;
use exchange::Exchange;
use oikaze_protocol::limits::NODES_MAX;
use std::sync::Mutex;
use store_here::Meeting;
use table::{ForeignLauncher, Started};

/// Joins the job of another launcher.
///
/// # Errors
/// The launcher's server or the store of rank 0 cannot be reached, or a process does not come.
pub(crate) fn join_started(
    started: &Started,
    settings: Settings,
    lookup: Lookup<'_>,
) -> Result<Box<dyn Bootstrap>, JobError> {
    let limit = settings.time_limit.unwrap_or(MEET_TIME);
    let place = started.rank.zip(started.size);
    match (started.by, place) {
        (ForeignLauncher::Pmix, _) => {
            let by = pmix::PmixExchange::open(lookup, limit)?;
            join_by(by, settings, |by| by.into_server().map(|server| Box::new(server) as _))
        }
        (ForeignLauncher::Pmi, place) => {
            join_by(pmi::Pmi::open(lookup, place)?, settings, |by| Some(Box::new(by)))
        }
        (_, None) => Ok(Box::new(SingleNode::new(settings)?)),
        (by, Some((rank, size))) => {
            let meeting = rendezvous::Place::of(by, lookup)?.meet((rank, size), lookup)?;
            join_at(meeting, (rank, size), settings, None)
        }
    }
}

/// Joins a job whose processes meet by a function of the program.
///
/// # Errors
/// The function fails, the store of rank 0 cannot be reached, or a process does not come.
pub fn join_gathering(
    rank: u32,
    size: u32,
    settings: Settings,
    gather: &mut Gather<'_>,
) -> Result<Box<dyn Bootstrap>, JobError> {
    if size == 0 || size > NODES_MAX || rank >= size {
        return Err(JobError::Exchange {
            server: "the program's own exchange",
            why: format!("there is no process {rank} of {size}: a job has 1 to {NODES_MAX} nodes"),
        });
    }
    join_by(Caller { rank, size, gather }, settings, |_| None)
}

fn join_by<E: Exchange>(
    mut by: E,
    settings: Settings,
    kept: impl FnOnce(E) -> Option<Box<dyn Send>>,
) -> Result<Box<dyn Bootstrap>, JobError> {
    let (rank, size) = (by.rank(), by.size());
    if size == 1 {
        return Ok(Box::new(SingleNode::new(settings)?));
    }
    let limit = settings.time_limit.unwrap_or(MEET_TIME);
    let meeting = exchange::meet(&mut by, settings.ports, limit)?;
    join_at(meeting, (rank, size), settings, kept(by))
}

/// Connects to the store of rank 0, and finds out which nodes are on one host.
fn join_at(
    meeting: Meeting,
    (rank, size): (u32, u32),
    settings: Settings,
    launcher: Option<Box<dyn Send>>,
) -> Result<Box<dyn Bootstrap>, JobError> {
    let limit = settings.time_limit.unwrap_or(MEET_TIME);
    let Meeting { store, secret, server } = meeting;
    let incarnation = new_incarnation();
    let place = NodePlace { store, rank, size, local_rank: 0, local_size: 1, secret, incarnation };
    let mut client = Client::connect_late(place, settings)?;
    client.keep(ForeignJob { store: server, _launcher: launcher.map(Mutex::new) });
    let (local_rank, local_size) = hosts::find(&client, limit)?;
    client.set_local_place(local_rank, local_size);
    Ok(Box::new(client))
}
