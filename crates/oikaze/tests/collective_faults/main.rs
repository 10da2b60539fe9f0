//! Faults in collectives, on real processes: a rank is killed, aborts, calls something else, or has
//! no memory. All others get a clear error in time, and survivors go on in a team of their own
//! (COLL-3, COLL-6).

#[path = "../support/block_on.rs"]
mod block_on;
#[path = "../support/nodes.rs"]
mod nodes;
#[path = "../support/process_job.rs"]
mod process_job;
#[path = "../support/ways.rs"]
mod ways;

mod arrays;
mod calls;
mod deaths;
mod mistakes;
#[cfg(debug_assertions)]
mod points;
mod refusals;

use nodes::{Ended, PART, run_nodes, say};
use oikaze_launch::Settings;
use oikaze_os::counting::Counting;
use std::time::Duration;
use ways::ExchangeWay;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Time limit of each wait of a node.
const LIMIT: Duration = Duration::from_secs(20);

/// Plays the part of a node that another test starts. Not a test by itself.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let (name, argument) = part.split_once(' ').unwrap_or((&part, ""));
    match name {
        "deaths" => deaths::play(argument),
        "abort" => deaths::play_abort(),
        "mistakes" => mistakes::play(argument),
        "refusals" => refusals::play(argument),
        "arrays" => arrays::play(argument),
        "release" => arrays::play_release(argument),
        #[cfg(debug_assertions)]
        "kill" => points::play_kill(argument),
        #[cfg(debug_assertions)]
        "stop" => points::play_stop(),
        other => panic!("no part {other}"),
    }
}

/// Runs a part on so many nodes, which exchange values in this way. Returns the ends by rank.
fn run(count: u32, part: &str, way: ExchangeWay) -> Vec<Ended> {
    let settings = Settings { time_limit: Some(LIMIT), keep_going: true, ..Settings::default() };
    run_nodes(count, ("plays_its_part", part), &settings, |rank| way.variables(rank, count, ""))
}

/// Ends this process at once, as a crash does.
fn die() -> ! {
    let me = rustix::process::getpid();
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Checks that each living node has said so many lines, and that each line has one of its words.
fn all_said(ended: &[Ended], lines: &[&[&str]]) {
    for (rank, node) in ended.iter().enumerate().filter(|(_, node)| node.status.success()) {
        assert_eq!(node.lines.len(), lines.len(), "node {rank}: {:#?}", node.lines);
        for (said, words) in node.lines.iter().zip(lines) {
            let told = words.iter().all(|word| said.contains(word));
            assert!(told, "node {rank}: {words:?} in {said:?}");
        }
    }
}

/// Says an outcome, which is to be an error.
fn say_error<T>(outcome: oikaze::Result<T>) {
    say(&outcome.err().map_or_else(|| "no error".to_owned(), |error| error.to_string()));
}
