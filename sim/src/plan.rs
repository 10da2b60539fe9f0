//! Plan of a run, drawn from its seed before the run begins.

use crate::death;
use crate::fire::{self, Fire};
use crate::net::{Narrow, Weather};
use crate::program::{Casting, Layout, Mail, Registering, SharedPlan, Size, Work};
use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{FLOWS_MAX, GROUP_BODY_MIN};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{FlowCount, Settings};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Work that the nodes are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Users' messages of all classes.
    Messages,
    /// One-sided operations on regions.
    Memory,
    /// Programs on shared arrays.
    Shared,
    /// All of these at once.
    Mixed,
    /// All of these at once, and a node dies.
    Kill,
    /// The network at its worst. See [`Fire`].
    Fire,
    /// Connections are set up on a bad network.
    Setups,
    /// A node dies at any point while operations of every kind are in flight. See [`crate::death`].
    Deaths,
    /// 1 is added to a few words of other nodes twenty thousand times. In every second seed a node
    /// dies meanwhile.
    Counts,
    /// All nodes send parcels to all others by multicast. By the seed, one node loses more than the
    /// others, a node dies, or the network is parted for a while.
    Groups,
    /// One-sided operations whose bulk goes by several flows. By the seed, some of them are slow,
    /// capped or lossy, and one carries nothing for a while or for good.
    Flows,
}

impl Scenario {
    /// All scenarios in order.
    pub const ALL: [Scenario; 11] = [
        Scenario::Messages,
        Scenario::Memory,
        Scenario::Shared,
        Scenario::Mixed,
        Scenario::Kill,
        Scenario::Fire,
        Scenario::Setups,
        Scenario::Deaths,
        Scenario::Counts,
        Scenario::Groups,
        Scenario::Flows,
    ];

    /// Returns the scenario's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Messages => "messages",
            Scenario::Memory => "memory",
            Scenario::Shared => "shared",
            Scenario::Mixed => "mixed",
            Scenario::Kill => "kill",
            Scenario::Fire => "fire",
            Scenario::Setups => "setups",
            Scenario::Deaths => "deaths",
            Scenario::Counts => "counts",
            Scenario::Groups => "groups",
            Scenario::Flows => "flows",
        }
    }

    /// Returns the scenario of a seed when all are run. ([`Fire`], set-ups, deaths, counts, groups
    /// and flows run only by name.)
    #[must_use]
    pub fn of_seed(seed: u64) -> Scenario {
        *Random::stream(seed, 0x5ce).pick(&[
            Scenario::Messages,
            Scenario::Memory,
            Scenario::Memory,
            Scenario::Shared,
            Scenario::Shared,
            Scenario::Shared,
            Scenario::Mixed,
            Scenario::Kill,
        ])
    }
}

/// Moment at which a node dies.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// At this time.
    At(Time),
    /// When the node has sent this many datagrams, or at the latest time.
    Sent {
        /// Number of datagrams that the node has sent.
        datagrams: u64,
        /// Time at which the node dies at the latest.
        latest: Time,
    },
}

/// Death of a node.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Rank of the node.
    pub rank: Rank,
    /// Moment of the death.
    pub at: Moment,
    /// Kind of the death.
    pub end: End,
}

/// Kind of a node's end for the others.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The node is killed.
    Killed,
    /// The node is killed, and a newer process takes its place after this time.
    Replaced(Duration),
    /// The node is cut off in both directions. After this time (if ever) the network is whole
    /// again, but nodes that were found dead stay dead.
    CutOff(Option<Duration>),
}

/// Pause of a node, which does nothing for a while.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Rank of the node.
    pub rank: Rank,
    /// Beginning of the pause.
    pub at: Time,
    /// Length of the pause.
    pub span: Duration,
}

/// Role of one thread.
#[derive(Clone, Debug)]
pub enum Role {
    /// Sends messages to other nodes.
    Messenger(Mail),
    /// Uses remote memory.
    Accessor(Work),
    /// Registers memory for a while, and writes to the registrations of others.
    Registrar(Registering),
    /// Sends parcels to several nodes.
    Caster(Casting),
    /// Adds 1 this many times.
    Counter(u64),
    /// Shares arrays. The value is the thread's number on its node.
    Sharer(usize),
}

/// Plan of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the plan.
    pub seed: u64,
    /// Scenario of the run.
    pub scenario: Scenario,
    /// Work that the nodes do in the run.
    pub work: Scenario,
    /// Number of nodes.
    pub nodes: u32,
    /// Wind's settings of all nodes.
    pub settings: Settings,
    /// Set if every first candidate address leads to no node.
    pub false_candidates: bool,
    /// Probability that the link takes only part of a batch.
    pub refusing: f64,
    /// Maximum time until a program reads a message.
    pub reading: Duration,
    /// Maximum time from a cause to the turn that it wants.
    pub sluggish: Duration,
    /// Faults of the network.
    pub weather: Weather,
    /// Bytes of a body from which on nodes share it by multicast, or `None` if they use none.
    pub multicast: Option<u64>,
    /// Nodes that stand still for a while.
    pub stalls: Vec<Stall>,
    /// The node that dies.
    pub kill: Option<Kill>,
    /// Threads of each node.
    pub roles: Vec<Vec<Role>>,
    /// Number of threads of all nodes that use remote memory.
    pub accessors: u64,
    /// Bytes of each such thread's part of every arena.
    pub stripe: u64,
    /// Plan of the sharers' work.
    pub shared: Option<Arc<SharedPlan>>,
    /// Number of sharers on each node.
    pub sharers: usize,
    /// Time at which the run must be over.
    pub deadline: Time,
}

/// Number of nodes that count in [`Scenario::Counts`]. Together they add 20,000 times per seed.
const COUNTING_NODES: u32 = 4;
const COUNTS: u64 = 5_000;

/// Work of each node in [`Scenario::Groups`].
const CASTING: Casting = Casting { count: 40, longest: 60_000 };

/// Maximum time of an operation of a healthy cluster on the worst network.
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the number of flows of a seed in [`Scenario::Flows`].
fn flow_count(seed: u64) -> u8 {
    *Random::stream(seed, 0x0066_6c6f_7773).pick(&[2, 3, 4, 4, 8, FLOWS_MAX])
}

/// Draws the length from which on bodies are shared by multicast. Two thirds of all runs use it,
/// most of them for bodies that are much shorter than in real jobs. Draws from a stream of its own.
fn multicast(seed: u64) -> Option<u64> {
    let random = &mut Random::stream(seed, 0x006d_6361_7374);
    random.chance(0.67).then(|| random.spread(64, GROUP_BODY_MIN))
}

impl Plan {
    /// Draws the plan of this seed.
    #[must_use]
    pub fn new(seed: u64, scenario: Scenario) -> Plan {
        let random = &mut Random::stream(seed, 0x706c_616e);
        let nodes =
            if random.chance(0.1) { random.between(6, 8) } else { random.between(2, 5) } as u32;
        let fire = (scenario == Scenario::Fire).then(|| Fire::of_seed(seed));
        let counting = scenario == Scenario::Counts;
        let dying = scenario == Scenario::Deaths;
        let killing = dying
            || scenario == Scenario::Kill
            || fire.is_some_and(Fire::kills)
            || (scenario == Scenario::Groups && seed % 3 == 1)
            || (counting && !seed.is_multiple_of(2));
        // In some runs collectives go along a tree with inner nodes (COH-6.12). Draws from a stream
        // of its own.
        let trees = &mut Random::stream(seed, 0x7472_6565);
        let nodes = if scenario == Scenario::Shared && trees.chance(0.06) {
            trees.between(10, 14) as u32
        } else {
            nodes
        };
        let (nodes, mut weather) = match (scenario, fire) {
            (_, Some(fire)) => (nodes, fire.weather(random, nodes)),
            (Scenario::Kill, _) => (nodes, Weather::mild(random)),
            (Scenario::Deaths, _) => (nodes.clamp(3, 4), death::weather(random)),
            (Scenario::Counts, _) => (COUNTING_NODES, Weather::bad(random)),
            (Scenario::Groups, _) => {
                let nodes = nodes.max(3);
                (nodes, Weather::of_groups(random, nodes, seed % 3))
            }
            (Scenario::Flows, _) => (nodes.min(4), Weather::of_flows(random, flow_count(seed))),
            (Scenario::Setups, _) => (fire::SET_UP_NODES, fire::set_up_weather(seed, random)),
            _ => (nodes, Weather::any(random, nodes)),
        };
        let mut settings = if dying { death::settings(random) } else { settings(random, killing) };
        if scenario == Scenario::Flows {
            settings.flows = match seed % 4 {
                0 => FlowCount::Auto,
                _ => FlowCount::Fixed(flow_count(seed)),
            };
        }
        if !killing && !matches!(scenario, Scenario::Fire | Scenario::Setups) {
            // Draws from a stream of its own.
            let random = &mut Random::stream(seed, 0x6e61_7272_6f77);
            weather.narrow = Narrow::any(random, nodes);
            if !weather.narrow.is_empty() && random.chance(0.7) {
                settings.datagram_max = 8952;
            }
        }
        // Worse weather and more nodes mean less work.
        let ease = (1.0 - weather.badness()).powi(2).max(if fire.is_some() { 0.3 } else { 0.0 })
            * (3.0 / f64::from(nodes)).min(1.0);
        let mut plan = Plan {
            seed,
            scenario,
            work: match scenario {
                Scenario::Fire => Fire::work(random),
                Scenario::Flows => Scenario::Memory,
                _ => scenario,
            },
            nodes,
            settings,
            false_candidates: random.chance(0.2),
            refusing: if random.chance(0.3) { 0.3 } else { 0.0 },
            reading: Duration::from_nanos(random.spread(1, 20_000_000)),
            sluggish: Duration::from_nanos(random.spread(1, 50_000)),
            weather,
            multicast: match scenario {
                Scenario::Groups => multicast(seed).or(Some(GROUP_BODY_MIN)),
                _ => multicast(seed),
            },
            stalls: Vec::new(),
            kill: None,
            roles: Vec::new(),
            accessors: 0,
            stripe: random.spread(4096, 96 * 1024).max(match scenario {
                Scenario::Flows => 160 * 1024,
                _ => 0,
            }),
            shared: None,
            sharers: random.between(1, 3) as usize,
            deadline: Time::default() + PATIENCE,
        };
        plan.draw_threads(random, ease);
        if counting {
            plan.accessors = 1;
            plan.roles = vec![vec![Role::Counter(COUNTS)]; nodes as usize];
        }
        if scenario == Scenario::Groups {
            plan.roles = vec![vec![Role::Caster(CASTING)]; nodes as usize];
        }
        if let Some(fire) = fire {
            fire.strike(&mut plan, random);
        } else if dying {
            death::strike(&mut plan, random);
        } else if scenario == Scenario::Setups {
            plan.roles = vec![vec![Role::Messenger(fire::SET_UP_MAIL)]; nodes as usize];
        } else if !killing {
            for _ in 0..random.below(3) {
                let (rank, at) =
                    (random.below(u64::from(nodes)) as u32, Time(random.below(300_000_000)));
                plan.stalls.push(Stall {
                    rank,
                    at,
                    span: Duration::from_nanos(random.spread(1_000_000, 500_000_000)),
                });
            }
        } else {
            // In some runs the node dies at the very beginning, but mostly while all nodes work.
            let early = random.chance(0.2);
            let at = Time(if early {
                random.spread(1, 1_000_000)
            } else {
                random.spread(300_000, 60_000_000)
            });
            let rank = random.below(u64::from(nodes)) as u32;
            let span = Duration::from_nanos(random.spread(1_000_000, 3_000_000_000));
            let end = match random.below(10) {
                0..=3 => End::Killed,
                4..=6 => End::Replaced(span),
                7 => End::CutOff(None),
                _ => End::CutOff(Some(plan.notice_time() + span)),
            };
            plan.kill = Some(Kill { rank, at: Moment::At(at), end });
        }
        plan
    }

    /// Returns the number of flows that the link of each node has.
    #[must_use]
    pub fn link_flows(&self) -> u8 {
        if self.scenario == Scenario::Flows { FLOWS_MAX } else { 1 }
    }

    fn draw_threads(&mut self, random: &mut Random, ease: f64) {
        let all = matches!(self.work, Scenario::Mixed | Scenario::Kill);
        let wants = |work| all || self.work == work;
        let least = if self.scenario == Scenario::Flows { 60_000 } else { 2_000 };
        let longest = random.spread(least, (200_000.0 * ease) as u64 + 2 * least) as usize;
        if wants(Scenario::Shared) {
            let size = Size {
                nodes: self.nodes,
                threads: self.sharers,
                pages: random.between(1, 12),
                phases: 2 + (14.0 * ease) as u64,
            };
            self.shared = Some(Arc::new(SharedPlan::any(size, random)));
        }
        let scale = ease * if self.work == Scenario::Mixed { 0.4 } else { 1.0 };
        let (mail, work) = (wants(Scenario::Messages), wants(Scenario::Memory));
        // Draws from a stream of its own, which leaves the other draws as they were.
        let registrars = &mut Random::stream(self.seed, 0x7265_6769_7374);
        for _ in 0..self.nodes {
            let mut roles = Vec::new();
            for _ in 0..if mail { random.between(1, 2) } else { 0 } {
                let count = amount(random, 4, 500.0 * scale);
                roles.push(Role::Messenger(Mail {
                    count,
                    in_flight: random.spread(1, 64) as usize,
                    longest,
                }));
            }
            for _ in 0..if work { random.between(1, 2) } else { 0 } {
                let (count, in_flight) =
                    (amount(random, 24, 500.0 * scale), random.spread(1, 24) as usize);
                let layout = Layout { thread: self.accessors, stripe: self.stripe };
                roles.push(Role::Accessor(Work {
                    count,
                    until_death: false,
                    in_flight,
                    longest,
                    layout,
                }));
                self.accessors += 1;
            }
            if self.shared.is_some() {
                roles.extend((0..self.sharers).map(Role::Sharer));
            }
            if work && registrars.chance(0.5) {
                let count = amount(registrars, 48, 800.0 * scale);
                let (in_flight, longest) = (registrars.spread(1, 12) as usize, longest.max(40_000));
                roles.push(Role::Registrar(Registering { count, in_flight, longest }));
            }
            self.roles.push(roles);
        }
    }

    /// Returns the time after a node's end within which it must be known.
    #[must_use]
    pub fn notice_time(&self) -> Duration {
        if matches!(self.scenario, Scenario::Fire | Scenario::Deaths) {
            // Datagrams of the dead node may still be in flight, and a turn comes late.
            return self.settings.failure_time + death::LATE;
        }
        // The dead node may have been heard just before its end, and a timer notices its silence.
        self.settings.failure_time * 3 / 2 + Duration::from_secs(1)
    }

    /// Returns the time after that within which all operations of the other nodes must be settled.
    /// Some of them waited for a node that waited for the dead one (such as a lock's home). That
    /// node's messages may be lost a few times.
    #[must_use]
    pub fn settling(&self) -> Duration {
        if self.scenario == Scenario::Deaths {
            return death::BOUND;
        }
        self.notice_time() + Duration::from_millis(500)
    }
}

/// Draws a small or a large amount. A small one shows the beginning and the end, and a large one
/// shows what happens in between.
fn amount(random: &mut Random, least: u64, most: f64) -> u64 {
    let most = least + most as u64;
    if random.chance(0.5) { random.spread(least / 4, most) } else { random.between(least, most) }
}

fn settings(random: &mut Random, killing: bool) -> Settings {
    let mut settings = Settings {
        datagram_max: *random.pick(&[1232, 1232, 1472, 1472, 2000, 8952]),
        ..Settings::default()
    };
    if random.chance(0.4) {
        settings.window_max = random.spread(4_000, 1 << 20);
    }
    if random.chance(0.4) {
        settings.credit = random.spread(1_000, 1 << 20);
    }
    if random.chance(0.3) {
        settings.held_max = random.spread(4_000, 1 << 20);
    }
    settings.receive_buffer =
        *random.pick(&[16 * 1024, 64 * 1024, 208 * 1024, 208 * 1024, 1 << 20]);
    if killing {
        settings.failure_time =
            Duration::from_millis(*random.pick(&[500, 500, 1_000, 2_000, 5_000]));
        settings.connect_time = settings.failure_time;
    }
    settings
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "scenario {}, {} nodes, seed {:#x}",
            self.scenario.name(),
            self.nodes,
            self.seed
        )?;
        if self.scenario == Scenario::Fire {
            writeln!(f, "fire: {:?}, with {}", Fire::of_seed(self.seed), self.work.name())?;
        }
        writeln!(f, "network: {}", self.weather)?;
        for partition in &self.weather.partitions {
            writeln!(f, "partition: {partition:?}")?;
        }
        writeln!(f, "settings: {:?}", self.settings)?;
        let (refusing, reading) = (self.refusing, self.reading);
        writeln!(
            f,
            "link refuses {refusing}, reading {reading:?}, turns after {:?}, multicast {:?}, \
             stalls {:?}, {:?}",
            self.sluggish, self.multicast, self.stalls, self.kill
        )?;
        if let Some(shared) = &self.shared {
            writeln!(f, "arrays: {:?}", shared.arrays)?;
            writeln!(
                f,
                "locks: {:?}, {} phases, {} threads a node",
                shared.cells,
                shared.phases.len(),
                self.sharers
            )?;
        }
        Ok(())
    }
}
