//! Bench of two processes of one machine, compared with UCX through shared memory.

mod goals;

use crate::peers::HERE;
use crate::suite::Suite;
use crate::suite::case::{Choice, KIB, MIB, Quick, Test};

/// Bench of latency, bandwidth and rate.
pub const SUITE: Suite =
    Suite { name: "shm", cases: &CASES, systems: &HERE, floor: "ucx-shm", goals: goals::goals };

const CASES: [Choice; 6] = [
    (Test::PutLatency, 8, Quick::Everywhere),
    (Test::PutBandwidth, 8 * KIB, Quick::Everywhere),
    (Test::PutBandwidth, MIB, Quick::Everywhere),
    (Test::MessageLatency, 8, Quick::Everywhere),
    (Test::MessageRate, 8, Quick::Everywhere),
    (Test::MessageBandwidth, MIB, Quick::Never),
];
