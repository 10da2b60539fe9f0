//! A lossy, duplicating, reordering, corrupting channel in virtual time, from one seed.

use crate::random::Random;
use crate::time::Time;
use crate::wire::{Lane, View};
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Fault rates of the channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub corrupt: f64,
}

/// A datagram that arrives.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub to: usize,
    pub path: u8,
    /// Flow of the sender's bulk lane.
    pub flow: u8,
    pub bytes: Vec<u8>,
}

/// Faults that the datagrams of one flow meet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowFaults {
    /// Bytes per second that pass, with a queue of a megabyte before; 0 means no limit.
    pub cap: u64,
    pub loss: f64,
    pub is_cut: bool,
    /// Time that the flow takes longer than others.
    pub delay: Duration,
    /// When the queue is empty.
    pub free: Time,
    /// Bytes that came to the queue.
    pub bytes: u64,
}

impl FlowFaults {
    /// Returns when a datagram of `len` bytes has passed, if it does.
    fn pass(&mut self, now: Time, len: u64, random: &mut Random) -> Option<Time> {
        self.bytes += len;
        if self.is_cut || (self.loss > 0.0 && random.chance(self.loss)) {
            return None;
        }
        if self.cap == 0 {
            return Some(now + self.delay);
        }
        let nanos = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / self.cap);
        let from = now.max(self.free);
        if from - now > nanos(1 << 20) {
            return None;
        }
        self.free = from + nanos(len);
        Some(self.free + self.delay)
    }
}

pub struct Channel {
    pub faults: Faults,
    pub delay: Duration,
    /// Faults of each flow of node 0, beside those of all datagrams.
    pub flows: [FlowFaults; 16],
    /// Bytes of bulk of node 0 by the candidate path that it took, and the paths that lead nowhere.
    pub paths: [u64; 4],
    pub dead_paths: Vec<u8>,
    /// Faults that all of them meet together, after that.
    pub all_flows: FlowFaults,
    /// Number of trains of bulk of node 0, each by another flow than the one before.
    pub trains: u64,
    latest_flow: u8,
    random: Random,
    under_way: BTreeMap<(Time, u64), Arrival>,
    count: u64,
}

impl Channel {
    pub fn new(faults: Faults, seed: u64) -> Channel {
        Channel {
            faults,
            delay: Duration::from_micros(20),
            flows: [FlowFaults::default(); 16],
            paths: [0; 4],
            dead_paths: Vec::new(),
            all_flows: FlowFaults::default(),
            trains: 0,
            latest_flow: 0,
            random: Random::new(seed),
            under_way: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn send(&mut self, now: Time, arrival: Arrival) {
        let Some(now) = self.pass(now, &arrival) else { return };
        if self.random.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.duplicate));
        for _ in 0..copies {
            let mut arrival = arrival.clone();
            if self.random.chance(self.faults.corrupt) {
                let at = self.random.below(arrival.bytes.len());
                arrival.bytes[at] ^= 1 << self.random.below(8);
            }
            let late = if self.random.chance(self.faults.reorder) {
                self.random.below(300) as u64
            } else {
                0
            };
            let at = now + self.delay + Duration::from_micros(late);
            self.count += 1;
            self.under_way.insert((at, self.count), arrival);
        }
    }

    /// Returns when a datagram has passed the limits of its flow, if it does.
    fn pass(&mut self, now: Time, arrival: &Arrival) -> Option<Time> {
        let is_bulk =
            View::parse(&arrival.bytes).is_ok_and(|view| view.header().lane() == Lane::Bulk);
        if arrival.to == 0 || !is_bulk {
            return Some(now);
        }
        self.trains += u64::from(arrival.flow != self.latest_flow);
        self.latest_flow = arrival.flow;
        self.paths[usize::from(arrival.path)] += arrival.bytes.len() as u64;
        if self.dead_paths.contains(&arrival.path) {
            return None;
        }
        let flow = &mut self.flows[usize::from(arrival.flow)];
        let now = flow.pass(now, arrival.bytes.len() as u64, &mut self.random)?;
        self.all_flows.pass(now, arrival.bytes.len() as u64, &mut self.random)
    }

    pub fn next(&self) -> Option<Time> {
        self.under_way.keys().next().map(|key| key.0)
    }

    pub fn take(&mut self, now: Time) -> Option<Arrival> {
        self.under_way
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
            .map(|entry| entry.remove())
    }
}
