//! Goals of the bench.

use super::cases::post::SIZES;
use crate::record::Record;
use crate::suite::case::KIB;
use crate::suite::goals::{Bound, Found, Goal};

/// Returns all goals.
pub fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: &str, size: usize, system: &str| {
        records.iter().find(|record| {
            (record.case, record.size, record.system) == (case, size, system)
                && record.threads.is_none_or(|threads| threads == 0)
        })
    };
    let mut goals: Vec<Goal> = Vec::new();
    for system in ["thread spin", "oikaze thread", "process spin", "oikaze process"] {
        for size in SIZES {
            let post = Found::value(of("post", size, system));
            goals.push((format!("post of {size} B, {system}, µs"), post, Bound::AtMost(0.15)));
        }
        let [small, _, bulk] = SIZES;
        let ratio = Found::ratio((of("post", bulk, system), of("post", small, system)));
        goals.push((format!("post 64 MiB / 8 B, {system}"), ratio, Bound::AtMost(1.2)));
    }
    for system in
        ["oikaze inline", "thread spin", "oikaze thread", "process spin", "oikaze process"]
    {
        let of = |system| of("post_cpu", 8 * KIB, system);
        let ratio = Found::ratio((of(system), of("udp"))).map(|found| found.times(100.0));
        let what = format!("caller's processor time, put of 8 KiB / UDP send, {system}, %");
        goals.push((what, ratio, Bound::AtMost(3.4)));
    }
    let adaptive = (of("detect", 8, "adaptive"), of("detect", 8, "spin"));
    goals.push((
        "latency 8 B, adaptive / spin, inline".into(),
        Found::ratio(adaptive),
        Bound::AtMost(1.2),
    ));
    for (mode, bound) in [("thread", 0.5), ("process", 1.0)] {
        let adaptive = of("detect", 8, &format!("{mode} adaptive"));
        let more = Found::difference((adaptive, of("detect", 8, "adaptive")));
        goals.push((
            format!("latency 8 B, {mode} − inline, µs (one core a side)"),
            more,
            Bound::AtMost(bound),
        ));
    }
    for mode in ["inline", "thread", "process"] {
        for wait in ["block", "adaptive"] {
            let system = format!("{mode} {wait}");
            for (case, what) in [("await_future", "future"), ("await_descriptor", "descriptor")] {
                let more = Found::difference((of(case, 8, &system), of("await_block", 8, &system)));
                goals.push((
                    format!("{what} − blocking wait, {system}, µs"),
                    more,
                    Bound::AtMost(10.0),
                ));
            }
        }
        for wait in ["block", "adaptive"] {
            let share = Found::value(of("idle", 0, &format!("{mode} {wait}")));
            goals.push((
                format!("idle job, {mode} {wait}, % of a core"),
                share,
                Bound::AtMost(1.0),
            ));
        }
        let wakes = Found::value(of("wake", 64, &format!("{mode} block")));
        goals.push((format!("sleeps for 64 messages, {mode} block"), wakes, Bound::AtMost(1.0)));
    }
    let p99 = |system| of("kills_p99", 8, system);
    goals.push((
        "p99 of nodes, other clients of their server killed / ending".into(),
        Found::ratio((p99("clients are killed"), p99("clients end"))),
        Bound::AtMost(1.0),
    ));
    let crowd = |system| of("crowd", super::cases::crowd::NODES, system);
    for system in ["oikaze", "oikaze private"] {
        goals.push((
            format!(
                "fetch-add, {} nodes on this machine, {system} / mpi",
                super::cases::crowd::NODES
            ),
            Found::ratio((crowd(system), crowd("mpi"))),
            Bound::AtMost(2.0),
        ));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_the_same_size() {
        let record =
            |case, size, system, value| Record { system, value, ..Record::example(case, size) };
        let records = [
            record("post", 8, "oikaze thread", 0.1),
            record("post", 64 << 20, "oikaze thread", 0.11),
            record("post_cpu", 8192, "udp", 4.0),
            record("post_cpu", 8192, "oikaze thread", 0.1),
        ];
        let found: Vec<Goal> =
            goals(&records).into_iter().filter(|goal| goal.1.is_some()).collect();
        let value = |at: usize| found[at].1.expect("a value").value;
        assert_eq!(found.len(), 4);
        assert!((value(2) - 1.1).abs() < 1e-9 && (value(3) - 2.5).abs() < 1e-9);
    }
}
