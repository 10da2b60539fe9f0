//! Tests that notice each bug that can be planted in Wind. Run one process at a time, because the
//! switch is global.

use super::delivery::messages::exchange;
use super::support::channel::Faults;
use crate::planted::{Bug, plant};
use crate::wind::Settings;
use std::panic;

/// Bugs that affect a message's delivery, which the model must find, too.
pub(super) const DELIVERY: [Bug; 7] = [
    Bug::AcceptDuplicateDatagram,
    Bug::AcceptDuplicateMessage,
    Bug::DeliverOrderedEarly,
    Bug::IgnoreClassRule,
    Bug::ForgetRetransmission,
    Bug::AcknowledgeUnreceived,
    Bug::MisplaceFragment,
];

#[test]
#[ignore = "plants bugs in the whole process: run alone, with --features planted-bugs -- --ignored planted"]
fn every_bug_is_caught() {
    let faults = Faults { loss: 0.1, duplicate: 0.3, reorder: 0.2, corrupt: 0.01 };
    let lossless = Faults { loss: 0.0, duplicate: 1.0, ..faults };
    let run = |seed: u64| {
        exchange(
            Settings::default(),
            if seed.is_multiple_of(2) { lossless } else { faults },
            seed,
            60,
            false,
        );
    };
    // Without a bug the same runs pass. Otherwise noticing would mean nothing.
    plant(None);
    (0..100).for_each(run);
    // The panics are wanted here. In a log they would hide a failure.
    panic::set_hook(std::boxed::Box::new(|_| {}));
    let noticed = DELIVERY.map(|bug| {
        plant(Some(bug));
        (bug, (0..100).find(|seed| panic::catch_unwind(|| run(*seed)).is_err()))
    });
    plant(None);
    drop(panic::take_hook());
    std::eprintln!("{noticed:?}");
    let unnoticed = noticed.iter().find(|(_, seed)| seed.is_none());
    assert_eq!(unnoticed, None, "a bug goes unnoticed");
}
