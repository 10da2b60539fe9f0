//! Plans of collectives through memory, against results computed from all values at once.

use super::super::{CollectiveKind, CombineSteps, MemoryFacts, MemoryPlan, PIECES_MAX, PieceRoom};
use crate::Rank;
use alloc::vec;
use alloc::vec::Vec;

const ROOM: PieceRoom = PieceRoom { short: 64, long: 160 };

/// Value of a rank at a place.
fn value(rank: usize, at: usize) -> u8 {
    (rank * 31 + at * 7 + 1) as u8
}

fn values(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| value(rank, at)).collect()
}

/// Operator that is associative and does not commute: the first operand, unless it is even.
fn first_odd(first: u8, second: u8) -> u8 {
    if first % 2 == 1 { first } else { second }
}

fn combined(ranks: usize, range: core::ops::Range<usize>) -> Vec<u8> {
    let of = |at| (0..ranks).map(|rank| value(rank, at)).reduce(first_odd);
    range.filter_map(of).collect()
}

fn expected(facts: &MemoryFacts, block: usize) -> Vec<u8> {
    let MemoryFacts { kind, me, root, ranks, size } = *facts;
    let (me, root, len) = (me as usize, root as usize, block * size);
    let mine = me * len..(me + 1) * len;
    let all = |range: core::ops::Range<usize>| {
        (0..ranks).flat_map(|rank| range.clone().map(move |at| value(rank, at))).collect()
    };
    match kind {
        CollectiveKind::Broadcast => values(root, len),
        CollectiveKind::Scatter => mine.map(|at| value(root, at)).collect(),
        CollectiveKind::Gather | CollectiveKind::Reduce if me != root => Vec::new(),
        CollectiveKind::Gather | CollectiveKind::AllGather => all(0..len),
        CollectiveKind::AllToAll => all(mine),
        CollectiveKind::Reduce | CollectiveKind::AllReduce => combined(ranks, 0..len),
        CollectiveKind::ReduceScatter => combined(ranks, mine),
        CollectiveKind::Scan => combined(me + 1, 0..len),
        CollectiveKind::ExclusiveScan => combined(me, 0..len),
        CollectiveKind::Shrink => Vec::new(),
    }
}

/// Runs the plan of one rank, as if all ranks had given all their pieces.
fn result(plan: &MemoryPlan) -> Vec<u8> {
    let facts = *plan.facts();
    let plan_of = |me: Rank| plan.of_rank(me);
    let piece_of = |rank: Rank, piece: u64| -> Vec<u8> {
        let plan = plan_of(rank);
        let all = values(rank as usize, plan.given_len());
        plan.given(piece).flat_map(|range| all[range].to_vec()).collect()
    };
    let mut result = vec![0; plan.result_len()];
    let mut scratch = vec![0; plan.scratch_len()];
    for piece in 0..plan.pieces() {
        let pieces: Vec<_> = (0..facts.ranks as Rank).map(|rank| piece_of(rank, piece)).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= ROOM.short.max(ROOM.long)));
        if let Some(own) = plan.own(piece) {
            let (range, _) = plan.reads_at(piece, facts.me).unwrap();
            let given = values(facts.me as usize, plan.given_len());
            assert_eq!(given[own], pieces[facts.me as usize][range]);
        }
        if facts.kind.combines() {
            let read = |rank: Rank, range: core::ops::Range<usize>, into: &mut [u8]| {
                into.copy_from_slice(&pieces[rank as usize][range]);
            };
            let combine = |here: &mut [u8], new: &[u8]| {
                here.iter_mut().zip(new).for_each(|(here, new)| *here = first_odd(*here, *new));
            };
            if let Some((range, at)) = plan.reads_at(piece, 0) {
                let into = &mut result[at..at + range.len()];
                let steps = CombineSteps { read: &read, combine: &combine };
                plan.combine(range, into, &mut scratch, &steps);
            }
            continue;
        }
        for from in 0..facts.ranks as Rank {
            if let Some((range, at)) = plan.reads_at(piece, from) {
                result[at..at + range.len()].copy_from_slice(&pieces[from as usize][range]);
            }
        }
    }
    result
}

/// COLL-7.3, COLL-7.6: short and long values of all kinds give the results of the kind, and
/// operands keep the order of ranks.
#[test]
fn memory_plans_of_all_kinds_give_the_results_of_the_kind() {
    for kind in CollectiveKind::ALL.iter().copied().filter(|kind| kind.name() != "shrink") {
        for ranks in [1, 2, 3, 5, 8] {
            for (size, block) in [(1, 0), (1, 1), (8, 3), (8, 8), (8, 9), (3, 77), (20, 40)] {
                for me in 0..ranks as Rank {
                    let root = (ranks as Rank - 1) / 2;
                    let facts = MemoryFacts { kind, me, root, ranks, size };
                    let plan = MemoryPlan::new(facts, block, ROOM).unwrap();
                    assert_eq!(result(&plan), expected(&facts, block), "{plan:?}");
                }
            }
        }
    }
}

/// COLL-7.9: elements without a size, elements longer than a piece, and vectors of too many pieces
/// do not go through memory. No number of a faulty rank makes the arithmetic overflow.
#[test]
fn memory_plans_of_impossible_lengths_are_refused() {
    let facts = |kind, size| MemoryFacts { kind, me: 0, root: 0, ranks: 3, size };
    for kind in CollectiveKind::ALL.iter().copied() {
        assert!(MemoryPlan::new(facts(kind, 0), 1, ROOM).is_none());
        assert!(MemoryPlan::new(facts(kind, 161), 1, ROOM).is_none());
        assert!(MemoryPlan::new(facts(kind, 8), usize::MAX, ROOM).is_none());
        assert!(MemoryPlan::of_count(facts(kind, 8), u64::MAX, ROOM).is_none());
        let most = PIECES_MAX as usize * 20;
        let vector = MemoryPlan::new(facts(kind, 8), most + 1, ROOM);
        assert!(vector.is_none());
    }
}
