//! Choice of the algorithm, by the size of the data and the number of ranks: one table.

use super::CollectiveKind;

/// Algorithm of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
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
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Binomial,
        Algorithm::ScatterAllGather,
        Algorithm::RecursiveDoubling,
        Algorithm::Ring,
        Algorithm::Bruck,
        Algorithm::Pairwise,
        Algorithm::Rabenseifner,
        Algorithm::ReduceThenScatter,
        Algorithm::Hierarchical,
    ];

    /// Returns the name, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Binomial => "binomial tree",
            Algorithm::ScatterAllGather => "scatter and all-gather",
            Algorithm::RecursiveDoubling => "recursive doubling",
            Algorithm::Ring => "ring",
            Algorithm::Bruck => "Bruck",
            Algorithm::Pairwise => "pairwise exchange",
            Algorithm::Rabenseifner => "Rabenseifner",
            Algorithm::ReduceThenScatter => "reduce and scatter",
            Algorithm::Hierarchical => "hierarchical",
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
}

/// Condition of a row beyond size and number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Commuting,
    PowerOfTwo,
    Machines,
}

/// One row: from this many bytes and ranks on, this algorithm.
struct Row(CollectiveKind, usize, usize, Needs, Algorithm);

const KIB: usize = 1 << 10;

/// The choice. Of the rows that apply, the last one counts. The first row of each kind always
/// applies.
const TABLE: &[Row] = &[
    Row(CollectiveKind::Broadcast, 0, 1, Needs::Nothing, Algorithm::Binomial),
    Row(CollectiveKind::Broadcast, 256 * KIB, 5, Needs::Nothing, Algorithm::ScatterAllGather),
    Row(CollectiveKind::Broadcast, 0, 3, Needs::Machines, Algorithm::Hierarchical),
    Row(CollectiveKind::Gather, 0, 1, Needs::Nothing, Algorithm::Binomial),
    Row(CollectiveKind::Scatter, 0, 1, Needs::Nothing, Algorithm::Binomial),
    Row(CollectiveKind::Reduce, 0, 1, Needs::Nothing, Algorithm::Binomial),
    Row(CollectiveKind::Reduce, 64 * KIB, 4, Needs::Nothing, Algorithm::Rabenseifner),
    Row(CollectiveKind::Reduce, 0, 3, Needs::Machines, Algorithm::Hierarchical),
    Row(CollectiveKind::AllReduce, 0, 1, Needs::Nothing, Algorithm::RecursiveDoubling),
    Row(CollectiveKind::AllReduce, 16 * KIB, 2, Needs::Nothing, Algorithm::Rabenseifner),
    Row(CollectiveKind::AllReduce, 1024 * KIB, 5, Needs::Commuting, Algorithm::Ring),
    Row(CollectiveKind::AllReduce, 0, 3, Needs::Machines, Algorithm::Hierarchical),
    Row(CollectiveKind::AllGather, 0, 1, Needs::Nothing, Algorithm::Bruck),
    Row(CollectiveKind::AllGather, 0, 2, Needs::PowerOfTwo, Algorithm::RecursiveDoubling),
    Row(CollectiveKind::AllGather, 256 * KIB, 2, Needs::Nothing, Algorithm::Ring),
    Row(CollectiveKind::ReduceScatter, 0, 1, Needs::Nothing, Algorithm::ReduceThenScatter),
    Row(CollectiveKind::ReduceScatter, 0, 2, Needs::Commuting, Algorithm::Ring),
    Row(CollectiveKind::ReduceScatter, 0, 9, Needs::Nothing, Algorithm::ReduceThenScatter),
    Row(CollectiveKind::ReduceScatter, 64 * KIB, 9, Needs::Commuting, Algorithm::Ring),
    Row(CollectiveKind::Scan, 0, 1, Needs::Nothing, Algorithm::RecursiveDoubling),
    Row(CollectiveKind::ExclusiveScan, 0, 1, Needs::Nothing, Algorithm::RecursiveDoubling),
    Row(CollectiveKind::AllToAll, 0, 1, Needs::Nothing, Algorithm::Pairwise),
    Row(CollectiveKind::AllToAll, 0, 5, Needs::Nothing, Algorithm::Bruck),
    Row(CollectiveKind::AllToAll, KIB, 5, Needs::Nothing, Algorithm::Pairwise),
];

/// Chooses the algorithm.
///
/// ```
/// use oikaze_protocol::collective::{Algorithm, CollectiveKind, Facts, choose};
/// let small = Facts {
///     kind: CollectiveKind::AllReduce,
///     bytes: 8,
///     ranks: 16,
///     commutes: true,
///     several_machines: false,
/// };
/// assert_eq!(choose(&small), Algorithm::RecursiveDoubling);
/// assert_eq!(choose(&Facts { bytes: 1 << 20, ..small }), Algorithm::Ring);
/// ```
#[must_use]
pub fn choose(facts: &Facts) -> Algorithm {
    let applies = |row: &&Row| {
        let Row(kind, bytes, ranks, needs, _) = **row;
        let meets = match needs {
            Needs::Nothing => true,
            Needs::Commuting => facts.commutes,
            Needs::PowerOfTwo => facts.ranks.is_power_of_two(),
            Needs::Machines => facts.several_machines,
        };
        kind == facts.kind && facts.bytes >= bytes && facts.ranks >= ranks && meets
    };
    TABLE.iter().rev().find(applies).map_or(Algorithm::Binomial, |row| row.4)
}
