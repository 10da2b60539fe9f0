//! Paths that do not carry what they carried: larger datagrams vanish, and sometimes the sender's
//! system is told.

use super::weather::Partition;
use crate::random::Random;
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// The paths between two groups of nodes are narrow for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// Between whom, and when; `one_way`: only from one group to the other.
    pub where_and_when: Partition,
    /// Bytes of the largest datagram they carry then.
    pub fits: usize,
    /// The sender's system hears of each datagram that was too large (as by ICMP); otherwise nobody
    /// does.
    pub told: bool,
}

impl Narrow {
    /// None in most runs; else up to three, one after another or at once.
    #[must_use]
    pub fn any(random: &mut Random, nodes: u32) -> Vec<Narrow> {
        let count = if random.chance(0.3) { random.between(1, 3) } else { 0 };
        (0..count)
            .map(|_| {
                let from = Time(random.below(100_000_000));
                // Now and then for good.
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
                    told: random.chance(0.3),
                }
            })
            .collect()
    }
}
