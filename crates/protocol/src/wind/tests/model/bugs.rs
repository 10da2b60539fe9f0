//! Test that the model finds bugs planted on purpose.

use super::CASES;
use crate::planted::plant;
use crate::wind::tests::planted::DELIVERY;

/// The switch is global to the process, so this must not run beside other tests.
#[test]
#[ignore = "plants bugs in the whole process: by cargo xtask test, one test at a time"]
fn bugs_are_found() {
    for bug in DELIVERY {
        plant(Some(bug));
        let found = CASES.iter().find_map(|case| case.check().err());
        plant(None);
        let found = found.unwrap_or_else(|| panic!("{bug:?} goes unnoticed"));
        std::eprintln!("{bug:?}: {}", found.lines().next().unwrap_or_default());
    }
}
