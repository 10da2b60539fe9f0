//! Flows that meet at a switch. Real engines on simulated hosts use a fabric with rates, queues and
//! marks, and the run measures each load.
//!
//! Every host has a line of its own to one switch, and an output of the switch towards it. Two
//! groups of hosts may have a trunk between them. Hosts compute in no time except for a jitter from
//! the seed, so the network is the limit, unless hosts share their processors with others
//! ([`Slices`]).

mod host;
mod load;
mod slices;

pub use host::Host;
pub use load::{Load, Result};
pub use slices::Slices;

use crate::net::{Departure, Line, Port, PortCounts, rank_of};
use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Settings;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// Hosts and lines of a fabric.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the hosts' jitter and of the loads' beginnings.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u32,
    /// Wind's settings of all hosts.
    pub settings: Settings,
    /// Settings of single hosts, in place of the common ones.
    pub others: Vec<(Rank, Settings)>,
    /// Line of every host to the switch.
    pub host: Line,
    /// Output of the switch to every host.
    pub down: Line,
    /// Trunk between hosts of even and of odd rank.
    pub trunk: Option<Line>,
    /// Latency of one way, beyond the time in lines and queues.
    pub latency: Duration,
    /// Maximum delay of a host's turn.
    pub jitter: Duration,
    /// Slices of time in which hosts have their processors.
    pub slices: Option<Slices>,
    /// Flows of the run.
    pub loads: Vec<Load>,
    /// Time for which loads are measured, from their common beginning.
    pub span: Duration,
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of each load that were placed, and known to be placed, within the span.
    pub bytes: Vec<u64>,
    /// Sum of these bytes, as a part of the payload that the narrowest line on the way carries in
    /// the span.
    pub goodput: f64,
    /// Jain's index of the loads' bytes: 1 if all loads have the same, 1/n if one load has all.
    pub jain: f64,
    /// Counts of the outputs to the hosts, by rank.
    pub down: Vec<PortCounts>,
    /// Counts of the trunk from even to odd.
    pub trunk: PortCounts,
}

/// Position of a datagram in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    from: Rank,
    to: Rank,
    marked: bool,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    AtTrunk(Travelling),
    AtOutput(Travelling),
    Arrive(Travelling),
    Turn(Rank),
}

/// A running fabric.
pub struct Fabric {
    plan: Plan,
    now: Time,
    hosts: Vec<Host>,
    up: Vec<Port>,
    down: Vec<Port>,
    /// Trunk ports from even to odd ranks, and back.
    trunk: Option<[Port; 2]>,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events: u64,
    random: Random,
}

impl Fabric {
    /// Makes a fabric of connected hosts.
    ///
    /// # Errors
    /// The machine has no memory left, or the hosts do not connect.
    pub fn new(plan: Plan) -> std::result::Result<Fabric, String> {
        let hosts = (0..plan.hosts)
            .map(|rank| Host::new(&plan, rank))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let ports = |line: Line| (0..plan.hosts).map(|_| Port::new(line)).collect();
        let mut fabric = Fabric {
            now: Time(1),
            up: ports(plan.host),
            down: ports(plan.down),
            trunk: plan.trunk.map(|line| [Port::new(line); 2]),
            hosts,
            queue: BinaryHeap::new(),
            events: 0,
            random: Random::stream(plan.seed, 0x6661_6272),
            plan,
        };
        (0..fabric.plan.hosts).for_each(|rank| fabric.wake(rank, Time(1)));
        fabric.run_until(Time(1) + Duration::from_millis(200));
        match fabric.hosts.iter().find(|host| !host.is_connected()) {
            Some(host) => Err(format!("host {} has not found all others", host.rank)),
            None => Ok(fabric),
        }
    }

    /// Runs the loads and measures them.
    pub fn measure(&mut self) -> Report {
        let (begin, span) = (self.now, self.plan.span);
        let keys: Vec<u64> = self.hosts.iter().map(|host| host.key).collect();
        for (number, load) in (0..).zip(self.plan.loads.clone()) {
            let key = keys.get(load.to as usize).copied().unwrap_or(0);
            if let Some(host) = self.hosts.get_mut(load.from as usize) {
                host.begin(number, load, key, begin + load.after);
                self.wake(load.from, begin + load.after);
            }
        }
        self.run_until(begin + span);
        let mut results: Vec<Result> = self.hosts.iter().flat_map(Host::results).collect();
        results.sort_by_key(|result| result.number);
        let bytes: Vec<u64> = results.iter().map(|result| result.bytes).collect();
        let narrowest = self.plan.trunk.unwrap_or(self.plan.down).rate.min(self.plan.down.rate);
        let capacity = narrowest as f64 / 8.0 * span.as_secs_f64();
        let down = self.down.iter().map(|port| port.counts).collect();
        let trunk = self.trunk.map(|[there, _]| there.counts).unwrap_or_default();
        Report {
            goodput: bytes.iter().sum::<u64>() as f64 / capacity,
            jain: jain(&bytes),
            bytes,
            down,
            trunk,
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((at, self.events, event)));
    }

    fn wake(&mut self, rank: Rank, at: Time) {
        let mut at = at.max(self.now);
        if let Some(slices) = self.plan.slices {
            at = slices.next(self.plan.seed, rank, at);
        }
        let Some(host) = self.hosts.get_mut(rank as usize) else { return };
        if host.turn_at.is_none_or(|planned| at < planned) {
            host.turn_at = Some(at);
            self.push(at, Event::Turn(rank));
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.queue.peek().is_some_and(|Reverse((at, _, _))| *at < end) {
            if let Some(Reverse((at, _, event))) = self.queue.pop() {
                self.now = at;
                self.handle(event);
            }
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::AtTrunk(mut datagram) => {
                let way = usize::from(datagram.from % 2 == 1);
                let Some(port) = self.trunk.as_mut().and_then(|both| both.get_mut(way)) else {
                    return;
                };
                if let Some((at, marked)) = port.pass(self.now, datagram.bytes.len() as u64) {
                    datagram.marked |= marked;
                    self.push(at, Event::AtOutput(datagram));
                }
            }
            Event::AtOutput(mut datagram) => {
                let Some(port) = self.down.get_mut(datagram.to as usize) else { return };
                if let Some((at, marked)) = port.pass(self.now, datagram.bytes.len() as u64) {
                    datagram.marked |= marked;
                    self.push(at + self.plan.latency, Event::Arrive(datagram));
                }
            }
            Event::Arrive(datagram) => {
                let soon =
                    Duration::from_nanos(self.random.below(self.plan.jitter.as_nanos() as u64 + 1));
                let to = datagram.to;
                if let Some(host) = self.hosts.get_mut(to as usize) {
                    host.deliver(datagram.from, datagram.bytes, datagram.marked);
                    self.wake(to, self.now + soon);
                }
            }
            Event::Turn(rank) => self.turn(rank),
        }
    }

    fn turn(&mut self, rank: Rank) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(rank as usize).filter(|host| host.turn_at == Some(now))
        else {
            return;
        };
        host.turn_at = None;
        let (sent, next) = host.turn(now);
        for Departure { to, bytes, .. } in sent {
            self.send(rank, to, bytes);
        }
        if let Some(next) = next {
            self.wake(rank, next);
        }
    }

    fn send(&mut self, from: Rank, to: SocketAddr, bytes: Vec<u8>) {
        let Some(to) = rank_of(to, self.plan.hosts) else { return };
        let now = self.now;
        let Some((at, marked)) =
            self.up.get_mut(from as usize).and_then(|port| port.pass(now, bytes.len() as u64))
        else {
            return;
        };
        let datagram = Travelling { from, to, marked, bytes };
        let crosses = self.trunk.is_some() && from % 2 != to % 2;
        self.push(at, if crosses { Event::AtTrunk(datagram) } else { Event::AtOutput(datagram) });
    }
}

/// Returns Jain's index: (Σx)² / (n Σx²) (Jain, Chiu and Hawe, DEC-TR-301, 1984).
#[must_use]
pub fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|value| *value as f64).sum();
    let squares: f64 = values.iter().map(|value| (*value as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (values.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
    }
}
