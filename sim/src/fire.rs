//! Runs with a network at its worst: one kind of fault at a time, or all kinds at once.

use crate::net::Weather;
use crate::plan::{End, Kill, Moment, Plan, Scenario, Stall};
use crate::program::Mail;
use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Duration for which nodes stand still.
const STALL: Duration = Duration::from_millis(500);

/// Kind of trouble in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fire {
    /// Half of all datagrams are lost, each way.
    Loss,
    /// 64 datagrams in a row are lost, again and again.
    Bursts,
    /// Half of all datagrams come twice, and some once more long after.
    Duplication,
    /// Half of all datagrams are overtaken by others.
    Reordering,
    /// A tenth of all datagrams is damaged.
    Corruption,
    /// All of these kinds together.
    Together,
    /// Four fifths are lost from some nodes to the others, and none on the way back.
    OneWay,
    /// A third is lost, and nodes stand still for half a second again and again. No node may be
    /// declared dead.
    Stalls,
    /// A third is lost, and a node is killed. The death must be known within the failure time.
    Death,
}

impl Fire {
    /// All kinds of trouble.
    pub const ALL: [Fire; 9] = [
        Fire::Loss,
        Fire::Bursts,
        Fire::Duplication,
        Fire::Reordering,
        Fire::Corruption,
        Fire::Together,
        Fire::OneWay,
        Fire::Stalls,
        Fire::Death,
    ];

    /// Returns the fire of a seed. Successive seeds take each fire in turn.
    #[must_use]
    pub fn of_seed(seed: u64) -> Fire {
        let at = seed % Fire::ALL.len() as u64;
        Fire::ALL.get(at as usize).copied().unwrap_or(Fire::Together)
    }

    /// Draws the work that the nodes do meanwhile.
    #[must_use]
    pub fn work(random: &mut Random) -> Scenario {
        *random.pick(&[Scenario::Messages, Scenario::Messages, Scenario::Memory, Scenario::Mixed])
    }

    /// Returns the network's faults.
    #[must_use]
    pub fn weather(self, random: &mut Random, nodes: u32) -> Weather {
        let mut weather = Weather::fair(random);
        (weather.echo, weather.garbage) = (0.0, 0.0);
        let all = self == Fire::Together;
        let faults = &mut weather.faults;
        if self == Fire::Loss || all {
            faults.loss = 0.5;
        }
        if self == Fire::Bursts || all {
            (weather.burst, weather.burst_min, weather.burst_max) = (0.01, 64, 64);
        }
        if self == Fire::Duplication || all {
            faults.duplicate = 0.5;
            weather.echo = 0.05;
        }
        if self == Fire::Reordering || all {
            faults.reorder = 0.5;
        }
        if self == Fire::Corruption || all {
            faults.corrupt = 0.1;
        }
        match self {
            Fire::OneWay => weather.lopsided = Some((random.between(1, (1 << nodes) - 2), 0.8)),
            Fire::Stalls | Fire::Death => faults.loss = 0.3,
            _ => {}
        }
        weather
    }

    /// Returns `true` if a node dies.
    #[must_use]
    pub fn kills(self) -> bool {
        self == Fire::Death
    }

    /// Plans what happens to the nodes, in addition to the weather.
    pub fn strike(self, plan: &mut Plan, random: &mut Random) {
        let any = |random: &mut Random| random.below(u64::from(plan.nodes)) as Rank;
        match self {
            Fire::Stalls => {
                plan.settings.failure_time = Duration::from_secs(*random.pick(&[2, 2, 5]));
                let mut at = Time(0);
                for _ in 0..random.between(2, 6) {
                    at += Duration::from_nanos(random.spread(1_000_000, 700_000_000));
                    let rank = any(random);
                    // A node that wakes up is heard before it stands still again.
                    let again = plan
                        .stalls
                        .iter()
                        .rev()
                        .find(|stall| stall.rank == rank)
                        .map(|stall| stall.at + STALL * 2);
                    at = again.map_or(at, |again| again.max(at));
                    plan.stalls.push(Stall { rank, at, span: STALL });
                }
            }
            Fire::Death => {
                // The node dies after all nodes have connected. How long nodes call a peer that was
                // never heard is another matter.
                let at = Time(random.spread(20_000_000, 200_000_000));
                plan.kill = Some(Kill { rank: any(random), at: Moment::At(at), end: End::Killed });
            }
            _ => {}
        }
    }
}

/// Weather for connections that are set up on a bad network, with a few messages both ways, as at
/// the start of a job. Even seeds lose a third of all datagrams, and odd ones damage as many.
#[must_use]
pub fn set_up_weather(seed: u64, random: &mut Random) -> Weather {
    let mut weather = Weather::fair(random);
    (weather.echo, weather.garbage) = (0.0, 0.0);
    let faults = &mut weather.faults;
    *if seed.is_multiple_of(2) { &mut faults.loss } else { &mut faults.corrupt } = 0.3;
    weather
}

/// Number of nodes of such a cluster, which has 28 connections.
pub const SET_UP_NODES: u32 = 8;

/// Messages of each such node.
pub const SET_UP_MAIL: Mail = Mail { count: 14, in_flight: 14, longest: 200 };
