//! Goals for shared memory, as ratios to MPI, to one-sided reads, and to one processor alone.

use clap::ValueEnum;

use super::case::{Case, UPDATE_SIZES, Unit};
use super::system::System;
use crate::record::Record;
use crate::suite::case::KIB;
use crate::suite::goals::{Bound, Found, Goal};

/// Maximum time of a cold page, in times of a one-sided read of 8 bytes.
const PAGE_TIME: f64 = 3.0;
/// Minimum bandwidth of cold reads of 1 MiB, as a share of that of one-sided reads.
const COLD_SHARE: f64 = 0.7;

/// Maximum time of a barrier of two, in times of a message of 8 bytes.
const BARRIER_TIME: f64 = 1.7;

/// Maximum time of the hand-over of a lock with a page, in times of a message of 8 bytes.
const HAND_OVER_TIME: f64 = 2.5;

/// Minimum speed of plain pointers, in times of that of guards.
const POINTERS: f64 = 0.95;

/// Minimum speed of a program that does not declare its homes, in times of that of one that does.
const HOMES: f64 = 0.95;

/// Maximum difference of two programs that compute with the same kernels on one node.
const DIFFERENCE_MAX: f64 = 0.03;

/// Returns the minimum speed of a program with guards on two nodes, in times of MPI's.
const fn least(case: Case) -> f64 {
    match case {
        Case::HimenoXs | Case::CgA => 0.9,
        _ => 1.0,
    }
}

/// Returns all goals: first two nodes beside MPI, then one node beside the serial program, then the
/// equality of the kernels, then updates and fetches.
pub fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, system: System, nodes| {
        let wanted = (case.name(), system.name(), Some(nodes));
        let same = |record: &&Record| (record.case, record.system, record.nodes) == wanted;
        records.iter().find(same)
    };
    let ratio = |case, (one, one_nodes), (other, other_nodes)| {
        Found::ratio((of(case, one, one_nodes), of(case, other, other_nodes)))
    };
    let programs = |case: &&Case| matches!(case.unit(), Unit::Mflops | Unit::Mops);
    let cases: Vec<Case> = Case::value_variants().iter().filter(programs).copied().collect();
    let mut goals: Vec<Goal> = Vec::new();
    for &case in &cases {
        let name = case.name();
        let guards = ratio(case, (System::Oikaze, 2), (System::Mpi, 2));
        let plain = ratio(case, (System::OikazePlain, 2), (System::Mpi, 2));
        let pointers = ratio(case, (System::OikazeC, 2), (System::Oikaze, 2));
        let faster = ratio(case, (System::Oikaze, 2), (System::Serial, 1));
        let homes = ratio(case, (System::OikazeHomes, 2), (System::Oikaze, 2));
        goals.push((format!("{name}, guards / mpi, 2 nodes"), guards, Bound::AtLeast(least(case))));
        goals.push((format!("{name}, plain / mpi, 2 nodes"), plain, Bound::AtLeast(0.9)));
        let name_of_pointers = format!("{name}, plain pointers of C / guards, 2 nodes");
        goals.push((name_of_pointers, pointers, Bound::AtLeast(POINTERS)));
        goals.push((format!("{name}, 2 nodes / serial"), faster, Bound::AtLeast(1.5)));
        let name_of_homes = format!("{name}, homes not declared / declared, 2 nodes");
        goals.push((name_of_homes, homes, Bound::AtLeast(HOMES)));
    }
    for &case in &cases {
        let name = case.name();
        let alone = ratio(case, (System::Oikaze, 1), (System::Serial, 1));
        let kernels = ratio(case, (System::Mpi, 1), (System::Serial, 1));
        goals.push((format!("{name}, 1 node / serial"), alone, Bound::AtLeast(0.98)));
        let equal = Bound::Within(1.0 - DIFFERENCE_MAX, 1.0 + DIFFERENCE_MAX);
        goals.push((format!("{name}, 1 node of mpi / serial"), kernels, equal));
    }
    let barrier = ratio(Case::Barrier, (System::Oikaze, 2), (System::Mpi, 2));
    goals.push(("barrier / mpi, 2 nodes".to_owned(), barrier, Bound::AtMost(1.0)));
    let message = ratio(Case::Barrier, (System::Oikaze, 2), (System::OikazeMessage, 2));
    goals.push(("barrier / message of 8 bytes".to_owned(), message, Bound::AtMost(BARRIER_TIME)));
    let lock = ratio(Case::LockPage, (System::Oikaze, 3), (System::OikazeMessage, 3));
    let name = "lock_page, 3 nodes / message of 8 bytes".to_owned();
    goals.push((name, lock, Bound::AtMost(HAND_OVER_TIME)));
    goals.extend(of_updates(records));
    let fetch = |case| ratio(case, (System::Oikaze, 2), (System::OikazeGet, 2));
    let page = ("cold page / get of 8 bytes".to_owned(), fetch(Case::Fetch));
    let cold = ("cold 1 MiB / gets of 1 MiB".to_owned(), fetch(Case::FetchBw));
    goals.push((page.0, page.1, Bound::AtMost(PAGE_TIME)));
    goals.push((cold.0, cold.1, Bound::AtLeast(COLD_SHARE)));
    goals
}

/// How many times as fast as message through direct map should bring 64 KiB.
const MAP_GAIN: f64 = 1.2;

/// Returns the goals of barriers with updates: for each size beside MPI, and for direct map beside
/// message through, as in figure 7 of paper 004.
fn of_updates(records: &[Record]) -> impl Iterator<Item = Goal> {
    let of = |system: System, size, delivery| {
        records.iter().find(|record| {
            (record.case, record.system, record.nodes)
                == (Case::BarrierUpdate.name(), system.name(), Some(2))
                && (record.size, record.delivery) == (size, delivery)
        })
    };
    UPDATE_SIZES.into_iter().flat_map(move |size| {
        let chosen = of(System::Oikaze, size, None);
        let mpi = Found::ratio((chosen, of(System::Mpi, size, None)));
        let [direct, message] = ["direct_map", "message_through"]
            .map(|delivery| of(System::Oikaze, size, Some(delivery)));
        let kib = size / KIB;
        [
            (format!("barrier_update of {kib} KiB / mpi, 2 nodes"), mpi, Bound::AtMost(1.0)),
            (
                format!("barrier_update of {kib} KiB, direct map / message through"),
                Found::ratio((direct, message)),
                Bound::AtMost(if size == 64 * KIB { 1.0 / MAP_GAIN } else { 1.0 }),
            ),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::goals::values;

    fn record(case: Case, system: System, nodes: u32, value: f64) -> Record {
        let (system, nodes) = (system.name(), Some(nodes));
        Record { system, nodes, value, rounds: vec![value], ..Record::example(case.name(), 0) }
    }

    #[test]
    fn ratios_are_of_the_same_number_of_nodes_but_for_the_serial_program() {
        let case = Case::HimenoS;
        let records = [
            record(case, System::Mpi, 2, 4000.0),
            record(case, System::Mpi, 1, 1980.0),
            record(case, System::Oikaze, 2, 3000.0),
            record(case, System::Oikaze, 1, 1900.0),
            record(case, System::Serial, 1, 2000.0),
        ];
        let found = values(goals(&records));
        let expected = [
            ("himeno_s, guards / mpi, 2 nodes", 0.75),
            ("himeno_s, 2 nodes / serial", 1.5),
            ("himeno_s, 1 node / serial", 0.95),
            ("himeno_s, 1 node of mpi / serial", 0.99),
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
    #[test]
    fn updates_are_compared_with_the_same_size() {
        let update = |system, size, delivery, value| Record {
            size,
            delivery,
            ..record(Case::BarrierUpdate, system, 2, value)
        };
        let records = [
            update(System::Mpi, 4 * KIB, None, 20.0),
            update(System::Mpi, 64 * KIB, None, 80.0),
            update(System::Oikaze, 64 * KIB, None, 60.0),
            update(System::Oikaze, 64 * KIB, Some("direct_map"), 50.0),
            update(System::Oikaze, 64 * KIB, Some("message_through"), 100.0),
        ];
        let found = values(goals(&records));
        let expected = [
            ("barrier_update of 64 KiB / mpi, 2 nodes".to_owned(), 0.75),
            ("barrier_update of 64 KiB, direct map / message through".to_owned(), 0.5),
        ];
        assert_eq!(found, expected);
    }
}
