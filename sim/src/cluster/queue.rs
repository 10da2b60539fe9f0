//! Future events, ordered by time, and by the order of their scheduling where times are equal.

use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// An event of the future.
#[derive(Debug)]
pub enum Event {
    /// A datagram arrives at a node.
    Arrive { to: Rank, from: SocketAddr, bytes: Vec<u8>, congested: bool },
    /// A node's engine runs a turn, if it is still planned.
    Turn { rank: Rank, life: u8 },
    /// A node stands still.
    Stall { rank: Rank, span: Duration },
    /// A node is killed.
    Kill { rank: Rank },
    /// A node is cut off from all others.
    CutOff { rank: Rank, until: Time },
    /// A newer process takes the node's place.
    Restart { rank: Rank },
}

#[derive(Debug)]
struct Planned {
    at: Time,
    order: u64,
    event: Event,
}

/// All future events.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Planned>>,
    count: u64,
}

impl Queue {
    /// Plans an event.
    pub fn push(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.heap.push(Reverse(Planned { at, order: self.count, event }));
    }

    /// Takes the next event, if it is before `until`.
    pub fn pop_before(&mut self, until: Time) -> Option<(Time, Event)> {
        if self.heap.peek().is_none_or(|Reverse(planned)| planned.at >= until) {
            return None;
        }
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.order == other.order
    }
}

impl Eq for Planned {}
