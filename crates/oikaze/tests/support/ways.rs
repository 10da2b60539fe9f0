//! Ways by which the nodes of a job exchange what they give to barriers and collectives.

use oikaze::Job;
use oikaze::internal::cluster_of;
use oikaze::job::{Feature, JobBuilder};
use std::error::Error;

/// Way by which nodes exchange what they give to barriers and collectives of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeWay {
    /// By datagrams over loopback.
    Network,
    /// In the memory of the machine (COH-6.14, COLL-7). All nodes map the memory of an array
    /// (COH-16.1).
    Memory,
    /// In the memory of the machine. Each node keeps pages of arrays for itself, because one node
    /// does without the other way.
    Pages,
    /// Through rings, because no node uses the memory of the machine.
    Rings,
    /// Through rings, because one node does not use the memory of the machine.
    OneWithout,
    /// Through rings on each of two machines, and by datagrams between the machines.
    TwoMachines,
}

impl ExchangeWay {
    /// All ways of exchange that differ for collectives, in the order of the declaration.
    pub const ALL: [ExchangeWay; 5] = [
        ExchangeWay::Network,
        ExchangeWay::Memory,
        ExchangeWay::Rings,
        ExchangeWay::OneWithout,
        ExchangeWay::TwoMachines,
    ];

    /// Returns one of the ways through rings. All occur in consecutive numbers.
    #[allow(dead_code)]
    pub fn of_number(number: usize) -> ExchangeWay {
        ExchangeWay::ALL[2 + number % 3]
    }

    /// All ways in which each node keeps pages of arrays for itself.
    #[allow(dead_code)]
    const OF_PAGES: [ExchangeWay; 5] = [
        ExchangeWay::Pages,
        ExchangeWay::Network,
        ExchangeWay::Rings,
        ExchangeWay::OneWithout,
        ExchangeWay::TwoMachines,
    ];

    /// Returns the words for the features that a node does without.
    fn without(self, rank: u32, nodes: u32) -> &'static str {
        match self {
            ExchangeWay::Network => "shm",
            ExchangeWay::Rings => "arena",
            ExchangeWay::OneWithout if rank + 1 == nodes => "arena",
            ExchangeWay::Pages if rank + 1 == nodes => "segment",
            _ => "",
        }
    }

    /// Returns the number of the machine that a node takes itself to be on, if there are several.
    fn machine(self, rank: u32, nodes: u32) -> Option<u32> {
        (self == ExchangeWay::TwoMachines).then_some(2 * rank / nodes)
    }

    /// Returns the variables of a node that is a process. The node does without the features
    /// `more`, too.
    #[allow(dead_code)]
    pub fn variables(self, rank: u32, nodes: u32, more: &str) -> Vec<(&'static str, String)> {
        let words = [self.without(rank, nodes), more].join(",");
        let machine = self.machine(rank, nodes).map_or_else(String::new, |name| name.to_string());
        vec![("OIKAZE_WITHOUT", words.trim_matches(',').to_owned()), ("OIKAZE_MACHINE", machine)]
    }

    /// Runs a program on so many nodes of this process. Returns the results by rank.
    #[allow(dead_code)]
    #[track_caller]
    pub fn run<T: Send>(
        self,
        nodes: u32,
        settings: &JobBuilder,
        program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
    ) -> Vec<T> {
        let of_node = |rank| {
            let without = Feature::list(self.without(rank, nodes)).unwrap();
            (self.machine(rank, nodes), settings.clone().without(without))
        };
        cluster_of(&(0..nodes).map(of_node).collect::<Vec<_>>(), program)
    }
}

/// Returns the ways of a test: over the network, in memory, and one further way. If all ways are
/// wanted, returns all.
#[allow(dead_code)]
pub fn ways(further: ExchangeWay) -> Vec<ExchangeWay> {
    all_if_wanted(vec![ExchangeWay::Network, ExchangeWay::Memory, further])
}

/// Returns the way of part `number` of a test, whose parts take turns. If all ways are wanted,
/// returns all.
#[allow(dead_code)]
pub fn ways_of_part(number: usize) -> Vec<ExchangeWay> {
    all_if_wanted(vec![ExchangeWay::ALL[number % ExchangeWay::ALL.len()]])
}

/// Returns the ways of part `number` of a test of arrays: in memory that all nodes map, and one way
/// in which each node keeps pages for itself. Consecutive numbers take turns. If all ways are
/// wanted, returns all.
#[allow(dead_code)]
pub fn ways_of_arrays(number: usize) -> Vec<ExchangeWay> {
    let of_pages = ExchangeWay::OF_PAGES;
    match all_are_wanted() {
        true => [&[ExchangeWay::Memory], &of_pages[..]].concat(),
        false => vec![ExchangeWay::Memory, of_pages[number % of_pages.len()]],
    }
}

/// Returns all ways that differ for collectives if `cargo xtask test-all` wants them, and
/// `otherwise` if not.
fn all_if_wanted(otherwise: Vec<ExchangeWay>) -> Vec<ExchangeWay> {
    if all_are_wanted() { ExchangeWay::ALL.to_vec() } else { otherwise }
}

fn all_are_wanted() -> bool {
    std::env::var_os("OIKAZE_TEST_WAYS").is_some()
}
