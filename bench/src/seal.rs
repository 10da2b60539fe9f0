//! Bench of what it costs to seal datagrams, in each mode, beside QUIC, TCP through WireGuard, and
//! plain TCP.

use crate::peers::SEALED;
use crate::suite::Suite;
use crate::suite::case::{Choice, MIB, Quick, Test};
use crate::suite::goals::{Bound, Figures, Found, Goal};

/// Bench of bandwidth, latency, rate and processor time.
pub const SUITE: Suite =
    Suite { name: "seal", cases: &CASES, systems: &SEALED, floor: "oikaze", goals };

/// Other systems that encrypt.
const SEALED_PEERS: [&str; 2] = ["quic", "wireguard"];

const CASES: [Choice; 5] = [
    (Test::PutBandwidth, MIB, Quick::Everywhere),
    (Test::MessageBandwidth, MIB, Quick::Everywhere),
    (Test::MessageLatency, 8, Quick::Everywhere),
    (Test::MessageRate, 8, Quick::Jumbo),
    (Test::Processor, MIB, Quick::Jumbo),
];

fn goals(figures: &Figures<'_>) -> Vec<Goal> {
    let pair = |case: &str, size, mtu| {
        let of = |system: &str| figures.of(case, size, mtu, system);
        (of("oikaze-full"), of("oikaze"))
    };
    let bulk = |mtu| {
        let peers = SEALED_PEERS.iter().filter_map(|peer| figures.of("message_bw", MIB, mtu, peer));
        let best = peers.max_by(|one, other| one.value.total_cmp(&other.value));
        (figures.of("put_bw", MIB, mtu, "oikaze-full"), best)
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
            "put_bw, full / message_bw of best sealed peer, MTU 9000".to_owned(),
            Found::ratio(bulk(9000)),
            Bound::AtLeast(2.0),
        ),
        (
            "put_bw, full / message_bw of best sealed peer, MTU 1500".to_owned(),
            Found::ratio(bulk(1500)),
            Bound::AtLeast(2.0),
        ),
        (
            "message_lat 8 B in us, full - crc".to_owned(),
            Found::difference(pair("message_lat", 8, 9000)),
            Bound::AtMost(0.3),
        ),
        (
            "message_rate 8 B, full / crc".to_owned(),
            Found::ratio(pair("message_rate", 8, 9000)),
            Bound::AtLeast(0.8),
        ),
    ]
}
