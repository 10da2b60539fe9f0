//! Deaths: a node is killed at any point while operations of every kind are in flight to it, from
//! it and past it. Each of them must end within a second.
//!
//! The other nodes see a killed node only by the datagrams that it has still sent. A node can be
//! killed in the middle of a turn, of a registration or of a block. For the others, each such point
//! lies between two of the killed node's datagrams, so the plan draws that point.

use crate::net::Weather;
use crate::plan::{End, Kill, Moment, Plan, Role};
use crate::program::{Layout, Mail, Registering, Work};
use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Settings;
use std::time::Duration;

/// Maximum time from a death to the end of all operations in flight.
pub const BOUND: Duration = Duration::from_secs(1);
/// Failure time for that bound. Datagrams of the dead node may still be in flight, a turn comes
/// late, and waits for nodes that waited for the dead node go on only then.
const FAILURE_TIME: Duration = Duration::from_millis(900);
/// Time after the failure time within which the death is known.
pub const LATE: Duration = Duration::from_millis(20);
/// Time at which a node is killed if it has not sent enough datagrams by then.
const LATEST: Time = Time(200_000_000);
/// Maximum number of bytes of an operation, which has several datagrams and ends soon.
const LONGEST: usize = 6_000;

/// Returns weather with few faults. [`crate::fire`] tests lost datagrams.
#[must_use]
pub fn weather(random: &mut Random) -> Weather {
    // The nodes are far apart, so that much is in flight.
    let latency = Duration::from_nanos(random.between(200_000, 3_000_000));
    Weather { echo: 0.0, latency, ..Weather::mild(random) }
}

/// Returns Wind's settings.
#[must_use]
pub fn settings(random: &mut Random) -> Settings {
    let datagram_max = *random.pick(&[1232, 1472, 8952]);
    Settings {
        datagram_max,
        failure_time: FAILURE_TIME,
        connect_time: FAILURE_TIME,
        ..Settings::default()
    }
}

/// Assigns roles to the nodes, and chooses which node is killed and when.
pub fn strike(plan: &mut Plan, random: &mut Random) {
    plan.roles = Vec::new();
    plan.accessors = 0;
    for _ in 0..plan.nodes {
        let mut roles = vec![Role::Messenger(Mail { count: 60, in_flight: 16, longest: LONGEST })];
        for _ in 0..2 {
            let layout = Layout { thread: plan.accessors, stripe: plan.stripe };
            let in_flight = random.between(8, 24) as usize;
            roles.push(Role::Accessor(Work {
                count: 40,
                until_death: true,
                in_flight,
                longest: LONGEST,
                layout,
            }));
            plan.accessors += 1;
        }
        roles.push(Role::Registrar(Registering { count: 200, in_flight: 4, longest: 2 * LONGEST }));
        plan.roles.push(roles);
    }
    let rank = random.below(u64::from(plan.nodes)) as Rank;
    // In some runs, the node dies early, while the nodes connect.
    let datagrams =
        if random.chance(0.2) { random.spread(1, 100) } else { random.between(100, 1500) };
    let at = Moment::Sent { datagrams, latest: LATEST };
    let end = match random.below(4) {
        0 => End::Replaced(Duration::from_nanos(random.spread(1_000_000, 1_500_000_000))),
        _ => End::Killed,
    };
    plan.kill = Some(Kill { rank, at, end });
}
