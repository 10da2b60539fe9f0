//! Cases of the bench, their sizes, and the places where they are measured.

use clap::ValueEnum;

use crate::suite::case::{KIB, MIB};

/// Collective. The name on the command line is the name in the records, and that of both programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Case {
    /// Barrier of all nodes.
    Barrier,
    /// Vector of one node for all, with another root each time.
    Broadcast,
    /// Sum of the vectors of all nodes, on all nodes.
    AllReduce,
    /// Vectors of all nodes, on all nodes.
    AllGather,
    /// One block of each node for each node.
    AllToAll,
}

impl Case {
    /// Returns the name in the records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::AllToAll => "all_to_all",
        }
    }

    /// Returns the sizes of the case: bytes of one node's vector or of one block.
    pub fn sizes(self) -> &'static [usize] {
        match self {
            Self::Barrier => &[0],
            _ => &SIZES,
        }
    }
}

/// Sizes of all cases but the barrier.
pub const SIZES: [usize; 7] = [8, 256, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB];

/// Place of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Mode {
    /// Two hosts of the lab, one node each.
    Wire,
    /// Processes of this machine.
    Machine,
    /// Model of a network, over the real plans.
    Simulated,
}

impl Mode {
    /// Returns the name in the records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Machine => "machine",
            Self::Simulated => "simulated",
        }
    }

    /// Returns the numbers of nodes that are measured, unless the user names them.
    pub fn nodes(self, quick: bool) -> &'static [u32] {
        match (self, quick) {
            (Self::Wire, _) | (Self::Machine, true) => &[2],
            (Self::Machine, false) => &[2, 4, 8],
            (Self::Simulated, true) => &[2, 16, 128, 1024],
            (Self::Simulated, false) => &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        }
    }

    /// Returns `true` if there can be so many nodes.
    pub fn takes(self, nodes: u32) -> bool {
        match self {
            Self::Wire => nodes == 2,
            Self::Machine => (2..=8).contains(&nodes),
            Self::Simulated => (2..=1024).contains(&nodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_of_the_records() {
        crate::suite::expect_names(|case: &Case| case.name());
        crate::suite::expect_names(|mode: &Mode| mode.name());
    }

    #[test]
    fn all_numbers_of_nodes_are_possible() {
        for mode in Mode::value_variants() {
            assert!(mode.nodes(false).iter().all(|&nodes| mode.takes(nodes)));
            assert!(mode.nodes(true).iter().all(|nodes| mode.nodes(false).contains(nodes)));
        }
    }
}
