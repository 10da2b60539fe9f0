//! What Wind is to reach, beside what this run has found. Told, never asserted: the machine decides.

use crate::record::{Record, median, three_digits};

/// How a ratio is to be.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// Figures of one run, by name.
struct Figures<'a>(&'a [Record]);

impl Figures<'_> {
    fn of(&self, case: &str, size: usize, mtu: u16, system: &str) -> Option<&Record> {
        let same = |record: &&Record| (record.case, record.size, record.mtu, record.system) == (case, size, mtu, system);
        self.0.iter().find(same)
    }
}

/// What was found.
#[derive(Clone, Copy)]
struct Found {
    value: f64,
    /// Of a ratio: the median of the rounds' own ratios. A machine that is now fast and now slow is so for a whole round, most often.
    by_round: Option<f64>,
}

impl Found {
    fn value(record: Option<&Record>) -> Option<Found> {
        Some(Found { value: record?.value, by_round: None })
    }

    /// One over another, if both were measured.
    fn ratio((one, other): (Option<&Record>, Option<&Record>)) -> Option<Found> {
        let (one, other) = (one?, other?);
        let rounds: Vec<f64> = one.rounds.iter().zip(&other.rounds).map(|(one, other)| one / other).collect();
        Some(Found { value: one.value / other.value, by_round: median(&rounds) })
    }
}

const SMALL: usize = 8;
const MIB: usize = 1 << 20;

/// One goal: in words, what was found, and the bound.
type Goal = (String, Option<Found>, Bound);

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
                (format!("{case} 8 B / the better of ucx-tcp put and tagged"), Found::ratio((mine, ucx)), Bound::AtMost(0.6)),
                (format!("{case} 8 B / floor-udp"), Found::ratio((mine, floor)), Bound::AtMost(1.3)),
            ]
        })
        .collect()
}

fn bandwidth(figures: &Figures<'_>) -> Vec<Goal> {
    let put = |mtu, system: &str| figures.of("put_bw", MIB, mtu, system);
    let message = |mtu, system: &str| figures.of("message_bw", MIB, mtu, system);
    let unchecked = put(9000, "oikaze-unchecked");
    let mut goals: Vec<Goal> = [
        ("put_bw 1 MiB, MTU 9000, unchecked / ucx-tcp put", (unchecked, put(9000, "ucx-tcp")), 2.5),
        ("put_bw 1 MiB, MTU 9000, unchecked / ucx-tcp tagged", (unchecked, message(9000, "ucx-tcp")), 1.6),
        ("put_bw 1 MiB, MTU 9000, unchecked / floor-udp", (unchecked, put(9000, "floor-udp")), 0.85),
        ("put_bw 1 MiB, MTU 9000, checked / floor-udp-crc", (put(9000, "oikaze"), put(9000, "floor-udp-crc")), 0.85),
        ("put_bw 1 MiB, MTU 1500, unchecked / floor-udp", (put(1500, "oikaze-unchecked"), put(1500, "floor-udp")), 0.85),
    ]
    .into_iter()
    .map(|(what, pair, bound)| (what.to_owned(), Found::ratio(pair), Bound::AtLeast(bound)))
    .collect();
    for (mtu, system) in [(9000, "oikaze"), (9000, "oikaze-unchecked"), (1500, "oikaze"), (1500, "oikaze-unchecked")] {
        let ratio = Found::ratio((message(mtu, system), put(mtu, system)));
        goals.push((format!("message_bw / put_bw, 1 MiB, MTU {mtu}, {system}"), ratio, Bound::AtLeast(0.9)));
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
        ("mixed_lat / the same idle".into(), over("mixed_lat", "mixed_idle_lat"), Bound::AtMost(3.0)),
        ("mixed_lat_p99 / the same idle (median)".into(), over("mixed_lat_p99", "mixed_idle_lat"), Bound::AtMost(10.0)),
        ("mixed_bw / the same alone".into(), over("mixed_bw", "mixed_alone_bw"), Bound::AtLeast(0.7)),
        ("passive / the same to a node that waits".into(), over("passive", "passive_driven"), Bound::AtMost(5.0)),
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

/// A line for each goal of which this run has measured both sides; nothing if there is none.
pub fn table(records: &[Record]) -> String {
    let figures = Figures(records);
    let goals = [latency(&figures), bandwidth(&figures), rate(&figures), together(&figures)].concat();
    let lines: Vec<String> = goals
        .into_iter()
        .filter_map(|(what, found, bound)| {
            let found = found?;
            let (sign, bound, reached) = match bound {
                Bound::AtMost(bound) => ("≤", bound, found.value <= bound),
                Bound::AtLeast(bound) => ("≥", bound, found.value >= bound),
            };
            let verdict = if reached { "reached" } else { "not yet" };
            let (found, by_round) = (three_digits(found.value), found.by_round.map(three_digits).unwrap_or_default());
            Some(format!("{what:<58}{found:>9}{by_round:>10}   {sign} {bound:<5} {verdict}\n"))
        })
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("\n{:<58}{:>9}{:>10}   goal\n{}", "goal", "found", "by round", lines.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &'static str, size: usize, system: &'static str, value: f64) -> Record {
        Record { bench: "wind", case, size, system, value, unit: "us", rounds: vec![value], mtu: 9000, mode: "wire" }
    }

    #[test]
    fn only_what_was_measured_is_compared() {
        assert_eq!(table(&[]), "");
        let records = [
            record("message_lat", 8, "oikaze", 3.0),
            record("message_lat", 8, "ucx-tcp", 6.0),
            record("put_lat", 8, "ucx-tcp", 5.0),
            record("put_bw", 1 << 20, "oikaze", 3.0),
        ];
        let table = table(&records);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines.len(), 1, "{table}");
        assert!(lines[0].contains("0.600     0.600   ≤ 0.6") && lines[0].ends_with("reached"), "{table}");
    }

    #[test]
    fn goals_missed_are_said() {
        let records = [record("message_rate", 8, "oikaze", 1.0), record("message_rate", 8, "ucx-tcp", 0.5)];
        assert_eq!(table(&records).matches("not yet").count(), 2);
    }
}
