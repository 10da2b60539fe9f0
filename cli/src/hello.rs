//! `oikaze hello`: the smallest node. It finds its job, meets the others in the store, and says where all can be reached.

use oikaze::job::addresses::{Reachable, candidates};
use oikaze::job::{self, JobError};
use std::process::ExitCode;
use std::time::Duration;

/// Say hello; status 1 if the job or one of its nodes could not be found.
pub fn hello(limit: Duration) -> ExitCode {
    match meet(limit) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("oikaze hello: {why}");
            ExitCode::FAILURE
        }
    }
}

fn meet(limit: Duration) -> Result<String, JobError> {
    let job = job::find()?;
    let job = &*job;
    let (rank, size) = (job.rank(), job.size());
    // Any port does: nothing is sent to it.
    let mine = Reachable::here(1, true, true)?;
    mine.publish(job)?;
    let mut text = format!("node {rank} of {size} on {}, {} of the job's nodes on this host\n", mine.host.name, job.local_size());
    for peer in (0..size).filter(|&peer| peer != rank) {
        let theirs = Reachable::of(job, peer, limit)?;
        let likely = candidates(&mine, &theirs);
        let best = likely.first().map_or("nowhere: no address of theirs is of a family of ours".to_owned(), |first| {
            format!("{} ({:?}) first, {} candidates", first.to.ip(), first.likelihood, likely.len())
        });
        text += &format!("node {rank} would reach node {peer} at {best}\n");
    }
    job.fence("hello", limit)?;
    Ok(text)
}
