//! PMI-1, by which MPI libraries such as MPICH find the processes of their job: lines over a
//! socket.
//!
//! - [`line`]: one line, for the server here and for the client in [`foreign`](crate::foreign).
//! - [`host`]: what the server of one host decides (LAUNCH-10). [`sockets`]: its thread.
//! - [`fence`]: the barrier of all hosts, in the launcher.

pub mod fence;
pub mod host;
pub mod line;
pub mod sockets;

use oikaze_protocol::Rank;
use serde::{Deserialize, Serialize};

/// Name and text of a value.
pub type Pair = (String, String);

/// Beginning of the names of the key spaces that this server gives. A client of another project's
/// launcher knows by it that the launcher is Oikaze's own.
pub const OWN_SPACE: &str = "oikaze-";

/// News of a host's server for the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiNews {
    /// The MPI library of a node has begun.
    Began(Rank),
    /// The MPI library of a node has ended in good order.
    Finished(Rank),
    /// A node waits for all others, and has these new values for them.
    Arrived(Rank, Vec<Pair>),
    /// A node aborts the job with this status, for this reason.
    Aborted(Rank, u8, String),
    /// A request of a node was refused, for this reason.
    Refused(Rank, String),
}

/// Orders of the launcher to the server of each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiOrder {
    /// All nodes have come to the barrier. These are the new values.
    Passed(Vec<Pair>),
    /// The barrier cannot end. Nodes that wait there, or come there, lose their connection.
    Broken,
}

/// Returns which ranks are on which host, in MPICH's form: triples of a first host, a number of
/// hosts, and the number of nodes on each of them. An MPI library shares memory among the nodes of
/// one host. `counts` has the number of nodes on each host, in the order of ranks.
pub fn mapping(counts: impl IntoIterator<Item = u32>) -> String {
    let mut triples: Vec<(usize, usize, u32)> = Vec::new();
    for (host, count) in counts.into_iter().filter(|count| *count > 0).enumerate() {
        match triples.last_mut() {
            Some((_, hosts, of_each)) if *of_each == count => *hosts += 1,
            _ => triples.push((host, 1, count)),
        }
    }
    let triples = triples.iter().map(|(first, hosts, count)| format!("({first},{hosts},{count})"));
    format!("(vector,{})", triples.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LAUNCH-10.3.
    #[test]
    fn hosts_with_equally_many_nodes_are_one_triple() {
        assert_eq!(mapping([4]), "(vector,(0,1,4))");
        assert_eq!(mapping([2, 2, 0, 1]), "(vector,(0,2,2),(2,1,1))");
        assert_eq!(mapping([1; 3]), "(vector,(0,3,1))");
    }
}
