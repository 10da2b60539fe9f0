//! Publishes a node's activity for any observer, without disturbing the node.
//!
//! A node keeps its numbers on a board ([`oikaze_os::stats_page`]): a record for itself and one for
//! each peer. It writes them with plain stores, ten times a second at most and only while it runs
//! turns anyway. It writes only the records of peers to which something has happened. `oikaze top`
//! finds the boards of this machine, maps them and reads. It asks no node, and no node waits.

pub mod page;
mod program;
mod publish;
mod slow;
#[cfg(test)]
mod tests;
mod traffic;
mod watch;
mod words;

pub use publish::Publisher;
pub use publish::VARIABLE;
pub use publish::WithoutEngine;
pub use slow::{PathStates, SlowPath, slow_paths};
pub use traffic::{ArrayTraffic, DatagramCounts, SizeCounts, TrafficReport};
pub use watch::{NodeView, Unreadable, nodes};
