//! Bench of the transport between two hosts, beside bare UDP, plain TCP, UCX and libfabric.

pub mod flood;
pub mod flows;
mod goals;

use crate::peers::WIRE;
use crate::suite::Suite;
use crate::suite::case::{Choice, KIB, MIB, Quick, Test};

/// Bench of latency, bandwidth, rate and processor time.
pub const SUITE: Suite =
    Suite { name: "wind", cases: &CASES, systems: &WIRE, floor: "floor-udp", goals: goals::goals };

const CASES: [Choice; 24] = [
    (Test::MessageLatency, 8, Quick::Everywhere),
    (Test::MessageLatency, 256, Quick::Never),
    (Test::MessageLatency, 4 * KIB, Quick::Jumbo),
    (Test::MessageLatency, 8 * KIB, Quick::Never),
    (Test::FirstMessages, 256, Quick::Jumbo),
    (Test::FirstMessages, 8 * KIB, Quick::Never),
    (Test::PutLatency, 8, Quick::Jumbo),
    (Test::PutLatency, 64, Quick::Never),
    (Test::PutLatency, 4 * KIB, Quick::Jumbo),
    (Test::PutDone, 8, Quick::Jumbo),
    (Test::PutDone, 4 * KIB, Quick::Never),
    (Test::PutBandwidth, 64 * KIB, Quick::Never),
    (Test::PutBandwidth, MIB, Quick::Everywhere),
    (Test::PutBandwidth, 64 * MIB, Quick::Never),
    (Test::MessageBandwidth, 64 * KIB, Quick::Never),
    (Test::MessageBandwidth, MIB, Quick::Everywhere),
    (Test::MessageBandwidth, 64 * MIB, Quick::Never),
    (Test::MessageRate, 8, Quick::Jumbo),
    (Test::MessageRate, 64, Quick::Never),
    (Test::Mixed, 8, Quick::Jumbo),
    (Test::Passive, 8, Quick::Jumbo),
    (Test::Processor, MIB, Quick::Jumbo),
    (Test::Processor, 64 * KIB, Quick::Never),
    (Test::Flood, MIB, Quick::Jumbo),
];
