//! Simulated network: decides, from the seed, which copies of each datagram arrive and when.

mod flows;
mod link;
mod narrow;
mod switch;
mod weather;

pub use flows::FlowWeather;
pub use link::{Departure, Mailbox, SharedMailbox, SimLink, open};
pub use narrow::Narrow;
pub use switch::{Line, Port, PortCounts};
pub use weather::{Partition, Weather};

use crate::random::Random;
use flows::{BULK_PORT, FlowWires, PORT, flow_of};
use oikaze_os::net::{Fate, FaultPlan, FaultSettings, TooBig};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Maximum time of a burst of loss. A burst counts datagrams, and a connection that sends only
/// keepalives would need seconds for it.
const BURST_TIME: Duration = Duration::from_millis(300);

/// Returns the address of a node.
#[must_use]
pub fn address_of(rank: Rank) -> SocketAddr {
    let low = u8::try_from(rank + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, low), PORT))
}

/// Returns an address without a node, for candidates that do not work.
#[must_use]
pub fn nowhere(rank: Rank) -> SocketAddr {
    let low = u8::try_from(rank + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(10, 99, 0, low), PORT))
}

/// Returns the rank that has this address.
#[must_use]
pub fn rank_of(address: SocketAddr, nodes: u32) -> Option<Rank> {
    let is_port = matches!(address.port(), PORT | BULK_PORT);
    (0..nodes).find(|&rank| is_port && address_of(rank).ip() == address.ip())
}

/// One copy of a datagram that will arrive.
#[derive(Debug)]
pub struct Delivery {
    /// Time of the arrival.
    pub at: Time,
    /// Content of the datagram.
    pub bytes: Vec<u8>,
    /// Set if a queue on the way was filling.
    pub congested: bool,
}

/// State of one direction between two nodes.
#[derive(Debug)]
struct Way {
    plan: FaultPlan,
    random: Random,
    /// Number of datagrams that the burst of loss still takes, and the time when it ends in any
    /// case.
    burst: u64,
    burst_ends: Time,
    /// Number of datagrams that are still to be marked (CE).
    marks: u64,
    /// Time at which the last datagram has left the sender's wire.
    busy: Time,
    flows: FlowWires,
}

/// All directions between all nodes.
#[derive(Debug)]
pub struct Network {
    weather: Weather,
    nodes: u32,
    ways: Vec<Way>,
    counts: Counts,
}

/// Counts of what the network did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Copies that have arrived or will arrive.
    pub delivered: u64,
    /// Datagrams that were lost by chance, burst or partition.
    pub lost: u64,
    /// Copies with wrong bytes.
    pub damaged: u64,
    /// Datagrams that were sent by flows of bulk beyond the first.
    pub by_further_flows: u64,
}

impl Network {
    /// Makes a network for this many nodes.
    #[must_use]
    pub fn new(seed: u64, nodes: u32, weather: Weather) -> Network {
        let ways = (0..nodes * nodes)
            .map(|way| {
                let mut random = Random::stream(seed, 0x6e65_7400 + u64::from(way));
                let plan = FaultPlan::new(FaultSettings {
                    seed: random.word(),
                    ..weather.faults_of(way / nodes, way % nodes)
                });
                Way {
                    plan,
                    random,
                    burst: 0,
                    burst_ends: Time::default(),
                    marks: 0,
                    busy: Time::default(),
                    flows: FlowWires::default(),
                }
            })
            .collect();
        Network { weather, nodes, ways, counts: Counts::default() }
    }

    /// Returns the counts of what the network did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the network's faults.
    #[must_use]
    pub fn weather(&self) -> &Weather {
        &self.weather
    }

    /// Cuts off this node in both directions for a time.
    pub fn cut_off(&mut self, rank: Rank, from: Time, until: Time) {
        self.weather.partitions.push(Partition { from, until, side: 1 << rank, one_way: false });
    }

    /// Checks whether a datagram fits the path, and drops it if it is too large.
    ///
    /// # Errors
    /// The datagram is lost. The value is the report of the sender's system about its size, if
    /// there is one.
    pub fn narrow(
        &mut self,
        from: Rank,
        to: Rank,
        bytes: usize,
        now: Time,
    ) -> Result<(), Option<TooBig>> {
        let narrow =
            self.weather.narrow.iter().filter(|narrow| narrow.where_and_when.cuts(from, to, now));
        match narrow.min_by_key(|narrow| narrow.fits).filter(|narrow| narrow.fits < bytes) {
            None => Ok(()),
            Some(narrow) => {
                self.counts.sent += 1;
                self.counts.lost += 1;
                Err(narrow.is_reported.then_some(TooBig {
                    to: address_of(to),
                    tried: bytes,
                    fits: narrow.fits,
                }))
            }
        }
    }

    /// Sends a datagram from and to these ports. Returns the copies of it that will arrive, after
    /// all faults of the weather.
    pub fn send(
        &mut self,
        from: Rank,
        ports: (u16, u16),
        to: Rank,
        bytes: Vec<u8>,
        now: Time,
    ) -> Vec<Delivery> {
        self.counts.sent += 1;
        self.counts.by_further_flows += u64::from(flow_of(ports) > Some(0));
        let Self { weather, nodes, ways, counts } = self;
        let way = &mut ways[(from * *nodes + to) as usize];
        let verdict = way.plan.decide();
        let (burst, length) = (
            way.random.chance(weather.burst),
            way.random.between(weather.burst_min, weather.burst_max.max(1)),
        );
        if burst && way.burst == 0 {
            way.burst = length;
            way.burst_ends = now + BURST_TIME;
        }
        let in_burst = way.burst > 0 && now < way.burst_ends;
        if !in_burst {
            way.burst = 0;
        }
        way.burst = way.burst.saturating_sub(1);
        if in_burst || weather.partitions.iter().any(|partition| partition.cuts(from, to, now)) {
            counts.lost += 1;
            return Vec::new();
        }
        // The wire carries one datagram after another.
        way.busy =
            way.busy.max(now) + Duration::from_nanos(bytes.len() as u64 * weather.nanos_per_byte);
        let flows = weather.flows.as_ref();
        let sent = (flow_of(ports), bytes.len());
        let Some(left) = way.flows.pass(flows, sent, way.busy, &mut way.random) else {
            counts.lost += 1;
            return Vec::new();
        };
        if way.random.chance(weather.filling) {
            way.marks = way.random.spread(1, 64);
        }
        let congested = way.marks > 0;
        way.marks = way.marks.saturating_sub(1);
        let mut deliveries = Vec::new();
        for fate in [verdict.first, verdict.second].into_iter().flatten() {
            let mut copy = bytes.clone();
            if let Some(corruption) = fate.corrupt {
                counts.damaged += 1;
                corruption.apply(&mut copy);
                garble(&mut way.random, &mut copy);
            }
            let at = left + weather.latency + weather.lateness(&fate, &mut way.random);
            deliveries.push(Delivery { at, bytes: copy, congested });
        }
        if way.random.chance(weather.echo) {
            // Delivers one more copy, long after the exchange that the datagram belonged to.
            let late = Duration::from_nanos(way.random.spread(1_000_000, 1_000_000_000));
            deliveries.push(Delivery {
                at: left + weather.latency + late,
                bytes: bytes.clone(),
                congested,
            });
        }
        counts.lost += u64::from(verdict.first.is_none());
        counts.delivered += deliveries.len() as u64;
        deliveries
    }
}

impl Weather {
    fn lateness(&self, fate: &Fate, random: &mut Random) -> Duration {
        let jitter = random.below(self.jitter.as_nanos() as u64 + 1);
        // A datagram that n later ones overtake is delayed by n times a drawn interval between two
        // datagrams of a busy sender.
        let behind = u64::from(fate.overtaken) * random.between(1_000, 60_000);
        fate.delay + Duration::from_nanos(jitter + behind)
    }
}

/// Damages a datagram beyond the bit that is already flipped. Sometimes replaces a run of bytes,
/// cuts the end off, or adds bytes.
fn garble(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    match random.below(8) {
        0 => {
            let (at, len) = (random.index(bytes.len()), random.between(1, 16) as usize);
            bytes.iter_mut().skip(at).take(len).for_each(|byte| *byte = random.word() as u8);
        }
        1 => bytes.truncate(random.index(bytes.len())),
        2 => bytes.extend((0..random.between(1, 16)).map(|_| random.word() as u8)),
        _ => {}
    }
}
