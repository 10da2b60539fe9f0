//! Paths whose MTU shrinks for a while (black holes, RFC 8899, section 4.3). The network drops
//! larger datagrams, and sometimes the sender's system learns of it.

use super::weather::Partition;
use crate::random::Random;
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Paths between two groups of nodes that are narrow for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// Groups of nodes and time. With `one_way`, only paths from one group to the other are narrow.
    pub where_and_when: Partition,
    /// Bytes of the largest datagram that the paths then carry.
    pub fits: usize,
    /// Set if the sender's system learns of each datagram that was too large (as by ICMP).
    /// Otherwise no system does.
    pub is_reported: bool,
}

impl Narrow {
    /// Draws the narrow paths of a run. Most runs have none, others have up to three, one after
    /// another or at the same time.
    #[must_use]
    pub fn any(random: &mut Random, nodes: u32) -> Vec<Narrow> {
        let count = if random.chance(0.3) { random.between(1, 3) } else { 0 };
        (0..count)
            .map(|_| {
                let from = Time(random.below(100_000_000));
                // In some runs, the path stays narrow.
                let span = if random.chance(0.3) {
                    u64::MAX / 2
                } else {
                    random.spread(1_000_000, 800_000_000)
                };
                let side = random.between(1, (1 << nodes) - 2);
                let one_way = random.chance(0.3);
                Narrow {
                    where_and_when: Partition {
                        from,
                        until: from + Duration::from_nanos(span),
                        side,
                        one_way,
                    },
                    fits: *random.pick(&[DATAGRAM_MIN, DATAGRAM_MIN, 1300, 1452, 1472, 4000, 8500]),
                    is_reported: random.chance(0.3),
                }
            })
            .collect()
    }
}
