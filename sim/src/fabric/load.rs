//! A load: puts of one size from one host to another, with several in flight.

use crossbeam_queue::SegQueue;
use oikaze_engine::{Completion, Request, Submission, tracked};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Segment};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Plan of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Rank of the sending host.
    pub from: Rank,
    /// Rank of the receiving host.
    pub to: Rank,
    /// Time after the first load at which this one begins.
    pub after: Duration,
    /// Bytes of each put.
    pub size: u64,
    /// Number of puts in flight.
    pub depth: usize,
    /// Time at which the load ends, counted as `after` is; `None` for never.
    pub until: Option<Duration>,
}

/// Measured result of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Result {
    /// Number of the load in the plan.
    pub number: usize,
    /// Bytes of the completed puts.
    pub bytes: u64,
}

/// A running load.
pub(super) struct Source {
    number: usize,
    load: Load,
    key: u64,
    slot: u32,
    begin: Time,
    end: Time,
    in_flight: VecDeque<Arc<Completion>>,
    done: u64,
}

impl Source {
    pub fn new(number: usize, load: Load, key: u64, slot: u32, begin: Time) -> Source {
        let end =
            load.until.map_or(Time(u64::MAX), |until| begin + until.saturating_sub(load.after));
        Source { number, load, key, slot, begin, end, in_flight: VecDeque::new(), done: 0 }
    }

    pub fn result(&self) -> Result {
        Result { number: self.number, bytes: self.done }
    }

    /// Keeps the load going, and returns `true` if something was submitted.
    pub fn poll(&mut self, now: Time, submissions: &SegQueue<Submission>) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|completion| !completion.is_done());
        self.done += (before - self.in_flight.len()) as u64 * self.load.size;
        let mut acted = false;
        while (self.begin..self.end).contains(&now) && self.in_flight.len() < self.load.depth {
            let Load { from, to, size, .. } = self.load;
            let body = Body::Segment(Segment { region: self.slot, offset: 0, len: size });
            // Every sender has a place of its own.
            let request = Request::Put {
                to,
                key: self.key,
                offset: u64::from(from) * size,
                body,
                signal: None,
            };
            let (submission, completion) = tracked(request, None);
            submissions.push(submission);
            self.in_flight.push_back(completion);
            acted = true;
        }
        acted
    }
}
