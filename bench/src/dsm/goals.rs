//! Goals for shared memory, as ratios to MPI and to one processor alone.

use clap::ValueEnum;

use super::case::{Case, Unit};
use super::system::System;
use crate::record::Record;
use crate::suite::goals::{Bound, Found, Goal};

/// Returns all goals: first two nodes beside MPI, then one node beside the serial program, then the
/// equality of the kernels.
pub fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, system: System, nodes| {
        let wanted = (case.name(), system.name(), Some(nodes));
        records.iter().find(|record| (record.case, record.system, record.nodes) == wanted)
    };
    let ratio = |case, (one, one_nodes), (other, other_nodes)| {
        Found::ratio((of(case, one, one_nodes), of(case, other, other_nodes)))
    };
    let cases = Case::value_variants();
    let mut goals: Vec<Goal> = Vec::new();
    for &case in cases {
        let name = case.name();
        let guards = ratio(case, (System::Oikaze, 2), (System::Mpi, 2));
        if case.unit() == Unit::Us {
            goals.push((format!("{name} / mpi, 2 nodes"), guards, Bound::AtMost(1.0)));
            continue;
        }
        let plain = ratio(case, (System::OikazePlain, 2), (System::Mpi, 2));
        let faster = ratio(case, (System::Oikaze, 2), (System::Serial, 1));
        goals.push((format!("{name}, guards / mpi, 2 nodes"), guards, Bound::AtLeast(1.0)));
        goals.push((format!("{name}, plain / mpi, 2 nodes"), plain, Bound::AtLeast(0.9)));
        goals.push((format!("{name}, 2 nodes / serial"), faster, Bound::AtLeast(1.5)));
    }
    for &case in cases.iter().filter(|case| case.unit() != Unit::Us) {
        let name = case.name();
        let alone = ratio(case, (System::Oikaze, 1), (System::Serial, 1));
        let kernels = ratio(case, (System::Mpi, 1), (System::Oikaze, 1));
        goals.push((format!("{name}, 1 node / serial"), alone, Bound::AtLeast(0.98)));
        goals.push((
            format!("{name}, mpi / oikaze, 1 node of each"),
            kernels,
            Bound::AtLeast(0.95),
        ));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: Case, system: System, nodes: u32, value: f64) -> Record {
        let (system, nodes) = (system.name(), Some(nodes));
        Record { system, nodes, value, rounds: vec![value], ..Record::example(case.name(), 0) }
    }

    #[test]
    fn ratios_are_of_the_same_number_of_nodes_but_for_the_serial_program() {
        let case = Case::HimenoS;
        let records = [
            record(case, System::Mpi, 2, 4000.0),
            record(case, System::Oikaze, 2, 3000.0),
            record(case, System::Oikaze, 1, 1900.0),
            record(case, System::Serial, 1, 2000.0),
        ];
        let found: Vec<(String, f64)> = goals(&records)
            .into_iter()
            .filter_map(|(what, found, _)| Some((what, found?.value)))
            .collect();
        let expected = [
            ("himeno_s, guards / mpi, 2 nodes", 0.75),
            ("himeno_s, 2 nodes / serial", 1.5),
            ("himeno_s, 1 node / serial", 0.95),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((what, value), (name, ratio)) in found.iter().zip(expected) {
            assert!(what == name && (value - ratio).abs() < 1e-9, "{what}: {value}");
        }
    }

    #[test]
    fn fewer_microseconds_are_better() {
        let records = [
            record(Case::Barrier, System::Mpi, 2, 12.0),
            record(Case::Barrier, System::Oikaze, 2, 9.0),
        ];
        let goals = goals(&records);
        let found = goals.iter().find(|(_, found, _)| found.is_some());
        assert!(
            matches!(found, Some((_, Some(found), Bound::AtMost(_))) if (found.value - 0.75).abs() < 1e-9)
        );
    }
}
