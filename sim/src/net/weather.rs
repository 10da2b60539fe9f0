//! Weather of a run: the network's faults and their probabilities.

use super::flows::FlowWeather;
use super::narrow::Narrow;
use crate::random::Random;
use oikaze_os::net::FaultSettings;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::fmt;
use std::time::Duration;

/// Two groups of nodes that cannot reach each other for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Beginning of the partition.
    pub from: Time,
    /// End of the partition.
    pub until: Time,
    /// Nodes on one side, as a bit for each rank.
    pub side: u64,
    /// Set if only datagrams from that side to the other are lost.
    pub one_way: bool,
}

impl Partition {
    /// Returns `true` if the partition stops a datagram that leaves now.
    #[must_use]
    pub fn cuts(&self, from: Rank, to: Rank, now: Time) -> bool {
        let on_side = |rank: Rank| self.side >> (rank % 64) & 1 == 1;
        let crosses =
            if self.one_way { on_side(from) && !on_side(to) } else { on_side(from) != on_side(to) };
        crosses && self.from <= now && now < self.until
    }
}

/// Faults of one run.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Loss, duplication, reordering, corruption and delay, for each datagram by itself.
    pub faults: FaultSettings,
    /// Probability that a burst of loss begins.
    pub burst: f64,
    /// Minimum length of a burst, in datagrams.
    pub burst_min: u64,
    /// Maximum length of a burst, in datagrams.
    pub burst_max: u64,
    /// Probability that one more copy of a datagram comes long after the first.
    pub echo: f64,
    /// Probability, for each datagram sent, that a stranger's garbage comes too.
    pub garbage: f64,
    /// Probability that a queue begins to fill, so that up to 64 datagrams are marked (CE).
    pub filling: f64,
    /// Minimum latency of one way.
    pub latency: Duration,
    /// Maximum time beyond that latency.
    pub jitter: Duration,
    /// Time on the wire for each byte, in nanoseconds.
    pub nanos_per_byte: u64,
    /// Loss from the nodes of this side (a bit for each rank) to all others, in place of the loss
    /// in `faults`.
    pub lopsided: Option<(u64, f64)>,
    /// Nodes that cannot reach each other for a while.
    pub partitions: Vec<Partition>,
    /// Paths that do not carry large datagrams for a while.
    pub narrow: Vec<Narrow>,
    /// Faults of single flows of bulk.
    pub flows: Option<FlowWeather>,
}

impl Weather {
    /// Draws any weather, from none to all faults at their worst together.
    #[must_use]
    pub fn any(random: &mut Random, nodes: u32) -> Weather {
        let mut weather = Weather::fair(random);
        // Draws all levels in any case, so that the kind of weather does not change later draws.
        let mut level = |most: f64| random.below(1 + (most * 100.0) as u64) as f64 / 100.0;
        let (loss, duplicate, reorder, corrupt) = (level(0.3), level(0.3), level(0.3), level(0.3));
        let faults = &mut weather.faults;
        match random.below(10) {
            0 => {}
            1 => faults.loss = loss.max(0.1),
            2 => faults.duplicate = duplicate.max(0.1),
            3 => faults.reorder = reorder.max(0.1),
            4 => faults.corrupt = corrupt.max(0.1),
            5 => {
                (faults.loss, faults.duplicate, faults.reorder, faults.corrupt) =
                    (0.05, 0.05, 0.05, 0.01)
            }
            6 => {
                (faults.loss, faults.duplicate, faults.reorder, faults.corrupt) =
                    (0.3, 0.3, 0.3, 0.1)
            }
            _ => {
                (faults.loss, faults.duplicate, faults.reorder, faults.corrupt) =
                    (loss, duplicate, reorder, corrupt / 3.0)
            }
        }
        if random.chance(0.3) {
            (weather.burst, weather.burst_max) =
                (random.between(1, 10) as f64 / 1000.0, random.spread(2, 64));
        }
        for _ in 0..random.below(4).saturating_sub(1) {
            weather.partitions.push(Weather::partition(random, nodes));
        }
        weather
    }

    /// Draws weather with few faults, for timed events such as the end of a node.
    #[must_use]
    pub fn mild(random: &mut Random) -> Weather {
        Weather::drawn(random, [(0, 5), (0, 10), (0, 10), (0, 2)])
    }

    /// Draws weather for nodes that send to groups. With `kind` 0, one node hears more badly than
    /// the others, and with 2, the network is parted for a while.
    #[must_use]
    pub fn of_groups(random: &mut Random, nodes: u32, kind: u64) -> Weather {
        let mut weather = Weather::drawn(random, [(0, 2), (0, 5), (0, 5), (0, 1)]);
        match kind {
            0 => {
                let deaf = random.below(u64::from(nodes));
                let loss = random.between(5, 30) as f64 / 100.0;
                weather.lopsided = Some((!(1 << deaf), loss));
            }
            2 => weather.partitions.push(Weather::partition(random, nodes)),
            _ => {}
        }
        weather
    }

    /// Draws weather for nodes whose bulk has `count` flows, each with faults of its own.
    #[must_use]
    pub fn of_flows(random: &mut Random, count: u8) -> Weather {
        let mut weather = Weather::drawn(random, [(0, 2), (0, 5), (0, 5), (0, 1)]);
        weather.flows = Some(FlowWeather::any(random, count));
        weather
    }

    /// Draws loss, duplication, reordering and damage, always some of each.
    #[must_use]
    pub fn bad(random: &mut Random) -> Weather {
        Weather::drawn(random, [(1, 20), (1, 30), (1, 30), (1, 5)])
    }

    /// Draws loss, duplication, reordering and damage between these percentages.
    fn drawn(random: &mut Random, percent: [(u64, u64); 4]) -> Weather {
        let mut weather = Weather::fair(random);
        let levels = percent.map(|(least, most)| random.between(least, most) as f64 / 100.0);
        let [loss, duplicate, reorder, corrupt] = levels;
        weather.faults = FaultSettings { loss, duplicate, reorder, corrupt, ..weather.faults };
        weather
    }

    /// Returns weather without faults. The time of a datagram is drawn.
    #[must_use]
    pub fn fair(random: &mut Random) -> Weather {
        let latency = Duration::from_nanos(random.spread(5_000, 2_000_000));
        let jitter = if random.chance(0.5) {
            random.spread(100, 20_000)
        } else {
            random.spread(1_000, 3_000_000)
        };
        Weather {
            faults: FaultSettings::default(),
            burst: 0.0,
            burst_min: 1,
            burst_max: 0,
            echo: if random.chance(0.3) { 0.05 } else { 0.0 },
            garbage: if random.chance(0.2) { 0.05 } else { 0.0 },
            filling: if random.chance(0.3) { 0.02 } else { 0.0 },
            latency,
            jitter: Duration::from_nanos(jitter),
            nanos_per_byte: *random.pick(&[0, 0, 1, 8]),
            lopsided: None,
            partitions: Vec::new(),
            narrow: Vec::new(),
            flows: None,
        }
    }

    /// Returns the faults from one node to another.
    #[must_use]
    pub fn faults_of(&self, from: Rank, to: Rank) -> FaultSettings {
        let on_side = |side: u64, rank: Rank| side >> (rank % 64) & 1 == 1;
        match self.lopsided {
            Some((side, loss)) if on_side(side, from) && !on_side(side, to) => {
                FaultSettings { loss, ..self.faults }
            }
            _ => self.faults,
        }
    }

    fn partition(random: &mut Random, nodes: u32) -> Partition {
        let from = Time(random.below(400_000_000));
        let until = from + Duration::from_nanos(random.spread(1_000_000, 800_000_000));
        let side = random.between(1, (1 << nodes) - 2);
        Partition { from, until, side, one_way: random.chance(0.3) }
    }

    /// Returns an estimate of the share of datagrams that do not get through. A run with a greater
    /// share gets less work.
    #[must_use]
    pub fn badness(&self) -> f64 {
        let burst = self.burst * (self.burst_min + self.burst_max) as f64 / 2.0;
        let loss = self.lopsided.map_or(0.0, |(_, loss)| loss).max(self.faults.loss);
        1.0 - (1.0 - loss) * (1.0 - self.faults.corrupt) * (1.0 - burst.min(0.5))
    }
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultSettings { loss, duplicate, reorder, corrupt, .. } = self.faults;
        write!(f, "loss {loss} duplicate {duplicate} reorder {reorder} corrupt {corrupt}, ")?;
        write!(f, "echo {} garbage {} filling {}, ", self.echo, self.garbage, self.filling)?;
        write!(f, "bursts {} of {} to {}, ", self.burst, self.burst_min, self.burst_max)?;
        if let Some((side, loss)) = self.lopsided {
            write!(f, "loss {loss} from nodes {side:#b} to the others, ")?;
        }
        write!(f, "latency {:?} + {:?}, ", self.latency, self.jitter)?;
        write!(f, "{} ns a byte, {} partitions, ", self.nanos_per_byte, self.partitions.len())?;
        write!(f, "narrow {:?}", self.narrow)?;
        self.flows.as_ref().map_or(Ok(()), |flows| write!(f, ", {flows:?}"))
    }
}
