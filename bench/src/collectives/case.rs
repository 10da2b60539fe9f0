//! Cases of the bench, their sizes, and the places where they are measured.

use crate::suite::case::{KIB, MIB};

named! {
    /// Collective. The name on the command line is the name in the records, and that of both
    /// programs.
    pub enum Case {
        /// Barrier of all nodes.
        Barrier = "barrier",
        /// Vector of one node for all, with another root each time.
        Broadcast = "broadcast",
        /// Sum of the vectors of all nodes, on all nodes.
        AllReduce = "all_reduce",
        /// Vectors of all nodes, on all nodes.
        AllGather = "all_gather",
        /// One block of each node for each node.
        AllToAll = "all_to_all",
    }
}

impl Case {
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

named! {
    /// Place of the nodes.
    pub enum Mode {
        /// Two hosts of the lab, one node each.
        Wire = "wire",
        /// Processes of this machine.
        Machine = "machine",
        /// Model of a network, over the real plans.
        Simulated = "simulated",
    }
}

impl Mode {
    /// Returns the numbers of nodes that are measured, unless the user names them.
    pub fn nodes(self, quick: bool) -> &'static [u32] {
        match (self, quick) {
            (Self::Wire, _) => &[2],
            (Self::Machine, true) => &[2, 4],
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
    use clap::ValueEnum;

    #[test]
    fn all_numbers_of_nodes_are_possible() {
        for mode in Mode::value_variants() {
            assert!(mode.nodes(false).iter().all(|&nodes| mode.takes(nodes)));
            assert!(mode.nodes(true).iter().all(|nodes| mode.nodes(false).contains(nodes)));
        }
    }
}
