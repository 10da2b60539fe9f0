//! State of the machine beside a measurement: what else it does, and where its cores are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cores::distance;
use crate::date::today;
use crate::lab::CONGESTION_CONTROL;

/// Load of the machine, and distance of the two cores of a measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Surroundings {
    /// Mean number of busy cores while the bench itself rested, in [`LOOK`]. The kernel's own load
    /// would count what the bench has just measured. `None` if the kernel does not say it.
    pub load: Option<f64>,
    /// Time in ns that a cache line takes from one core to the other, and `true` if they share a
    /// cache. `None` if there is one core.
    pub line: Option<(u64, bool)>,
}

impl Surroundings {
    /// Returns the state now, at which the bench must have no process that works. It takes a third
    /// of a second.
    pub fn now() -> Surroundings {
        let stat = || std::fs::read_to_string("/proc/stat").ok();
        let before = stat();
        std::thread::sleep(LOOK);
        let load = before.zip(stat()).and_then(|(before, after)| busy_cores(&before, &after));
        Surroundings { load, line: distance().ok() }
    }
}

/// Returns the mean number of busy cores between two readings of `/proc/stat` (proc_stat(5)),
/// rounded to hundredths.
fn busy_cores(before: &str, after: &str) -> Option<f64> {
    // The first line sums up all cores: user, nice, system, idle, iowait and more.
    let times = |text: &str| -> Option<(f64, f64)> {
        let fields = text.lines().next()?.split_whitespace().skip(1);
        let times: Vec<f64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some((times.get(3)? + times.get(4)?, times.iter().take(8).sum()))
    };
    let is_core = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let cores = after.lines().filter(is_core).count() as f64;
    let ((idle_before, all_before), (idle, all)) = (times(before)?, times(after)?);
    let (idle, all) = (idle - idle_before, all - all_before);
    (all > 0.0).then(|| ((all - idle) / all * cores * 100.0).round() / 100.0)
}

/// Time for which the load of the machine is measured.
const LOOK: Duration = Duration::from_millis(300);
/// Load of the machine from which on other work disturbs a measurement.
pub const BUSY: f64 = 0.5;

/// When, where and how records were measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Conditions {
    /// Day of the end, in UTC.
    pub date: String,
    pub machine: String,
    /// Set if the bench was a quick one.
    pub quick: bool,
    pub before: Surroundings,
    pub after: Surroundings,
}

impl Conditions {
    /// Returns the conditions of a bench that ends now. `before` is the state before it.
    pub fn since(before: Surroundings, quick: bool) -> Conditions {
        Conditions { date: today(), machine: machine(), quick, before, after: Surroundings::now() }
    }
}

/// Describes the machine of the measurement.
pub fn machine() -> String {
    let file = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_else(|_| "unknown".into())
    };
    let cpus = file("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |pair| pair.1);
    let kernel = file("/proc/sys/kernel/osrelease");
    format!(
        "Processor {model}, Linux {kernel}, one core for each host; TCP between hosts uses {CONGESTION_CONTROL}."
    )
}

/// Minimum number of rounds of a median that counts.
const ROUNDS_MIN: usize = 5;

/// Returns a text on the load and the distance of the cores in these states, such as `load 0.1 to
/// 0.4, near cores`.
pub fn states_text(states: &[&Surroundings]) -> String {
    let loads = || states.iter().filter_map(|state| state.load);
    let load = match (loads().reduce(f64::min), loads().reduce(f64::max)) {
        (Some(least), Some(most)) if least < most => format!("load {least} to {most}"),
        (Some(load), _) => format!("load {load}"),
        _ => "load unknown".to_owned(),
    };
    let near = || states.iter().filter_map(|state| state.line).map(|(_, is_near)| is_near);
    let cores = match (near().any(|is_near| is_near), near().any(|is_near| !is_near)) {
        (true, true) => "cores near and far",
        (true, false) => "near cores",
        (false, true) => "far cores",
        (false, false) => "distance of cores unknown",
    };
    format!("{load}, {cores}")
}

/// Returns why medians of so many rounds in these states are worth little, if they are.
pub fn doubts(rounds: usize, states: &[&Surroundings]) -> Option<String> {
    let few = (rounds < ROUNDS_MIN).then(|| format!("fewer than {ROUNDS_MIN} rounds"));
    let load = states.iter().filter_map(|state| state.load).reduce(f64::max);
    let busy = load.filter(|&load| load > BUSY).map(|load| format!("other work, load {load}"));
    let all: Vec<String> = few.into_iter().chain(busy).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said() {
        let near = Surroundings { load: Some(0.25), line: Some((35, true)) };
        let far = Surroundings { load: Some(0.5), line: Some((165, false)) };
        let unknown = Surroundings { load: None, line: None };
        assert_eq!(states_text(&[&near]), "load 0.25, near cores");
        assert_eq!(states_text(&[&near, &far]), "load 0.25 to 0.5, cores near and far");
        assert_eq!(states_text(&[&unknown]), "load unknown, distance of cores unknown");
    }

    #[test]
    fn busy_cores_are_those_that_were_not_idle() {
        let before = "cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 50\ncpu1 50\nintr 1\n";
        let after = "cpu  115 0 105 835 5 0 0 0 60 0\ncpu0 60\ncpu1 55\nintr 2\n";
        assert_eq!(busy_cores(before, after), Some(0.67));
        assert_eq!(busy_cores(before, before), None);
        assert_eq!(busy_cores("", after), None);
    }

    #[test]
    fn few_rounds_and_other_work_are_doubted() {
        let of = |load| Surroundings { load: Some(load), line: None };
        assert_eq!(doubts(5, &[&of(0.1), &of(0.5)]), None);
        let found = doubts(4, &[&of(0.1), &of(0.75)]);
        assert_eq!(found.as_deref(), Some("fewer than 5 rounds, other work, load 0.75"));
    }
}
