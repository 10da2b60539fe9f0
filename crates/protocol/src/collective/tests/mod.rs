//! Plans of all ranks against an oracle, and their number of rounds.

mod heads;
mod memory;
mod world;

use super::*;
use crate::Rank;
use std::vec;
use std::vec::Vec;
use world::World;

/// Kinds and algorithms, with the kinds that take unequal lengths.
const CASES: &[(CollectiveKind, CollectiveAlgorithm, bool)] = &[
    (CollectiveKind::Broadcast, CollectiveAlgorithm::Binomial, false),
    (CollectiveKind::Broadcast, CollectiveAlgorithm::ScatterAllGather, false),
    (CollectiveKind::Broadcast, CollectiveAlgorithm::Hierarchical, false),
    (CollectiveKind::Broadcast, CollectiveAlgorithm::Multicast, false),
    (CollectiveKind::Gather, CollectiveAlgorithm::Binomial, true),
    (CollectiveKind::Scatter, CollectiveAlgorithm::Binomial, true),
    (CollectiveKind::Reduce, CollectiveAlgorithm::Binomial, false),
    (CollectiveKind::Reduce, CollectiveAlgorithm::Rabenseifner, false),
    (CollectiveKind::Reduce, CollectiveAlgorithm::Hierarchical, false),
    (CollectiveKind::AllReduce, CollectiveAlgorithm::RecursiveDoubling, false),
    (CollectiveKind::AllReduce, CollectiveAlgorithm::Rabenseifner, false),
    (CollectiveKind::AllReduce, CollectiveAlgorithm::Ring, false),
    (CollectiveKind::AllReduce, CollectiveAlgorithm::Hierarchical, false),
    (CollectiveKind::AllGather, CollectiveAlgorithm::RecursiveDoubling, false),
    (CollectiveKind::AllGather, CollectiveAlgorithm::Bruck, true),
    (CollectiveKind::AllGather, CollectiveAlgorithm::Ring, true),
    (CollectiveKind::ReduceScatter, CollectiveAlgorithm::Ring, true),
    (CollectiveKind::ReduceScatter, CollectiveAlgorithm::ReduceThenScatter, true),
    (CollectiveKind::Scan, CollectiveAlgorithm::RecursiveDoubling, false),
    (CollectiveKind::ExclusiveScan, CollectiveAlgorithm::RecursiveDoubling, false),
    (CollectiveKind::AllToAll, CollectiveAlgorithm::Bruck, false),
    (CollectiveKind::AllToAll, CollectiveAlgorithm::Pairwise, true),
];

/// Machines of the ranks: one for all, blocks of three, and every third.
fn placements(ranks: Rank) -> [Vec<u32>; 3] {
    [
        vec![0; ranks as usize],
        (0..ranks).map(|rank| rank / 3).collect(),
        (0..ranks).map(|rank| rank % 3).collect(),
    ]
}

fn check_case(case: (CollectiveKind, CollectiveAlgorithm, bool), ranks: Rank, roots: &[Rank]) {
    let (kind, algorithm, has_uneven) = case;
    for commutes in [true, false] {
        for machines in placements(ranks) {
            for &root in roots {
                for len in [0, 1, 5, 40] {
                    let machines = &machines;
                    let (element, root_by) = (8, algorithm);
                    let world = World {
                        kind,
                        algorithm,
                        root_by,
                        ranks,
                        root,
                        commutes,
                        machines,
                        len,
                        element,
                    };
                    world.check(false);
                    if has_uneven {
                        world.check(true);
                    }
                }
            }
            if algorithm != CollectiveAlgorithm::Hierarchical {
                break;
            }
        }
    }
}

/// COLL-2.1, COLL-2.2.
#[test]
fn plans_of_all_ranks_give_the_oracles_result() {
    for &case in CASES {
        for ranks in 1..=17 {
            let roots = if case.0.has_root() { vec![0, ranks / 2, ranks - 1] } else { vec![0] };
            check_case(case, ranks, &roots);
        }
    }
}

#[test]
fn plans_of_many_ranks_give_the_oracles_result() {
    for &case in CASES {
        for ranks in [64, 100] {
            let machines = placements(ranks)[1].clone();
            let (kind, algorithm, _) = case;
            let world = World {
                kind,
                algorithm,
                root_by: algorithm,
                ranks,
                root: ranks / 3,
                commutes: true,
                machines: &machines,
                len: 3,
                element: 8,
            };
            world.check(false);
        }
    }
}

/// COLL-2.7: the root alone decides that it sends the whole vector to all.
#[test]
fn ranks_take_the_whole_from_the_root_in_place_of_their_plans() {
    for &(kind, algorithm, _) in CASES.iter().filter(|case| case.0 == CollectiveKind::Broadcast) {
        for ranks in [3, 4, 7, 16] {
            for root in [0, ranks - 1] {
                let machines: Vec<u32> = (0..ranks).collect();
                let world = World {
                    kind,
                    algorithm,
                    root_by: CollectiveAlgorithm::Multicast,
                    ranks,
                    root,
                    commutes: true,
                    machines: &machines,
                    len: 40,
                    element: 1024,
                };
                world.check(false);
            }
        }
    }
}

/// COLL-2.7.
#[test]
fn short_vectors_and_local_ranks_take_no_whole() {
    let machines = [0, 1, 2, 2];
    let whole_from = |root, rank, len| {
        let algorithm = CollectiveAlgorithm::Binomial;
        let request = request(CollectiveKind::Broadcast, algorithm, rank, len);
        plan(&PlanRequest { ranks: 4, root, machines: &machines, ..request }).unwrap().whole_from
    };
    assert_eq!(whole_from(0, 1, 512), Some(0));
    assert_eq!(whole_from(0, 1, 511), None, "it has 4088 bytes");
    assert_eq!(whole_from(0, 0, 512), None, "it is the root");
    assert_eq!(whole_from(2, 1, 512), None, "rank 3 is on the machine of the root");
    let two = request(CollectiveKind::Broadcast, CollectiveAlgorithm::Binomial, 1, 512);
    assert_eq!(plan(&PlanRequest { ranks: 2, ..two }).unwrap().whole_from, None);
}

/// COLL-2.7: other plans have no such round.
#[test]
fn whole_has_a_round_of_its_own() {
    for &(kind, algorithm, _) in CASES {
        let machines = placements(1024);
        let request = PlanRequest { machines: &machines[1], ..request(kind, algorithm, 5, 1) };
        let is_whole = plan(&request).unwrap().steps.iter().any(|(round, _)| *round >= WHOLE);
        assert_eq!(is_whole, algorithm == CollectiveAlgorithm::Multicast, "{kind} {algorithm:?}");
    }
}

fn request(
    kind: CollectiveKind,
    algorithm: CollectiveAlgorithm,
    rank: Rank,
    len: usize,
) -> PlanRequest<'static> {
    PlanRequest {
        kind,
        algorithm,
        rank,
        ranks: 1024,
        root: 0,
        lengths: Lengths::Even(len),
        element: 8,
        commutes: true,
        machines: &[],
    }
}

/// COLL-2.3.
#[test]
fn rounds_of_1024_ranks_grow_with_the_logarithm() {
    let logarithmic = [
        (CollectiveKind::Broadcast, CollectiveAlgorithm::Binomial, 10),
        (CollectiveKind::Gather, CollectiveAlgorithm::Binomial, 10),
        (CollectiveKind::Scatter, CollectiveAlgorithm::Binomial, 10),
        (CollectiveKind::Reduce, CollectiveAlgorithm::Binomial, 10),
        (CollectiveKind::Reduce, CollectiveAlgorithm::Rabenseifner, 11),
        (CollectiveKind::AllReduce, CollectiveAlgorithm::RecursiveDoubling, 10),
        (CollectiveKind::AllReduce, CollectiveAlgorithm::Rabenseifner, 20),
        (CollectiveKind::AllGather, CollectiveAlgorithm::RecursiveDoubling, 10),
        (CollectiveKind::AllGather, CollectiveAlgorithm::Bruck, 10),
        (CollectiveKind::ReduceScatter, CollectiveAlgorithm::ReduceThenScatter, 30),
        (CollectiveKind::Scan, CollectiveAlgorithm::RecursiveDoubling, 10),
        (CollectiveKind::ExclusiveScan, CollectiveAlgorithm::RecursiveDoubling, 10),
        (CollectiveKind::AllToAll, CollectiveAlgorithm::Bruck, 10),
    ];
    for (kind, algorithm, most) in logarithmic {
        for rank in [0, 1, 511, 1023] {
            let plan = plan(&request(kind, algorithm, rank, 1)).unwrap();
            assert!(plan.rounds() <= most, "{kind} {algorithm:?}: {}", plan.rounds());
        }
    }
}

/// COLL-2.4: what a rank sends of a long vector.
#[test]
fn long_vectors_are_sent_at_most_twice() {
    let len = 1 << 20;
    for algorithm in [CollectiveAlgorithm::Rabenseifner, CollectiveAlgorithm::Ring] {
        let plan = plan(&request(CollectiveKind::AllReduce, algorithm, 7, len)).unwrap();
        assert!(plan.sent() <= 2 * len, "{algorithm:?}: {}", plan.sent());
    }
}

/// The choice fits: whatever it names has a plan.
#[test]
fn every_choice_has_a_plan() {
    let kinds = CASES.iter().map(|(kind, ..)| *kind);
    for kind in kinds {
        for ranks in [1, 2, 3, 4, 7, 8, 16, 33] {
            for bytes in [0, 8, 4096, 1 << 16, 1 << 20, 1 << 24] {
                for (commutes, several_machines, has_group) in [
                    (true, false, false),
                    (false, false, false),
                    (true, true, false),
                    (true, false, true),
                ] {
                    let facts = Facts { kind, bytes, ranks, commutes, several_machines, has_group };
                    let machines: Vec<u32> = (0..ranks as u32).map(|rank| rank / 2).collect();
                    let request = PlanRequest {
                        algorithm: choose(&facts),
                        ranks: ranks as Rank,
                        commutes,
                        lengths: Lengths::Even(bytes / 8),
                        machines: &machines,
                        ..request(kind, CollectiveAlgorithm::Ring, 0, 0)
                    };
                    assert!(plan(&request).is_ok(), "{facts:?}");
                }
            }
        }
    }
}

/// COLL-1.5: a parcel is placed only where no earlier step reads or writes.
#[test]
fn steps_leave_a_part_alone_if_none_of_them_uses_an_element_of_it() {
    let (from, to, how) = (1, 2, Arrival::Replace);
    let steps = vec![
        (0, PlanStep::Send { to, part: Part::new(0, 4) }),
        (0, PlanStep::Receive { from, part: Part::new(8, 0), how }),
        (1, PlanStep::Copy { part: Part::new(4, 4), into: 12 }),
        (1, PlanStep::Receive { from, part: Part::new(8, 4), how }),
    ];
    let plan = Plan { steps, len: 16, ..Plan::default() };
    assert!(plan.leaves_alone(0..3, Part::new(8, 4)), "a part without elements uses none");
    assert!(!plan.leaves_alone(0..4, Part::new(8, 4)));
    for (used, step) in [(3, 0), (0, 0), (4, 2), (7, 2), (12, 2), (15, 2)] {
        assert!(!plan.leaves_alone(step..step + 1, Part::new(used, 1)), "element {used}");
        assert!(plan.leaves_alone(step + 1..3, Part::new(used, 1)) == (step == 2 || used < 4));
    }
    assert!(plan.leaves_alone(0..4, Part::new(2, 0)));
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let sound = request(CollectiveKind::Broadcast, CollectiveAlgorithm::Binomial, 0, 1);
    let refused = |request: PlanRequest<'_>| plan(&request).unwrap_err();
    assert_eq!(
        refused(PlanRequest { root: 1024, ..sound }),
        PlanError::NoSuchRank { rank: 1024, ranks: 1024 }
    );
    assert_eq!(
        refused(PlanRequest { lengths: Lengths::Even(usize::MAX / 2), ..sound }),
        PlanError::Lengths
    );
    let uneven = Lengths::Uneven { sent: &[1], received: &[1] };
    let gather = PlanRequest { kind: CollectiveKind::Gather, lengths: uneven, ..sound };
    assert_eq!(refused(gather), PlanError::Lengths);
    let (algorithm, kind) = (CollectiveAlgorithm::Pairwise, CollectiveKind::Broadcast);
    assert_eq!(refused(PlanRequest { algorithm, ..sound }), PlanError::Unfit { algorithm, kind });
}
