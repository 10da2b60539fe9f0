//! Goals for remote memory.

use super::{BLOCK, PLACED};
use crate::suite::case::MIB;
use crate::suite::goals::{Bound, Figures, Found, Goal};

/// Returns all goals.
pub fn goals(figures: &Figures<'_>) -> Vec<Goal> {
    [latency(figures), bandwidth(figures), placed(figures)].concat()
}

fn latency(figures: &Figures<'_>) -> Vec<Goal> {
    let small = |case: &str, system: &str| figures.of(case, 8, 9000, system);
    let mut goals: Vec<Goal> = Vec::new();
    for case in ["fetch_add", "compare_swap"] {
        let mine = small(case, "oikaze");
        let round_trip =
            Found::ratio((mine, small("put_lat", "floor-udp"))).map(|found| found.times(0.5));
        goals.push((
            format!("{case} 8 B / two latencies of floor-udp"),
            round_trip,
            Bound::AtMost(1.4),
        ));
        goals.push((
            format!("{case} 8 B / ucx-tcp"),
            Found::ratio((mine, small(case, "ucx-tcp"))),
            Bound::AtMost(0.8),
        ));
    }
    let get = Found::ratio((small("get_lat", "oikaze"), small("message_lat", "oikaze")));
    goals.push(("get_lat 8 B / message_lat".into(), get, Bound::AtMost(2.3)));
    goals
}

fn bandwidth(figures: &Figures<'_>) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for system in ["oikaze", "oikaze-unchecked"] {
        let of = |case: &str, size| figures.of(case, size, 9000, system);
        let get = Found::ratio((of("get_bw", MIB), of("put_bw", MIB)));
        goals.push((format!("get_bw 1 MiB / put_bw, {system}"), get, Bound::AtLeast(0.9)));
        let strided = Found::ratio((of("strided", BLOCK), of("put_bw", BLOCK)));
        goals.push((
            format!("strided 128 × 1 KiB / put_bw 128 KiB, {system}"),
            strided,
            Bound::AtLeast(0.7),
        ));
    }
    goals.push((
        "fifo 8 B, M/s".into(),
        Found::value(figures.of("fifo", 8, 9000, "oikaze")),
        Bound::AtLeast(2.0),
    ));
    goals
}

/// Returns the goals of paper 000: a put that is placed without a copy is not slower, and costs the
/// receiver less.
fn placed(figures: &Figures<'_>) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for system in ["oikaze", "oikaze-unchecked"] {
        let beside = |one, other| {
            Found::ratio((
                figures.of(one, PLACED, 9000, system),
                figures.of(other, PLACED, 9000, system),
            ))
        };
        let by_copy = |what: &str| format!("put 2 MiB in place / by copy, {what}, {system}");
        goals.push((by_copy("end to end"), beside("placed", "placed_copy"), Bound::AtMost(1.0)));
        goals.push((
            by_copy("receiver's processor"),
            beside("placed_cpu", "placed_copy_cpu"),
            Bound::AtMost(1.0),
        ));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn a_round_trip_is_two_latencies() {
        let record = |case, system, value| Record { system, value, ..Record::example(case, 8) };
        let records = [record("fetch_add", "oikaze", 10.0), record("put_lat", "floor-udp", 4.0)];
        let found: Vec<Goal> =
            goals(&Figures(&records)).into_iter().filter(|(_, found, _)| found.is_some()).collect();
        assert!(
            matches!(found.as_slice(), [(_, Some(found), Bound::AtMost(1.4))] if (found.value - 1.25).abs() < 1e-9)
        );
    }
}
