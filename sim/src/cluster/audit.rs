//! Compares the counts of the nodes with one another.

use super::Cluster;
use oikaze_protocol::Rank;

impl Cluster {
    /// Checks that no node has accepted more datagrams than were sent to it, sent nonsense, or
    /// written where no region is.
    pub(super) fn audit(&mut self) -> Result<(), (Rank, String)> {
        for rank in 0..self.plan.nodes {
            for peer in (0..self.plan.nodes).filter(|peer| *peer != rank) {
                self.audit_pair(rank, peer).map_err(|what| (rank, what))?;
            }
            let Some(node) = self.nodes[rank as usize].as_mut() else { continue };
            let strays = node.engine.memory().strays();
            if strays > 0 && !self.oracle.is_disturbed() {
                return Err((rank, format!("{strays} writes met no live region")));
            }
        }
        Ok(())
    }

    fn audit_pair(&self, rank: Rank, peer: Rank) -> Result<(), String> {
        let statistics = |of: Rank, to: Rank| {
            let node = self.nodes[of as usize].as_ref().filter(|node| node.life == 0)?;
            node.engine.peer_statistics(to)
        };
        let Some(here) = statistics(rank, peer) else { return Ok(()) };
        if here.malformed > 0 {
            return Err(format!(
                "node {peer} has sent {} datagrams that made no sense under a right seal",
                here.malformed
            ));
        }
        // Duplicates are dropped before anything else (WIND-2), so each number is accepted at most
        // once.
        let Some(there) = statistics(peer, rank) else { return Ok(()) };
        if here.datagrams_received > there.datagrams_sent {
            let (received, sent) = (here.datagrams_received, there.datagrams_sent);
            return Err(format!(
                "{received} datagrams of node {peer} were taken in, but it has sent {sent}"
            ));
        }
        Ok(())
    }
}
