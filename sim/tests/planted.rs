//! Every planted bug that can show in the simulator is caught. A file of its own: the switch is the
//! whole process's.
#![cfg(feature = "planted-bugs")]

use oikaze_protocol::planted::Bug;
use oikaze_sim::planted::{by_name, catchable, seek};

#[test]
fn every_planted_bug_is_caught() {
    let missed: Vec<Bug> = catchable().filter(|bug| seek(*bug, 0, 400, 2).by.is_none()).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
    assert_eq!(by_name("losediff"), Some(Bug::LoseDiff));
}
