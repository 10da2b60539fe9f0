//! State of a cluster, for a person who wants to know why it is stuck.

use super::{Cluster, Node};
use crate::program::access_letter;
use std::fmt::{self, Write};

impl Cluster {
    /// Returns the state of all nodes.
    pub fn state(&mut self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "network: {:?}, {} events", self.network.counts(), self.events);
        for (rank, node) in self.nodes.iter_mut().enumerate() {
            // Writing to a string cannot fail.
            let _ = match node {
                Some(node) => dump(node, self.plan.nodes, &mut text),
                None => writeln!(text, "node {rank}: killed"),
            };
        }
        text
    }
}

fn dump(node: &mut Node, nodes: u32, text: &mut String) -> fmt::Result {
    let Node { rank, life, engine, turn_at, stalled_until, deaths, threads, .. } = node;
    let (in_flight, next) = (engine.ops().in_flight(), engine.next_timeout());
    write!(
        text,
        "node {rank} (life {life}): {in_flight} operations, engine's timer {next:?}, next turn {turn_at:?}, "
    )?;
    writeln!(text, "stalled until {stalled_until:?}, deaths {deaths:?}")?;
    writeln!(text, "  {:?}", engine.counters())?;
    for thread in threads {
        writeln!(text, "  {}", thread.describe())?;
    }
    for peer in (0..nodes).filter(|peer| peer != rank) {
        writeln!(
            text,
            "  to node {peer}: connected {}, {:?}",
            engine.peers().is_connected(peer),
            engine.peer_statistics(peer)
        )?;
    }
    for (array, view) in engine.pages().views() {
        writeln!(
            text,
            "  array {array}: {}",
            view.into_iter().map(access_letter).collect::<String>()
        )?;
    }
    writeln!(text, "  {:?}", engine.coherence().statistics())
}
