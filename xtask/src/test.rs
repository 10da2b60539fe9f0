//! All tests, and their sum.

use crate::clauses;
use crate::command::{Step, cargo, target};

/// Sums of cargo's `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    suites: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
    /// They said that they cannot be run here.
    skipped: Vec<String>,
}

impl Sum {
    /// Adds a line, if it is a result: `test result: ok. 12 passed; 0 failed; 1 ignored; 0
    /// measured; …`.
    fn add(&mut self, line: &str) {
        self.skipped.extend(line.strip_prefix("skipped: ").map(str::to_owned));
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.suites += 1;
        let words: Vec<&str> =
            result.split(&[' ', ';', '.'][..]).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let [count, what] = pair else { continue };
            let count = count.parse().unwrap_or(0);
            match *what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Runs tests. To run none is a failure: they have another name by now.
    ///
    /// # Errors
    /// They fail, cannot be started, or are none.
    fn run(&mut self, step: Step) -> Result<(), String> {
        let said = format!("{step:?}");
        step.run_watched(|line| self.add(line))?;
        self.is_something().then_some(()).ok_or_else(|| format!("{said}: no such test"))
    }

    fn is_something(&self) -> bool {
        self.passed + self.failed > 0
    }

    fn show(&self, what: &str) -> String {
        let Sum { suites, passed, failed, ignored, skipped } = self;
        let why: String = skipped.iter().map(|why| format!("\n    {why}")).collect();
        let skipped = skipped.len();
        format!(
            "{what}: {suites} suites, {passed} passed ({skipped} skipped), {failed} failed, {ignored} ignored{why}"
        )
    }
}

/// Runs everything; goes on after a failure, so that all of them are seen.
///
/// # Errors
/// What failed.
pub fn run(seeds: u64) -> Result<(), String> {
    let mut summaries = Vec::new();
    let mut failures = Vec::new();
    let mut tests = |what: &str, step: Step| {
        let mut sum = Sum::default();
        failures.extend(sum.run(step).err());
        summaries.push(sum.show(what));
    };
    // Everything is built once, with the features of the whole workspace, and used by all that
    // follows.
    let workspace = ["test", "--workspace", "--no-fail-fast"];
    tests("workspace", cargo(&workspace).env("OIKAZE_TEST_COMMAND", target().join("debug/oikaze")));
    let loom =
        cargo(&["test", "-p", "oikaze-os", "-p", "oikaze", "--profile", "loom", "--lib", "loom"]);
    tests("loom", loom.env("RUSTFLAGS", "--cfg loom"));
    // The switch for a planted bug is one for the whole process, so Wind's run by themselves.
    tests("planted bugs", ignored("every_bug_is_caught"));
    tests("model", ignored("all_classes_exhaustively"));
    tests("its bugs", ignored("bugs_are_found"));
    failures.extend(clauses::run().err());
    failures.extend(simulate("debug", 0, seeds).err());
    println!();
    for summary in summaries {
        println!("{summary}");
    }
    if failures.is_empty() {
        println!(
            "simulated clusters: {seeds} seeds in any weather, as many under fire: no failure"
        );
        return Ok(());
    }
    Err(format!("failed:\n  {}", failures.join("\n  ")))
}

/// Tests of this name, which `cargo test` leaves out, of what it has built; one after the other.
fn ignored(test: &str) -> Step {
    cargo(&[
        "test",
        "--workspace",
        "--lib",
        "--",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
        test,
    ])
}

/// Runs tests, which must be there.
///
/// # Errors
/// They fail, or there are none.
pub fn some(step: Step) -> Result<(), String> {
    Sum::default().run(step)
}

/// Seeds of connection set-ups: 28 connections each, half of them at loss and half at damage, so
/// more than 1,000 of both.
const SET_UPS: u64 = 72;

/// Simulated clusters, from these seeds: in any weather, under fire, set up on a bad network, with
/// a node killed at any point, and adding 1 to words (20,000 times each: of 10,000 seeds, that is
/// more than 10^7 times). By the simulator that lies in this folder of the target: what the tests
/// have built anyway does for a few seeds; to build it for speed takes longer than they do.
///
/// # Errors
/// A seed failed; its output says how to run it again.
pub fn simulate(built: &str, first: u64, seeds: u64) -> Result<(), String> {
    let (setups, deaths, counts) =
        (SET_UPS.max(seeds / 10), (seeds / 10).max(50), (seeds / 16).max(4));
    for (scenario, seeds) in
        [("all", seeds), ("fire", seeds), ("setups", setups), ("deaths", deaths)]
    {
        simulate_some(built, scenario, first, seeds, &[])?;
    }
    // 20,000 are asked for in each; some are cut off by a death.
    simulate_some(built, "counts", first, counts, &["--additions", &(16_000 * counts).to_string()])
}

/// Simulated clusters of one kind.
///
/// # Errors
/// One has failed, or they have not done what is asked of them.
pub fn simulate_some(
    built: &str,
    scenario: &str,
    first: u64,
    seeds: u64,
    more: &[&str],
) -> Result<(), String> {
    println!("simulated clusters: {scenario}");
    let (seeds, first) = (seeds.to_string(), first.to_string());
    let sim = Step::new(target().join(built).join("sim")).args(["--scenario", scenario]);
    sim.args(["--seeds", &seeds, "--from", &first]).args(more).run()
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn results_are_added_and_other_lines_are_not() {
        let mut sum = Sum::default();
        for line in [
            "running 3 tests",
            "skipped: it needs root",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.50s",
        ] {
            sum.add(line);
        }
        assert_eq!(
            sum,
            Sum {
                suites: 2,
                passed: 15,
                failed: 2,
                ignored: 1,
                skipped: vec!["it needs root".to_owned()]
            }
        );
        let mut none = Sum::default();
        none.add("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s");
        assert!(sum.is_something() && !none.is_something(), "tests by a name that none has");
    }
}
