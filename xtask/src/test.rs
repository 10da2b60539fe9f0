//! Runs all tests and adds up their results.

use crate::api;
use crate::checks::clauses;
use crate::command::{Step, cargo, target};
use crate::python;
use std::path::{Path, PathBuf};
use std::time::Instant;

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

    fn show(&self) -> String {
        let Sum { suites, passed, failed, ignored, skipped } = self;
        let why: String = skipped.iter().map(|why| format!("\n         {why}")).collect();
        let skipped = skipped.len();
        format!(
            ": {suites} suites, {passed} passed ({skipped} skipped), {failed} failed, {ignored} ignored{why}"
        )
    }
}

/// Results of the steps so far.
#[derive(Default)]
pub struct Report {
    /// Lines that say what each step did and how long it took.
    lines: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    /// Runs tests, and notes their sum.
    fn tests(&mut self, what: &str, step: Step) {
        let mut sum = Sum::default();
        self.timed(what, || {
            let result = sum.run(step);
            (sum.show(), result)
        });
    }

    /// Runs a step, and notes how long it took.
    pub fn step(&mut self, what: &str, run: impl FnOnce() -> Result<(), String>) {
        self.timed(what, || (String::new(), run()));
    }

    /// Runs a step that says what it did, and notes that.
    pub fn saying(&mut self, what: &str, run: impl FnOnce() -> Result<String, String>) {
        self.timed(what, || match run() {
            Ok(said) => (said, Ok(())),
            Err(why) => (String::new(), Err(why)),
        });
    }

    fn timed(&mut self, what: &str, run: impl FnOnce() -> (String, Result<(), String>)) {
        println!("step: {what}");
        let begin = Instant::now();
        let (shown, result) = run();
        let seconds = begin.elapsed().as_secs();
        self.lines.push(format!("{seconds:5} s  {what}{shown}"));
        self.failures.extend(result.err().map(|why| format!("{what}: {why}")));
    }

    /// Prints a line for each step.
    ///
    /// # Errors
    /// A step has failed.
    pub fn end(self) -> Result<(), String> {
        println!();
        for line in self.lines {
            println!("{line}");
        }
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(format!("failed:\n  {}", self.failures.join("\n  ")))
    }
}

/// Runs all tests. Goes on after a failure, so that all failures are reported.
///
/// # Errors
/// A test failed.
pub fn run(seeds: u64) -> Result<(), String> {
    let mut report = Report::default();
    add(&mut report, seeds);
    report.end()
}

/// Runs all tests, and adds their results to the report.
pub fn add(report: &mut Report, seeds: u64) {
    // Everything is built once, with the features of the whole workspace, and used by all later
    // steps.
    report.step("build", || cargo(&["test", "--workspace", "--no-run"]).run());
    // Many tests of the workspace wait for nodes to end. The models compute meanwhile.
    let models = std::env::current_exe().map_err(|why| why.to_string()).and_then(|me| {
        let models = Step::new(me).args(["models", "--seeds", &seeds.to_string()]);
        models.start_beside(&target().join("models.txt"))
    });
    let workspace = cargo(&["test", "--workspace", "--no-fail-fast"]);
    report.tests("workspace", workspace.env("OIKAZE_TEST_COMMAND", target().join("debug/oikaze")));
    report.step("Python", || python::run(false, &[]));
    report.step("clauses", clauses::run);
    report.step("faces", || api::run(true));
    report.step("rest of the models", || models?.finish());
}

/// Runs the tests that only compute: loom, the models of coherence and of Wind, simulated clusters.
/// `cargo xtask test` runs them beside all others.
///
/// # Errors
/// A test failed.
pub fn models(seeds: u64) -> Result<(), String> {
    let protocol = protocol_tests()?;
    let mut report = Report::default();
    let loom = cargo(&[
        "test",
        "-p",
        "oikaze-os",
        "-p",
        "oikaze-runtime",
        "--profile",
        "loom",
        "--lib",
        "loom",
    ]);
    report.tests("loom", loom.env("RUSTFLAGS", "--cfg loom"));
    // The switch for a planted bug applies to the whole process, so Wind's tests of such bugs run
    // alone.
    report.tests("planted bugs", ignored(&protocol, "every_bug_is_caught"));
    report.tests("model", ignored(&protocol, "all_classes_exhaustively"));
    report.tests("its bugs", ignored(&protocol, "bugs_are_found"));
    report.step(&format!("simulated clusters, {seeds} seeds"), || simulate("debug", 0, seeds));
    report.end()
}

/// Returns a step for the ignored tests of this name in `program`. They run one after the other.
fn ignored(program: &Path, test: &str) -> Step {
    Step::new(program).args(["--ignored", "--nocapture", "--test-threads=1", test])
}

/// Returns the program with the unit tests of the protocol, which `cargo test` has built.
///
/// A selection of packages or targets would have other features, and would be built anew.
fn protocol_tests() -> Result<PathBuf, String> {
    let build = ["test", "--quiet", "--workspace", "--no-run", "--message-format=json"];
    let messages = cargo(&build).output()?;
    let program = messages
        .lines()
        .filter(|line| {
            [r#""kind":["lib"]"#, r#""name":"oikaze_protocol""#, r#""test":true},"features""#]
                .iter()
                .all(|part| line.contains(part))
        })
        .find_map(|line| line.split_once(r#""executable":""#)?.1.split('"').next());
    program.map(PathBuf::from).ok_or_else(|| "cargo names no tests of oikaze-protocol".to_owned())
}

/// Runs tests, at least one of which must exist. Returns their sum, with the reasons of those that
/// were skipped.
///
/// # Errors
/// The tests fail, or do not exist.
pub fn some(step: Step) -> Result<String, String> {
    let mut sum = Sum::default();
    sum.run(step)?;
    Ok(sum.show())
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
