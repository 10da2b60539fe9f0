//! Messages of a node by purpose, size and array, which the node reports to the launcher when it
//! ends (`oikaze run --stats`).

use oikaze_engine::Engine;
use oikaze_launch::environment::{REPORT_TRAFFIC, traffic_key};
use oikaze_launch::{Bootstrap, VALUE_MAX};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{ArrayStatistics, Pages};
use oikaze_protocol::traffic::{MessagePurpose, SIZE_CLASSES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Row of all arrays that do not fit into a report.
const OTHERS: &str = "(others)";

/// Messages that a node, or several nodes together, have sent to other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// Rank of the node. `None` for the sum of several nodes.
    pub node: Option<Rank>,
    /// Messages by purpose ([`MessagePurpose::name`]). Purposes without messages are left out.
    pub purposes: BTreeMap<String, SizeCounts>,
    /// Transfers of shared arrays, by the array's name.
    pub arrays: BTreeMap<String, ArrayTraffic>,
    /// Datagrams of all connections.
    pub datagrams: DatagramCounts,
}

/// Messages and their bytes by size class: bodies of at most 256 B, 1 KiB, 4 KiB, 16 KiB, and
/// longer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCounts {
    /// Number of messages.
    pub messages: [u64; SIZE_CLASSES],
    /// Bytes of their heads and bodies.
    pub bytes: [u64; SIZE_CLASSES],
}

/// Declares a struct of counters that can be added.
macro_rules! sums {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: u64,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[$field_meta])* pub $field: u64,)* }

        impl $name {
            fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

sums! {
    /// Transfers of one shared array.
    pub struct ArrayTraffic {
        /// Fetch requests sent.
        pub fetches: u64,
        /// Pages that came with the answers.
        pub pages_fetched: u64,
        /// Pages sent to nodes that asked for them.
        pub pages_served: u64,
        /// Diff messages sent to homes.
        pub diffs: u64,
        /// Bytes of the bodies of diff messages.
        pub diff_bytes: u64,
        /// Updates sent to readers.
        pub updates: u64,
        /// Bytes of the bodies of updates.
        pub update_bytes: u64,
        /// Pages whose homes have moved to the node.
        pub homes_moved: u64,
    }
}

sums! {
    /// Datagrams of connections. Nodes of the same machine exchange messages without datagrams.
    pub struct DatagramCounts {
        /// Datagrams sent, those below included.
        pub sent: u64,
        /// Bytes sent, in UDP payloads and through memory that nodes of this machine share.
        pub bytes_sent: u64,
        /// Number of datagrams received.
        pub received: u64,
        /// Bytes received, in the same ways.
        pub bytes_received: u64,
        /// Acknowledgements sent, most of them within datagrams that carry messages, too.
        pub acknowledgements_sent: u64,
        /// Datagrams of handshakes sent.
        pub handshakes_sent: u64,
        /// Pings sent to peers.
        pub pings_sent: u64,
        /// Datagrams whose content was sent again.
        pub sent_again: u64,
    }
}

impl SizeCounts {
    fn add(&mut self, other: &Self) {
        let pairs = [(&mut self.messages, &other.messages), (&mut self.bytes, &other.bytes)];
        for (sums, more) in pairs {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        }
    }
}

impl ArrayTraffic {
    fn of(counted: &ArrayStatistics) -> Self {
        Self {
            fetches: counted.fetches,
            pages_fetched: counted.fetched_pages,
            pages_served: counted.served_pages,
            diffs: counted.diffs_sent,
            diff_bytes: counted.diff_bytes,
            updates: counted.updates_sent,
            update_bytes: counted.update_bytes,
            homes_moved: counted.homes_moved,
        }
    }

    /// Returns a measure of the array's traffic: pages and messages.
    fn amount(&self) -> u64 {
        [self.fetches, self.pages_fetched, self.pages_served, self.diffs, self.updates]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Name under which the report has the sum of freed arrays that are not kept apart.
const OTHER_FREED: &str = "(other freed arrays)";

impl TrafficReport {
    /// Returns the traffic of this node since its start.
    pub fn of<L: Link, P: Pages>(rank: Rank, engine: &mut Engine<L, P>) -> Self {
        let purposes = MessagePurpose::ALL.into_iter().filter_map(|purpose| {
            let counts = engine.traffic().of(purpose);
            let row = SizeCounts {
                messages: counts.map(|count| count.messages),
                bytes: counts.map(|count| count.bytes),
            };
            (row != SizeCounts::default()).then(|| (purpose.name().to_owned(), row))
        });
        let purposes = purposes.collect();
        let coherence = engine.coherence();
        let mut arrays: BTreeMap<String, ArrayTraffic> = BTreeMap::new();
        for (_, name, counted) in coherence.arrays() {
            arrays.entry(name.to_owned()).or_default().add(&ArrayTraffic::of(counted));
        }
        for (name, counted) in coherence.freed_arrays() {
            let name = if name.is_empty() { OTHER_FREED } else { name };
            arrays.entry(name.to_owned()).or_default().add(&ArrayTraffic::of(counted));
        }
        let mut datagrams = DatagramCounts::default();
        for peer in (0..engine.nodes()).filter_map(|rank| engine.peer_statistics(rank)) {
            datagrams.add(&DatagramCounts {
                sent: peer.datagrams_sent,
                bytes_sent: peer.bytes_sent,
                received: peer.datagrams_received,
                bytes_received: peer.bytes_received,
                acknowledgements_sent: peer.acknowledgements_sent,
                handshakes_sent: peer.handshakes_sent,
                pings_sent: peer.pings_sent,
                sent_again: peer.lost_by_reordering
                    + peer.lost_by_time
                    + peer.lost_by_probe
                    + peer.lost_by_size,
            });
        }
        Self { node: Some(rank), purposes, arrays, datagrams }
    }

    /// Returns the sum of several reports.
    #[must_use]
    pub fn sum<'a>(reports: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for report in reports {
            for (purpose, counts) in &report.purposes {
                sum.purposes.entry(purpose.clone()).or_default().add(counts);
            }
            for (name, traffic) in &report.arrays {
                sum.arrays.entry(name.clone()).or_default().add(traffic);
            }
            sum.datagrams.add(&report.datagrams);
        }
        sum
    }

    /// Returns the report as one line of JSON of at most `max` bytes. Arrays with little traffic
    /// share a row if not all fit.
    fn line(mut self, max: usize) -> Option<String> {
        loop {
            let line = serde_json::to_string(&self).ok()?;
            if line.len() <= max {
                return Some(line);
            }
            if self.arrays.len() <= 1 {
                return None;
            }
            let mut order: Vec<(u64, String)> = self
                .arrays
                .iter()
                .map(|(name, traffic)| (traffic.amount(), name.clone()))
                .filter(|(_, name)| name != OTHERS)
                .collect();
            order.sort();
            for (_, name) in order.iter().take(order.len().div_ceil(2)) {
                if let Some(traffic) = self.arrays.remove(name) {
                    self.arrays.entry(OTHERS.to_owned()).or_default().add(&traffic);
                }
            }
        }
    }

    /// Publishes the traffic of this node for the launcher. A node whose store is lost reports
    /// nothing.
    pub fn publish(self, bootstrap: &dyn Bootstrap) {
        if let Some(line) = self.line(VALUE_MAX) {
            let _ = bootstrap.put(&traffic_key(bootstrap.rank()), line.as_bytes());
        }
    }

    /// Returns `true` if the launcher asks for reports.
    pub fn is_wanted() -> bool {
        std::env::var_os(REPORT_TRAFFIC).is_some_and(|value| value == "1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: Rank, arrays: usize) -> TrafficReport {
        let counts = SizeCounts { messages: [1, 0, 0, 2, 0], bytes: [64, 0, 0, 20_000, 0] };
        let array = |number: usize| {
            let traffic = ArrayTraffic { fetches: number as u64, ..ArrayTraffic::default() };
            (format!("array {number}"), traffic)
        };
        TrafficReport {
            node: Some(node),
            purposes: BTreeMap::from([("diff".to_owned(), counts)]),
            arrays: (0..arrays).map(array).collect(),
            datagrams: DatagramCounts { sent: 3, ..DatagramCounts::default() },
        }
    }

    #[test]
    fn sum_adds_purposes_arrays_and_datagrams() {
        let sum = TrafficReport::sum(&[report(0, 3), report(1, 2)]);
        assert_eq!((sum.node, sum.datagrams.sent), (None, 6));
        assert_eq!(sum.purposes["diff"].messages, [2, 0, 0, 4, 0]);
        assert_eq!(sum.purposes["diff"].bytes, [128, 0, 0, 40_000, 0]);
        let fetches: Vec<u64> = sum.arrays.values().map(|traffic| traffic.fetches).collect();
        assert_eq!(fetches, [0, 2, 2]);
    }

    #[test]
    fn many_arrays_share_a_row_and_no_count_is_lost() {
        let (whole, max) = (report(0, 1000), 16 << 10);
        let line = whole.clone().line(max).unwrap();
        assert!(line.len() <= max);
        let read: TrafficReport = serde_json::from_str(&line).unwrap();
        let fetches = |report: &TrafficReport| -> u64 {
            report.arrays.values().map(|traffic| traffic.fetches).sum()
        };
        assert_eq!(fetches(&read), fetches(&whole));
        assert!(read.arrays.contains_key("array 999") && read.arrays.contains_key(OTHERS));
        assert_eq!(whole.clone().line(usize::MAX), serde_json::to_string(&whole).ok());
        assert_eq!(report(0, 1).line(10), None);
    }
}
