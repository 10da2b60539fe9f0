//! Runs all tests and adds up their results.

use crate::command::{Step, cargo, target};
use crate::{clauses, python};

/// Sums of cargo's `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    suites: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
    /// Reasons of tests that cannot run on this machine.
    skipped: Vec<String>,
}

impl Sum {
    /// Adds a line if it is a result: `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured;
    /// …`.
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

    /// Runs tests. Returns an error if the step runs no test, because the tests have been renamed.
    ///
    /// # Errors
    /// The tests fail, cannot be started, or do not exist.
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

/// Runs all tests. Goes on after a failure, so that all failures are reported.
///
/// # Errors
/// A test failed.
pub fn run(seeds: u64) -> Result<(), String> {
    let mut summaries = Vec::new();
    let mut failures = Vec::new();
    let mut tests = |what: &str, step: Step| {
        let mut sum = Sum::default();
        failures.extend(sum.run(step).err());
        summaries.push(sum.show(what));
    };
    // Everything is built once, with the features of the whole workspace, and used by all later
    // steps.
    let workspace = ["test", "--workspace", "--no-fail-fast"];
    tests("workspace", cargo(&workspace).env("OIKAZE_TEST_COMMAND", target().join("debug/oikaze")));
    let loom =
        cargo(&["test", "-p", "oikaze-os", "-p", "oikaze", "--profile", "loom", "--lib", "loom"]);
    tests("loom", loom.env("RUSTFLAGS", "--cfg loom"));
    // The switch for a planted bug applies to the whole process, so Wind's tests of such bugs run
    // alone.
    tests("planted bugs", ignored("every_bug_is_caught"));
    tests("model", ignored("all_classes_exhaustively"));
    tests("its bugs", ignored("bugs_are_found"));
    println!("tests of the Python package");
    failures.extend(python::run(false, &[]).err().map(|why| format!("Python: {why}")));
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

/// Returns a step for the ignored tests of this name, from the build that `cargo test` made. They
/// run one after the other.
fn ignored(test: &str) -> Step {
    cargo(&[
        "test",
        "--workspace",
        // Only an interpreter of Python can load this library.
        "--exclude",
        "oikaze-python",
        "--lib",
        "--",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
        test,
    ])
}

/// Runs tests, at least one of which must exist.
///
/// # Errors
/// The tests fail, or do not exist.
pub fn some(step: Step) -> Result<(), String> {
    Sum::default().run(step)
}

/// Seeds of connection set-ups. Each seed makes 28 connections, half of them with loss and half
/// with damage. This gives more than 1,000 of both.
const SET_UPS: u64 = 72;

/// Simulates clusters from these seeds: in any weather, under fire, set up on a bad network, with a
/// node killed at any point, and adding 1 to words.
///
/// Words are added to 20,000 times per seed, so 10,000 seeds give more than 10^7 additions. `built`
/// names the folder of the target that holds the simulator. The debug build, which the tests have
/// made anyway, does for a few seeds, because an optimised build takes longer than they do.
///
/// # Errors
/// A seed failed. Its output says how to run it again.
pub fn simulate(built: &str, first: u64, seeds: u64) -> Result<(), String> {
    let (setups, deaths, counts) =
        (SET_UPS.max(seeds / 10), (seeds / 10).max(50), (seeds / 16).max(4));
    for (scenario, seeds) in
        [("all", seeds), ("fire", seeds), ("setups", setups), ("deaths", deaths)]
    {
        simulate_some(built, scenario, first, seeds, &[])?;
    }
    // Each seed asks for 20,000 additions. A death cuts off some of them.
    simulate_some(built, "counts", first, counts, &["--additions", &(16_000 * counts).to_string()])
}

/// Simulates clusters of one kind.
///
/// # Errors
/// A cluster failed, or the clusters did less than was asked of them.
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
