//! Flows that meet at a switch: real engines on simulated hosts, a fabric with rates, queues and
//! marks, and what each flow gets.
//!
//! Every host has a line of its own to one switch and an output of the switch towards it; two
//! groups of hosts may have a trunk between them. Hosts compute in no time but for a jitter by the
//! seed, so that what limits is the network; unless their processors are shared with others
//! ([`Slices`]).

mod flow;
mod host;
mod slices;

pub use flow::{Flow, Result};
pub use host::Host;
pub use slices::Slices;

use crate::net::{Line, Port, PortCounts, rank_of};
use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Settings;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// Hosts and lines.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Draws the hosts' jitter and the flows' beginnings.
    pub seed: u64,
    /// Hosts.
    pub hosts: u32,
    /// Wind's settings of all.
    pub settings: Settings,
    /// Settings of some hosts instead.
    pub others: Vec<(Rank, Settings)>,
    /// Every host's line to the switch.
    pub host: Line,
    /// Every output of the switch to a host.
    pub down: Line,
    /// Between hosts of even and hosts of odd rank.
    pub trunk: Option<Line>,
    /// One way, beyond what lines and queues take.
    pub latency: Duration,
    /// A host's turn comes so late at most.
    pub jitter: Duration,
    /// Every host has its processor only for slices of time.
    pub slices: Option<Slices>,
    /// Flows of the run.
    pub flows: Vec<Flow>,
    /// Flows are measured from their common beginning for so long.
    pub span: Duration,
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of each flow that were placed and known to be, within the span.
    pub bytes: Vec<u64>,
    /// Their sum, as a part of what the narrowest line on the way carries in the span, payload
    /// only.
    pub goodput: f64,
    /// Jain's index of the flows' bytes: 1 if all have the same, 1/n if one has all.
    pub jain: f64,
    /// Counts of the outputs to the hosts, by rank.
    pub down: Vec<PortCounts>,
    /// Counts of the trunk from even to odd.
    pub trunk: PortCounts,
}

/// Where a datagram is on its way.
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

/// All of it at work.
pub struct Fabric {
    plan: Plan,
    now: Time,
    hosts: Vec<Host>,
    up: Vec<Port>,
    down: Vec<Port>,
    /// From even to odd ranks, and back.
    trunk: Option<[Port; 2]>,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events: u64,
    random: Random,
}

impl Fabric {
    /// Connected hosts.
    ///
    /// # Errors
    /// The machine has no memory left, or the hosts do not find one another.
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

    /// Let the flows flow, and measure them.
    pub fn measure(&mut self) -> Report {
        let (begin, span) = (self.now, self.plan.span);
        let keys: Vec<u64> = self.hosts.iter().map(|host| host.key).collect();
        for (number, flow) in (0..).zip(self.plan.flows.clone()) {
            let key = keys.get(flow.to as usize).copied().unwrap_or(0);
            if let Some(host) = self.hosts.get_mut(flow.from as usize) {
                host.begin(number, flow, key, begin + flow.after);
                self.wake(flow.from, begin + flow.after);
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
        for (to, bytes) in sent {
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

/// (Σx)² / (n Σx²) (Jain, Chiu and Hawe, DEC-TR-301, 1984).
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
