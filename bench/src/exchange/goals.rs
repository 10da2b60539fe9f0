//! Goals for the exchange of pages.

use crate::record::{Record, three_digits};
use crate::suite::case::{KIB, MIB};
use crate::suite::goals::{Bound, Found, Goal};

/// Returns all goals, for runs that read one word per page afterwards.
pub fn goals(records: &[Record]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for threads in [1, 2] {
        let faster = |case: &str, size| {
            Found::ratio((
                of(records, case, size, threads, "copy"),
                of(records, case, size, threads, "oikaze"),
            ))
        };
        let mut goal = |case: &str, size: usize, bound| {
            let what = format!("copy / {case}, {}, {threads} busy", text(size));
            goals.push((what, faster(case, size), Bound::AtLeast(bound)));
        };
        for size in [256 * KIB, MIB, 2 * MIB, 8 * MIB, 64 * MIB] {
            goal("install", size, 4.0);
            goal("install_huge", size, 4.0);
        }
        let exchange = if threads == 1 { 4.5 } else { 3.5 };
        goal("exchange", 2 * MIB, exchange);
        goal("exchange_huge", 2 * MIB, exchange);
        if threads == 1 {
            goal("move", 2 * MIB, 9.0);
            goal("move_huge", 2 * MIB, 15.0);
        }
        goals.extend(auto(records, "auto", "exchange", threads));
        goals.extend(auto(records, "auto_huge", "exchange_huge", threads));
    }
    goals
}

fn of<'r>(
    records: &'r [Record],
    case: &str,
    size: usize,
    threads: u32,
    system: &str,
) -> Option<&'r Record> {
    let wanted = (case, size, Some(threads), system, Some("touch"));
    records.iter().find(|record| {
        (record.case, record.size, record.threads, record.system, record.mode) == wanted
    })
}

/// Returns the goal of the runtime's choice, compared with the better of a copy and an exchange, at
/// the size with the worst ratio.
fn auto(records: &[Record], case: &str, exchange: &str, threads: u32) -> Option<Goal> {
    let here = records.iter().filter(|record| (record.case, record.system) == (case, "oikaze"));
    let sizes = here
        .filter(|record| (record.threads, record.mode) == (Some(threads), Some("touch")))
        .map(|record| record.size);
    let of_size = |size| {
        let ways = [
            of(records, case, size, threads, "copy"),
            of(records, exchange, size, threads, "oikaze"),
        ];
        let best = ways.into_iter().flatten().min_by(|a, b| a.value.total_cmp(&b.value));
        Some((size, Found::ratio((of(records, case, size, threads, "oikaze"), best))?))
    };
    let (size, worst) =
        sizes.filter_map(of_size).max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))?;
    Some((
        format!("{case} / the better way, at its worst ({}), {threads} busy", text(size)),
        Some(worst),
        Bound::AtMost(1.1),
    ))
}

fn text(size: usize) -> String {
    if size < MIB {
        format!("{} KiB", size / KIB)
    } else {
        format!("{} MiB", three_digits((size / MIB) as f64).trim_end_matches(".00"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &'static str, size: usize, system: &'static str, value: f64) -> Record {
        let (mode, threads) = (Some("touch"), Some(1));
        Record {
            system,
            value,
            rounds: vec![value],
            mtu: None,
            mode,
            threads,
            ..Record::example(case, size)
        }
    }

    #[test]
    fn the_choice_is_judged_where_it_does_worst() {
        let records = [
            record("auto", 4096, "oikaze", 1.0),
            record("auto", 4096, "copy", 1.0),
            record("auto", 2 * MIB, "oikaze", 120.0),
            record("auto", 2 * MIB, "copy", 300.0),
            record("exchange", 2 * MIB, "oikaze", 100.0),
            record("exchange", 2 * MIB, "copy", 450.0),
        ];
        let found: Vec<Goal> =
            goals(&records).into_iter().filter(|(_, found, _)| found.is_some()).collect();
        let [(exchange, times, _), (auto, worst, _)] = found.as_slice() else {
            panic!("{}", found.len())
        };
        assert!(exchange.contains("copy / exchange, 2 MiB, 1 busy"), "{exchange}");
        assert!(times.is_some_and(|found| (found.value - 4.5).abs() < 1e-9));
        assert!(auto.contains("2 MiB"), "{auto}");
        assert!(worst.is_some_and(|found| (found.value - 1.2).abs() < 1e-9), "{auto}");
    }
}
