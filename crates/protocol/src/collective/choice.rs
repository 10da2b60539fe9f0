//! Choice of the algorithm, by the size of the data and the number of ranks: one table.

use crate::collective::call::CollectiveKind;
use crate::limits::GROUP_BODY_MIN;
use CollectiveAlgorithm as By;
use CollectiveKind as On;

/// CollectiveAlgorithm of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveAlgorithm {
    /// Binomial tree: `log2(ranks)` rounds, of the whole data.
    Binomial,
    /// Scatter by a tree, then all-gather by a ring.
    ScatterAllGather,
    /// Recursive doubling: `log2(ranks)` rounds, of the whole data.
    RecursiveDoubling,
    /// Ring: as many rounds as ranks, each of one block.
    Ring,
    /// Bruck: `log2(ranks)` rounds, for any number of ranks.
    Bruck,
    /// Pairwise exchange: as many rounds as ranks, each of one block.
    Pairwise,
    /// Reduce-scatter by halving, then gather: `2 log2(ranks)` rounds, of halves.
    Rabenseifner,
    /// Reduce by a tree, then scatter by a tree.
    ReduceThenScatter,
    /// The ranks of a machine combine at a leader, and the leaders among themselves.
    Hierarchical,
    /// The root sends the whole data to a multicast group of all other ranks: one round.
    Multicast,
}

impl CollectiveAlgorithm {
    /// All algorithms there are.
    pub const ALL: [CollectiveAlgorithm; 10] = [
        CollectiveAlgorithm::Binomial,
        CollectiveAlgorithm::ScatterAllGather,
        CollectiveAlgorithm::RecursiveDoubling,
        CollectiveAlgorithm::Ring,
        CollectiveAlgorithm::Bruck,
        CollectiveAlgorithm::Pairwise,
        CollectiveAlgorithm::Rabenseifner,
        CollectiveAlgorithm::ReduceThenScatter,
        CollectiveAlgorithm::Hierarchical,
        CollectiveAlgorithm::Multicast,
    ];

    /// Returns the name, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CollectiveAlgorithm::Binomial => "binomial tree",
            CollectiveAlgorithm::ScatterAllGather => "scatter and all-gather",
            CollectiveAlgorithm::RecursiveDoubling => "recursive doubling",
            CollectiveAlgorithm::Ring => "ring",
            CollectiveAlgorithm::Bruck => "Bruck",
            CollectiveAlgorithm::Pairwise => "pairwise exchange",
            CollectiveAlgorithm::Rabenseifner => "Rabenseifner",
            CollectiveAlgorithm::ReduceThenScatter => "reduce and scatter",
            CollectiveAlgorithm::Hierarchical => "hierarchical",
            CollectiveAlgorithm::Multicast => "multicast",
        }
    }
}

/// Facts on which the choice rests.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Kind of the collective.
    pub kind: CollectiveKind,
    /// Bytes of one rank's result; for an exchange, of one block.
    pub bytes: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// The operator commutes, or there is none.
    pub commutes: bool,
    /// There are several machines, and some machine has several ranks.
    pub several_machines: bool,
    /// All other ranks hear what this rank sends to a multicast group. This rank alone knows it.
    pub has_group: bool,
}

/// Condition of a row beyond size and number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Commuting,
    PowerOfTwo,
    Machines,
    Group,
}

/// One row: from this many bytes and ranks on, this algorithm.
struct Row(CollectiveKind, usize, usize, Needs, CollectiveAlgorithm);

const KIB: usize = 1 << 10;

/// The choice. Of the rows that apply, the last one counts. The first row of each kind always
/// applies.
///
/// The limits come from the model of `bench collectives`, which runs all plans of up to 100 nodes
/// with 5 µs of latency and 3 GB/s. Two hosts of the lab are near that (AMD EPYC, MTU 9000, 26
/// November 2026). A test of the bench compares each choice with the best algorithm of the model.
const TABLE: &[Row] = &[
    Row(On::Broadcast, 0, 1, Needs::Nothing, By::Binomial),
    Row(On::Broadcast, 256 * KIB, 3, Needs::Nothing, By::ScatterAllGather),
    Row(On::Broadcast, 0, 33, Needs::Nothing, By::Binomial),
    Row(On::Broadcast, 1024 * KIB, 33, Needs::Nothing, By::ScatterAllGather),
    Row(On::Broadcast, 0, 3, Needs::Machines, By::Hierarchical),
    // The root alone chooses this row. The other ranks take what it sends in place of their plans.
    Row(On::Broadcast, GROUP_BODY_MIN as usize, 3, Needs::Group, By::Multicast),
    Row(On::Gather, 0, 1, Needs::Nothing, By::Binomial),
    Row(On::Scatter, 0, 1, Needs::Nothing, By::Binomial),
    Row(On::Reduce, 0, 1, Needs::Nothing, By::Binomial),
    Row(On::Reduce, 64 * KIB, 4, Needs::Nothing, By::Rabenseifner),
    Row(On::Reduce, 0, 3, Needs::Machines, By::Hierarchical),
    Row(On::AllReduce, 0, 1, Needs::Nothing, By::RecursiveDoubling),
    Row(On::AllReduce, 32 * KIB, 2, Needs::Nothing, By::Rabenseifner),
    Row(On::AllReduce, 32 * KIB, 3, Needs::Commuting, By::Ring),
    Row(On::AllReduce, 32 * KIB, 9, Needs::Nothing, By::Rabenseifner),
    Row(On::AllReduce, 256 * KIB, 9, Needs::Commuting, By::Ring),
    Row(On::AllReduce, 32 * KIB, 33, Needs::Nothing, By::Rabenseifner),
    Row(On::AllReduce, 1024 * KIB, 33, Needs::Commuting, By::Ring),
    // A power of two needs no fold.
    Row(On::AllReduce, 32 * KIB, 2, Needs::PowerOfTwo, By::Rabenseifner),
    Row(On::AllReduce, 0, 3, Needs::Machines, By::Hierarchical),
    Row(On::AllGather, 0, 1, Needs::Nothing, By::Bruck),
    Row(On::AllGather, 48 * KIB, 3, Needs::Nothing, By::Ring),
    Row(On::AllGather, 0, 9, Needs::Nothing, By::Bruck),
    Row(On::AllGather, 256 * KIB, 9, Needs::Nothing, By::Ring),
    Row(On::AllGather, 0, 33, Needs::Nothing, By::Bruck),
    Row(On::AllGather, 2048 * KIB, 33, Needs::Nothing, By::Ring),
    Row(On::AllGather, 0, 2, Needs::PowerOfTwo, By::RecursiveDoubling),
    Row(On::AllGather, 512 * KIB, 3, Needs::PowerOfTwo, By::Ring),
    Row(On::AllGather, 0, 17, Needs::PowerOfTwo, By::RecursiveDoubling),
    Row(On::AllGather, 4096 * KIB, 17, Needs::PowerOfTwo, By::Ring),
    Row(On::ReduceScatter, 0, 1, Needs::Nothing, By::ReduceThenScatter),
    Row(On::ReduceScatter, 0, 2, Needs::Commuting, By::Ring),
    Row(On::ReduceScatter, 0, 9, Needs::Nothing, By::ReduceThenScatter),
    Row(On::ReduceScatter, 64 * KIB, 9, Needs::Commuting, By::Ring),
    Row(On::Scan, 0, 1, Needs::Nothing, By::RecursiveDoubling),
    Row(On::ExclusiveScan, 0, 1, Needs::Nothing, By::RecursiveDoubling),
    Row(On::AllToAll, 0, 1, Needs::Nothing, By::Pairwise),
    Row(On::AllToAll, 0, 4, Needs::Nothing, By::Bruck),
    Row(On::AllToAll, 2 * KIB, 4, Needs::Nothing, By::Pairwise),
];

/// Chooses the algorithm.
///
/// ```
/// use oikaze_protocol::collective::{CollectiveAlgorithm, CollectiveKind, Facts, choose};
/// let small = Facts {
///     kind: CollectiveKind::AllReduce,
///     bytes: 8,
///     ranks: 12,
///     commutes: true,
///     several_machines: false,
///     has_group: false,
/// };
/// assert_eq!(choose(&small), CollectiveAlgorithm::RecursiveDoubling);
/// assert_eq!(choose(&Facts { bytes: 1 << 20, ..small }), CollectiveAlgorithm::Ring);
/// ```
#[must_use]
pub fn choose(facts: &Facts) -> CollectiveAlgorithm {
    let applies = |row: &&Row| {
        let Row(kind, bytes, ranks, needs, _) = **row;
        let meets = match needs {
            Needs::Nothing => true,
            Needs::Commuting => facts.commutes,
            Needs::PowerOfTwo => facts.ranks.is_power_of_two(),
            Needs::Machines => facts.several_machines,
            Needs::Group => facts.has_group,
        };
        kind == facts.kind && facts.bytes >= bytes && facts.ranks >= ranks && meets
    };
    TABLE.iter().rev().find(applies).map_or(CollectiveAlgorithm::Binomial, |row| row.4)
}
