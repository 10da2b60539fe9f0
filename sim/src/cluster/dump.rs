//! The state of a cluster, for a person who wants to know why it is stuck.

use super::{Cluster, Node};
use crate::program::access_letter;
use std::fmt;

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "network: {:?}, {} events", self.network.counts(), self.events)?;
        for (rank, node) in self.nodes.iter().enumerate() {
            match node {
                Some(node) => dump(node, self.plan.nodes, f)?,
                None => writeln!(f, "node {rank}: killed")?,
            }
        }
        Ok(())
    }
}

fn dump(node: &Node, nodes: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Node { rank, life, engine, turn_at, stalled_until, deaths, .. } = node;
    let (in_flight, next) = (engine.in_flight(), engine.next_timeout());
    writeln!(f, "node {rank} (life {life}): {in_flight} operations, engine's timer {next:?}, next turn {turn_at:?}, stalled until {stalled_until:?}, deaths {deaths:?}")?;
    writeln!(f, "  {:?}", engine.counters())?;
    for thread in &node.threads {
        writeln!(f, "  {}", thread.describe())?;
    }
    for peer in (0..nodes).filter(|peer| peer != rank) {
        writeln!(f, "  to node {peer}: connected {}, {:?}", engine.is_connected(peer), engine.peer_statistics(peer))?;
    }
    for (array, view) in node.views() {
        writeln!(f, "  array {array}: {}", view.into_iter().map(access_letter).collect::<String>())?;
    }
    writeln!(f, "  {:?}", node.coherence_statistics())
}
