//! `oikaze hello`: the smallest node. It joins its job, which connects it to all other nodes, and
//! prints the addresses at which it reaches them.

use oikaze::Result;
use std::process::ExitCode;
use std::time::Duration;

/// Joins the job and prints its peers. Returns status 1 if the job cannot be found, or a node of it
/// cannot be reached.
pub fn hello(limit: Duration) -> ExitCode {
    match meet(limit).and_then(|text| crate::print::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("oikaze hello: {why}");
            ExitCode::FAILURE
        }
    }
}

fn meet(limit: Duration) -> Result<String> {
    let place = oikaze_launch::find(oikaze_launch::settings()?)?;
    place.fence("hello", limit)?;
    let here = place.local_size();
    let job = oikaze::internal::join_as(place)?;
    let (rank, size) = (job.rank(), job.size());
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut text = format!(
        "node {rank} of {size} on {}, {here} of the job's nodes on this host\n",
        name.trim()
    );
    for peer in (0..size).filter(|&peer| peer != rank) {
        let address = job
            .peer(peer)?
            .address()
            .map_or("an unknown address".to_owned(), |address| address.to_string());
        text += &format!("node {rank} reaches node {peer} at {address}\n");
    }
    job.leave()?;
    Ok(text)
}
