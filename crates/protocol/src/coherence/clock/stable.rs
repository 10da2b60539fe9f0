//! Stable knowledge: intervals that every node has said that it knows (COH-4.6).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::vector::Vector;
use crate::coherence::pages::number_set::NumberSet;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::vec::Vec;

/// Knowledge that all nodes have, found in rounds. Each node gives its vector clock once a round,
/// and messages carry what was given. A round in which all nodes have given theirs is over.
#[derive(Clone, Debug)]
pub(crate) struct Stable {
    round: u64,
    /// Nodes that have given their vector clock in this round.
    given: NumberSet,
    /// The lowest number of these vector clocks, for each node.
    lowest: Vector,
    /// Intervals that all nodes know, from earlier rounds.
    pub known: Vector,
}

impl Stable {
    pub fn new(me: Rank, nodes: u32) -> Stable {
        let zero = Vector::new(nodes);
        let mut given = NumberSet::default();
        given.insert(u64::from(me)..u64::from(me) + 1);
        Stable { round: 0, given, lowest: zero.clone(), known: zero }
    }

    /// Learns what another node says. This node, `me`, knows `vector`.
    pub fn merge(&mut self, other: &Stable, me: Rank, vector: &Vector) {
        self.known.merge(&other.known);
        if other.round > self.round {
            self.begin(other.round, me, vector);
        }
        if other.round == self.round {
            other.given.iter().for_each(|ranks| self.given.insert(ranks));
            self.lowest.lower(&other.lowest);
        }
        let nodes = u64::from(vector.nodes());
        if self.given.iter().next() == Some(0..nodes) || planted(Bug::EndRoundEarly) {
            self.known.merge(&self.lowest);
            self.begin(self.round.saturating_add(1), me, vector);
        }
    }

    fn begin(&mut self, round: u64, me: Rank, vector: &Vector) {
        let known = core::mem::replace(&mut self.known, Vector::new(0));
        *self = Stable { round, lowest: vector.clone(), known, ..Stable::new(me, 0) };
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.round);
        self.given.write(out);
        self.lowest.write(out);
        self.known.write(out);
    }

    /// Reads what another node says. What all nodes know, this node knows, whose vector clock is
    /// `vector`.
    pub fn read(reader: &mut ByteReader<'_>, vector: &Vector) -> Result<Stable, Refusal> {
        let nodes = vector.nodes();
        let (round, given) = (reader.leb128()?, NumberSet::read(reader)?);
        let lowest = Vector::read(reader, nodes)?;
        let known = Vector::read(reader, nodes)?;
        let is_possible = given.iter().all(|ranks| ranks.end <= u64::from(nodes));
        if !is_possible || !vector.covers(&known) {
            return Err(Refusal::Malformed);
        }
        Ok(Stable { round, given, lowest, known })
    }
}

#[cfg(test)]
mod tests {
    use super::Stable;
    use crate::Rank;
    use crate::bytes::ByteReader;
    use crate::coherence::clock::vector::Vector;
    use crate::random::Random;
    use alloc::vec::Vec;

    const NODES: u32 = 4;

    fn vector(numbers: [u64; NODES as usize]) -> Vector {
        let mut vector = Vector::new(NODES);
        (0..).zip(numbers).for_each(|(rank, number)| vector.raise(rank, number));
        vector
    }

    /// COH-4.6: messages go between any two nodes, and some of them are old when they arrive. What
    /// a node takes for known to all is in the vector clock of each node.
    #[test]
    fn nothing_is_stable_that_a_node_does_not_know() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut nodes: Vec<(Vector, Stable)> =
                (0..NODES).map(|me| (Vector::new(NODES), Stable::new(me, NODES))).collect();
            let mut sent: Vec<(Rank, Vector, Stable)> = Vec::new();
            for _ in 0..2000 {
                let node = random.below(NODES as usize);
                let me = node as Rank;
                if random.chance(0.5) {
                    let own = nodes[node].0.get(me);
                    nodes[node].0.raise(me, own + 1);
                    let to = random.below(NODES as usize) as Rank;
                    sent.push((to, nodes[node].0.clone(), nodes[node].1.clone()));
                } else if !sent.is_empty() {
                    let (to, told, stable) = sent.swap_remove(random.below(sent.len()));
                    let (vector, mine) = &mut nodes[to as usize];
                    vector.merge(&told);
                    mine.merge(&stable, to, vector);
                }
                for (_, stable) in &nodes {
                    assert!(nodes.iter().all(|(vector, _)| vector.covers(&stable.known)));
                }
            }
            assert!(nodes.iter().all(|(_, stable)| stable.known.get(0) > 0), "seed {seed}");
        }
    }

    /// COH-9.1.
    #[test]
    fn claims_beyond_this_node_are_refused() {
        let mut sound = Stable::new(1, NODES);
        sound.known = vector([1, 2, 3, 4]);
        let mut body = Vec::new();
        sound.write(&mut body);
        let read = |body: &[u8], known| Stable::read(&mut ByteReader(body), &vector(known)).is_ok();
        assert!(read(&body, [1, 2, 3, 4]));
        assert!(!read(&body, [1, 2, 2, 4]), "this node does not know it");
        assert!(!read(&body[..body.len() - 1], [1, 2, 3, 4]), "it ends too early");
        sound.given.insert(2..5);
        body.clear();
        sound.write(&mut body);
        assert!(!read(&body, [1, 2, 3, 4]), "there is no node 4");
    }
}
