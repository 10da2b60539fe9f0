//! Goals for collectives, as ratios to the times of MPI, and as growth with the number of nodes.

use super::case::{Case, Mode, SIZES};
use super::system::System;
use crate::record::Record;
use crate::suite::case::{KIB, MIB};
use crate::suite::goals::{Bound, Found, Goal};

/// Maximum time over the wire in times of MPI, of 8 bytes and of barriers.
const SMALL: f64 = 0.8;
/// Maximum time over the wire in times of MPI, of 1 MiB.
const LARGE: f64 = 0.77;
/// Maximum time of two processes of one machine in times of MPI, of barriers and of up to
/// [`SHORT_MAX`] bytes.
const HERE_SHORT: f64 = 1.2;
/// Maximum number of bytes to which [`HERE_SHORT`] applies.
const SHORT_MAX: usize = 256;
/// Maximum time on one machine in times of MPI, of all other cases with a goal.
const HERE: f64 = 1.0;
/// Number of processes that have a goal where there are fewer cores.
const CROWD: u32 = 4;
/// Maximum time of 8 bytes among 1,024 simulated nodes, in times of two nodes, for each doubling.
pub const GROWTH: f64 = 1.5;

/// Returns all goals: first the wire, then one machine, then growth.
pub fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, size: usize, (mode, nodes): (Mode, u32), system: System| {
        let wanted = (case.name(), size, Some(mode.name()), Some(nodes), system.name());
        records.iter().find(|one| (one.case, one.size, one.mode, one.nodes, one.system) == wanted)
    };
    let beside_mpi = |case, size, place| {
        Found::ratio((of(case, size, place, System::Oikaze), of(case, size, place, System::Mpi)))
    };
    let name = |case: Case, size: usize| match size {
        0 => case.name().to_owned(),
        _ if size < KIB => format!("{} {size} B", case.name()),
        _ if size < MIB => format!("{} {} KiB", case.name(), size / KIB),
        _ => format!("{} {} MiB", case.name(), size / MIB),
    };
    let moving = [Case::Broadcast, Case::AllGather, Case::AllReduce, Case::AllToAll];
    let small = [(Case::Barrier, 0, SMALL), (Case::AllReduce, 8, SMALL)];
    let wire = small.into_iter().chain(moving.map(|case| (case, MIB, LARGE)));
    let mut goals: Vec<Goal> = wire
        .map(|(case, size, bound)| {
            let found = beside_mpi(case, size, (Mode::Wire, 2));
            (format!("{} / mpi, wire", name(case, size)), found, Bound::AtMost(bound))
        })
        .collect();
    let here = std::iter::once((Case::Barrier, 0))
        .chain(moving.into_iter().flat_map(|case| SIZES.into_iter().map(move |size| (case, size))));
    goals.extend(here.map(|(case, size)| {
        let found = beside_mpi(case, size, (Mode::Machine, 2));
        let bound = if size <= SHORT_MAX { HERE_SHORT } else { HERE };
        (format!("{} / mpi, one machine", name(case, size)), found, Bound::AtMost(bound))
    }));
    let is_crowded = records.iter().any(|one| one.nodes == Some(CROWD) && one.oversubscribed);
    let crowded = [(Case::Barrier, 0), (Case::AllReduce, 8)].into_iter().filter(|_| is_crowded);
    goals.extend(crowded.map(|(case, size)| {
        let found = beside_mpi(case, size, (Mode::Machine, CROWD));
        let what = format!("{} / mpi, {CROWD} processes on fewer cores", name(case, size));
        (what, found, Bound::AtMost(HERE))
    }));
    let growing = std::iter::once((Case::Barrier, 0)).chain(moving.map(|case| (case, 8)));
    goals.extend(growing.map(|(case, size)| {
        let at = |nodes| of(case, size, (Mode::Simulated, nodes), System::Model);
        let grown = Found::ratio((at(1024), at(2))).map(|found| found.times(1.0 / 10.0));
        let what = format!("{}, 1024 / 2 nodes, a doubling", name(case, size));
        (what, grown, Bound::AtMost(GROWTH))
    }));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::goals::values;

    fn record(case: Case, size: usize, (mode, nodes): (Mode, u32), system: System) -> Record {
        let (mode, nodes, system) = (Some(mode.name()), Some(nodes), system.name());
        Record { mode, nodes, system, ..Record::example(case.name(), size) }
    }

    #[test]
    fn each_mode_has_its_own_goals() {
        let case = Case::AllReduce;
        let of = |size, place, system, value| Record {
            value,
            rounds: vec![value],
            ..record(case, size, place, system)
        };
        let records = [
            of(8, (Mode::Wire, 2), System::Oikaze, 10.0),
            of(8, (Mode::Wire, 2), System::Mpi, 20.0),
            of(8, (Mode::Machine, 2), System::Oikaze, 3.0),
            of(8, (Mode::Machine, 2), System::Mpi, 1.0),
            of(8, (Mode::Machine, 4), System::Mpi, 1.0),
            Record { oversubscribed: true, ..of(8, (Mode::Machine, 4), System::Oikaze, 2.0) },
            of(8, (Mode::Simulated, 1024), System::Model, 100.0),
            of(8, (Mode::Simulated, 2), System::Model, 10.0),
        ];
        let found = values(goals(&records));
        let expected = [
            ("all_reduce 8 B / mpi, wire", 0.5),
            ("all_reduce 8 B / mpi, one machine", 3.0),
            ("all_reduce 8 B / mpi, 4 processes on fewer cores", 2.0),
            ("all_reduce 8 B, 1024 / 2 nodes, a doubling", 1.0),
        ];
        assert_eq!(found, expected.map(|(what, value)| (what.to_owned(), value)));
    }
}
