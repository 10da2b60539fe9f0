//! Goals for Wind.

use crate::suite::case::{KIB, MIB};
use crate::suite::goals::{Bound, Figures, Found, Goal};

const SMALL: usize = 8;

/// Returns all goals.
pub fn goals(figures: &Figures<'_>) -> Vec<Goal> {
    let all = [latency, first, bandwidth, rate, together];
    all.map(|goals| goals(figures)).concat()
}

fn latency(figures: &Figures<'_>) -> Vec<Goal> {
    let small = |case: &str, system: &str| figures.of(case, SMALL, 9000, system);
    let ucx = [small("put_lat", "ucx-tcp"), small("message_lat", "ucx-tcp")]
        .into_iter()
        .flatten()
        .min_by(|a, b| a.value.total_cmp(&b.value));
    ["message_lat", "put_lat"]
        .into_iter()
        .flat_map(|case| {
            let (mine, floor) = (small(case, "oikaze"), small(case, "floor-udp"));
            [
                (
                    format!("{case} 8 B / the better of ucx-tcp put and tagged"),
                    Found::ratio((mine, ucx)),
                    Bound::AtMost(0.6),
                ),
                (
                    format!("{case} 8 B / floor-udp"),
                    Found::ratio((mine, floor)),
                    Bound::AtMost(1.3),
                ),
            ]
        })
        .collect()
}

/// Returns the goals for messages and puts of few bytes, from the first one on.
fn first(figures: &Figures<'_>) -> Vec<Goal> {
    [
        ("first_lat", 256, "floor-udp", 1.5),
        ("message_lat", 256, "floor-udp", 1.1),
        ("message_lat", 8 * KIB, "tcp", 1.0),
        ("put_lat", 64, "floor-udp", 1.1),
    ]
    .into_iter()
    .map(|(case, size, peer, bound)| {
        let of = |system| figures.of(case, size, 9000, system);
        let ratio = Found::ratio((of("oikaze"), of(peer)));
        (format!("{case} {size} B / {peer}"), ratio, Bound::AtMost(bound))
    })
    .collect()
}

fn bandwidth(figures: &Figures<'_>) -> Vec<Goal> {
    let put = |mtu, system: &str| figures.of("put_bw", MIB, mtu, system);
    let message = |mtu, system: &str| figures.of("message_bw", MIB, mtu, system);
    let unchecked = put(9000, "oikaze-unchecked");
    let mut goals: Vec<Goal> = [
        ("put_bw 1 MiB, MTU 9000, unchecked / ucx-tcp put", (unchecked, put(9000, "ucx-tcp")), 2.5),
        (
            "put_bw 1 MiB, MTU 9000, unchecked / ucx-tcp tagged",
            (unchecked, message(9000, "ucx-tcp")),
            1.6,
        ),
        (
            "put_bw 1 MiB, MTU 9000, unchecked / floor-udp",
            (unchecked, put(9000, "floor-udp")),
            0.85,
        ),
        (
            "put_bw 1 MiB, MTU 9000, checked / floor-udp-crc",
            (put(9000, "oikaze"), put(9000, "floor-udp-crc")),
            0.85,
        ),
        (
            "put_bw 1 MiB, MTU 1500, unchecked / floor-udp",
            (put(1500, "oikaze-unchecked"), put(1500, "floor-udp")),
            0.85,
        ),
    ]
    .into_iter()
    .map(|(what, pair, bound)| (what.to_owned(), Found::ratio(pair), Bound::AtLeast(bound)))
    .collect();
    for (mtu, system) in
        [(9000, "oikaze"), (9000, "oikaze-unchecked"), (1500, "oikaze"), (1500, "oikaze-unchecked")]
    {
        let ratio = Found::ratio((message(mtu, system), put(mtu, system)));
        goals.push((
            format!("message_bw / put_bw, 1 MiB, MTU {mtu}, {system}"),
            ratio,
            Bound::AtLeast(0.9),
        ));
    }
    goals
}

fn rate(figures: &Figures<'_>) -> Vec<Goal> {
    let rate = |system: &str| figures.of("message_rate", SMALL, 9000, system);
    let ratio = Found::ratio((rate("oikaze"), rate("ucx-tcp")));
    vec![
        ("message_rate 8 B / ucx-tcp tagged".into(), ratio, Bound::AtLeast(8.0)),
        ("message_rate 8 B, M/s".into(), Found::value(rate("oikaze")), Bound::AtLeast(2.4)),
    ]
}

fn together(figures: &Figures<'_>) -> Vec<Goal> {
    let mine = |case: &str| figures.of(case, SMALL, 9000, "oikaze");
    let over = |one: &str, other: &str| Found::ratio((mine(one), mine(other)));
    let cpu = |system: &str| figures.of("cpu", MIB, 9000, system);
    let mut goals: Vec<Goal> = vec![
        (
            "mixed_lat / the same idle".into(),
            over("mixed_lat", "mixed_idle_lat"),
            Bound::AtMost(3.0),
        ),
        (
            "mixed_lat_p99 / the same idle (median)".into(),
            over("mixed_lat_p99", "mixed_idle_lat"),
            Bound::AtMost(10.0),
        ),
        (
            "mixed_bw / the same alone".into(),
            over("mixed_bw", "mixed_alone_bw"),
            Bound::AtLeast(0.7),
        ),
        (
            "passive / the same to a node that waits".into(),
            over("passive", "passive_driven"),
            Bound::AtMost(5.0),
        ),
    ];
    let flood = |case: &str| figures.of(case, MIB, 9000, "oikaze");
    let ratio = Found::ratio((flood("flood_bw"), flood("flood_elsewhere_bw")));
    goals.push(("flood_bw / the same flood at another port".into(), ratio, Bound::AtLeast(0.8)));
    for system in ["oikaze", "oikaze-unchecked"] {
        let ratio = Found::ratio((cpu(system), cpu("tcp")));
        goals.push((format!("cpu 1 MiB, {system} / tcp"), ratio, Bound::AtMost(1.0)));
    }
    goals
}
