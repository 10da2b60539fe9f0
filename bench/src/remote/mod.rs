//! Bench of remote memory, beside UCX: operations on another node's memory without a call there.

mod goals;

use crate::peers::WIRE;
use crate::suite::Suite;
use crate::suite::case::{Choice, KIB, MIB, Quick, Test};

/// Bench of get, atomics, blocks of rows, accumulation and queues.
pub const SUITE: Suite = Suite {
    name: "remote",
    cases: &CASES,
    systems: &WIRE,
    floor: "floor-udp",
    goals: goals::goals,
};

/// Size of a block of 128 rows of 1 KiB.
pub const BLOCK: usize = 128 * KIB;

/// Size of a put that is placed without a copy, and of the same put by copy.
pub const PLACED: usize = 2 * MIB;

const CASES: [Choice; 15] = [
    // Goals compare the other cases with these.
    (Test::MessageLatency, 8, Quick::Jumbo),
    (Test::PutLatency, 8, Quick::Jumbo),
    (Test::GetLatency, 8, Quick::Everywhere),
    (Test::GetLatency, 4 * KIB, Quick::Never),
    (Test::FetchAdd, 8, Quick::Everywhere),
    (Test::CompareSwap, 8, Quick::Jumbo),
    (Test::PutBandwidth, BLOCK, Quick::Jumbo),
    (Test::PutBandwidth, MIB, Quick::Jumbo),
    (Test::GetBandwidth, 64 * KIB, Quick::Never),
    (Test::GetBandwidth, MIB, Quick::Everywhere),
    (Test::Strided, BLOCK, Quick::Everywhere),
    (Test::Accumulate, 64 * KIB, Quick::Jumbo),
    (Test::Accumulate, MIB, Quick::Never),
    (Test::Fifo, 8, Quick::Jumbo),
    (Test::Placed, PLACED, Quick::Jumbo),
];
