//! Kills a process of a job at any point, while the others have operations of every kind in flight
//! to it. Each of these operations ends in time: well, with the loss of that peer, or with an
//! unknown outcome. Operations among the others go on, and nothing stays behind (MEM-7.4,
//! MEM-16.7).
//!
//! Runs a few rounds over the network, through rings, and over both. `make soak` sets OIKAZE_KILLS
//! to 1,000.

mod node;
mod operations;
#[path = "../support/process_job.rs"]
mod process_job;
mod round;

use round::{Round, Transport};
use std::time::Duration;

const TRIES: u64 = 6;
/// Time that survivors have once they can know of the death. It is asserted where nothing else runs
/// beside (`make soak`). Elsewhere only a hang counts.
const IN_TIME: Duration = Duration::from_secs(1);

/// Runs a node of a job that the other test starts. Not a test by itself.
#[test]
fn plays_its_role() {
    if std::env::var_os(round::ROLE).is_some() {
        node::play();
    }
}

#[test]
fn what_waits_for_a_killed_node_ends() {
    let wanted =
        std::env::var("OIKAZE_KILLS").ok().map(|text| text.parse::<u64>().expect("a number"));
    let tries = wanted.unwrap_or(TRIES);
    let mut latest = [Duration::ZERO; 3];
    for number in 0..tries {
        let round = Round::of(number);
        if let Some(last) = round.run() {
            assert!(
                wanted.is_none() || last <= round.transport.known_within() + IN_TIME,
                "{round:?}: the last ended after {last:?}"
            );
            let of_transport = &mut latest[round.transport as usize];
            *of_transport = last.max(*of_transport);
        }
        if wanted.is_some() && (number + 1).is_multiple_of(50) {
            println!("{} of {tries} killed; the last to end: {}", number + 1, times(&latest));
        }
    }
    println!("{tries} killed; the last to end: {}", times(&latest));
}

fn times(latest: &[Duration; 3]) -> String {
    let of = |transport: Transport| {
        format!("{transport:?} {:.0} ms", latest[transport as usize].as_secs_f64() * 1e3)
    };
    [Transport::Rings, Transport::Network, Transport::Both].map(of).join(", ")
}
