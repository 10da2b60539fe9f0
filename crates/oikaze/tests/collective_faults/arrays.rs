//! A node that dies before the others save, load, fill or free an array.

use super::{all_said, die, run, say, say_error};
use crate::ways::ExchangeWay::Rings;
use crate::ways::{ways, ways_of_arrays};
use oikaze::prelude::*;

const CALLS: [&str; 6] = ["save", "load", "fill", "free", "drop", "team"];

/// COH-8.2: all collectives of arrays fail at the survivors, and name the dead node.
#[test]
fn dead_node_fails_collectives_of_arrays() {
    for (number, call) in CALLS.into_iter().enumerate() {
        for way in ways_of_arrays(number) {
            let ended = run(3, &format!("arrays {call}"), way);
            assert!(!ended[1].status.success(), "{way:?}: {ended:?}");
            all_said(&ended, &[&["node 1"], &["left"]]);
        }
    }
}

/// COH-15.4, COH-8.2: who cannot release after a death says so to who waits for it. Node 0 knows
/// of the death before it releases, and node 2 waits already.
#[test]
fn who_cannot_release_lets_nobody_wait() {
    let calls = ["notify", "pair"];
    let cases = calls.iter().flat_map(|call| ways(Rings).into_iter().map(move |way| (call, way)));
    for (call, way) in cases {
        let ended = run(3, &format!("release {call}"), way);
        assert!(!ended[1].status.success(), "{way:?}: {ended:?}");
        for node in [&ended[0], &ended[2]] {
            let said = &node.lines[0];
            assert!(said.contains("node 1") || said.contains("0 could not"), "{ended:#?}");
            assert_eq!(node.lines[1], "left");
        }
    }
}

/// COH-8.2: notifications of a dead node fail, before and after its death is known.
#[test]
fn notifications_of_a_dead_node_fail() {
    for way in ways(Rings) {
        let ended = run(3, "release dead", way);
        let ends: Vec<bool> = ended.iter().map(|node| node.status.success()).collect();
        assert_eq!(ends, [true, false, true], "{way:?}: {ended:?}");
        all_said(&ended, &[&["node 1"], &["left"]]);
    }
}

pub fn play_release(call: &str) {
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", 5000).unwrap();
    let pair = job.split((job.rank() != 1).then_some(0), 0).unwrap();
    array.fill(7).unwrap();
    let Some(pair) = pair else { die() };
    if job.rank() == 0 {
        array.write(..).unwrap().fill(8);
        // The death is known when a call that needs the dead node has failed.
        job.barrier().unwrap_err();
    }
    let failed = match (call, job.rank()) {
        ("notify", 0) => job.notify(2),
        ("notify", _) => job.wait_notify(0),
        ("dead", 0) => {
            job.notify(1).unwrap_err();
            job.wait_notify(1)
        }
        // It may wait for acknowledgements when it hears of the death.
        ("dead", _) => (0..100_000).try_for_each(|_| job.notify(1)),
        _ => pair.barrier(),
    };
    say_error(failed);
    job.leave().unwrap();
    say("left");
}

pub fn play(call: &str) {
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", 5000).unwrap();
    array.fill(7).unwrap();
    let parent = std::os::unix::process::parent_id();
    let path = std::env::temp_dir().join(format!("oikaze-faults-{call}-{parent}.raw"));
    if call == "load" {
        array.save(&path).unwrap();
    }
    if job.rank() == 1 {
        die();
    }
    let failed = match call {
        "save" => array.save(&path),
        "load" => array.load(&path),
        "fill" => array.fill(8),
        "free" => array.free(),
        // Dropped arrays are freed by the next barrier.
        "drop" => {
            drop(array);
            job.barrier()
        }
        // The barrier of a team is one of shared arrays.
        _ => job.team().barrier(),
    };
    say_error(failed);
    let team = job.shrink().unwrap();
    assert_eq!(team.all_gather(&[job.rank()]).unwrap(), [0, 2]);
    // No node loads it any more.
    let _ = std::fs::remove_file(&path);
    job.leave().unwrap();
    say("left");
}
