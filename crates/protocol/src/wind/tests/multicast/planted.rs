//! Tests that notice each bug that can be planted in multicast. Run one process at a time, because
//! the switch is global.

use super::delivery::exchange;
use super::forged::FORGERIES;
use super::members::{end_under_way, fill_windows_before_the_oldest_message};
use crate::planted::{Bug, plant};
use std::panic;

#[test]
#[ignore = "plants bugs in the whole process: run alone, with --features planted-bugs -- --ignored planted"]
fn every_bug_is_caught() {
    let run = |seed: u64| {
        exchange(seed);
        end_under_way(seed);
        fill_windows_before_the_oldest_message(seed);
    };
    // Without a bug the same runs pass. Otherwise noticing would mean nothing.
    plant(None);
    (0..30).for_each(run);
    FORGERIES.iter().for_each(|forge| forge());
    // The panics are wanted here. In a log they would hide a failure.
    panic::set_hook(std::boxed::Box::new(|_| {}));
    let noticed = Bug::OF_MULTICAST.map(|bug| {
        plant(Some(bug));
        (bug, (0..30).find(|seed| panic::catch_unwind(|| run(*seed)).is_err()))
    });
    let of_forgeries = Bug::OF_FORGERIES.map(|bug| {
        plant(Some(bug));
        let notices = |forge: &fn()| panic::catch_unwind(*forge).is_err();
        (bug, (0..).zip(&FORGERIES).find(|(_, forge)| notices(forge)).map(|(at, _)| at))
    });
    plant(None);
    drop(panic::take_hook());
    let unnoticed = noticed.iter().chain(&of_forgeries).find(|(_, by)| by.is_none());
    assert_eq!(unnoticed, None, "a bug goes unnoticed");
}
