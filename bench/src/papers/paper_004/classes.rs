//! Paper 004, an open question: classes of messages and deliveries of updates, measured together.
//!
//! The paper measured Wind's three classes by themselves (figure 6: the unordered one), and its
//! deliveries by themselves (figure 7). Here barriers bring updates in each class and by each
//! delivery. The size is that of the memory, and the mode of a record is the class.

use super::barrier::{MTU, blank_records, measure, names, one, sizes};
use crate::dsm::DELIVERIES;
use crate::error::Error;
use crate::papers::Measuring;
use crate::papers::plot::Scale;
use crate::papers::report::Figure;
use crate::process::seal;
use crate::record::Record;

/// Classes, as `OIKAZE_UPDATE_CLASS` names them.
const CLASSES: [&str; 3] = ["unordered", "ordered", "sync"];
/// Names of the lines, by class and delivery.
const NAMES: [[&str; DELIVERIES.len()]; CLASSES.len()] = names!("unordered", "ordered", "sync");
/// Lines of the picture: Wind's delivery and the ordinary path, in each class.
const DRAWN: [&str; 6] =
    [NAMES[0][0], NAMES[1][0], NAMES[2][0], NAMES[0][2], NAMES[1][2], NAMES[2][2]];

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn classes(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let quick = run.rounds.quick;
    let figure = Figure {
        name: "004-classes",
        title: "Paper 004's open question: classes and deliveries of updates together",
        across: "bytes of updated memory",
        up: "MB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Two nodes, each in a network namespace of its own with a core of its own, mtu {MTU}: size divided by the median time of a barrier with its update (oikaze perf barrier-update, OIKAZE_UPDATE_CLASS, OIKAZE_DELIVERY)."
        ),
        then: "not measured: the paper leaves both together open",
        then_machine: "Pentium III, gigabit Ethernet, about 2002",
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[&DRAWN],
        base: DRAWN[3],
    };
    measure(&figure, run, blank(quick), |record| one(record, record.mode, quick))
}

/// Returns a record for each measurement, without values.
fn blank(quick: bool) -> Vec<Record> {
    let mut records = Vec::new();
    for size in sizes(quick) {
        for (class, names) in CLASSES.into_iter().zip(NAMES) {
            records.extend(blank_records("004-classes", size, 2, class, names, quick));
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_library() {
        let known = oikaze::message::Class::ALL.map(|class| class.name());
        assert!(CLASSES.len() == known.len() && CLASSES.iter().all(|class| known.contains(class)));
    }

    #[test]
    fn each_size_has_each_class_and_delivery() {
        let (quick, full) = (blank(true), blank(false));
        assert_eq!((quick.len(), full.len()), (3 * 3 * 2, 5 * 3 * 5));
        for record in &full {
            let (class, delivery) = (record.mode.unwrap(), record.delivery.unwrap());
            let delivery = delivery.replace("direct_diff", "diff").replace('_', " ");
            assert_eq!(record.system, format!("{class}, {delivery}"));
        }
        for drawn in DRAWN {
            assert!(quick.iter().any(|record| record.system == drawn), "{drawn}");
        }
    }
}
