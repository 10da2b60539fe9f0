//! Clock of a node: nanoseconds since its start.

use super::engine::RealEngine;
use oikaze_os::net::Link;
use oikaze_protocol::time::Time;
use std::time::{Duration, Instant};

/// Clock of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    pub start: Instant,
}

impl NodeClock {
    /// Returns the nanoseconds since the node's start.
    #[inline]
    pub fn now(self) -> Time {
        self.time_of(Instant::now())
    }

    /// Returns the nanoseconds from the node's start to this instant.
    #[inline]
    pub fn time_of(self, at: Instant) -> Time {
        Time(u64::try_from(at.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the time until then, or the longest one if there is none.
    pub fn span_until(self, next: Option<Time>) -> Duration {
        next.map_or(Duration::MAX, |next| next.since(self.now()))
    }

    /// Returns the time at which the engine must turn again at the latest.
    pub fn due(self, engine: &RealEngine) -> Option<Time> {
        if engine.has_more() {
            return Some(Time(0));
        }
        let delayed = engine.link().next_wakeup().map(|at| self.time_of(at));
        [engine.next_timeout(), delayed].into_iter().flatten().min()
    }
}
