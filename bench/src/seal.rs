//! Bench of what it costs to seal datagrams, in each mode, beside plain TCP.

use crate::peers::SEALED;
use crate::suite::Suite;
use crate::suite::case::{Choice, MIB, Quick, Test};
use crate::suite::goals::{Bound, Figures, Found, Goal};

/// Bench of bandwidth, latency, rate and processor time.
pub const SUITE: Suite =
    Suite { name: "seal", cases: &CASES, systems: &SEALED, floor: "oikaze", goals };

const CASES: [Choice; 4] = [
    (Test::PutBandwidth, MIB, Quick::Everywhere),
    (Test::MessageLatency, 8, Quick::Everywhere),
    (Test::MessageRate, 8, Quick::Jumbo),
    (Test::Processor, MIB, Quick::Jumbo),
];

fn goals(figures: &Figures<'_>) -> Vec<Goal> {
    let pair = |case: &str, size, mtu| {
        let of = |system: &str| figures.of(case, size, mtu, system);
        (of("oikaze-full"), of("oikaze"))
    };
    vec![
        (
            "put_bw 1 MiB, MTU 9000, full / crc".to_owned(),
            Found::ratio(pair("put_bw", MIB, 9000)),
            Bound::AtLeast(0.75),
        ),
        (
            "put_bw 1 MiB, MTU 1500, full / crc".to_owned(),
            Found::ratio(pair("put_bw", MIB, 1500)),
            Bound::AtLeast(0.75),
        ),
        (
            "message_rate 8 B, full / crc".to_owned(),
            Found::ratio(pair("message_rate", 8, 9000)),
            Bound::AtLeast(0.8),
        ),
    ]
}
