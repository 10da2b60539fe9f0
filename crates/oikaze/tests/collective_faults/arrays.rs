//! A node that dies before the others save, load, fill or free an array.

use super::{TRANSPORTS, all_said, die, run, say, say_error};
use oikaze::prelude::*;

const CALLS: [&str; 6] = ["save", "load", "fill", "free", "drop", "team"];

/// COH-8.2: all collectives of arrays fail at the survivors, and name the dead node.
#[test]
fn dead_node_fails_collectives_of_arrays() {
    for (number, call) in CALLS.into_iter().enumerate() {
        let ended = run(3, &format!("arrays {call}"), TRANSPORTS[number % 2]);
        assert!(!ended[1].status.success(), "{ended:?}");
        all_said(&ended, &[&["node 1"], &["left"]]);
    }
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
    let _ = std::fs::remove_file(&path);
    say_error(failed);
    let team = job.shrink().unwrap();
    assert_eq!(team.all_gather(&[job.rank()]).unwrap(), [0, 2]);
    job.leave().unwrap();
    say("left");
}
